package trust

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

var _ mover = beneath{}

// parent opens the directory of name.
func (b beneath) parent(name string) (int, string, error) {
	dir, last := path.Split(name)
	fd, err := unix.Openat2(b.fd, path.Clean("./"+dir), &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: noLinks})
	return fd, last, err
}

// take renames; a file or link of another file system is copied, then removed.
func (b beneath) take(name, to string) error {
	dir, last, err := b.parent(name)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	err = unix.Renameat2(dir, last, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	fd, st, err := b.path(name)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := copyOut(fd, st.Mode, to); err != nil {
		return err
	}
	return removeThe(dir, last, st)
}

// maxCopy bounds a file that is copied from one file system to another.
const maxCopy = 1 << 30

// copyOut copies the file or link that fd stands for.
func copyOut(fd int, mode uint32, to string) error {
	switch mode & unix.S_IFMT {
	case unix.S_IFLNK:
		buf := make([]byte, 4096)
		n, err := unix.Readlinkat(fd, "", buf)
		if err != nil {
			return err
		}
		return os.Symlink(string(buf[:n]), to)
	case unix.S_IFREG:
		data, err := reopen(fd, maxCopy)
		if err == nil && len(data) > maxCopy {
			err = errors.New("is too large to move to another file system")
		}
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, os.FileMode(mode&0o777))
	}
	return errors.New("is a directory, and the quarantine is on another file system; move it by hand")
}

// removeThe unlinks a name if it still is the object of st.
func removeThe(dir int, last string, st unix.Stat_t) error {
	var now unix.Stat_t
	if err := unix.Fstatat(dir, last, &now, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if now.Ino != st.Ino || now.Dev != st.Dev {
		return errors.New("changed meanwhile")
	}
	return unix.Unlinkat(dir, last, 0)
}

func (b beneath) back(name, from string) error {
	dir, last, err := b.parent(name)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	err = unix.Renameat2(unix.AT_FDCWD, from, dir, last, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return errors.New("something else lies there now")
	}
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	st, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if st.Mode()&os.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err == nil {
			err = unix.Symlinkat(target, dir, last)
		}
		if err != nil {
			return err
		}
		return os.Remove(from)
	}
	data, err := os.ReadFile(from) // ours alone
	if err == nil {
		err = makeFile(dir, last, data, uint32(st.Mode().Perm()))
	}
	if err != nil {
		return err
	}
	return os.Remove(from)
}

func (b beneath) put(name string, data []byte, mode uint32) error {
	dir, last, err := b.parent(name)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	if mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.Symlinkat(string(data), dir, last)
	}
	perm := uint32(0o644)
	if mode&0o111 != 0 {
		perm = 0o755
	}
	return makeFile(dir, last, data, perm)
}

func makeFile(dir int, name string, data []byte, perm uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func (b beneath) remove(name, digest string) error {
	o, err := b.look(name, maxFile)
	if err != nil {
		return err
	}
	if o.digest() != digest {
		return errors.New("the earlier version, which was put there, has changed since")
	}
	dir, last, err := b.parent(name)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	return unix.Unlinkat(dir, last, 0)
}
