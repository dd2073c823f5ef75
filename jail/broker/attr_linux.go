package broker

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

// change decides write on an object that was opened and acts on it.
func (w *worker) change(fd int, a about, act func(fd int) unix.Errno) unix.Errno {
	path, e := w.pathOf(fd, w.one.full[:])
	if e != 0 {
		return e
	}
	a.path, a.need = path, canWrite
	if w.isProc() {
		return w.deny(a, unix.EPERM)
	}
	if !w.checkObject(path, canWrite) {
		return w.deny(a, unix.EACCES)
	}
	if !w.alive() {
		return unix.ESRCH
	}
	return w.done(a, act(fd))
}

// changePath is change on a path argument.
func (w *worker) changePath(dirfd, path, flags uint64, follow bool, a about, act func(fd int) unix.Errno) unix.Errno {
	if e := w.readPath(path, &w.one); e != 0 {
		return e
	}
	fd, e := w.target(dirfd, &w.one, follow, flags&unix.AT_EMPTY_PATH != 0)
	if e != 0 {
		return e
	}
	return w.change(fd, a, act)
}

// changeFD is change on a descriptor argument. Those that are opened as O_PATH
// the kernel refuses.
func (w *worker) changeFD(arg uint64, a about, act func(fd int) unix.Errno) unix.Errno {
	fd, e := w.descriptor(int32(arg))
	if int32(arg) < 0 {
		return unix.EBADF
	}
	if e != 0 {
		return e
	}
	if w.isPathFD(int32(arg)) {
		return unix.EBADF
	}
	if e := fstat(fd, &w.st); e != 0 {
		return e
	}
	return w.change(fd, a, act)
}

// isPathFD reports whether the caller's descriptor is an O_PATH one.
func (w *worker) isPathFD(fd int32) bool {
	w.how = unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC}
	info, e := openat2(w.b.proc, w.procName("fdinfo", int64(fd)), &w.how)
	if e != 0 {
		return true
	}
	defer closeFD(info)
	n, err := unix.Read(info, w.small[:])
	if err != nil {
		return true
	}
	return fdinfoFlags(w.small[:n])&unix.O_PATH != 0
}

func sysTruncate(w *worker) unix.Errno {
	a := &w.req.args
	if int64(a[1]) < 0 {
		return unix.EINVAL
	}
	return w.changePath(here, a[0], 0, true, about{kind: event.Truncate}, func(fd int) unix.Errno {
		switch w.st.Mode & unix.S_IFMT { // the object is held, but its magic name would forgive
		case unix.S_IFDIR:
			return unix.EISDIR
		case unix.S_IFREG:
			return truncateCall(w.magic(fd), a[1])
		}
		return unix.EINVAL
	})
}

func sysChmod(w *worker) unix.Errno     { a := &w.req.args; return w.chmod(here, a[0], a[1], 0) }
func sysFchmodat(w *worker) unix.Errno  { a := &w.req.args; return w.chmod(a[0], a[1], a[2], 0) }
func sysFchmodat2(w *worker) unix.Errno { a := &w.req.args; return w.chmod(a[0], a[1], a[2], a[3]) }

func (w *worker) chmod(dirfd, path, mode, flags uint64) unix.Errno {
	flags &= 0xffffffff
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return unix.EINVAL
	}
	return w.changePath(dirfd, path, flags, flags&unix.AT_SYMLINK_NOFOLLOW == 0,
		about{kind: event.Chmod, flags: mode}, func(fd int) unix.Errno { return w.setMode(fd, mode) })
}

func sysFchmod(w *worker) unix.Errno {
	a := &w.req.args
	return w.changeFD(a[0], about{kind: event.Chmod, flags: a[1]}, func(fd int) unix.Errno { return w.setMode(fd, a[1]) })
}

// setMode refuses the bits with which a file lends its owner's rights: the
// owner is a user of the host. On directories set-group-ID only says who owns
// new files.
func (w *worker) setMode(fd int, mode uint64) unix.Errno {
	switch w.st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return unix.EOPNOTSUPP
	case unix.S_IFDIR:
		if mode&unix.S_ISUID != 0 {
			return unix.EPERM
		}
	default:
		if mode&suid != 0 {
			return unix.EPERM
		}
	}
	return pathCall(unix.SYS_FCHMODAT, unix.AT_FDCWD, w.magic(fd), uintptr(mode&0o7777), 0, 0)
}

func sysChown(w *worker) unix.Errno { a := &w.req.args; return w.chown(here, a[0], a[1], a[2], 0) }
func sysLchown(w *worker) unix.Errno {
	a := &w.req.args
	return w.chown(here, a[0], a[1], a[2], unix.AT_SYMLINK_NOFOLLOW)
}

func sysFchownat(w *worker) unix.Errno {
	a := &w.req.args
	return w.chown(a[0], a[1], a[2], a[3], a[4])
}

