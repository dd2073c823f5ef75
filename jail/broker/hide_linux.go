package broker

import (
	"bytes"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail/dirent"
)

// hidden reports, and records, that a path leads to a name that a rule hides or through one: as
// the kernel would resolve it for the caller, links and ".." included, because "x/../y" says
// whether x is there.
//
// Where nothing is hidden on the way and no link is met, it costs an open, a look at it and its
// path. What is not there is not hidden.
func (w *worker) hidden(at int, path []byte, follow bool, resolve uint64) bool {
	text := path[:len(path)-1]
	if !w.b.c.Hide || w.rules == nil || len(text) == 0 {
		return false
	}
	if !climbs(text) {
		w.how = unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: resolve | unix.RESOLVE_NO_SYMLINKS}
		fd, e := openat2(at, w.straight(path, resolve), &w.how)
		switch e {
		case unix.ENOENT:
			return false
		case 0:
			defer closeFD(fd)
			if e := fstat(fd, &w.st); e != 0 {
				return true
			}
			if !follow || w.st.Mode&unix.S_IFMT != unix.S_IFLNK {
				return w.unseen(fd) != 0
			}
		}
	}
	w.looks, w.met = true, false
	_, _ = w.walk(at, text, walkTo{follow: follow, resolve: resolve})
	w.looks = false
	return w.met
}

// climbs reports whether a path has "..".
func climbs(path []byte) bool {
	for len(path) > 0 {
		var name []byte
		if name, path, _ = bytes.Cut(path, []byte{'/'}); string(name) == ".." {
			return true
		}
	}
	return false
}

// unseen is ENOENT, and recorded, if the object of a descriptor has a name that is hidden or lies
// below one.
func (w *worker) unseen(fd int) unix.Errno {
	path, e := w.pathOf(fd, w.canon[:])
	if e != 0 {
		path = nil
	}
	if e == 0 && w.shown(path) {
		return 0
	}
	w.met = true
	w.st = unix.Stat_t{}
	w.acc = w.rules.Match(view(path))
	return w.deny(about{kind: event.Open, path: path, need: canSee}, unix.ENOENT)
}

// shown reports whether a canonical path may be seen. What has no name cannot be hidden by one; an
// unlinked object has the one it had, with the kernel's mark or, if it is called so, without.
func (w *worker) shown(path []byte) bool {
	if len(path) == 0 {
		return false
	}
	if path[0] != '/' {
		return true
	}
	stripped, deleted := bytes.CutSuffix(path, deletedMark)
	return w.rules.Shows(view(path)) && (!deleted || len(stripped) == 0 || w.rules.Shows(view(stripped)))
}

// concealed reports whether the path that was matched last is hidden, and so must be ENOENT.
func (w *worker) concealed() bool { return w.b.c.Hide && w.acc.Bits&canSee == 0 }

// listBytes bounds what one call lists: glibc asks for as much.
const listBytes = 32 << 10

// sysGetdents64 lists a directory without the names that are hidden. It reads at the caller's own
// place in it, no more than the caller has room for, so that what stays keeps its
// place and its offsets, and whoever shares the descriptor goes on behind it.
func sysGetdents64(w *worker) unix.Errno {
	a := w.req.args
	fd, e := w.take(int32(a[0]))
	if e != 0 {
		return e
	}
	if !w.alive() {
		return unix.ESRCH
	}
	if w.rules == nil {
		return unix.EACCES
	}
	w.trusted(false) // a procfs may show more to who may trace
	defer w.trusted(true)
	w.b.names.RLock()
	defer w.b.names.RUnlock()
	if w.list == nil {
		w.list = make([]byte, listBytes)
	}
	room := int(min(a[2]&0xffffffff, listBytes))
	for {
		n, e := w.listSome(fd, room)
		if e != 0 {
			return e
		}
		if n > 0 {
			w.trusted(true)
			e = w.writeExact(a[1], w.list[:n])
		}
		if n >= 0 {
			w.val = int64(n)
			return e
		}
		if !w.alive() { // 0 would be the end: read on, as long as somebody waits
			return unix.ESRCH
		}
	}
}

// listSome reads entries into w.list, at most room bytes of them, and drops those that are hidden: 0
// at the end of the directory, -1 if nothing of what was read may be seen.
func (w *worker) listSome(fd, room int) (int, unix.Errno) {
	before, e := w.pathOf(fd, w.one.full[:])
	if e != 0 {
		return 0, e
	}
	n, err := unix.Getdents(fd, w.list[:room])
	small := err == unix.EINVAL && room < dirent.MaxLen
	if small {
		if n, e = w.listOne(fd, room); e != 0 {
			return 0, e
		}
	} else if err != nil {
		return 0, errnoOf(err)
	}
	if n == 0 {
		return 0, 0
	}
	// The host, and where the kernel decides the jail, may have moved the directory meanwhile.
	after, e := w.pathOf(fd, w.two.full[:])
	if e != 0 {
		return 0, e
	}
	moved := !bytes.Equal(before, after)
	kept := len(dirent.Filter(w.list[:n], func(name []byte) bool {
		return w.showsIn(before, name) && (!moved || w.showsIn(after, name))
	}))
	switch {
	case kept == 0:
		return -1, 0
	case small: // it has to be read with more room
		_, err := unix.Seek(fd, w.offset, unix.SEEK_SET)
		if err != nil {
			return 0, errnoOf(err)
		}
		return 0, unix.EINVAL
	}
	return kept, 0
}

// listOne reads the one entry for which a caller has too little room, and notes in w.offset
// where it stands: were it hidden, EINVAL would say that it is there.
func (w *worker) listOne(fd, room int) (n int, e unix.Errno) {
	at, err := unix.Seek(fd, 0, unix.SEEK_CUR)
	if err != nil {
		return 0, errnoOf(err)
	}
	w.offset = at
	for size := (room + 8) &^ 7; size <= dirent.MaxLen; size += 8 {
		if n, err = unix.Getdents(fd, w.list[:size]); err != unix.EINVAL {
			break
		}
	}
	if err != nil {
		return 0, errnoOf(err)
	}
	return n, 0
}

// showsIn reports whether a name may be seen in the directory dir, which is a buffer with room
// behind it. A directory that cannot be named shows nothing.
func (w *worker) showsIn(dir, name []byte) bool {
	if len(dir) == 0 || dir[0] != '/' {
		return false
	}
	full := dir
	if len(dir) > 1 {
		full = append(full, '/')
	}
	full = append(full, name...)
	return w.rules.Match(view(full)).Bits&canSee != 0
}
