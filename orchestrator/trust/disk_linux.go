package trust

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// beneath is an [opener] by openat2(2).
type beneath struct{ fd int }

const noLinks = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// openBeneath opens a root. Its own path is not the agent's: it was shown at that
// path, and nothing above it was writable.
func openBeneath(root string) (opener, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, root, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", root, err)
	}
	return beneath{fd}, nil
}

func (b beneath) close() { _ = unix.Close(b.fd) }

// path opens name as it lies: a link as a link (openat2(2), RESOLVE_NO_SYMLINKS).
func (b beneath) path(name string) (int, unix.Stat_t, error) {
	var st unix.Stat_t
	var fd int
	var err error
	if name == "." {
		fd, err = unix.FcntlInt(uintptr(b.fd), unix.F_DUPFD_CLOEXEC, 0)
	} else {
		fd, err = unix.Openat2(b.fd, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: noLinks})
	}
	if err != nil {
		return -1, st, err
	}
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

func (b beneath) look(name string, content int64) (object, error) {
	fd, st, err := b.path(name)
	if err != nil {
		return object{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	o := object{mode: fileMode(st.Mode), size: st.Size, stamp: fmt.Sprintf("%d %d %d %d", st.Dev, st.Ino, st.Size, st.Ctim.Nano())}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		buf := make([]byte, 4096)
		n, err := unix.Readlinkat(fd, "", buf)
		if err != nil {
			return object{}, err
		}
		o.data = buf[:n]
	case unix.S_IFREG:
		if st.Size > content {
			o.unread = "too large to compare"
			break
		}
		if o.data, err = reopen(fd, content); err != nil {
			o.unread = "unreadable"
		} else if int64(len(o.data)) > content {
			o.data, o.unread = nil, "too large to compare"
		}
	default:
		o.unread = "no regular file"
	}
	return o, nil
}

// reopen reads the regular file that fd stands for, one byte beyond most at most.
// /proc/self/fd leads to the very object (proc(5)); it was seen to be a file, so
// nothing blocks.
func reopen(fd int, most int64) ([]byte, error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if data == nil {
		data = []byte{}
	}
	return data, err
}

func (b beneath) list(name string, most int) ([]string, error) {
	fd, st, err := b.path(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, unix.ENOTDIR
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(most)
	if err == io.EOF {
		err = nil
	}
	return names, err
}

// walk goes through everything below, but git's objects, and reports what has a
// change time (inode(7)) of since or later, in ns. most bounds the entries.
func (b beneath) walk(since int64, most int, found func(name string, dir bool)) bool {
	w := walker{since: since, left: most, found: found, whole: true}
	var st unix.Stat_t
	switch err := unix.Fstat(b.fd, &st); {
	case err != nil:
		return false
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		w.dir(b.fd, ".", 0)
	case st.Ctim.Nano() >= since:
		found(".", false)
	}
	return w.whole
}

type walker struct {
	since int64
	left  int
	found func(name string, dir bool)
	whole bool
}

func (w *walker) dir(parent int, name string, depth int) {
	fd, err := unix.Openat2(parent, path.Base(name), &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: noLinks})
	if err != nil || depth > 4*maxDepth {
		w.whole = false
		if err == nil {
			_ = unix.Close(fd)
		}
		return
	}
	f := os.NewFile(uintptr(fd), name)
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(w.left + 1)
	if err != nil && err != io.EOF {
		w.whole = false
	}
	for _, n := range names {
		if w.left--; w.left < 0 {
			w.whole = false
			return
		}
		var st unix.Stat_t
		if unix.Fstatat(fd, n, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue // it has gone
		}
		below, is := path.Join(name, n), st.Mode&unix.S_IFMT == unix.S_IFDIR
		if st.Ctim.Nano() >= w.since {
			w.found(below, is)
		}
		if is && !(n == "objects" && path.Base(name) == ".git") {
			w.dir(fd, below, depth+1)
		}
	}
}

// fileMode is a mode of stat(2) as Go has it.
func fileMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	for bit, to := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid} {
		if m&bit != 0 {
			mode |= to
		}
	}
	switch m & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFCHR, unix.S_IFBLK:
		mode |= fs.ModeDevice
	}
	return mode
}
