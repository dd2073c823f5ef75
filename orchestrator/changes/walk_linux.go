package changes

import (
	"errors"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// maxPath is the longest path below a tree that is resolved, in bytes (PATH_MAX
// with its NUL, limits.h).
const maxPath = 4095

// resolve is how every name of an agent is resolved.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// openBelow opens what is at rel ("" = the top itself) below the descriptor dir.
func openBelow(dir int, rel string, flags int) (*os.File, error) {
	if rel == "" {
		rel = "."
	}
	for {
		fd, err := unix.Openat2(dir, rel, &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: resolve})
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), rel), nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // a rename was in the way (openat2(2))
		default:
			return nil, &os.PathError{Op: "open", Path: rel, Err: err}
		}
	}
}

// walker goes through trees, first directories before what is in them.
type walker struct {
	left   int
	totals Totals
	seen   map[[2]uint64]bool // files with several names: tree, inode
	uid    uint32
}

func newWalker(l Limits) *walker {
	if l.Names <= 0 {
		l.Names = DefaultNames
	}
	return &walker{left: l.Names, seen: map[[2]uint64]bool{}, uid: uint32(os.Geteuid())}
}

// walk returns the entries of t at and below rel, sorted by name, parents before
// children. What cannot be read is counted; the error is about rel itself.
func (w *walker) walk(t Tree, rel string) ([]Entry, error) {
	top, err := t.stat(rel)
	if err != nil {
		return nil, err
	}
	top.Rel = rel
	out := []Entry{w.count(t, top)}
	for i := 0; i < len(out); i++ { // grows while it is gone through
		if out[i].Kind != Dir {
			continue
		}
		below, err := w.list(t, out[i].Rel)
		if err != nil {
			w.totals.Unread++
		}
		out = append(out, below...)
	}
	slices.SortFunc(out, func(a, b Entry) int { return comparePaths(a.Rel, b.Rel) })
	return out, nil
}

// comparePaths sorts a directory right before what is in it.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return int(a[i]) - int(b[i])
		}
	}
	return len(a) - len(b)
}

// list returns what is in one directory.
func (w *walker) list(t Tree, rel string) ([]Entry, error) {
	dir, err := openBelow(int(t.dir.Fd()), rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var out []Entry
	for {
		names, err := dir.Readdirnames(256)
		for _, n := range names {
			if w.left == 0 {
				w.totals.More = true
				return out, nil
			}
			p := path.Join(rel, n)
			if len(p) > maxPath {
				w.totals.Unread++
				continue
			}
			var st unix.Stat_t
			if unix.Fstatat(int(dir.Fd()), n, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue // gone meanwhile
			}
			e := t.entry(&st)
			e.Rel = p
			w.left--
			out = append(out, w.count(t, e))
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

// stat looks at what is at rel without opening it.
func (t Tree) stat(rel string) (Entry, error) {
	f, err := openBelow(int(t.dir.Fd()), rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return Entry{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Entry{}, err
	}
	return t.entry(&st), nil
}

func (t Tree) entry(st *unix.Stat_t) Entry {
	e := Entry{Mode: st.Mode & 0o7777, Disk: st.Blocks * 512, Own: st.Uid == uint32(os.Geteuid()), ino: st.Ino, nlink: uint64(st.Nlink)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Kind, e.Size = File, st.Size
	case unix.S_IFDIR:
		e.Kind = Dir
	case unix.S_IFLNK:
		e.Kind = Link
	case unix.S_IFIFO:
		e.Kind = FIFO
	case unix.S_IFSOCK:
		e.Kind = Socket
	default:
		e.Kind = Device
		if t.Overlay && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 {
			e.Kind = Removed // a whiteout, Documentation/filesystems/overlayfs.rst
		}
	}
	return e
}

func (w *walker) count(t Tree, e Entry) Entry {
	if e.Kind != Dir && e.nlink > 1 {
		key := [2]uint64{uint64(t.dir.Fd()), e.ino}
		if w.seen[key] {
			e.Disk = 0
		}
		w.seen[key] = true
	}
	w.totals.Names++
	w.totals.Size += e.Size
	w.totals.Disk += e.Disk
	return e
}
