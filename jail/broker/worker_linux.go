package broker

import (
	"bytes"
	"runtime"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// pathMax is PATH_MAX with its NUL; longer arguments are ENAMETOOLONG.
const pathMax = 4096

// side holds what belongs to one path of a call; renames and links have two.
type side struct {
	in   [pathMax + 1]byte // the argument as read, NUL-terminated
	len  int               // without NUL
	full [2*pathMax + 2]byte
	name [pathMax + 1]byte // last component, NUL-terminated
	next [pathMax + 1]byte // target of a symbolic link that was followed
}

func (s *side) path() []byte { return s.in[:s.len+1] } // with NUL

// worker is one thread that answers calls.
type worker struct {
	b    *Broker
	tid  atomic.Int32 // of our thread, for interrupt
	busy atomic.Bool  // with a call: not to be interrupted

	req     notification
	rsp     response
	add     addition
	sent    bool // the answer has been given or has been left to a lane
	val     int64
	held    []int // descriptors to close after the answer
	umask   uint32
	caps    uint32
	memTid  uint32 // last caller and its process: see process
	memTgid uint32
	acc     Answer
	lastExe string // of the last report

	one, two side
	num      [64]byte
	text     [2 * pathMax]byte // working text of the slow walk
	text2    [2 * pathMax]byte
	link     [pathMax + 1]byte
	small    [2048]byte
	st       unix.Stat_t
	how      unix.OpenHow
}

const capTrace = 1 << unix.CAP_SYS_PTRACE

func newWorker(b *Broker) *worker {
	return &worker{b: b, held: make([]int, 0, 32), caps: capTrace}
}

// enter locks the goroutine to its thread and takes the posture.
func (w *worker) enter() error {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := w.b.posture(); err != nil {
		return err
	}
	w.masked(true)
	w.tid.Store(int32(unix.Gettid()))
	return nil
}

// masked blocks or lets in the stop signal; all other signals that do not come
// from faults are always blocked on our threads.
//
// A signal (of the Go scheduler, for one) during SECCOMP_IOCTL_NOTIF_ADDFD with
// SECCOMP_ADDFD_FLAG_SEND takes the descriptor back but not the answer
// (kernel/seccomp.c, seccomp_notify_addfd): the caller's open returns 0, its standard
// input. Seen, not guessed.
func (w *worker) masked(stop bool) {
	var set unix.Sigset_t
	for i := range set.Val {
		set.Val[i] = ^set.Val[i]
	}
	let := []unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT}
	if !stop {
		let = append(let, stopSignal)
	}
	const bits = 64 // of one word of the set, on the architectures we build for
	for _, s := range let {
		set.Val[(uint(s)-1)/bits] &^= 1 << ((uint(s) - 1) % bits)
	}
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &set, nil) // fails for bad arguments only
}

// interrupt ends the call that the thread sleeps in.
func (w *worker) interrupt() {
	if tid := w.tid.Load(); tid != 0 && !w.busy.Load() {
		_ = unix.Tgkill(unix.Getpid(), int(tid), stopSignal)
	}
}

// loop receives and answers until the broker stops.
func (w *worker) loop() error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.tid.Store(0)
	w.masked(false)
	table := handlers()
	for {
		w.req = notification{}
		w.busy.Store(false)
		if w.b.stopping.Load() {
			return nil
		}
		e := receive(w.b.listener, &w.req)
		w.busy.Store(true)
		switch e {
		case 0:
		case unix.EINTR, unix.EAGAIN:
			continue
		case unix.ENOENT: // the caller is gone, or all are
			if w.hungUp() {
				return errNobody
			}
			continue
		default:
			return e
		}
		w.answer(&table)
	}
}

func (w *worker) hungUp() bool {
	p := []unix.PollFd{{Fd: int32(w.b.listener), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&unix.POLLHUP != 0
}

// answer handles one call.
func (w *worker) answer(table *[tableSize]handler) {
	w.sent, w.val, w.acc = false, 0, Answer{}
	var h handler
	if w.req.arch == nativeArch && w.req.nr >= 0 && int(w.req.nr) < tableSize {
		h = table[w.req.nr]
	}
	e := unix.ENOSYS
	if h != nil {
		e = h(w)
	}
	if !w.sent {
		w.reply(w.val, e)
	}
	w.release()
}

func (w *worker) reply(val int64, e unix.Errno) {
	w.rsp = response{id: w.req.id, val: val, errno: -int32(e)}
	if e != 0 {
		w.rsp.val = 0
	}
	w.sent = true
	_ = send(w.b.listener, &w.rsp) // ENOENT: the caller was killed
}

// give installs fd in the caller as the answer. The caller's copy is
// close-on-exec if cloexec. Ours lives a little longer: see surrender.
func (w *worker) give(fd int, cloexec bool) unix.Errno {
	_, e := w.install(fd, cloexec, unix.SECCOMP_ADDFD_FLAG_SEND)
	w.sent = e == 0
	return e
}

// surrender is give where a second copy, even for microseconds, could be
// noticed: a writable file is "text file busy" while we have it, an end of a
// FIFO keeps the other end from its end of file. It costs one more wake-up.
func (w *worker) surrender(fd int, cloexec bool) unix.Errno {
	n, e := w.install(fd, cloexec, 0)
	if e != 0 {
		return e
	}
	w.keep(fd)
	closeFD(fd)
	if !w.sent {
		w.reply(int64(n), 0)
	}
	return 0
}

func (w *worker) install(fd int, cloexec bool, flags uint32) (int, unix.Errno) {
	w.add = addition{id: w.req.id, flags: flags, src: uint32(fd)}
	if cloexec {
		w.add.dstFlags = unix.O_CLOEXEC
	}
	n, e := addfd(w.b.listener, &w.add)
	switch e {
	case unix.ENOENT, unix.EINPROGRESS, unix.EINTR: // killed; EINTR only while the broker stops
		w.sent = true
		return n, 0
	}
	return n, e // EMFILE of the caller and the like
}

// hold closes fd after the answer.
func (w *worker) hold(fd int) int {
	w.held = append(w.held, fd)
	return fd
}

// keep takes fd out of what is closed after the answer.
func (w *worker) keep(fd int) {
	for i, h := range w.held {
		if h == fd {
			w.held[i] = -1
		}
	}
}

func (w *worker) release() {
	for _, fd := range w.held {
		if fd >= 0 {
			closeFD(fd)
		}
	}
	w.held = w.held[:0]
}

// trusted switches CAP_SYS_PTRACE of this thread on or off.
func (w *worker) trusted(on bool) {
	want := uint32(0)
	if on {
		want = capTrace
	}
	if w.caps == want {
		return
	}
	if setCapabilities(want, capTrace) == 0 {
		w.caps = want
	} else if !on {
		panic("broker: cannot drop a capability") // fails closed: init ends
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
	if w.memTid == w.req.tid && sameProcess(w.memTgid, w.memTid) {
		return w.memTgid
	}
	v, e := w.status("Tgid:")
	if e != 0 {
		return 0
	}
	n, err := strconv.ParseUint(view(v), 10, 32)
	if err != nil {
		return 0
	}
	w.memTid, w.memTgid = w.req.tid, uint32(n)
	return uint32(n)
}

// status returns one field of the caller's /proc/<tid>/status.
func (w *worker) status(field string) ([]byte, unix.Errno) {
	text, e := w.procFile("status")
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
