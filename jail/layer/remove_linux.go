package layer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// batch is how many names of a directory are read at a time.
const batch = 1024

// openDir opens the directory name in the directory dir, through no link and
// into no other mount.
func openDir(dir int, name string) (*os.File, error) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Remove removes the directory at path, which is ours, with everything in it,
// which may be an agent's and of any depth. What is missing is no error.
//
// A directory that is not empty gives its own directories to the top before it
// goes. So each is emptied where a single name leads to it, and moved at most
// once: the work is linear and needs no recursion (rm(1) and [os.RemoveAll] hold
// a descriptor per level, which an agent can make run out).
//
// Preconditions: no process works in it any more.
func Remove(path string) error {
	parent, err := os.Open(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	top, err := openDir(int(parent.Fd()), filepath.Base(path))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	r := remover{top: top}
	err = r.empty(top, r.flatten)
	_ = top.Close()
	if err != nil {
		return fmt.Errorf("empty %s: %w", path, err)
	}
	return unix.Unlinkat(int(parent.Fd()), filepath.Base(path), unix.AT_REMOVEDIR)
}

type remover struct {
	top  *os.File
	next uint64 // name of the next directory that is given to the top
}

// empty unlinks all that is in dir and calls full with the name of each directory
// in it that is not empty, which must be gone afterwards. It begins again until
// nothing is left: names that are added meanwhile may be read or not (readdir(3)).
func (r *remover) empty(dir *os.File, full func(dir *os.File, name string) error) error {
	for {
		seen := 0
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		for {
			names, err := dir.Readdirnames(batch)
			for _, n := range names {
				seen++
				if err := r.unlink(dir, n, full); err != nil {
					return fmt.Errorf("%q: %w", n, err)
				}
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
		}
		if seen == 0 {
			return nil
		}
	}
}

func (r *remover) unlink(dir *os.File, name string, full func(*os.File, string) error) error {
	err := unix.Unlinkat(int(dir.Fd()), name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
	}
	switch {
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return full(dir, name)
	case errors.Is(err, unix.ENOENT):
		return nil
	}
	return err
}

// flatten removes the directory name of the top, which is not empty.
func (r *remover) flatten(_ *os.File, name string) error {
	dir, err := openDir(int(r.top.Fd()), name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := r.empty(dir, r.raise); err != nil {
		return err
	}
	return unix.Unlinkat(int(r.top.Fd()), name, unix.AT_REMOVEDIR)
}

// raise moves a directory to the top, under a name that is free there.
func (r *remover) raise(dir *os.File, name string) error {
	for {
		r.next++
		err := unix.Renameat2(int(dir.Fd()), name, int(r.top.Fd()), strconv.FormatUint(r.next, 36), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}
