package helper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/cgroup"
	"github.com/agentos/agentos/jail/layer"
	"github.com/agentos/agentos/jail/packet"
)

// Listen makes the helper's socket at path with its final mode from its first
// moment: it is bound under another name and renamed, never changed where
// somebody could already connect.
func Listen(path string) (*os.File, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".helper-")
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	defer os.RemoveAll(dir)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), path)
	tmp := filepath.Join(dir, "s")
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: tmp})
	if err == nil {
		err = os.Chmod(tmp, 0o666) // any user may ask; who they are is SO_PEERCRED
	}
	if err == nil {
		err = unix.Listen(fd, 128)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("make socket %s: %w", path, err)
	}
	return f, nil
}

// Activated returns the socket that systemd passed (sd_listen_fds(3)), or nil
// if it passed none. What was passed must be a listening SOCK_SEQPACKET.
func Activated() (*os.File, error) {
	if pid, err := strconv.Atoi(os.Getenv("LISTEN_PID")); err != nil || pid != os.Getpid() {
		return nil, nil
	}
	n := os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} { // not for our children
		_ = os.Unsetenv(name)
	}
	if n != "1" {
		return nil, fmt.Errorf("systemd passed %q sockets, want one: its unit names others", n)
	}
	const first = 3
	for _, opt := range []struct{ name, want int }{{unix.SO_DOMAIN, unix.AF_UNIX}, {unix.SO_TYPE, unix.SOCK_SEQPACKET}, {unix.SO_ACCEPTCONN, 1}} {
		if got, err := unix.GetsockoptInt(first, unix.SOL_SOCKET, opt.name); err != nil || got != opt.want {
			return nil, errors.New("descriptor 3 is no listening SOCK_SEQPACKET socket: want ListenSequentialPacket= in the unit")
		}
	}
	unix.CloseOnExec(first)
	if err := unix.SetNonblock(first, true); err != nil {
		return nil, fmt.Errorf("take socket of systemd: %w", err)
	}
	return os.NewFile(first, "systemd"), nil
}

// Accept serves everyone who connects to l until ctx ends, then waits for the
// conversations.
func (s *Server) Accept(ctx context.Context, l *os.File) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		fd := -1
		var aerr error
		if err := raw.Read(func(lfd uintptr) bool {
			fd, _, aerr = unix.Accept4(int(lfd), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return !errors.Is(aerr, unix.EAGAIN)
		}); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept: %w", err)
		}
		if aerr != nil {
			if errors.Is(aerr, unix.ECONNABORTED) || errors.Is(aerr, unix.EINTR) {
				continue
			}
			if errors.Is(aerr, unix.EMFILE) || errors.Is(aerr, unix.ENFILE) {
				s.log.Warn("accept", "error", aerr)
				time.Sleep(50 * time.Millisecond)
				continue
			}
			return fmt.Errorf("accept: %w", aerr)
		}
		conn, err := packet.New(fd)
		if err != nil {
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := s.Serve(ctx, conn); err != nil {
				s.log.Info("conversation", "error", err)
			}
		}()
	}
}

// Idle reports whether nobody talks to the helper and no session lives.
func (s *Server) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns) == 0 && len(s.sessions) == 0
}

// sweep removes what a helper that was killed left behind. Two helpers on one
// machine would undo each other's jails, so it takes the machine's lock first;
// the lock goes with the process.
func (s *Server) sweep() error {
	if err := s.lock(); err != nil {
		return err
	}
	names, err := cgroup.List(s.layout)
	if err != nil {
		return err
	}
	var failed []error
	for _, n := range names {
		g, err := cgroup.Open(s.layout, n)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		failed = append(failed, g.Kill(), g.Delete(deleteTimeout))
	}
	layers, err := os.ReadDir(s.layersDir())
	if err != nil {
		return err
	}
	for _, l := range layers {
		failed = append(failed, layer.Remove(filepath.Join(s.layersDir(), l.Name())))
	}
	failed = append(failed, s.closeLogs())
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("remove what an earlier helper left: %w", err)
	}
	return nil
}

// closeLogs resumes the logs that were cut off, which records the gap, and
// closes them.
func (s *Server) closeLogs() error {
	past, err := s.past(peer{uid: 0})
	if err != nil {
		return err
	}
	var failed []error
	for _, a := range past {
		if !a.Ended.IsZero() {
			continue
		}
		dir := filepath.Join(s.auditDir(), a.ID)
		log, err := segment.OpenDir(s.audit, a.ID)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		w, err := segment.Resume(log, s.key, segment.Options{})
		_ = log.Close()
		if err != nil && !errors.Is(err, segment.ErrClosed) {
			s.log.Error("resume log", "session", a.ID, "error", err)
			continue // verify will say what is wrong with it
		}
		if w != nil {
			failed = append(failed, w.Close())
		}
		a.Ended = time.Now().UTC()
		r := &recorder{dir: dir, about: a}
		failed = append(failed, r.save())
	}
	return errors.Join(failed...)
}

// parent is the group above all jails on the unified hierarchy.
func (s *Server) parent() string { return filepath.Join(s.layout.Unified, s.opt.Group) }

// lock takes the machine: one helper to one cgroup tree and one state directory.
// flock(2) on the two goes with the process and leaves no file behind.
func (s *Server) lock() error {
	parent, _, err := cgroup.Top(s.layout)
	if err != nil {
		return err
	}
	if err := s.lockFile(parent); err != nil {
		return err
	}
	state, err := os.Open(s.opt.State)
	if err != nil {
		return err
	}
	return s.lockFile(state)
}

// lockFile locks f for the life of the server, which owns it from here on.
func (s *Server) lockFile(f *os.File) error {
	var err error
	deadline := time.Now().Add(s.opt.Wait)
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return errors.New("another agentos-helper is running on this machine (one can run beside it with --group)")
		}
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	s.locked = append(s.locked, f)
	return nil
}
