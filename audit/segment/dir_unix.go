//go:build unix

package segment

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Create begins the log of a new session in dir, which must be empty of
// segments and private to its owner (see [MakeDir]). It signs a first head and
// starts the writer's goroutine, which syncs it first of all; dir stays the caller's.
// Errors: fs.ErrExist when there is a log, [ErrBusy] when it is being written.
func Create(dir *os.File, k Key, h Header, o Options) (*Writer, error) {
	s, err := openStore(dir)
	if err != nil {
		return nil, fmt.Errorf("create audit log: %w", err)
	}
	return create(s, k, h, o)
}

// Resume goes on with a log whose writer has died. It checks the last segment
// and its last head, cuts an incomplete tail, and appends a Gap record: Count
// is the number of bytes cut, Detail says after which record and how many
// records no head had covered. Errors: [ErrClosed] when the log is complete,
// [ErrDamaged] when something before its last signed head is not as written,
// [ErrBusy], [ErrSignature], [ErrFormat].
func Resume(dir *os.File, k Key, o Options) (*Writer, error) {
	s, err := openStore(dir)
	if err != nil {
		return nil, fmt.Errorf("resume audit log: %w", err)
	}
	return resume(s, k, o)
}

// ErrBusy is returned, wrapped, when another writer has the log open.
var ErrBusy = errors.New("another writer has the audit log")

// directory is the store on a real file system.
type directory struct{ dir *os.File }

// openStore opens dir again, so that the lock is not the caller's.
func openStore(dir *os.File) (*directory, error) {
	f, err := openAt(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if err := private(f, unix.S_IFDIR); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrBusy
		}
		return nil, fmt.Errorf("lock %s: %w", dir.Name(), err)
	}
	return &directory{f}, nil
}

// openAt opens name in dir; a symlink as name is refused.
func openAt(dir *os.File, name string, flags int, mode uint32) (*os.File, error) {
	for {
		fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open %s in %s: %w", name, dir.Name(), err)
		}
		return os.NewFile(uintptr(fd), dir.Name()+"/"+name), nil
	}
}

// private checks that f has the type (S_IFDIR, S_IFREG), is ours, and that
// nobody else has any right on it.
func private(f *os.File, kind uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	switch mode := uint32(st.Mode); {
	case mode&unix.S_IFMT != kind:
		return fmt.Errorf("%s has the wrong file type", f.Name())
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to uid %d", f.Name(), st.Uid)
	case mode&0o077 != 0:
		return fmt.Errorf("%s has mode %04o: others have rights on it", f.Name(), mode&0o7777)
	}
	return nil
}

func segmentName(n uint32) string { return fmt.Sprintf("%06d.seg", n) }

// segmentNumber is the inverse of segmentName; 0 for other names.
func segmentNumber(name string) uint32 {
	digits, ok := strings.CutSuffix(name, ".seg")
	n, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil || segmentName(uint32(n)) != name {
		return 0
	}
	return uint32(n)
}

func (d *directory) create(n uint32) (file, error) {
	return openAt(d.dir, segmentName(n), unix.O_RDWR|unix.O_APPEND|unix.O_CREAT|unix.O_EXCL, 0o600)
}

func (d *directory) reopen(n uint32) (file, error) {
	f, err := openAt(d.dir, segmentName(n), unix.O_RDWR|unix.O_APPEND|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := private(f, unix.S_IFREG); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (d *directory) last() (uint32, error) {
	all, err := segments(d.dir)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[len(all)-1], nil
}

func (d *directory) size(f file) (int64, error) {
	st, err := f.(*os.File).Stat() // this store makes no other files
	if err != nil {
		return 0, fmt.Errorf("stat segment: %w", err)
	}
	return st.Size(), nil
}

func (d *directory) sync() error {
	if err := d.dir.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", d.dir.Name(), err)
	}
	return nil
}

func (d *directory) close() error { return d.dir.Close() }

// names lists dir without moving the offset that its descriptor may share.
func names(dir *os.File) ([]string, error) {
	f, err := openAt(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir.Name(), err)
	}
	slices.Sort(all)
	return all, nil
}