func (w *worker) chown(dirfd, path, uid, gid, flags uint64) unix.Errno {
	flags &= 0xffffffff
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return unix.EINVAL
	}
	return w.changePath(dirfd, path, flags, flags&unix.AT_SYMLINK_NOFOLLOW == 0,
		about{kind: event.Chown, flags: uid}, func(fd int) unix.Errno { return setOwner(fd, uid, gid) })
}

func sysFchown(w *worker) unix.Errno {
	a := &w.req.args
	return w.changeFD(a[0], about{kind: event.Chown, flags: a[1]}, func(fd int) unix.Errno { return setOwner(fd, a[1], a[2]) })
}

func setOwner(fd int, uid, gid uint64) unix.Errno {
	return pathCall(unix.SYS_FCHOWNAT, fd, []byte{0}, uintptr(uint32(uid)), uintptr(uint32(gid)), unix.AT_EMPTY_PATH)
}

func sysUtime(w *worker) unix.Errno {
	a := &w.req.args
	ts, e := w.readTimes(a[1], 2, 1)
	if e != 0 {
		return e
	}
	return w.utimes(here, a[0], ts, 0)
}

func sysUtimes(w *worker) unix.Errno {
	a := &w.req.args
	ts, e := w.readTimes(a[1], 4, 1000)
	if e != 0 {
		return e
	}
	return w.utimes(here, a[0], ts, 0)
}

func sysFutimesat(w *worker) unix.Errno {
	a := &w.req.args
	ts, e := w.readTimes(a[2], 4, 1000)
	if e != 0 {
		return e
	}
	if a[1] == 0 {
		return w.futimens(a[0], ts)
	}
	return w.utimes(a[0], a[1], ts, 0)
}

func sysUtimensat(w *worker) unix.Errno {
	a := &w.req.args
	ts, e := w.readTimes(a[2], 4, 1)
	if e != 0 {
		return e
	}
	flags := a[3] & 0xffffffff
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return unix.EINVAL
	}
	if a[1] == 0 && int32(a[0]) != unix.AT_FDCWD {
		if flags != 0 {
			return unix.EINVAL
		}
		return w.futimens(a[0], ts)
	}
	return w.utimes(a[0], a[1], ts, flags)
}

// readTimes reads access and modification time: words = 2 for two seconds,
// 4 for two pairs whose second part counts in units of scale ns. A null address
// is nil: now.
func (w *worker) readTimes(addr uint64, words int, scale int64) (*[2]unix.Timespec, unix.Errno) {
	if addr == 0 {
		return nil, 0
	}
	var raw [32]byte
	if e := w.readExact(addr, raw[:8*words]); e != 0 {
		return nil, e
	}
	word := func(i int) int64 { return int64(binary.NativeEndian.Uint64(raw[8*i:])) }
	if words == 2 {
		return &[2]unix.Timespec{{Sec: word(0)}, {Sec: word(1)}}, 0
	}
	if scale != 1 {
		for _, usec := range []int64{word(1), word(3)} {
			if usec < 0 || usec >= 1e6 {
				return nil, unix.EINVAL
			}
		}
	}
	return &[2]unix.Timespec{{Sec: word(0), Nsec: word(1) * scale}, {Sec: word(2), Nsec: word(3) * scale}}, 0
}

func (w *worker) utimes(dirfd, path uint64, ts *[2]unix.Timespec, flags uint64) unix.Errno {
	return w.changePath(dirfd, path, flags, flags&unix.AT_SYMLINK_NOFOLLOW == 0,
		about{kind: event.Setattr}, func(fd int) unix.Errno { return timesCall(w.magic(fd), ts) })
}

func (w *worker) futimens(arg uint64, ts *[2]unix.Timespec) unix.Errno {
	return w.changeFD(arg, about{kind: event.Setattr}, func(fd int) unix.Errno { return timesCall(w.magic(fd), ts) })
}

// maxValue is XATTR_SIZE_MAX.
const maxValue = 65536

func sysSetxattr(w *worker) unix.Errno     { return w.setxattr(true, false) }
func sysLsetxattr(w *worker) unix.Errno    { return w.setxattr(false, false) }
func sysFsetxattr(w *worker) unix.Errno    { return w.setxattr(false, true) }
func sysRemovexattr(w *worker) unix.Errno  { return w.removexattr(true, false) }
func sysLremovexattr(w *worker) unix.Errno { return w.removexattr(false, false) }
func sysFremovexattr(w *worker) unix.Errno { return w.removexattr(false, true) }

// attrName reads the name of an attribute with its NUL, XATTR_NAME_MAX bytes at most.
func (w *worker) attrName(addr uint64) ([]byte, unix.Errno) {
	name := w.two.name[:256]
	n, e := w.readString(addr, name)
	switch {
	case e == unix.ENAMETOOLONG, e == 0 && n == 0:
		return nil, unix.ERANGE
	case e != 0:
		return nil, e
	}
	return name[:n+1], 0
}

