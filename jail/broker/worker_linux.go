package broker

import (
	"runtime"
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
	tid  atomic.Int32  // of our thread, for interrupt
	busy atomic.Bool   // with a call: not to be interrupted
	turn atomic.Uint64 // odd in a call; see crew
	seen uint64        // the turn that the watch saw last

	req     notification
	rsp     response
	add     addition
	sent    bool // the answer has been given or has been left to a lane
	val     int64
	held    []int // descriptors to close after the answer
	umask   uint32
	caps    uint32
	callers [remembered]caller
	rules   Rules // of the present call
	acc     Answer
	now     clock

	one, two side
	num      [64]byte
	text     [2 * pathMax]byte // working text of the slow walk
	text2    [2 * pathMax]byte
	canon    [2*pathMax + 2]byte // canonical path of what may be hidden
	list     []byte              // entries of a directory
	offset   int64               // in it
	looks    bool                // the walk looks whether it meets what is hidden,
	met      bool                // and has
	told     bool                // a refusal of the present call has been reported
	link     [pathMax + 1]byte
	small    [2048]byte
	st       unix.Stat_t
	how      unix.OpenHow
}

const capTrace = 1 << unix.CAP_SYS_PTRACE

func newWorker(b *Broker) *worker {
	w := &worker{b: b, held: make([]int, 0, 32), caps: capTrace}
	for i := range w.callers {
		w.callers[i] = unknown
	}
	return w
}

// begin locks the goroutine to its thread and takes the posture.
func (w *worker) begin() error {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := w.b.posture(); err != nil {
		return err
	}
	takeTurns()
	w.masked(true)
	w.tid.Store(int32(unix.Gettid()))
	return nil
}

// end is the end of the thread's work.
func (w *worker) end() {
	w.tid.Store(0)
	w.forget()
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
	if err := w.begin(); err != nil {
		return err
	}
	defer w.end()
	w.masked(false)
	table := w.b.c.handlers()
	if !w.b.crew.join(w) {
		return nil
	}
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
		w.b.crew.begin(w)
		w.answer(&table)
		if !w.b.crew.end(w) {
			return nil
		}
	}
}

func (w *worker) hungUp() bool {
	p := []unix.PollFd{{Fd: int32(w.b.listener), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&unix.POLLHUP != 0
}

// answer handles one call.
func (w *worker) answer(table *[tableSize]handler) {
	w.sent, w.told, w.val, w.acc = false, false, 0, Answer{}
	var h handler
	if w.req.arch == nativeArch && w.req.nr >= 0 && int(w.req.nr) < tableSize {
		h = table[w.req.nr]
	}
	e := unix.ENOSYS
	if h != nil {
		w.enter()
		e = h(w)
	}
	if !w.sent {
		w.reply(w.val, e)
	}
	w.release()
	w.leave()
}

// enter takes the rules that hold now for the present call.
func (w *worker) enter() {
	if w.b.c.Rules != nil {
		w.rules = w.b.c.Rules.Enter()
	}
}

func (w *worker) leave() {
	if w.rules != nil {
		w.b.c.Rules.Leave(w.rules)
		w.rules = nil
	}
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
