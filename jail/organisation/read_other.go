//go:build !linux

package organisation

import (
	"errors"
	"fmt"
)

// read needs openat(2) as Linux has it.
func (s *Store) read() (*raw, error) {
	return nil, fmt.Errorf("read %s: %w", s.dir, errors.ErrUnsupported)
}
