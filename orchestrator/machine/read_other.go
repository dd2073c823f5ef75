//go:build !linux

package machine

import (
	"errors"
	"fmt"
)

// Read answers [errors.ErrUnsupported].
func Read() (Input, error) { return Input{}, fmt.Errorf("probe machine: %w", errors.ErrUnsupported) }
