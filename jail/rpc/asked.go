package rpc

import (
	"context"
	"os"
)

// Asked is a request that was sent and whose answer nobody has taken yet.
type Asked struct {
	answer func(ctx context.Context, out any) ([]*os.File, error)
	forget func()
}

// Answer waits for the answer, decodes it into out (nil: ignored) and returns
// its descriptors. Errors of the helper are of type [*Error]; where it could not
// be greeted, that is the error.
func (a *Asked) Answer(ctx context.Context, out any) ([]*os.File, error) { return a.answer(ctx, out) }

// Forget lets the answer go, with what may come in it.
func (a *Asked) Forget() { a.forget() }