func (w *worker) setxattr(follow, fd bool) unix.Errno {
	a := w.req.args
	name, e := w.attrName(a[1])
	if e != 0 {
		return e
	}
	if a[3] > maxValue {
		return unix.E2BIG
	}
	value := make([]byte, a[3])
	if e := w.readExact(a[2], value); e != 0 {
		return e
	}
	return w.attribute(follow, fd, name, func(fd int) unix.Errno {
		return xattrCall(unix.SYS_SETXATTR, w.magic(fd), name, value, a[4])
	})
}

func (w *worker) removexattr(follow, fd bool) unix.Errno {
	name, e := w.attrName(w.req.args[1])
	if e != 0 {
		return e
	}
	return w.attribute(follow, fd, name, func(fd int) unix.Errno {
		return xattrCall(unix.SYS_REMOVEXATTR, w.magic(fd), name, nil, 0)
	})
}

func (w *worker) attribute(follow, fd bool, name []byte, act func(int) unix.Errno) unix.Errno {
	a := about{kind: event.Setattr, path2: name[:len(name)-1]}
	if fd {
		return w.changeFD(w.req.args[0], a, act)
	}
	return w.changePath(here, w.req.args[0], 0, follow, a, act)
}

func sysGetxattr(w *worker) unix.Errno  { return w.getxattr(true) }
func sysLgetxattr(w *worker) unix.Errno { return w.getxattr(false) }

// getxattr reads an attribute of what the caller may read: attributes hold
// content (user.*) and labels. The descriptor form needs no decision, its
// descriptor was decided when it was opened.
func (w *worker) getxattr(follow bool) unix.Errno {
	a := w.req.args
	name, e := w.attrName(a[1])
	if e != 0 {
		return e
	}
	if e := w.readPath(a[0], &w.one); e != 0 {
		return e
	}
	fd, e := w.target(here, &w.one, follow, false)
	if e != 0 {
		return e
	}
	path, e := w.pathOf(fd, w.one.full[:])
	if e != 0 {
		return e
	}
	if !w.isProc() && !w.checkObject(path, canRead) {
		return w.deny(about{kind: event.Setattr, path: path, path2: name[:len(name)-1], need: canRead}, unix.EACCES)
	}
	var value []byte
	if size := min(a[3], maxValue); size > 0 {
		value = make([]byte, size)
	}
	n, e := xattrGet(w.magic(fd), name, value)
	if e != 0 {
		return e
	}
	if !w.alive() {
		return unix.ESRCH
	}
	if len(value) > 0 {
		if e := w.writeExact(a[2], value[:n]); e != 0 {
			return e
		}
	}
	w.val = int64(n)
	return 0
}

// sysWatch lets a caller watch what it may read.
func sysWatch(w *worker) unix.Errno {
	a := w.req.args
	if e := w.readPath(a[1], &w.one); e != 0 {
		return e
	}
	mask := uint32(a[2])
	fd, e := w.target(here, &w.one, mask&unix.IN_DONT_FOLLOW == 0, false)
	if e != 0 {
		return e
	}
	if mask&unix.IN_ONLYDIR != 0 && w.st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.ENOTDIR
	}
	path, e := w.pathOf(fd, w.one.full[:])
	if e != 0 {
		return e
	}
	about := about{kind: event.Watch, path: path, flags: uint64(mask), need: canRead}
	if w.isProc() || !w.check(path, canRead) {
		return w.deny(about, unix.EACCES)
	}
	inotify, e := w.take(int32(a[0]))
	if e != 0 {
		return e
	}
	if !w.alive() {
		return unix.ESRCH
	}
	wd, e := watchCall(inotify, w.magic(fd), mask&^(unix.IN_DONT_FOLLOW|unix.IN_ONLYDIR))
	w.val = int64(wd)
	return w.done(about, e)
}

// take duplicates a descriptor of the caller, held.
func (w *worker) take(fd int32) (int, unix.Errno) {
	if got, e := w.copied(fd); e != unix.ESRCH {
		return got, e
	}
	// Before Linux 6.9: by the process. Threads that do not share descriptors are told EBADF or
	// work on the descriptor of the main thread.
	pid, err := unix.PidfdOpen(int(w.process()), 0)
	if err != nil {
		return -1, unix.ESRCH
	}
	got, err := unix.PidfdGetfd(pid, int(fd), 0)
	closeFD(pid)
	if err != nil {
		return -1, errnoOf(err)
	}
	return w.hold(got), 0
}

// errnoOf is the error number of a failed system call.
func errnoOf(err error) unix.Errno {
	if e, ok := err.(unix.Errno); ok {
		return e
	}
	return unix.EBADF
}
