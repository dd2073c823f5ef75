package broker

import (
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

const here = ^uint64(99) // AT_FDCWD as an argument

// place resolves the parent of a path argument.
func (w *worker) place(dirfd, addr uint64, s *side) (spot, unix.Errno) {
	if e := w.readPath(addr, s); e != 0 {
		return spot{}, e
	}
	if s.len == 0 {
		return spot{}, unix.ENOENT
	}
	at, e := w.start(dirfd, s, false)
	if e != 0 {
		return spot{}, e
	}
	return w.parent(at, s.path(), s, 0)
}

// alone decides write on one name and carries act out while no name moves.
func (w *worker) alone(p *spot, s *side, a about, act func() unix.Errno) unix.Errno {
	w.b.names.RLock()
	defer w.b.names.RUnlock()
	if e := w.canonical(p, s); e != 0 {
		return e
	}
	a.path, a.need = p.full, canWrite
	if p.proc {
		return w.deny(a, unix.EPERM)
	}
	if !w.check(p.full, canWrite) {
		if w.concealed() && (a.kind == event.Unlink || a.kind == event.Rmdir) {
			return w.deny(a, unix.ENOENT)
		}
		return w.deny(a, unix.EACCES) // to make: whether it is there or not
	}
	if !w.alive() {
		return unix.ESRCH
	}
	return w.done(a, act())
}

func sysMkdir(w *worker) unix.Errno   { a := &w.req.args; return w.mkdir(here, a[0], a[1]) }
func sysMkdirat(w *worker) unix.Errno { a := &w.req.args; return w.mkdir(a[0], a[1], a[2]) }

func (w *worker) mkdir(dirfd, path, mode uint64) unix.Errno {
	s := &w.one
	p, e := w.place(dirfd, path, s)
	if e != 0 {
		return e
	}
	if p.dots {
		return unix.EEXIST
	}
	if e := w.applyMask(); e != 0 {
		return e
	}
	return w.alone(&p, s, about{kind: event.Mkdir, flags: mode}, func() unix.Errno {
		return pathCall(unix.SYS_MKDIRAT, p.dir, p.name, uintptr(mode&0o1777), 0, 0)
	})
}

func sysMknod(w *worker) unix.Errno   { a := &w.req.args; return w.mknod(here, a[0], a[1]) }
func sysMknodat(w *worker) unix.Errno { a := &w.req.args; return w.mknod(a[0], a[1], a[2]) }

// mknod makes what gives no access by itself: regular files, FIFOs, sockets.
func (w *worker) mknod(dirfd, path, mode uint64) unix.Errno {
	switch mode & unix.S_IFMT {
	case 0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK:
	default:
		return unix.EPERM
	}
	if mode&suid != 0 {
		return unix.EPERM
	}
	s := &w.one
	p, e := w.place(dirfd, path, s)
	if e != 0 {
		return e
	}
	switch {
	case p.dots:
		return unix.EEXIST
	case p.slash:
		return unix.ENOENT
	}
	if e := w.applyMask(); e != 0 {
		return e
	}
	return w.alone(&p, s, about{kind: event.Mknod, flags: mode}, func() unix.Errno {
		return pathCall(unix.SYS_MKNODAT, p.dir, p.name, uintptr(mode&(unix.S_IFMT|0o1777)), 0, 0)
	})
}

func sysSymlink(w *worker) unix.Errno   { a := &w.req.args; return w.symlink(a[0], here, a[1]) }
func sysSymlinkat(w *worker) unix.Errno { a := &w.req.args; return w.symlink(a[0], a[1], a[2]) }

// symlink decides the new name only: where a link leads is decided when it is
// followed.
func (w *worker) symlink(target, dirfd, path uint64) unix.Errno {
	if e := w.readPath(target, &w.two); e != 0 {
		return e
	}
	s := &w.one
	p, e := w.place(dirfd, path, s)
	if e != 0 {
		return e
	}
	switch {
	case p.dots:
		return unix.EEXIST
	case p.slash || w.two.len == 0:
		return unix.ENOENT
	}
	return w.alone(&p, s, about{kind: event.Symlink, path2: w.two.in[:w.two.len]}, func() unix.Errno {
		return symlinkCall(w.two.path(), p.dir, p.name)
	})
}

func sysUnlink(w *worker) unix.Errno   { a := &w.req.args; return w.unlink(here, a[0], 0) }
func sysRmdir(w *worker) unix.Errno    { a := &w.req.args; return w.unlink(here, a[0], unix.AT_REMOVEDIR) }
func sysUnlinkat(w *worker) unix.Errno { a := &w.req.args; return w.unlink(a[0], a[1], a[2]) }

func (w *worker) unlink(dirfd, path, flags uint64) unix.Errno {
	flags &= 0xffffffff
	if flags&^unix.AT_REMOVEDIR != 0 {
		return unix.EINVAL
	}
	s := &w.one
	p, e := w.place(dirfd, path, s)
	if e != 0 {
		return e
	}
	a := about{kind: event.Unlink}
	name := p.name
	if flags != 0 {
		a.kind = event.Rmdir
		if p.dots {
			return removeDots(s)
		}
	} else {
		if p.dots {
			return unix.EISDIR
		}
		if p.slash { // the kernel tells ENOTDIR and EISDIR apart
			name = append(p.name[:len(p.name)-1], '/', 0)
		}
	}
	return w.alone(&p, s, a, func() unix.Errno {
		return pathCall(unix.SYS_UNLINKAT, p.dir, name, uintptr(flags), 0, 0)
	})
}

// removeDots is the kernel's answer to rmdir of "/", "." and "..".
func removeDots(s *side) unix.Errno {
	text := s.in[:s.len]
	for len(text) > 0 && text[len(text)-1] == '/' {
		text = text[:len(text)-1]
	}
	switch n := len(text); {
	case n == 0:
		return unix.EBUSY
	case n >= 2 && text[n-1] == '.' && text[n-2] == '.':
		return unix.ENOTEMPTY
	}
	return unix.EINVAL
}

func sysRename(w *worker) unix.Errno { a := &w.req.args; return w.rename(here, a[0], here, a[1], 0) }

func sysRenameat(w *worker) unix.Errno { a := &w.req.args; return w.rename(a[0], a[1], a[2], a[3], 0) }

func sysRenameat2(w *worker) unix.Errno {
	a := &w.req.args
	return w.rename(a[0], a[1], a[2], a[3], a[4])
}

// rename decides write on both names, and that nothing gains an access by its
// new name: for a file that its content could have been copied there, for a directory
// that no path below gains anything. No other name of the jail moves
// between decision and act.
//
// A directory that would gain is refused with EXDEV, as overlayfs does: mv and its like then
// copy file by file, and every file is decided.
func (w *worker) rename(dirfd1, path1, dirfd2, path2, flags uint64) unix.Errno {
	flags &= 0xffffffff
	if flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE|unix.RENAME_WHITEOUT) != 0 ||
		flags&unix.RENAME_EXCHANGE != 0 && flags != unix.RENAME_EXCHANGE {
		return unix.EINVAL
	}
	if flags&unix.RENAME_WHITEOUT != 0 {
		return unix.EPERM // needs a device node
	}
	p, e := w.place(dirfd1, path1, &w.one)
	if e != 0 {
		return e
	}
	q, e := w.place(dirfd2, path2, &w.two)
	if e != 0 {
		return e
	}
	if p.dots || q.dots {
		return unix.EBUSY
	}
	w.b.names.Lock()
	defer w.b.names.Unlock()
	if e := w.canonical(&p, &w.one); e != 0 {
		return e
	}
	if e := w.canonical(&q, &w.two); e != 0 {
		return e
	}
	a := about{kind: event.Rename, path: p.full, path2: q.full, flags: flags, need: canWrite}
	if p.proc || q.proc {
		return w.deny(a, unix.EPERM)
	}
	for _, n := range []*spot{&p, &q} {
		// The second name is made, and refused the same whether it is there, but for an exchange.
		if !w.check(n.full, canWrite) && w.concealed() && (n == &p || flags&unix.RENAME_EXCHANGE != 0) {
			return w.deny(a, unix.ENOENT)
		}
	}
	e = w.mayMove(&p, &q)
	if e == 0 && flags&unix.RENAME_EXCHANGE != 0 {
		e = w.mayMove(&q, &p)
	}
	switch e {
	case 0:
	case unix.EACCES, unix.EXDEV:
		return w.deny(a, e)
	default:
		return e
	}
	if !w.alive() {
		return unix.ESRCH
	}
	return w.done(a, twoPathCall(unix.SYS_RENAMEAT2, p.dir, slashed(&p), q.dir, slashed(&q), uintptr(flags)))
}

