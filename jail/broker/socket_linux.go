package broker

import (
	"bytes"
	"encoding/binary"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

const (
	maxAddress = 128   // struct sockaddr_storage
	pathOffset = 2     // of sun_path in struct sockaddr_un
	maxSunPath = 108   //
	maxMade    = 65536 // sockets that are remembered
)

// socketID identifies a socket's inode. The birth time tells a host's socket
// from one of the jail's that had the number before.
type socketID struct {
	major, minor uint32
	ino          uint64
	born         unix.StatxTimestamp
}

// sockets are those that this jail bound.
type sockets struct {
	mu   sync.Mutex
	made map[socketID]struct{}
}

func (s *sockets) add(id socketID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made == nil || len(s.made) >= maxMade {
		s.made = map[socketID]struct{}{} // those before are refused from now on
	}
	s.made[id] = struct{}{}
}

func (s *sockets) has(id socketID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.made[id]
	return ok
}

// identify answers which socket name in dir is, or dir itself for "".
func identify(dir int, name string) (id socketID, ok bool) {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_EMPTY_PATH
	if err := unix.Statx(dir, name, flags, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return id, false
	}
	return socketID{st.Dev_major, st.Dev_minor, st.Ino, st.Btime}, true
}

// goOn lets the kernel carry the call out: for calls that nothing is decided on.
func (w *worker) goOn() unix.Errno {
	w.rsp = response{id: w.req.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	w.sent = true
	_ = send(w.b.listener, &w.rsp)
	return 0
}

// address copies a socket address once. unixPath is the path of a unix socket, nil for
// every other address (abstract ones too).
func (w *worker) address(addr, length uint64) (raw, unixPath []byte, e unix.Errno) {
	n := int32(length)
	if n < 0 || n > maxAddress {
		return nil, nil, unix.EINVAL
	}
	raw = w.small[:n]
	if e := w.readExact(addr, raw); e != 0 {
		return nil, nil, e
	}
	if n < pathOffset || binary.NativeEndian.Uint16(raw) != unix.AF_UNIX {
		return raw, nil, 0
	}
	path := raw[pathOffset:]
	if len(path) > maxSunPath {
		return nil, nil, unix.EINVAL
	}
	if len(path) == 0 || path[0] == 0 {
		return raw, nil, 0
	}
	if i := bytes.IndexByte(path, 0); i >= 0 {
		path = path[:i]
	}
	s := &w.one
	s.len = copy(s.in[:], path)
	s.in[s.len] = 0
	return raw, s.in[:s.len], 0
}

// socketKind answers the family and type of a socket.
func socketKind(fd int) (domain, kind int, e unix.Errno) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err == nil {
		kind, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	}
	if err != nil {
		return 0, 0, errnoOf(err)
	}
	return domain, kind, 0
}

func sysConnect(w *worker) unix.Errno {
	if !w.b.c.Sockets {
		return w.goOn()
	}
	a := w.req.args
	raw, path, e := w.address(a[1], a[2])
	if e != 0 {
		return e
	}
	raw = append([]byte(nil), raw...)
	sock, e := w.take(int32(a[0]))
	if e != 0 {
		return e
	}
	domain, kind, e := socketKind(sock)
	if e != 0 {
		return e
	}
	object := -1
	if path != nil && domain == unix.AF_UNIX {
		if object, e = w.mayConnect(); e != 0 {
			return e
		}
	}
	if !w.alive() {
		return unix.ESRCH
	}
	status, err := unix.FcntlInt(uintptr(sock), unix.F_GETFL, 0)
	if err != nil {
		return unix.EBADF
	}
	if kind == unix.SOCK_DGRAM || status&unix.O_NONBLOCK != 0 {
		return w.connect(sock, object, raw)
	}
	j := &job{req: w.req, fds: []int{sock}, reader: -1}
	w.keep(sock)
	if object >= 0 {
		w.keep(object)
		j.fds = append(j.fds, object)
	}
	j.run = func(l *worker) unix.Errno {
		l.masked(false)
		e := l.connect(sock, object, raw)
		l.masked(true)
		if e != unix.EINTR {
			l.reply(0, e)
		}
		return e
	}
	return w.wait(j)
}

// connect connects a duplicate of the caller's socket: to the held object, or to raw.
func (w *worker) connect(sock, object int, raw []byte) unix.Errno {
	if object >= 0 {
		raw = append(binary.NativeEndian.AppendUint16(nil, unix.AF_UNIX), w.magic(object)...)
	}
	return socketCall(unix.SYS_CONNECT, sock, raw)
}

// mayConnect decides the unix socket whose path is in w.one and holds it.
func (w *worker) mayConnect() (object int, e unix.Errno) {
	at := unix.AT_FDCWD
	object, e = w.target(uint64(at), &w.one, true, false)
	if e != 0 {
		return -1, e
	}
	if w.st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return -1, unix.ECONNREFUSED
	}
	path, e := w.pathOf(object, w.one.full[:])
	if e != 0 {
		return -1, e
	}
	a := about{kind: event.UnixConnect, path: path, need: canWrite}
	name := view(path)
	for _, u := range w.b.c.Unix {
		if u == name {
			w.done(a, 0)
			return object, 0
		}
	}
	ok := w.check(path, canWrite)
	if ok {
		ok = w.private(name)
		if !ok {
			id, known := identify(object, "")
			ok = known && w.b.made.has(id)
		}
	}
	if !ok {
		return -1, w.deny(a, unix.EACCES)
	}
	w.done(a, 0)
	return object, 0
}

