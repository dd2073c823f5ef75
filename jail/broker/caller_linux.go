package broker

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// remembered is how many callers a worker remembers.
const remembered = 8

// caller is what a worker keeps of a thread between its calls. The descriptors refer to
// the thread itself: when its number has passed to another one they answer an error and are opened anew.
type caller struct {
	tid    uint32
	tgid   uint32 // 0: not known
	link   int    // O_PATH of /proc/<tid>/exe, the link, or -1
	status int    // /proc/<tid>/status, or -1
	pid    int    // pidfd, or -1
	exe    string // what link said last
}

var unknown = caller{link: -1, status: -1, pid: -1}

func (c *caller) forget() {
	for _, fd := range []int{c.link, c.status, c.pid} {
		if fd >= 0 {
			closeFD(fd)
		}
	}
	*c = unknown
}

func (w *worker) forget() {
	for i := range w.callers {
		w.callers[i].forget()
	}
}

// caller is what we remember of the present caller.
func (w *worker) caller() *caller {
	c := &w.callers[w.req.tid%remembered]
	if c.tid != w.req.tid {
		c.forget()
		c.tid = w.req.tid
	}
	return c
}

// who answers the process and the program of the caller, as the jail sees them. A
// program is asked for each time: exec changes it and nothing else that we could see.
func (w *worker) who() (tgid uint32, exe string) {
	c := w.caller()
	if c.link >= 0 {
		if n, e := readlinkat(c.link, []byte{0}, w.small[:]); e == 0 {
			// The thread that we knew is alive, so its process is the one it was.
			if c.exe != view(w.small[:n]) {
				c.exe = string(w.small[:n])
			}
			if c.tgid == 0 {
				return w.process(), c.exe
			}
			return c.tgid, c.exe
		}
		c.forget()
		c.tid = w.req.tid
	}
	w.how = unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC}
	if link, e := openat2(w.b.proc, w.procName("exe", -1), &w.how); e == 0 {
		c.link = link
	}
	n, e := readlinkat(w.b.proc, w.procName("exe", -1), w.small[:])
	if e != 0 {
		n = 0
	}
	c.exe = string(w.small[:n])
	return w.process(), c.exe
}

// copied duplicates a descriptor of the caller, held.
func (w *worker) copied(fd int32) (int, unix.Errno) {
	const thread = unix.O_EXCL // PIDFD_THREAD, Linux 6.9
	c := w.caller()
	for {
		known := c.pid >= 0
		if !known {
			pid, err := unix.PidfdOpen(int(w.req.tid), thread)
			if err != nil {
				return -1, unix.ESRCH
			}
			c.pid = pid
		}
		got, err := unix.PidfdGetfd(c.pid, int(fd), 0)
		switch {
		case err == nil:
			return w.hold(got), 0
		case known && errnoOf(err) == unix.ESRCH: // the number has passed on
			closeFD(c.pid)
			c.pid = -1
		default:
			return -1, errnoOf(err)
		}
	}
}

// readPath copies a path argument once.
func (w *worker) readPath(addr uint64, s *side) unix.Errno {
	n, e := w.readString(addr, s.in[:pathMax])
	s.len = n
	return e
}

// readString copies a NUL-terminated string and returns its length;
// ENAMETOOLONG when it does not fit with its NUL. It never asks for bytes beyond the page in which
// the string goes on.
func (w *worker) readString(addr uint64, buf []byte) (int, unix.Errno) {
	const page = 4096
	got, want := 0, 256
	for got < len(buf) {
		n := min(page-int((addr+uint64(got))%page), len(buf)-got, want)
		m, e := readMemory(w.req.tid, addr+uint64(got), buf[got:got+n])
		if e != 0 {
			return 0, e
		}
		if m == 0 {
			return 0, unix.EFAULT
		}
		if i := bytes.IndexByte(buf[got:got+m], 0); i >= 0 {
			return got + i, 0
		}
		got += m
		want = page
	}
	return 0, unix.ENAMETOOLONG
}

// readExact fills buf from the caller's memory.
func (w *worker) readExact(addr uint64, buf []byte) unix.Errno {
	n, e := readMemory(w.req.tid, addr, buf)
	if e == 0 && n != len(buf) {
		return unix.EFAULT
	}
	return e
}

func (w *worker) writeExact(addr uint64, buf []byte) unix.Errno {
	n, e := writeMemory(w.req.tid, addr, buf)
	if e == 0 && n != len(buf) {
		return unix.EFAULT
	}
	return e
}

// alive reports whether the caller still waits, which proves that memory and
// /proc entries read before were the caller's. Calls that change something ask it
// before they act.
func (w *worker) alive() bool { return valid(w.b.listener, w.req.id) }

