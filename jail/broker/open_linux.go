package broker

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

// Flags as open(2) and openat2(2) know them (include/linux/fcntl.h).
const (
	tmpfile    = unix.O_TMPFILE &^ unix.O_DIRECTORY // __O_TMPFILE
	largefile  = nativeLargefile
	pathFlags  = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_PATH | unix.O_CLOEXEC
	validFlags = unix.O_RDONLY | unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NOCTTY | unix.O_TRUNC |
		unix.O_APPEND | unix.O_NONBLOCK | unix.O_SYNC | unix.O_DSYNC | unix.O_ASYNC | unix.O_DIRECT | largefile |
		unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NOATIME | unix.O_CLOEXEC | unix.O_PATH | tmpfile
	validResolve = unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH |
		unix.RESOLVE_IN_ROOT | resolveCached

	resolveCached = 0x20 // RESOLVE_CACHED

	// statusFlags are what F_SETFL would change: given again when O_NONBLOCK is
	// taken away.
	statusFlags = unix.O_APPEND | unix.O_ASYNC | unix.O_DIRECT | unix.O_NOATIME

	ours = unix.O_NONBLOCK | unix.O_NOCTTY // what every open of ours adds: it must never wait nor take a terminal

	suid = unix.S_ISUID | unix.S_ISGID
)

// request is one open call.
type request struct {
	at      int
	flags   uint64
	mode    uint64
	resolve uint64
	need    uint8
}

func sysOpen(w *worker) unix.Errno {
	a := &w.req.args
	at := unix.AT_FDCWD
	return w.openOld(uint64(at), a[0], a[1], a[2])
}

func sysCreat(w *worker) unix.Errno {
	a := &w.req.args
	at := unix.AT_FDCWD
	return w.openOld(uint64(at), a[0], unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC, a[1])
}

func sysOpenat(w *worker) unix.Errno {
	a := &w.req.args
	return w.openOld(a[0], a[1], a[2], a[3])
}

// openOld forgives unknown flags, as build_open_how of the kernel does.
func (w *worker) openOld(dirfd, path, flags, mode uint64) unix.Errno {
	r := request{flags: uint64(uint32(flags)) & validFlags, mode: mode & 0o7777}
	if r.flags&unix.O_PATH != 0 {
		r.flags &= pathFlags
	}
	if r.flags&(unix.O_CREAT|tmpfile) == 0 {
		r.mode = 0
	}
	return w.openAny(dirfd, path, r)
}

func sysOpenat2(w *worker) unix.Errno {
	a := &w.req.args
	size := a[3]
	switch {
	case size < unix.SizeofOpenHow:
		return unix.EINVAL
	case size > 4096:
		return unix.E2BIG
	}
	buf := w.two.full[:size]
	if e := w.readExact(a[2], buf); e != 0 {
		return e
	}
	for _, c := range buf[unix.SizeofOpenHow:] {
		if c != 0 {
			return unix.E2BIG
		}
	}
	r := request{
		flags:   binary.NativeEndian.Uint64(buf[0:]),
		mode:    binary.NativeEndian.Uint64(buf[8:]),
		resolve: binary.NativeEndian.Uint64(buf[16:]),
	}
	creates := r.flags&(unix.O_CREAT|tmpfile) != 0
	switch {
	case r.flags&^uint64(validFlags) != 0, r.resolve&^uint64(validResolve) != 0,
		r.resolve&scoped == scoped,
		creates && r.mode&^0o7777 != 0, !creates && r.mode != 0,
		r.flags&unix.O_PATH != 0 && r.flags&^uint64(pathFlags) != 0:
		return unix.EINVAL
	case r.resolve&resolveCached != 0:
		return unix.EAGAIN // the caller tries again without
	}
	return w.openAny(a[0], a[1], r)
}

