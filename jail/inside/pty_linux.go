package inside

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// openPTY opens a terminal in the jail's own devpts. devpts gives the slave to
// the opener's file system uid, so the opening thread takes the agent's and is
// thrown away after.
func (s *state) openPTY(rows, cols uint16) (master, slave *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its changed ids
		master, slave, err = openPTYAs(s.spec.UID, s.spec.GID)
	}()
	<-done
	if err != nil {
		return nil, nil, fmt.Errorf("open terminal: %w", err)
	}
	if rows == 0 || cols == 0 {
		rows, cols = 24, 80
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		_ = master.Close()
		_ = slave.Close()
		return nil, nil, fmt.Errorf("set terminal size: %w", err)
	}
	return master, slave, nil
}

func openPTYAs(uid, gid int) (master, slave *os.File, err error) {
	_, _, _ = syscall.RawSyscall(unix.SYS_SETFSGID, uintptr(gid), 0, 0)
	_, _, _ = syscall.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0)
	m, err := unix.Open("/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("ptmx: %w", err)
	}
	if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
		_ = unix.Close(m)
		return nil, nil, fmt.Errorf("unlock: %w", err)
	}
	if slave, err = peer(m); err != nil {
		_ = unix.Close(m)
		return nil, nil, err
	}
	return os.NewFile(uintptr(m), "ptmx"), slave, nil
}

// control makes the terminal that of init's own session and reports whether it
// is; a session has one at a time.
//
// A process that leads its session is in an orphaned process group: its parent is
// outside the session, nobody there could continue it, and so the kernel drops the
// SIGTSTP of Ctrl-Z (setpgid(2), kernel/exit.c will_become_orphaned_pgrp). As a
// plain process group in the session of init, its parent, it stops like any job of
// a shell. Init is on the terminal in name only: it never reads or writes the
// slave, and drops every signal the keyboard can send.
func control(slave *os.File) bool {
	return unix.IoctlSetInt(int(slave.Fd()), unix.TIOCSCTTY, 0) == nil
}

// release gives up the terminal of init's session. The foreground process group
// is hung up, as it is when a session's leader ends.
func release(slave *os.File) {
	_ = unix.IoctlSetInt(int(slave.Fd()), unix.TIOCNOTTY, 0)
}

// hangUp ends the process' terminal, if it has one: what it left in the
// foreground gets SIGHUP.
func (q *process) hangUp() {
	if q.master == nil {
		return
	}
	if q.shared {
		if slave, err := peer(int(q.master.Fd())); err == nil {
			release(slave)
			_ = slave.Close()
		}
	}
	_ = q.master.Close()
}

// peer opens the slave of exactly this master, by descriptor, not by name
// (ioctl_tty(2)).
func peer(master int) (*os.File, error) {
	p, _, e := syscall.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		return nil, fmt.Errorf("open peer: %w", e)
	}
	return os.NewFile(p, "pts"), nil
}

// readAll reads a memfd. Other jails may be reading the same one, and share its
// offset.
func readAll(f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, st.Size())
	_, err = f.ReadAt(data, 0)
	return data, err
}