// slashed is the name as the caller wrote it: a slash at its end demands a
// directory.
func slashed(p *spot) []byte {
	if !p.slash {
		return p.name
	}
	return append(p.name[:len(p.name)-1], '/', 0)
}

// mayMove decides p -> q. It returns EACCES or EXDEV for a refusal.
func (w *worker) mayMove(p, q *spot) unix.Errno {
	if !w.check(q.full, canWrite) {
		return unix.EACCES
	}
	to := w.acc.Bits
	if !w.check(p.full, canWrite) {
		return unix.EACCES
	}
	from := w.acc.Bits
	w.how = unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC}
	fd, e := openat2(p.dir, p.name, &w.how)
	if e != 0 {
		return e
	}
	e = fstat(fd, &w.st)
	closeFD(fd)
	if e != 0 {
		return e
	}
	switch w.st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return 0
	case unix.S_IFDIR:
		if !w.rules.NoGain(view(p.full), view(q.full)) {
			return unix.EXDEV
		}
		return 0
	}
	if to&^from&canRead != 0 || to&^from&canExec != 0 && from&canRead == 0 {
		return unix.EACCES
	}
	return 0
}

func sysLink(w *worker) unix.Errno { a := &w.req.args; return w.makeLink(here, a[0], here, a[1], 0) }

