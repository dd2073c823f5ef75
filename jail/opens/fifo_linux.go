package opens

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/dirent"
)

// Found is what a walk for FIFOs came to.
type Found struct {
	Covered int  // FIFOs
	Dirs    int  // directories that were read
	Partial bool // not all were: there were too many, or one lies too deep to be named
}

// Fifos walks the tree that is mounted at path of the root descriptor, on that mount only, and
// calls cover with each FIFO that may not be read, as O_PATH: a FIFO raises no event,
// and its reader is killed too late when a thread beside it reads at the same moment.
//
// It goes by levels, so that what lies near the top is found first, and gives up at the time
// until. What it does not find, and what appears later, is not covered. The caller may
// read every directory.
func Fifos(root int, path string, until time.Time, allows func(path string) bool, cover func(fd int) error) (Found, error) {
	return find(root, path, walk{until: until, allows: allows, cover: cover})
}

func find(root int, path string, w walk) (Found, error) {
	const how = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	top, err := unix.Openat2(root, "."+path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: how})
	if err == unix.ENOTDIR {
		return Found{}, nil
	}
	if err != nil {
		return Found{}, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(top)
	w.top, w.base, w.buf, w.next = top, strings.TrimSuffix(path, "/"), make([]byte, 64<<10), []string{"."}
	for len(w.next) > 0 && !w.late() {
		dir := w.next[0]
		w.next = w.next[1:]
		if err := w.dir(dir); err != nil {
			return w.found, err
		}
	}
	w.found.Partial = w.found.Partial || len(w.next) > 0
	return w.found, nil
}

type walk struct {
	top    int
	base   string // path of top
	until  time.Time
	allows func(path string) bool
	cover  func(int) error
	again  bool // it was walked before: what is covered is, and who walks has less rights
	buf    []byte
	next   []string // directories below top that are to be read
	found  Found
}

func (w *walk) late() bool { return time.Now().After(w.until) }

// dir reads one directory. Those that are gone, links meanwhile, another mount or closed to the reader
// are left out: the agent comes no further.
func (w *walk) dir(dir string) error {
	fd, err := w.open(w.top, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if w.again && err == unix.EACCES { // the agent can open what lies in it by name
		return fmt.Errorf("open %s/%s: %w", w.base, dir, err)
	}
	switch err {
	case nil:
	case unix.ENAMETOOLONG:
		w.found.Partial = true
		return nil
	case unix.EXDEV, unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.ELOOP:
		return nil
	default:
		return fmt.Errorf("open %s/%s: %w", w.base, dir, err)
	}
	defer unix.Close(fd)
	w.found.Dirs++
	for {
		n, err := unix.Getdents(fd, w.buf)
		if err != nil {
			return fmt.Errorf("list %s/%s: %w", w.base, dir, err)
		}
		if n <= 0 {
			return nil
		}
		for rest := w.buf[:n]; ; {
			e, tail, ok := dirent.Next(rest)
			if !ok {
				break
			}
			if err := w.entry(fd, dir, e); err != nil {
				return err
			}
			rest = tail
		}
		if w.late() {
			w.found.Partial = true
			return nil
		}
	}
}

// entry deals with one name of the directory fd.
func (w *walk) entry(fd int, dir string, e dirent.Entry) error {
	kind := e.Type
	if kind == dirent.Unknown {
		kind = kindOf(fd, e.Name)
	}
	if kind != unix.DT_DIR && kind != unix.DT_FIFO {
		return nil
	}
	name := string(e.Text())
	if name == "." || name == ".." {
		return nil
	}
	below := name
	if dir != "." {
		below = dir + "/" + name
	}
	if kind == unix.DT_DIR {
		w.next = append(w.next, below)
		return nil
	}
	if w.allows(w.base + "/" + below) {
		return nil
	}
	at, err := w.open(fd, name, unix.O_PATH)
	if err == unix.ENOENT || w.again && err == unix.EXDEV { // the latter is covered
		return nil
	}
	if err == nil {
		err = w.cover(at)
		_ = unix.Close(at)
	}
	if err != nil {
		return fmt.Errorf("cover %s/%s: %w", w.base, below, err)
	}
	w.found.Covered++
	return nil
}

func (w *walk) open(at int, name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV}
	return unix.Openat2(at, name, &how)
}

func kindOf(fd int, name []byte) byte {
	var st unix.Stat_t
	if fstatat(fd, name, &st) != 0 {
		return dirent.Unknown
	}
	return byte(st.Mode & unix.S_IFMT >> 12) // DT_ numbers are these (dirent.h, IFTODT)
}
