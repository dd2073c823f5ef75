//go:build !linux

package install

import (
	"errors"
	"fmt"
)

// Load needs Linux; here it answers [errors.ErrUnsupported].
func Load([]byte, bool) (int, error) {
	return -1, fmt.Errorf("load filter: %w", errors.ErrUnsupported)
}

// LoadAll needs Linux; here it answers [errors.ErrUnsupported].
func LoadAll([]byte) error { return fmt.Errorf("load filter: %w", errors.ErrUnsupported) }