// private reports whether a path lies in a tree that only this jail has.
func (w *worker) private(path string) bool {
	for _, p := range w.b.c.Private {
		if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(p, "/")); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

func sysBind(w *worker) unix.Errno {
	if !w.b.c.Sockets {
		return w.goOn()
	}
	a := w.req.args
	raw, path, e := w.address(a[1], a[2])
	if e != 0 {
		return e
	}
	raw = append([]byte(nil), raw...)
	sock, e := w.take(int32(a[0]))
	if e != 0 {
		return e
	}
	domain, _, e := socketKind(sock)
	if e != 0 {
		return e
	}
	if path == nil || domain != unix.AF_UNIX {
		if !w.alive() {
			return unix.ESRCH
		}
		return socketCall(unix.SYS_BIND, sock, raw)
	}
	s := &w.one
	dirfd := unix.AT_FDCWD
	at, e := w.start(uint64(dirfd), s, false)
	if e != 0 {
		return e
	}
	p, e := w.parent(at, s.path(), s, 0)
	switch {
	case e != 0:
		return e
	case p.dots:
		return unix.EADDRINUSE
	case p.slash:
		return unix.ENOENT
	}
	if e := w.applyMask(); e != 0 {
		return e
	}
	return w.alone(&p, s, about{kind: event.Bind}, func() unix.Errno { return w.bind(sock, &p) })
}

// bind makes the socket p.name. bind(2) knows no directory descriptor and 108
// bytes of path only: our thread, whose working directory nobody else uses, goes
// there.
func (w *worker) bind(sock int, p *spot) unix.Errno {
	if err := unix.Fchdir(p.dir); err != nil {
		return unix.EACCES
	}
	defer func() { _ = unix.Fchdir(w.b.root) }()
	raw := append(binary.NativeEndian.AppendUint16(nil, unix.AF_UNIX), p.name...)
	if len(raw) > pathOffset+maxSunPath {
		raw = raw[:pathOffset+maxSunPath] // the NUL has no room, as in the caller's address
	}
	if e := socketCall(unix.SYS_BIND, sock, raw); e != 0 {
		return e
	}
	if id, ok := identify(p.dir, view(p.name[:len(p.name)-1])); ok {
		w.b.made.add(id)
	}
	return 0
}
