//go:build !linux

package cgroup

import (
	"errors"
	"fmt"
)

// Detect needs Linux; here it answers [errors.ErrUnsupported].
func Detect() (Layout, error) {
	return Layout{}, fmt.Errorf("detect cgroups: %w", errors.ErrUnsupported)
}