func (w *worker) openAny(dirfd, path uint64, r request) unix.Errno {
	s := &w.one
	held := r.flags&unix.O_PATH == 0
	if !held && !w.b.c.Hide {
		return w.openPath()
	}
	if e := w.readPath(path, s); e != 0 {
		return e
	}
	if s.len == 0 {
		return unix.ENOENT
	}
	switch {
	case r.flags&tmpfile != 0 && (r.flags&unix.O_DIRECTORY == 0 || r.flags&unix.O_ACCMODE == unix.O_RDONLY || r.flags&unix.O_CREAT != 0):
		return unix.EINVAL
	case r.flags&(unix.O_CREAT|unix.O_DIRECTORY) == unix.O_CREAT|unix.O_DIRECTORY:
		return unix.EINVAL // as from Linux 6.3 on
	}
	var e unix.Errno
	if r.at, e = w.start(dirfd, s, r.resolve&unix.RESOLVE_IN_ROOT != 0); e != 0 {
		return e
	}
	switch {
	case r.flags&unix.O_CREAT == 0 && w.hidden(r.at, s.path(), r.flags&unix.O_NOFOLLOW == 0, r.resolve):
		return unix.ENOENT
	case !held:
		return w.openPath()
	}
	switch r.flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		r.need = canRead
	case unix.O_WRONLY:
		r.need = canWrite
	default:
		r.need = canRead | canWrite
	}
	if r.flags&unix.O_TRUNC != 0 {
		r.need |= canWrite
	}
	switch {
	case r.flags&tmpfile != 0:
		return w.openTmpfile(s, &r)
	case r.flags&unix.O_CREAT != 0:
		return w.openCreate(s, &r)
	case r.need == canRead:
		e = w.openRead(s, &r)
	default:
		e = w.openObject(s.path(), &r)
	}
	if e == unix.ENOENT && !w.told {
		w.reportAbsent(s, &r)
	}
	return e
}

// reportAbsent records the attempt on a name that a rule denies and that is not
// there: who looks for keys is worth a record even where there are none. The name
// is taken as it was written, which decides nothing: the errno stays ENOENT.
func (w *worker) reportAbsent(s *side, r *request) {
	if w.rules == nil {
		return
	}
	clean := s.full[:0]
	if s.in[0] != '/' {
		dir, e := w.pathOf(r.at, s.full[:pathMax])
		if e != 0 || dir[0] != '/' {
			return
		}
		clean = dir
	}
	clean = appendClean(clean, s.in[:s.len])
	w.acc = w.rules.Match(view(clean))
	for op, rule := range w.acc.Rule {
		if r.need&^w.acc.Bits&(1<<op) != 0 && rule != noRule {
			w.report(about{kind: event.Open, path: clean, flags: r.flags, need: r.need}, event.Deny, unix.ENOENT)
			return
		}
	}
}

// appendClean appends a path to a clean absolute one, or to nothing, as path.Join does.
func appendClean(to, path []byte) []byte {
	if len(to) == 1 {
		to = to[:0] // "/"
	}
	for len(path) > 0 {
		var name []byte
		name, path, _ = bytes.Cut(path, []byte{'/'})
		switch string(name) {
		case "", ".":
		case "..":
			to = to[:max(0, bytes.LastIndexByte(to, '/'))]
		default:
			to = append(append(to, '/'), name...)
		}
	}
	if len(to) == 0 {
		to = append(to, '/')
	}
	return to
}

// openPath lets the kernel go on: an O_PATH descriptor gives no data, so there
// is nothing to decide, and what is done through it later is decided then. The
// flags are in registers, which nobody can change meanwhile. Those of openat2 are in memory: it
// is answered ENOSYS, after which callers use openat. (The kernel takes no O_PATH
// descriptor for SECCOMP_IOCTL_NOTIF_ADDFD.)
func (w *worker) openPath() unix.Errno {
	if w.req.nr == unix.SYS_OPENAT2 {
		return unix.ENOSYS
	}
	return w.goOn()
}

// openRead opens first and decides before it hands over: the cheapest order, and
// opening a regular file or a directory for reading changes nothing.
func (w *worker) openRead(s *side, r *request) unix.Errno {
	fd, e, slow := w.open(r.at, s.path(), r.flags|ours, 0, r.resolve)
	switch {
	case slow || e == unix.EAGAIN:
		return w.openObject(s.path(), r)
	case e != 0:
		return e
	}
	w.hold(fd)
	switch w.st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR:
	default:
		// Held meanwhile: a reader of a FIFO must not vanish between two opens.
		return w.openObject(s.path(), r)
	}
	path, e := w.pathOf(fd, s.full[:])
	if e != 0 {
		return e
	}
	a := about{kind: event.Open, path: path, flags: r.flags, need: canRead}
	if !w.checkObject(path, canRead) {
		return w.deny(a, unix.EACCES)
	}
	return w.handOver(fd, r, a)
}