// procName builds "<tid>/what[/<n>]" with a NUL.
func (w *worker) procName(what string, n int64) []byte {
	b := strconv.AppendUint(w.num[:0], uint64(w.req.tid), 10)
	b = append(b, '/')
	b = append(b, what...)
	if n >= 0 {
		b = append(b, '/')
		b = strconv.AppendInt(b, n, 10)
	}
	return append(b, 0)
}

// start opens the directory that a relative path starts from. Absolute paths
// start nowhere.
func (w *worker) start(dirfd uint64, s *side, always bool) (int, unix.Errno) {
	if s.len > 0 && s.in[0] == '/' && !always {
		return unix.AT_FDCWD, 0
	}
	if fd := int32(dirfd); fd >= 0 {
		if got, e := w.copied(fd); e == 0 || e == unix.EBADF {
			return got, e
		}
	}
	return w.descriptor(int32(dirfd))
}

// descriptor opens the caller's descriptor, or its working directory, as O_PATH.
func (w *worker) descriptor(fd int32) (int, unix.Errno) {
	var name []byte
	switch {
	case fd == unix.AT_FDCWD:
		name = w.procName("cwd", -1)
	case fd < 0:
		return -1, unix.EBADF
	default:
		name = w.procName("fd", int64(fd))
	}
	w.how = unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
	got, e := openat2(w.b.proc, name, &w.how)
	if e == unix.ENOENT && fd != unix.AT_FDCWD {
		e = unix.EBADF
	}
	if e != 0 {
		return -1, e
	}
	return w.hold(got), 0
}

// pathOf puts the canonical path of a descriptor into buf.
func (w *worker) pathOf(fd int, buf []byte) ([]byte, unix.Errno) {
	name := append(strconv.AppendInt(w.num[:0], int64(fd), 10), 0)
	n, e := readlinkat(w.b.links, name, buf)
	if e != 0 {
		return nil, e
	}
	if n == len(buf) {
		return nil, unix.ENAMETOOLONG
	}
	return buf[:n], 0
}

// magic is the name under which one of our descriptors can be reopened.
func (w *worker) magic(fd int) []byte {
	b := append(w.num[:0], "/proc/self/fd/"...)
	return append(strconv.AppendInt(b, int64(fd), 10), 0)
}

// fileMask is the caller's umask.
func (w *worker) fileMask() (uint32, unix.Errno) {
	v, e := w.status("Umask:")
	if e != 0 {
		return 0, e
	}
	m, err := strconv.ParseUint(view(v), 8, 32)
	if err != nil {
		return 0, unix.EACCES
	}
	return uint32(m), 0
}

// applyMask gives our thread the caller's umask.
func (w *worker) applyMask() unix.Errno {
	m, e := w.fileMask()
	if e == 0 && m != w.umask {
		setUmask(m)
		w.umask = m
	}
	return e
}

// process returns the process id of the caller's thread, as we see it.
func (w *worker) process() uint32 {
	c := w.caller()
	if c.tgid != 0 && sameProcess(c.tgid, c.tid) {
		return c.tgid
	}
	c.tgid = 0
	if sameProcess(w.req.tid, w.req.tid) { // most are the only thread of their process
		c.tgid = w.req.tid
		return c.tgid
	}
	v, e := w.status("Tgid:")
	if e != 0 {
		return 0
	}
	n, err := strconv.ParseUint(view(v), 10, 32)
	if err != nil {
		return 0
	}
	c.tgid = uint32(n)
	return c.tgid
}

// status returns one field of the caller's /proc/<tid>/status.
func (w *worker) status(field string) ([]byte, unix.Errno) {
	text, e := w.statusText()
	if e != 0 {
		return nil, e
	}
	// Name is the first line and escaped by the kernel: no newline can forge a field.
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte{'\n'})
		if rest, ok := bytes.CutPrefix(line, []byte(field)); ok {
			return bytes.TrimSpace(rest), 0
		}
	}
	return nil, unix.ESRCH
}

func (w *worker) statusText() ([]byte, unix.Errno) {
	c := w.caller()
	if c.status >= 0 {
		if n, err := unix.Pread(c.status, w.small[:], 0); err == nil && n > 0 {
			return w.small[:n], 0
		}
		closeFD(c.status) // the number has passed on
		c.status = -1
	}
	w.how = unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC}
	fd, e := openat2(w.b.proc, w.procName("status", -1), &w.how)
	if e != 0 {
		return nil, e
	}
	c.status = fd
	n, err := unix.Pread(fd, w.small[:], 0)
	if err != nil {
		return nil, unix.ESRCH
	}
	return w.small[:n], 0
}

// procFile reads a small file of the caller's /proc directory.
func (w *worker) procFile(name string) ([]byte, unix.Errno) {
	w.how = unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC}
	fd, e := openat2(w.b.proc, w.procName(name, -1), &w.how)
	if e != 0 {
		return nil, e
	}
	defer closeFD(fd)
	n, err := unix.Read(fd, w.small[:])
	if err != nil {
		return nil, unix.ESRCH
	}
	return w.small[:n], 0
}
