package opens

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"
)

// Fifos walks the tree that is mounted at path of the root descriptor, on that mount only, and
// calls cover with each FIFO that may not be read, as O_PATH: a FIFO raises no event,
// and its reader is killed too late when a thread beside it reads at the same moment.
//
// What appears later is not found. The caller may read every directory.
func Fifos(root int, path string, allows func(path string) bool, cover func(fd int) error) error {
	return find(root, path, walk{allows: allows, cover: cover})
}

func find(root int, path string, w walk) error {
	top, err := unix.Openat2(root, "."+path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err == unix.ENOTDIR {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	w.buf = make([]byte, 64<<10)
	return w.dir(top, []byte(path), 0)
}

type walk struct {
	allows func(path string) bool
	cover  func(int) error
	again  bool // it was walked before: what is covered is, and who walks has less rights
	buf    []byte
}

// walkDepth bounds the recursion: as deep as the kernel's path of a file can be.
const walkDepth = 2048

// dir walks one directory and closes it. Names are read to the end first: the buffer is one
// for all.
func (w *walk) dir(fd int, path []byte, depth int) error {
	defer unix.Close(fd)
	var dirs, fifos [][]byte
	for {
		n, err := unix.Getdents(fd, w.buf)
		if err != nil {
			return fmt.Errorf("list %s: %w", path, err)
		}
		if n <= 0 {
			break
		}
		for rest := w.buf[:n]; len(rest) > 0; {
			var name []byte
			var kind byte
			name, kind, rest = entry(rest)
			if kind == unix.DT_UNKNOWN {
				kind = kindOf(fd, name)
			}
			switch kind {
			case unix.DT_DIR:
				if string(name) != ".\x00" && string(name) != "..\x00" {
					dirs = append(dirs, bytes.Clone(name))
				}
			case unix.DT_FIFO:
				fifos = append(fifos, bytes.Clone(name))
			}
		}
	}
	for _, name := range fifos {
		if w.allows(child(path, name)) {
			continue
		}
		at, err := w.open(fd, name, unix.O_PATH)
		if err == unix.ENOENT || w.again && err == unix.EXDEV {
			continue
		}
		if err == nil {
			err = w.cover(at)
			_ = unix.Close(at)
		}
		if err != nil {
			return fmt.Errorf("cover %s: %w", child(path, name), err)
		}
	}
	if depth == walkDepth {
		return nil // nobody opens what is below by its path, and each step has a path
	}
	for _, name := range dirs {
		next, err := w.open(fd, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if w.again && err == unix.EACCES {
			return fmt.Errorf("open %s: %w", child(path, name), err)
		}
		switch err {
		case nil:
			if err := w.dir(next, []byte(child(path, name)), depth+1); err != nil {
				return err
			}
		case unix.EXDEV, unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.ELOOP: // another mount; gone; not for the agent either
		default:
			return fmt.Errorf("open %s: %w", child(path, name), err)
		}
	}
	return nil
}

func (w *walk) open(at int, name []byte, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV}
	return unix.Openat2(at, string(name[:len(name)-1]), &how)
}

// child is the path of name, which ends in NUL, in the directory path.
func child(path, name []byte) string {
	return string(bytes.TrimSuffix(path, []byte{'/'})) + "/" + string(name[:len(name)-1])
}

func kindOf(fd int, name []byte) byte {
	var st unix.Stat_t
	if len(name) == 0 || fstatat(fd, name, &st) != 0 {
		return 0xff
	}
	return byte(st.Mode & unix.S_IFMT >> 12) // DT_ numbers are these (dirent.h, IFTODT)
}

// entry answers the name of the directory entry at the start of b (struct linux_dirent64) with
// its NUL, its kind, and what follows; nil for an entry that cannot be.
func entry(b []byte) (name []byte, kind byte, rest []byte) {
	const kindAt, nameAt = 18, 19
	if len(b) <= nameAt {
		return nil, 0xff, nil
	}
	size := int(b[16]) | int(b[17])<<8
	if size <= nameAt || size > len(b) {
		return nil, 0xff, nil
	}
	e, rest := b[:size], b[size:]
	end := bytes.IndexByte(e[nameAt:], 0)
	if end < 1 {
		return nil, 0xff, rest
	}
	return e[nameAt : nameAt+end+1], e[kindAt], rest
}