func segments(dir *os.File) ([]uint32, error) {
	all, err := names(dir)
	var out []uint32
	for _, name := range all {
		if n := segmentNumber(name); n > 0 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, err
}

// MakeDir opens the directory name in parent, making it with mode 0700 when it
// is not there. It refuses a symlink, another owner and rights of others.
func MakeDir(parent *os.File, name string) (*os.File, error) {
	if err := unix.Mkdirat(int(parent.Fd()), name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make %s in %s: %w", name, parent.Name(), err)
	}
	f, err := openAt(parent, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if err := private(f, unix.S_IFDIR); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// OpenDir opens the directory name in parent and refuses a symlink.
func OpenDir(parent *os.File, name string) (*os.File, error) {
	return openAt(parent, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// Sessions lists the sessions that have a directory in parent, sorted.
func Sessions(parent *os.File) ([]string, error) {
	all, err := names(parent)
	var out []string
	for _, name := range all {
		var st unix.Stat_t
		if ValidSession(name) != nil || unix.Fstatat(int(parent.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		if uint32(st.Mode)&unix.S_IFMT == unix.S_IFDIR {
			out = append(out, name)
		}
	}
	return out, err
}

// OpenFiles opens the segments in dir for reading, in order; the caller closes
// them. What is not a regular file is an error.
func OpenFiles(dir *os.File) (files []*os.File, err error) {
	all, err := segments(dir)
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		f, err := openAt(dir, segmentName(n), unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			files = append(files, f)
			if st, serr := f.Stat(); serr != nil || !st.Mode().IsRegular() {
				err = fmt.Errorf("%s is not a regular file", f.Name())
			}
		}
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, err
		}
	}
	return files, nil
}

// Names of the key files in the state directory.
const (
	keyFile    = "audit.key" // 0600, root
	publicFile = "audit.pub" // 0644
)

// LoadKey reads the signing key from the state directory; fs.ErrNotExist when
// there is none. A key that others could have read or written is refused.
func LoadKey(state *os.File) (Key, error) {
	f, err := openAt(state, keyFile, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return Key{}, err
	}
	defer f.Close()
	if err := private(f, unix.S_IFREG); err != nil {
		return Key{}, fmt.Errorf("load audit key: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return Key{}, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return parseKey(string(text))
}

// LoadOrCreateKey is [LoadKey], and makes the key and audit.pub beside it when
// there is none. Two callers at once end up with the same key.
func LoadOrCreateKey(state *os.File) (Key, error) {
	k, err := LoadKey(state)
	if !errors.Is(err, os.ErrNotExist) {
		return k, err
	}
	k = NewKey()
	err = publish(state, keyFile, k.text(), 0o600)
	if errors.Is(err, os.ErrExist) {
		return LoadKey(state)
	}
	if err != nil {
		return Key{}, fmt.Errorf("create audit key: %w", err)
	}
	if err := publish(state, publicFile, FormatPublic(k.Public()), 0o644); err != nil && !errors.Is(err, os.ErrExist) {
		return Key{}, fmt.Errorf("create public audit key: %w", err)
	}
	return k, nil
}

// publish makes the file name appear with its whole text, or not at all.
func publish(dir *os.File, name, text string, mode uint32) error {
	var random [8]byte
	rand.Read(random[:]) // never fails
	temp := "." + name + "." + hex.EncodeToString(random[:])
	f, err := openAt(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer unix.Unlinkat(int(dir.Fd()), temp, 0)
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(os.FileMode(mode)), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := unix.Linkat(int(dir.Fd()), temp, int(dir.Fd()), name, 0); err != nil {
		return fmt.Errorf("link %s in %s: %w", name, dir.Name(), err)
	}
	return dir.Sync()
}