// handOver gives a descriptor that was opened with flags of ours, without those.
func (w *worker) handOver(fd int, r *request, a about) unix.Errno {
	if r.flags&unix.O_NONBLOCK == 0 {
		if e := setStatusFlags(fd, int(r.flags&statusFlags)); e != 0 {
			return e
		}
	}
	w.done(a, 0) // before the caller goes on: its end must not overtake what it did
	cloexec := r.flags&unix.O_CLOEXEC != 0
	if r.flags&unix.O_ACCMODE != unix.O_RDONLY || w.st.Mode&unix.S_IFMT == unix.S_IFIFO {
		return w.surrender(fd, cloexec)
	}
	return w.give(fd, cloexec)
}

// openObject holds the object, decides, and opens exactly the object held.
func (w *worker) openObject(path []byte, r *request) unix.Errno {
	fd, e := w.object(r.at, path, r.flags&unix.O_NOFOLLOW == 0, r.flags&unix.O_DIRECTORY != 0, r.resolve)
	if e != 0 {
		return e
	}
	return w.reopen(fd, r)
}

// reopen opens the object that fd holds and w.st describes with the flags of r.
func (w *worker) reopen(fd int, r *request) unix.Errno {
	if w.st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.ELOOP // O_NOFOLLOW
	}
	path, e := w.pathOf(fd, w.one.full[:])
	if e != 0 {
		return e
	}
	a := about{kind: event.Open, path: path, flags: r.flags, need: r.need}
	if !w.checkObject(path, r.need) {
		return w.deny(a, unix.EACCES)
	}
	flags := r.flags&^(unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW) | ours
	switch {
	case w.isProc():
		e := w.procOpen(path, r.need&canWrite != 0)
		defer w.trusted(true)
		if e != 0 {
			return w.deny(a, e)
		}
	case w.isTerminal():
		if fd, e = w.terminal(); e != 0 {
			return w.done(a, e)
		}
	case w.st.Mode&unix.S_IFMT == unix.S_IFIFO && r.flags&unix.O_NONBLOCK == 0 && r.flags&unix.O_ACCMODE != unix.O_RDWR:
		return w.later(fd, r, a)
	}
	if r.flags&unix.O_TRUNC != 0 && !w.alive() {
		return unix.ESRCH
	}
	w.how = unix.OpenHow{Flags: flags | unix.O_CLOEXEC}
	got, e := openat2(unix.AT_FDCWD, w.magic(fd), &w.how)
	if e == unix.EAGAIN && r.flags&unix.O_NONBLOCK == 0 {
		return w.later(fd, r, a) // somebody holds a lease
	}
	if e != 0 {
		return w.done(a, e)
	}
	return w.handOver(w.hold(got), r, a)
}

// openTmpfile is decided on the directory: the file has no name. A name given
// later is decided by linkat.
func (w *worker) openTmpfile(s *side, r *request) unix.Errno {
	fd, e := w.object(r.at, s.path(), true, true, r.resolve)
	if e != 0 {
		return e
	}
	path, e := w.pathOf(fd, s.full[:])
	if e != 0 {
		return e
	}
	a := about{kind: event.Create, path: path, flags: r.flags, need: r.need | canWrite}
	if w.isProc() || !w.check(path, a.need) {
		return w.deny(a, unix.EACCES)
	}
	if r.mode&suid != 0 {
		return w.deny(a, unix.EPERM)
	}
	if e := w.applyMask(); e != 0 {
		return e
	}
	if !w.alive() {
		return unix.ESRCH
	}
	w.how = unix.OpenHow{Flags: r.flags | ours | unix.O_CLOEXEC, Mode: r.mode}
	got, e := openat2(fd, []byte(".\x00"), &w.how)
	if e != 0 {
		return w.done(a, e)
	}
	return w.handOver(w.hold(got), r, a)
}

// openCreate opens a name that may not exist yet. The directory is held, its
// path plus the name is decided, and the act never follows a link, so that the
// decided name is the one that is opened or made. A link in last place is followed here, as the
// kernel would, dangling ones too.
func (w *worker) openCreate(s *side, r *request) unix.Errno {
	path, at := s.path(), r.at
	for range maxLinks + 1 {
		p, e := w.parent(at, path, s, r.resolve)
		if e != 0 {
			return e
		}
		if p.dots || p.slash {
			if p.dots && r.flags&unix.O_EXCL != 0 {
				return unix.EEXIST
			}
			return unix.EISDIR
		}
		if p.proc {
			return w.openProcName(&p, r)
		}
		e, again := w.openName(&p, s, r)
		if !again {
			return e
		}
		// A link: go on with its target, from its directory.
		if r.resolve&unix.RESOLVE_NO_SYMLINKS != 0 || r.flags&unix.O_NOFOLLOW != 0 {
			return unix.ELOOP
		}
		n, e := readlinkat(p.dir, p.name, s.next[:pathMax])
		if e == unix.EINVAL || e == unix.ENOENT {
			continue // replaced meanwhile: look again
		}
		if e != 0 {
			return e
		}
		s.next[n] = 0
		path = s.next[:n+1]
		if at = p.dir; s.next[0] == '/' && r.resolve&scoped == 0 {
			at = unix.AT_FDCWD
		} else if r.resolve&scoped != 0 {
			return unix.EXDEV // the scope would have to be carried along
		}
	}
	return unix.ELOOP
}

