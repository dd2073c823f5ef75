package broker

import (
	"bytes"
	pathpkg "path"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxLinks is MAXSYMLINKS of the kernel.
const maxLinks = 40

// scoped are the resolve flags under which a path may not leave its start.
const scoped = unix.RESOLVE_BENEATH | unix.RESOLVE_IN_ROOT

// isProc reports whether the object in w.st lies in procfs.
func (w *worker) isProc() bool { return w.st.Dev == w.b.procDev }

// open tries a path in one go. It is exact unless it returns slow: then the path
// goes through procfs, where our thread would see itself in place of the caller, or
// may do so.
//
// On success w.st describes the object.
func (w *worker) open(at int, path []byte, flags, mode, resolve uint64) (fd int, e unix.Errno, slow bool) {
	// Where no link is passed nothing can mean "self": what is not there is there for nobody.
	w.how = unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Mode: mode, Resolve: resolve | unix.RESOLVE_NO_SYMLINKS}
	fd, e = openat2(at, w.straight(path, resolve), &w.how)
	switch e {
	case 0:
	case unix.ENOENT, unix.ENOTDIR:
		return -1, e, false
	default:
		w.how = unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Mode: mode, Resolve: resolve | unix.RESOLVE_NO_MAGICLINKS}
		fd, e = openat2(at, path, &w.how)
	}
	switch e {
	case 0:
		if e = fstat(fd, &w.st); e != 0 {
			closeFD(fd)
			return -1, e, false
		}
		if w.isProc() {
			closeFD(fd)
			return -1, 0, true
		}
		return fd, 0, false
	case unix.ELOOP:
		return -1, e, resolve&unix.RESOLVE_NO_SYMLINKS == 0
	case unix.EXDEV:
		return -1, e, true
	case unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.EPERM, unix.ENXIO, unix.ESRCH:
		// Did it fail in somebody's /proc/self? Not if no link was passed.
		w.how = unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: resolve | unix.RESOLVE_NO_SYMLINKS}
		again, e2 := openat2(at, path, &w.how)
		if e2 == 0 {
			var st unix.Stat_t
			e2 = fstat(again, &st)
			closeFD(again)
			if e2 == 0 && st.Dev != w.b.procDev && st.Mode&unix.S_IFMT != unix.S_IFLNK {
				return -1, e, false
			}
			return -1, e, true
		}
		return -1, e, e2 != e
	}
	return -1, e, false
}

// straight is path without a link of the root directory at its beginning ("/lib" for
// "usr/lib"), or path itself.
func (w *worker) straight(path []byte, resolve uint64) []byte {
	if resolve != 0 {
		return path
	}
	for _, l := range w.b.rootLinks {
		if rest, ok := bytes.CutPrefix(path, l.from); ok && len(l.to)+len(rest) <= len(w.link) {
			return append(append(w.link[:0], l.to...), rest...)
		}
	}
	return path
}

// rootLink is a link of the root directory: "/lib/" and "/usr/lib/".
type rootLink struct{ from, to []byte }

// readRootLinks remembers the links of the root directory, if the agent cannot change them.
func (b *Broker) readRootLinks() {
	var st unix.Stat_t
	if e := fstat(b.root, &st); e != 0 || int(st.Uid) == b.c.UID || st.Mode&0o022 != 0 {
		return
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		var buf [256]byte
		n, e := readlinkat(b.root, append([]byte(name), 0), buf[:])
		if e != 0 || n == len(buf) {
			continue
		}
		to := pathpkg.Join("/", string(buf[:n])) + "/"
		b.rootLinks = append(b.rootLinks, rootLink{[]byte("/" + name + "/"), []byte(to)})
	}
}

// object opens what a path names as O_PATH and describes it in w.st.
func (w *worker) object(at int, path []byte, follow, dir bool, resolve uint64) (int, unix.Errno) {
	flags := uint64(unix.O_PATH)
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	if dir {
		flags |= unix.O_DIRECTORY
	}
	fd, e, slow := w.open(at, path, flags, 0, resolve)
	if !slow {
		if e != 0 {
			return -1, e
		}
		return w.hold(fd), 0
	}
	fd, e = w.walk(at, path[:len(path)-1], walkTo{follow: follow, dir: dir, resolve: resolve})
	if e != 0 {
		return -1, e
	}
	if e = fstat(fd, &w.st); e != 0 {
		return -1, e
	}
	return fd, 0
}

// spot is a name in a directory.
type spot struct {
	dir   int
	name  []byte // NUL-terminated
	full  []byte // canonical path of the directory + name, without NUL
	slash bool   // the path ended in a slash
	dots  bool   // the last component is ".", ".." or nothing: there is no name
	proc  bool   // the directory lies in procfs
}

