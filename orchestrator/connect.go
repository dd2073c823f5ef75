package orchestrator

import (
	"context"
	"os"
	"path/filepath"

	"github.com/agentos/agentos/jail/rpc"
)

// DefaultSocket is where the helper listens.
const DefaultSocket = "/run/agentos/helper.sock"

// Gate is a conversation with the helper; [rpc.Client] is the real one.
type Gate interface {
	// CallFDs sends one request with fds, which stay the caller's, decodes the
	// answer into out and returns the descriptors that came with it.
	CallFDs(ctx context.Context, v rpc.Verb, body, out any, fds ...int) ([]*os.File, error)
	// Ask sends one request and leaves the answer for later.
	Ask(v rpc.Verb, body any, fds ...int) (*rpc.Asked, error)
	// Done is closed when the helper has gone.
	Done() <-chan struct{}
	// Close ends the conversation and the jails that were started in it.
	Close() error
}

// Connection says how to reach the helper.
type Connection struct {
	Socket string // "" = [DefaultSocket]
	// Embedded permits to start a helper for this conversation alone when
	// nobody listens and we are root.
	Embedded bool
	// Libexec is a directory to look for the helper's program in, before the
	// usual ones; "" = none.
	Libexec string
	Build   string   // our version, told to the helper
	Stderr  *os.File // of an embedded helper; nil = none
}

// helperPlaces lists where the program of an embedded helper may be, best first.
// own is the path of our own executable.
func helperPlaces(own, libexec string) []string {
	var out []string
	if own != "" {
		dir := filepath.Dir(own)
		out = append(out, filepath.Join(dir, "agentos-helper"), filepath.Join(dir, "..", "libexec", "agentos", "agentos-helper"))
	}
	if libexec != "" {
		out = append(out, filepath.Join(libexec, "agentos-helper"))
	}
	return append(out, "/usr/local/libexec/agentos/agentos-helper", "/usr/libexec/agentos/agentos-helper")
}

func call(ctx context.Context, g Gate, v rpc.Verb, body, out any, fds ...int) error {
	got, err := g.CallFDs(ctx, v, body, out, fds...)
	closeFiles(got)
	return err
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
