package seccomp

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Memfd returns a sealed memory file that holds the program, offset at its
// start: nobody can write, grow or shrink it. The caller closes it.
func Memfd(p Program) (*os.File, error) {
	f, err := memfd("seccomp-filter")
	if err != nil {
		return nil, err
	}
	if err := fillMemfd(f, p); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func fillMemfd(f *os.File, p Program) error {
	if _, err := f.Write(p); err != nil {
		return fmt.Errorf("write filter: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("rewind filter: %w", err)
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal filter: %w", err)
	}
	return nil
}

func memfd(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("make memory file %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
