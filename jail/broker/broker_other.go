//go:build !linux

package broker

import (
	"context"
	"errors"
)

// Broker answers the calls of one jail; on Linux only.
type Broker struct{}

// New answers [errors.ErrUnsupported] on this system.
func New(Config) (*Broker, error) { return nil, errors.ErrUnsupported }

// Serve answers [errors.ErrUnsupported] on this system.
func (*Broker) Serve(context.Context) error { return errors.ErrUnsupported }
