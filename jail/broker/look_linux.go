package broker

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

// look says where a call has a name, and what becomes of it.
type look struct {
	dir   int  // argument with the directory, or cwd
	path  int  // argument with the path
	flags int  // argument with flags, or none
	link  uint // how the last component is followed
	makes bool // the call makes the last component, and fails with EACCES whatever is there
}

const (
	cwd  = -1
	none = -1
)

// How a link in last place is followed.
const (
	always uint = iota
	never
	unlessNofollow // AT_SYMLINK_NOFOLLOW among the flags
	ifFollow       // AT_SYMLINK_FOLLOW among the flags
	asOpen         // O_NOFOLLOW, or O_CREAT with O_EXCL, among the flags
	asOpen2        // the same in a struct open_how
)

// asks are the calls that ask about a name and act on nothing that another handler decides.
var asks = map[int]look{
	unix.SYS_NEWFSTATAT: {0, 1, 3, unlessNofollow, false},
	unix.SYS_STATX:      {0, 1, 2, unlessNofollow, false},
	unix.SYS_FACCESSAT:  {0, 1, none, always, false},
	unix.SYS_FACCESSAT2: {0, 1, 3, unlessNofollow, false},
	unix.SYS_READLINKAT: {0, 1, none, never, false},
	unix.SYS_STATFS:     {cwd, 0, none, always, false},
	unix.SYS_CHDIR:      {cwd, 0, none, always, false},
	unix.SYS_EXECVE:     {cwd, 0, none, always, false},
	unix.SYS_EXECVEAT:   {0, 1, 4, unlessNofollow, false},
	unix.SYS_LISTXATTR:  {cwd, 0, none, always, false},
	unix.SYS_LLISTXATTR: {cwd, 0, none, never, false},
}

// acts are the calls that the broker carries out itself, except where the kernel decides: there
// only their names are looked at. Of two names each has a row.
var acts = map[int][]look{
	unix.SYS_OPENAT:            {{0, 1, 2, asOpen, false}},
	unix.SYS_OPENAT2:           {{0, 1, 2, asOpen2, false}},
	unix.SYS_MKDIRAT:           {{0, 1, none, never, true}},
	unix.SYS_MKNODAT:           {{0, 1, none, never, true}},
	unix.SYS_SYMLINKAT:         {{1, 2, none, never, true}},
	unix.SYS_UNLINKAT:          {{0, 1, none, never, false}},
	unix.SYS_RENAMEAT:          {{0, 1, none, never, false}, {2, 3, none, never, true}},
	unix.SYS_RENAMEAT2:         {{0, 1, none, never, false}, {2, 3, none, never, true}},
	unix.SYS_LINKAT:            {{0, 1, 4, ifFollow, false}, {2, 3, none, never, true}},
	unix.SYS_TRUNCATE:          {{cwd, 0, none, always, false}},
	unix.SYS_FCHMODAT:          {{0, 1, none, always, false}},
	unix.SYS_FCHMODAT2:         {{0, 1, 3, unlessNofollow, false}},
	unix.SYS_FCHOWNAT:          {{0, 1, 4, unlessNofollow, false}},
	unix.SYS_UTIMENSAT:         {{0, 1, 3, unlessNofollow, false}},
	unix.SYS_GETXATTR:          {{cwd, 0, none, always, false}},
	unix.SYS_LGETXATTR:         {{cwd, 0, none, never, false}},
	unix.SYS_SETXATTR:          {{cwd, 0, none, always, false}},
	unix.SYS_LSETXATTR:         {{cwd, 0, none, never, false}},
	unix.SYS_REMOVEXATTR:       {{cwd, 0, none, always, false}},
	unix.SYS_LREMOVEXATTR:      {{cwd, 0, none, never, false}},
	unix.SYS_INOTIFY_ADD_WATCH: {{cwd, 1, none, always, false}},
}

// Looks names the calls that the filter sends to the broker besides [Notified] for rules that hide
// names ([Config].Hide), and in the place of Notified where the kernel decides
// ([Config].Kernel): read only.
var Looks = []string{
	"getdents", "getdents64", "stat", "lstat", "newfstatat", "statx", "statfs", "access", "faccessat", "faccessat2",
	"readlink", "readlinkat", "chdir", "execve", "execveat", "listxattr", "llistxattr",
}

