//go:build !linux || !cgo || !(amd64 || arm64)

package seccomp

import (
	"errors"
	"fmt"
)

// Build needs Linux, cgo and libseccomp; here it answers [errors.ErrUnsupported].
func Build(Spec) (Program, error) {
	return nil, fmt.Errorf("build filter: libseccomp: %w", errors.ErrUnsupported)
}

// BuildNetd needs Linux, cgo and libseccomp; here it answers [errors.ErrUnsupported].
func BuildNetd() (Program, error) {
	return nil, fmt.Errorf("build filter: libseccomp: %w", errors.ErrUnsupported)
}

// PFC needs Linux, cgo and libseccomp; here it answers [errors.ErrUnsupported].
func PFC(Spec) (string, error) {
	return "", fmt.Errorf("build filter: libseccomp: %w", errors.ErrUnsupported)
}

// Version is empty: there is no libseccomp in this build.
func Version() string { return "" }
