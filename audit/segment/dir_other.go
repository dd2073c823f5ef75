//go:build !unix

package segment

import (
	"errors"
	"fmt"
	"os"
)

// ErrBusy is returned, wrapped, when another writer has the log open.
var ErrBusy = errors.New("another writer has the audit log")

// Create needs a Unix system.
func Create(*os.File, Key, Header, Options) (*Writer, error) {
	return nil, fmt.Errorf("create audit log: %w", errors.ErrUnsupported)
}

// Resume needs a Unix system.
func Resume(*os.File, Key, Options) (*Writer, error) {
	return nil, fmt.Errorf("resume audit log: %w", errors.ErrUnsupported)
}