// LooksInKernel are the calls that the kernel decides and that ask about a name: with Looks all
// that the broker is sent where [Config].Kernel is true: read only.
var LooksInKernel = []string{
	"open", "openat", "openat2", "creat", "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat",
	"unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2", "link", "linkat", "truncate",
	"chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "utime", "utimes", "futimesat", "utimensat",
	"getxattr", "lgetxattr", "setxattr", "lsetxattr", "removexattr", "lremovexattr", "inotify_add_watch",
}

// lookHandlers adds the handlers of rules that hide names to t; with kernel they are all there are.
func lookHandlers(t *[tableSize]handler, kernel bool) {
	if kernel {
		*t = [tableSize]handler{}
		for nr, l := range acts {
			t[nr] = looking(l...)
		}
		for nr, l := range oldActs() {
			t[nr] = looking(l...)
		}
	}
	for nr, l := range asks {
		t[nr] = looking(l)
	}
	for nr, l := range oldAsks() {
		t[nr] = looking(l)
	}
	t[unix.SYS_GETDENTS64] = sysGetdents64
}

// looking answers for a call whose names it looks at: ENOENT for one that is hidden, EACCES where it
// was to be made. All else the kernel carries out, and decides. A caller that changes the
// name meanwhile is told whether what it guessed is there, and no more.
func looking(list ...look) handler {
	return func(w *worker) unix.Errno {
		for _, l := range list {
			if e := w.look(l); e != 0 {
				return e
			}
		}
		return w.goOn()
	}
}

func (w *worker) look(l look) unix.Errno {
	a, s := w.req.args, &w.one
	if a[l.path] == 0 { // the descriptor itself, or EFAULT
		return 0
	}
	if e := w.readPath(a[l.path], s); e != 0 {
		return e
	}
	if s.len == 0 {
		return 0 // AT_EMPTY_PATH, or ENOENT
	}
	dirfd := here
	if l.dir != cwd {
		dirfd = a[l.dir]
	}
	at, e := w.start(dirfd, s, false)
	if e != 0 {
		return e
	}
	follow, makes, resolve, e := w.manner(l)
	if e != 0 {
		return e
	}
	if makes {
		if e := w.makes(at, s); e != 0 {
			return e
		}
		if follow && w.hidden(at, s.path(), true, resolve) { // by a link
			return unix.EACCES
		}
		return 0
	}
	if w.hidden(at, s.path(), follow, resolve) {
		return unix.ENOENT
	}
	return 0
}

// manner says how the last component of a path is looked up.
func (w *worker) manner(l look) (follow, makes bool, resolve uint64, e unix.Errno) {
	var flags uint64
	if l.flags != none {
		flags = w.req.args[l.flags]
	}
	if l.link == asOpen2 {
		var how [unix.SizeofOpenHow]byte
		if e := w.readExact(flags, how[:]); e != 0 {
			return false, false, 0, e
		}
		flags, resolve = binary.NativeEndian.Uint64(how[:]), binary.NativeEndian.Uint64(how[16:])&validResolve&^resolveCached
	}
	switch l.link {
	case always:
		follow = true
	case unlessNofollow:
		follow = flags&unix.AT_SYMLINK_NOFOLLOW == 0
	case ifFollow:
		follow = flags&unix.AT_SYMLINK_FOLLOW != 0
	case asOpen, asOpen2:
		follow = flags&unix.O_NOFOLLOW == 0
		if flags&unix.O_CREAT != 0 && flags&unix.O_PATH == 0 {
			return follow && flags&unix.O_EXCL == 0, true, resolve, 0
		}
	}
	return follow, l.makes, resolve, 0
}

// makes is look for a name that is to be made: the answer is the same whether it is there.
func (w *worker) makes(at int, s *side) unix.Errno {
	p, e := w.parent(at, s.path(), s, 0)
	switch {
	case w.told:
		return unix.ENOENT
	case e != 0 || p.dots:
		return 0 // the kernel says why
	}
	if w.canonical(&p, s) != 0 {
		return unix.EACCES
	}
	if w.shown(p.full) {
		return 0
	}
	w.acc = w.rules.Match(view(p.full))
	return w.deny(about{kind: event.Create, path: p.full, need: canSee}, unix.EACCES)
}
