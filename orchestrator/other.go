//go:build !linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/agentos/agentos/jail/rpc"
)

// Connect answers [errors.ErrUnsupported]: jails need Linux.
func Connect(context.Context, Connection) (Gate, error) {
	return nil, fmt.Errorf("start jails on this system: %w", errors.ErrUnsupported)
}

// Launch answers [errors.ErrUnsupported]: jails need Linux.
func Launch(context.Context, Gate, *Plan, *rpc.Terminal) (*Proc, error) {
	return nil, fmt.Errorf("start jails on this system: %w", errors.ErrUnsupported)
}

func openWorkspace(string) (*os.File, string, error) {
	return nil, "", fmt.Errorf("open workspace for a jail on this system: %w", errors.ErrUnsupported)
}

func owned(*os.File, string) error { return errors.ErrUnsupported }

func memfd(string, []byte) (*os.File, error) {
	return nil, fmt.Errorf("make memory file on this system: %w", errors.ErrUnsupported)
}

func stopJob() (restore func(), err error) { return nil, errors.ErrUnsupported }
