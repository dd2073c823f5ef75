package inside

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/seccomp/install"
)

// kept are the capabilities init serves with, each with its reason in doc.go.
// CAP_SETPCAP lets the launch thread empty its bounding set.
const kept = 1<<unix.CAP_KILL | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_SETPCAP

// dropCaps leaves all threads with the kept capabilities only. They are init's
// in the jail's user namespace; over anything of the host they are nothing.
func (s *state) dropCaps() error {
	if e := capset(kept, true); e != 0 {
		return fmt.Errorf("drop capabilities: %w", e)
	}
	return nil
}

// startRun starts the launch thread and takes from it for ever what needs no
// knowledge of the agent: the way back to any right.
func (s *state) startRun() error {
	l := &launcher{requests: make(chan func()), listener: -1}
	go l.loop() // lives as long as the process
	s.launch = l
	return l.try(func() error {
		for c := 0; c <= unix.CAP_LAST_CAP; c++ {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("drop bounding capability %d: %w", c, err)
			}
		}
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
			return fmt.Errorf("clear ambient capabilities: %w", err)
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
		return nil
	})
}

// takePosture puts the launch thread into the agent's posture.
func (s *state) takePosture() error {
	filter, err := readAll(s.parts[jail.PartFilter])
	if err != nil {
		return fmt.Errorf("read filter: %w", err)
	}
	return s.launch.try(func() error { return s.launch.become(s, filter) })
}

// launcher is the thread in the agent's posture; everything in the jail is
// forked from it.
type launcher struct {
	requests chan func()
	listener int // of the seccomp notifications, -1 without broker
}

// loop owns the thread: it never unlocks it, so that no other goroutine runs in
// the posture and the posture ends with the process.
func (l *launcher) loop() {
	runtime.LockOSThread()
	for f := range l.requests {
		f()
	}
}

// try is do for what can fail.
func (l *launcher) try(f func() error) (err error) {
	l.do(func() { err = f() })
	return err
}

// do runs f on the launch thread and waits for it.
func (l *launcher) do(f func()) {
	done := make(chan struct{})
	l.requests <- func() { f(); close(done) }
	<-done
}

// become takes the posture that startRun began, in an order that never needs a
// right it has given up. Raw system calls: the package syscall would change all threads.
func (l *launcher) become(s *state, filter []byte) error {
	uid, gid, broker := s.spec.UID, s.spec.GID, s.spec.Broker
	if s.ruleset >= 0 {
		if err := ll.LandlockRestrictSelf(s.ruleset, 0); err != nil {
			return fmt.Errorf("restrict with landlock: %w", err)
		}
	}
	for _, c := range []struct {
		what    string
		nr      uintptr
		a, b, c uintptr
	}{
		{"clear groups", unix.SYS_SETGROUPS, 0, 0, 0},
		{"set gid", unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
		{"set uid", unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
	} {
		if _, _, e := syscall.RawSyscall(c.nr, c.a, c.b, c.c); e != 0 {
			return fmt.Errorf("%s: %w", c.what, e)
		}
	}
	if e := capset(0, false); e != 0 {
		return fmt.Errorf("empty capabilities: %w", e)
	}
	fd, err := install.Load(filter, broker)
	if err != nil {
		return fmt.Errorf("load filter: %w", err)
	}
	if broker {
		l.listener = fd
	}
	return nil
}
