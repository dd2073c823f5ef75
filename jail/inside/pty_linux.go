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
	// By descriptor, not by name: the peer of exactly this master (ioctl_tty(2)).
	p, _, e := syscall.Syscall(unix.SYS_IOCTL, uintptr(m), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		_ = unix.Close(m)
		return nil, nil, fmt.Errorf("open peer: %w", e)
	}
	return os.NewFile(uintptr(m), "ptmx"), os.NewFile(p, "pts"), nil
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