// openProcName opens an existing name of a procfs directory: nothing can be made
// there.
func (w *worker) openProcName(p *spot, r *request) unix.Errno {
	fd, e := w.walk(p.dir, p.name[:len(p.name)-1], walkTo{follow: r.flags&unix.O_NOFOLLOW == 0, resolve: r.resolve})
	if e != 0 {
		return e
	}
	if r.flags&unix.O_EXCL != 0 {
		return unix.EEXIST
	}
	if e := fstat(fd, &w.st); e != 0 {
		return e
	}
	return w.reopen(fd, r)
}

// openName opens or makes p. again means that the name is a link.
func (w *worker) openName(p *spot, s *side, r *request) (e unix.Errno, again bool) {
	w.b.names.RLock()
	defer w.b.names.RUnlock()
	if e := w.canonical(p, s); e != 0 {
		return e, false
	}
	a := about{kind: event.Open, path: p.full, flags: r.flags, need: r.need}
	if !w.checkName(p, r.need) {
		if _, e := readlinkat(p.dir, p.name, w.link[:]); e == 0 && !w.concealed() && r.flags&(unix.O_EXCL|unix.O_NOFOLLOW) == 0 {
			return 0, true
		}
		return w.deny(a, unix.EACCES), false
	}
	if !w.alive() {
		return unix.ESRCH, false
	}
	flags := r.flags | ours | unix.O_CLOEXEC
	resolve := r.resolve&unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS // O_NOFOLLOW would stay visible in F_GETFL
	if r.flags&unix.O_EXCL == 0 {
		w.how = unix.OpenHow{Flags: flags &^ unix.O_CREAT, Resolve: resolve}
		fd, e := openat2(p.dir, p.name, &w.how)
		switch e {
		case 0:
			return w.opened(w.hold(fd), p, r, a), false
		case unix.ELOOP:
			return e, r.flags&unix.O_NOFOLLOW == 0
		case unix.ENXIO, unix.EAGAIN: // a FIFO without reader, our lack of a terminal, a lease
			return w.openSpecial(p, r), false
		case unix.ENOENT:
		default:
			return w.done(a, e), false
		}
	}
	a.kind, a.need = event.Create, r.need|canWrite
	if !w.check(p.full, a.need) {
		return w.deny(a, unix.EACCES), false
	}
	if r.mode&suid != 0 {
		return w.deny(a, unix.EPERM), false
	}
	if e := w.applyMask(); e != 0 {
		return e, false
	}
	w.how = unix.OpenHow{Flags: flags, Mode: r.mode, Resolve: resolve}
	fd, e := openat2(p.dir, p.name, &w.how)
	if e == unix.ELOOP && r.flags&(unix.O_EXCL|unix.O_NOFOLLOW) == 0 {
		return e, true
	}
	if e != 0 {
		return w.done(a, e), false
	}
	return w.opened(w.hold(fd), p, r, a), false
}

// opened hands over what was opened by name, unless it turned out to be special.
func (w *worker) opened(fd int, p *spot, r *request, a about) unix.Errno {
	if e := fstat(fd, &w.st); e != 0 {
		return e
	}
	switch w.st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFIFO:
		if r.flags&unix.O_ACCMODE == unix.O_RDONLY && r.flags&unix.O_NONBLOCK == 0 {
			return w.openSpecial(p, r) // fd is held meanwhile
		}
	default:
		if w.isTerminal() {
			return w.openSpecial(p, r)
		}
	}
	return w.handOver(fd, r, a)
}

// openSpecial opens the object that has the name now.
func (w *worker) openSpecial(p *spot, r *request) unix.Errno {
	w.how = unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC}
	fd, e := openat2(p.dir, p.name, &w.how)
	if e != 0 {
		return e
	}
	w.hold(fd)
	if e := fstat(fd, &w.st); e != 0 {
		return e
	}
	return w.reopen(fd, r)
}
