package helper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/cgroup"
	"github.com/agentos/agentos/jail/layer"
)

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