func sysLinkat(w *worker) unix.Errno {
	a := &w.req.args
	return w.makeLink(a[0], a[1], a[2], a[3], a[4])
}

// makeLink gives a file a second name: it must be readable and writable under the one
// it has, so that no other name can give more.
func (w *worker) makeLink(dirfd1, path1, dirfd2, path2, flags uint64) unix.Errno {
	flags &= 0xffffffff
	if flags&^(unix.AT_SYMLINK_FOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return unix.EINVAL
	}
	s := &w.one
	if e := w.readPath(path1, s); e != 0 {
		return e
	}
	old, e := w.target(dirfd1, s, flags&unix.AT_SYMLINK_FOLLOW != 0, flags&unix.AT_EMPTY_PATH != 0)
	if e != 0 {
		return e
	}
	st, proc := w.st, w.isProc()
	q, e := w.place(dirfd2, path2, &w.two)
	if e != 0 {
		return e
	}
	switch {
	case q.dots:
		return unix.EEXIST
	case q.slash:
		return unix.ENOENT
	}
	w.b.names.Lock()
	defer w.b.names.Unlock()
	if e := w.canonical(&q, &w.two); e != 0 {
		return e
	}
	from, e := w.pathOf(old, s.full[:])
	if e != 0 {
		return e
	}
	w.st = st
	a := about{kind: event.Link, path: from, path2: q.full, need: canRead | canWrite}
	switch {
	case proc || q.proc:
		return w.deny(a, unix.EPERM)
	case !w.check(from, canRead|canWrite):
		return w.deny(a, unix.EACCES)
	}
	w.st.Nlink = 1
	if !w.check(q.full, canWrite) {
		return w.deny(a, unix.EACCES)
	}
	if !w.alive() {
		return unix.ESRCH
	}
	return w.done(a, twoPathCall(unix.SYS_LINKAT, unix.AT_FDCWD, w.magic(old), q.dir, q.name, unix.AT_SYMLINK_FOLLOW))
}

// target opens the object of a path argument that has been read, or with empty
// the object of dirfd itself if the path is "".
func (w *worker) target(dirfd uint64, s *side, follow, empty bool) (int, unix.Errno) {
	if s.len == 0 {
		if !empty {
			return -1, unix.ENOENT
		}
		fd, e := w.descriptor(int32(dirfd))
		if e != 0 {
			return -1, e
		}
		return fd, fstat(fd, &w.st)
	}
	at, e := w.start(dirfd, s, false)
	if e != 0 {
		return -1, e
	}
	if w.hidden(at, s.path(), follow, 0) {
		return -1, unix.ENOENT
	}
	return w.object(at, s.path(), follow, false, 0)
}
