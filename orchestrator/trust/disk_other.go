//go:build !linux

package trust

import "errors"

func openBeneath(string) (opener, error) { return nil, errors.ErrUnsupported }
