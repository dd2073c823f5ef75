package cgroup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// dir is a group's directory in one hierarchy.
type dir struct {
	*os.File
	top
	unified bool
	// controllers that this directory serves, by v1 name; on v2, all that are enabled
	controllers []string
}

// top is the group above all jails in one hierarchy.
type top struct {
	mount  string // of the hierarchy
	parent string // name of the group
}

// path is the group's, or that of one below it.
func (t top) path(name ...string) string {
	return filepath.Join(append([]string{t.mount, t.parent}, name...)...)
}

// openDir opens a directory below another one, for reading and for *at calls.
func openDir(at *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(at.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open group", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openParent opens the group above all jails of one hierarchy, made when asked.
func openParent(t top, create bool) (*os.File, error) {
	root, err := os.OpenFile(t.mount, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open hierarchy: %w", err)
	}
	defer root.Close()
	if create {
		if err := unix.Mkdirat(int(root.Fd()), t.parent, 0o755); err != nil && err != unix.EEXIST {
			return nil, &os.PathError{Op: "make group", Path: t.path(), Err: err}
		}
	}
	return openDir(root, t.parent)
}

// makeDir makes a new group. The parent may be removed under us by the deletion
// of the last other group, hence the retries.
func makeDir(t top, name string) (*os.File, error) {
	var err error
	for range 10 {
		var f *os.File
		if f, err = tryMakeDir(t, name); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
			return f, err
		}
	}
	return nil, err
}

func tryMakeDir(t top, name string) (*os.File, error) {
	parent, err := openParent(t, true)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	if err := unix.Mkdirat(int(parent.Fd()), name, 0o755); err != nil {
		return nil, &os.PathError{Op: "make group", Path: t.path(name), Err: err}
	}
	return openDir(parent, name)
}

// read returns the content of a small file of the group.
func (d dir) read(file string) ([]byte, error) {
	fd, err := unix.Openat(int(d.Fd()), file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: file, Err: err}
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	return io.ReadAll(f)
}

// write puts one line into a file of the group, in one call.
func (d dir) write(file, text string) error {
	fd, err := unix.Openat(int(d.Fd()), file, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "write", Path: file, Err: err}
	}
	defer unix.Close(fd)
	for {
		if _, err = unix.Write(fd, []byte(text)); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

// number reads one number, see field.
func (d dir) number(file, key string) (uint64, bool) {
	data, err := d.read(file)
	if err != nil {
		return 0, false
	}
	return field(data, key)
}

// children returns the names of the groups below.
func children(d *os.File) ([]string, error) {
	if _, err := d.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	entries, err := d.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// pids returns the processes of a group and of the groups below it.
func pids(d *os.File) ([]string, error) {
	data, err := dir{File: d}.read("cgroup.procs")
	if err != nil {
		return nil, err
	}
	out := strings.Fields(string(data))
	names, err := children(d)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		sub, err := openDir(d, name)
		if err != nil {
			continue // gone meanwhile
		}
		more, _ := pids(sub)
		sub.Close()
		out = append(out, more...)
	}
	return out, nil
}
