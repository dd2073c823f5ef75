//go:build !linux

package seccomp

import (
	"errors"
	"fmt"
	"os"
)

// Memfd needs Linux; here it answers [errors.ErrUnsupported].
func Memfd(Program) (*os.File, error) {
	return nil, fmt.Errorf("make memory file: %w", errors.ErrUnsupported)
}