// parent resolves all of a path but its last component, which is left in s.name.
func (w *worker) parent(at int, path []byte, s *side, resolve uint64) (p spot, e unix.Errno) {
	text := path[:len(path)-1]
	if len(text) == 0 {
		return p, unix.ENOENT
	}
	end := len(text)
	for end > 0 && text[end-1] == '/' {
		end--
	}
	p.slash = end < len(text)
	begin := bytes.LastIndexByte(text[:end], '/') + 1
	last := text[begin:end]
	if len(last) > 255 {
		return p, unix.ENAMETOOLONG
	}
	if len(last) == 0 || string(last) == "." || string(last) == ".." {
		p.dots = true
		if w.hidden(at, path, true, resolve) {
			return p, unix.ENOENT
		}
		p.dir, e = w.object(at, path, true, true, resolve)
		p.proc = e == 0 && w.isProc()
		return p, e
	}
	p.name = s.name[:copy(s.name[:], last)+1]
	p.name[len(last)] = 0
	switch {
	case begin == 0 && at == unix.AT_FDCWD:
		return p, unix.ENOENT
	case begin == 0:
		p.dir = at
		if e = fstat(at, &w.st); e != 0 {
			return p, e
		}
		if w.st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return p, unix.ENOTDIR
		}
	default:
		saved := path[begin]
		path[begin] = 0
		if e = unix.ENOENT; !w.hidden(at, path[:begin+1], true, resolve) {
			p.dir, e = w.object(at, path[:begin+1], true, true, resolve)
		}
		path[begin] = saved
		if e != 0 {
			return p, e
		}
	}
	p.proc = w.isProc()
	return p, 0
}

// canonical fills p.full. Callers hold b.names, so that it stays true until the act.
func (w *worker) canonical(p *spot, s *side) unix.Errno {
	dir, e := w.pathOf(p.dir, s.full[:len(s.full)-258])
	if e != 0 {
		return e
	}
	if p.dots {
		p.full = dir
		return 0
	}
	if len(dir) > 1 {
		dir = append(dir, '/')
	}
	p.full = append(dir, p.name[:len(p.name)-1]...)
	return 0
}

// walkTo says what a walk ends at.
type walkTo struct {
	follow  bool // the last component, if it is a link
	dir     bool // must be a directory
	resolve uint64
}

// walk resolves a path one component at a time, as the caller would: in procfs
// "self" is the caller, and magic links are followed only where the kernel would let
// the caller. The result is held.
func (w *worker) walk(at int, path []byte, to walkTo) (int, unix.Errno) {
	rest := append(w.text[:0], path...)
	spare := w.text2[:0]
	if len(rest) == 0 {
		return -1, unix.ENOENT
	}
	cur, depth := at, 0
	if rest[0] == '/' {
		root, e := w.linkRoot(at, to.resolve)
		if e != 0 {
			return -1, e
		}
		cur = root
	}
	links := 0
	for {
		rest = bytes.TrimLeft(rest, "/")
		if len(rest) == 0 { // "/" or only slashes
			return w.directory(cur)
		}
		comp, tail, cut := bytes.Cut(rest, []byte{'/'})
		tail = bytes.TrimLeft(tail, "/")
		last := len(tail) == 0
		mustDir := cut || to.dir
		if len(comp) > 255 {
			return -1, unix.ENAMETOOLONG
		}
		if string(comp) == ".." {
			if depth == 0 && to.resolve&unix.RESOLVE_BENEATH != 0 {
				return -1, unix.EXDEV
			}
			if depth == 0 && to.resolve&unix.RESOLVE_IN_ROOT != 0 {
				comp = comp[:1]
			} else {
				depth--
			}
		} else if string(comp) != "." {
			depth++
		}
		next, e := w.step(cur, comp, to.resolve)
		if e != 0 {
			return -1, e
		}
		if w.st.Mode&unix.S_IFMT != unix.S_IFLNK {
			if last {
				return w.arrive(next, mustDir)
			}
			cur, rest = next, tail
			continue
		}
		if last && !to.follow && !cut {
			if to.dir {
				return -1, unix.ENOTDIR
			}
			return next, 0
		}
		if links++; links > maxLinks || to.resolve&unix.RESOLVE_NO_SYMLINKS != 0 {
			return -1, unix.ELOOP
		}
		depth--
		target, jump, e := w.follow(cur, next, comp, to.resolve)
		if e != 0 {
			return -1, e
		}
		if jump >= 0 {
			if last {
				return w.arrive(jump, mustDir)
			}
			cur, rest = jump, tail
			continue
		}
		if len(target) == 0 {
			return -1, unix.ENOENT
		}
		if len(target)+len(tail)+2 > cap(spare) {
			return -1, unix.ENAMETOOLONG
		}
		if target[0] == '/' {
			if cur, e = w.linkRoot(at, to.resolve); e != 0 {
				return -1, e
			}
			depth = 0
		}
		text := append(spare[:0], target...)
		if cut {
			text = append(text, '/')
			text = append(text, tail...)
		}
		// rest may be a tail of either buffer: use the other one next time.
		if &text[:1][0] == &w.text[0] {
			spare = w.text2[:0]
		} else {
			spare = w.text[:0]
		}
		rest = text
	}
}

