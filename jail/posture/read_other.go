//go:build !linux

package posture

import (
	"errors"
	"fmt"
)

// Read needs Linux; here it answers [errors.ErrUnsupported].
func Read(pid int) (Posture, error) {
	return Posture{}, fmt.Errorf("read posture of %d: %w", pid, errors.ErrUnsupported)
}

// Host needs Linux; here it answers [errors.ErrUnsupported].
func Host() (Namespaces, error) {
	return nil, fmt.Errorf("read namespaces: %w", errors.ErrUnsupported)
}
