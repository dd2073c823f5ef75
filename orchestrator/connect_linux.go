package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
)

// Connect reaches the helper. When nobody listens it starts an embedded one if
// that is permitted and we are root, and otherwise says what can be done.
func Connect(ctx context.Context, c Connection) (Gate, error) {
	socket := orDefault(c.Socket, DefaultSocket)
	g, err := rpc.Dial(socket, c.Build)
	switch {
	case err == nil:
		return g, nil
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		return nil, &Error{Err: err, Hint: "ask the administrator for access to " + socket}
	case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED):
		return nil, err
	}
	if c.Embedded && os.Geteuid() == 0 {
		return embed(ctx, c)
	}
	return nil, &Error{
		Err:  fmt.Errorf("no helper listens on %s", socket),
		Hint: "start one with `systemctl enable --now agentos-helper.socket` (or `sudo agentos-helper --foreground`), or run this command with sudo",
	}
}

// embedded is a conversation with a helper that lives for it alone.
type embedded struct {
	*rpc.Client
	wait func()
}

// Close ends the helper by ending the conversation, and waits for it: when it
// has gone, the jails have.
func (e *embedded) Close() error {
	err := e.Client.Close()
	e.wait()
	return err
}

func embed(ctx context.Context, c Connection) (Gate, error) {
	own, err := os.Executable()
	if err != nil {
		own = ""
	}
	places := helperPlaces(own, c.Libexec)
	var path string
	for _, p := range places {
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			path = p
			break
		}
	}
	if path == "" {
		return nil, &Error{
			Err:  errors.New("agentos-helper is not installed"),
			Hint: "install it with `make install`, or name its directory in AGENTOS_LIBEXEC; looked for " + strings.Join(places, ", "),
		}
	}
	conn, other, err := packet.Pair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = other.Close() }()
	cmd := exec.Command(path, "--embedded")
	cmd.ExtraFiles = []*os.File{other} // fd 3
	cmd.Stderr = nil
	if c.Stderr != nil {
		cmd.Stderr = c.Stderr
	}
	cmd.Dir = "/"
	// Its own session: Ctrl-C and hang-ups of the terminal are not for it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("start helper: %w", err)
	}
	_ = other.Close()
	g, err := rpc.NewClient(conn, c.Build)
	if err == nil {
		if err = g.Greet(ctx); err != nil {
			_ = g.Close()
		}
	}
	if err != nil {
		if end := cmd.Wait(); end != nil {
			err = fmt.Errorf("it ended early (%w): %w", end, err)
		}
		return nil, fmt.Errorf("start helper: %w", err)
	}
	return &embedded{g, func() { _ = cmd.Wait() }}, nil
}