// linkRoot is where an absolute path or link starts.
func (w *worker) linkRoot(at int, resolve uint64) (int, unix.Errno) {
	switch {
	case resolve&unix.RESOLVE_BENEATH != 0:
		return -1, unix.EXDEV
	case resolve&unix.RESOLVE_IN_ROOT != 0:
		return at, 0
	}
	return w.b.root, 0
}

// arrive checks the end of a walk and describes it in w.st.
func (w *worker) arrive(fd int, mustDir bool) (int, unix.Errno) {
	if e := fstat(fd, &w.st); e != 0 {
		return -1, e
	}
	if mustDir && w.st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return -1, unix.ENOTDIR
	}
	return fd, 0
}

// directory returns a held descriptor of a directory that was walked to.
func (w *worker) directory(cur int) (int, unix.Errno) {
	fd, e := w.step(cur, []byte("."), 0)
	if e == 0 && w.st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return -1, unix.ENOTDIR
	}
	return fd, e
}

// step opens one component as O_PATH, never through a link, and describes it in
// w.st.
func (w *worker) step(cur int, comp []byte, resolve uint64) (int, unix.Errno) {
	name := w.num[:0]
	if len(comp) >= len(w.num) {
		name = w.link[:0]
	}
	name = append(append(name, comp...), 0)
	w.how = unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: resolve & unix.RESOLVE_NO_XDEV}
	fd, e := openat2(cur, name, &w.how)
	if e != 0 {
		return -1, e
	}
	w.hold(fd)
	if w.looks {
		if e := w.unseen(fd); e != 0 {
			return -1, e
		}
	}
	return fd, fstat(fd, &w.st)
}

// follow resolves the link comp of directory cur, opened as link: to a text
// (target) or, for a magic link, straight to an object (jump >= 0).
func (w *worker) follow(cur, link int, comp []byte, resolve uint64) (target []byte, jump int, e unix.Errno) {
	if w.isProc() {
		dir, e := w.pathOf(cur, w.small[:])
		if e != 0 {
			return nil, -1, e
		}
		if string(dir) == "/proc" {
			switch string(comp) {
			case "self":
				return strconv.AppendUint(w.link[:0], uint64(w.process()), 10), -1, 0
			case "thread-self":
				t := strconv.AppendUint(w.link[:0], uint64(w.process()), 10)
				t = append(t, "/task/"...)
				return strconv.AppendUint(t, uint64(w.req.tid), 10), -1, 0
			}
		} else if pid, _ := procEntry(dir); pid != 0 {
			return w.jump(cur, comp, pid, resolve)
		}
	}
	n, e := readlinkat(link, []byte{0}, w.link[:pathMax])
	if e != 0 {
		return nil, -1, e
	}
	return w.link[:n], -1, 0
}

// jump follows a magic link of process or thread pid.
func (w *worker) jump(cur int, comp []byte, pid uint32, resolve uint64) ([]byte, int, unix.Errno) {
	switch {
	case resolve&unix.RESOLVE_NO_MAGICLINKS != 0:
		return nil, -1, unix.ELOOP
	case resolve&scoped != 0:
		return nil, -1, unix.EXDEV
	case w.ours(pid): // the kernel refuses the agent, and would not refuse us
		return nil, -1, unix.EACCES
	}
	w.trusted(sameProcess(w.process(), pid))
	defer w.trusted(true)
	name := append(append(w.num[:0], comp...), 0)
	w.how = unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve & unix.RESOLVE_NO_XDEV}
	fd, e := openat2(cur, name, &w.how)
	if e != 0 {
		return nil, -1, e
	}
	w.hold(fd)
	if w.looks {
		if e := w.unseen(fd); e != 0 {
			return nil, -1, e
		}
	}
	return nil, fd, 0
}
