package broker

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// maxLanes bounds the threads that wait in opens and connects. Beyond, such a
// call fails with EAGAIN.
const maxLanes = 64

// restartSys is ERESTARTSYS. Sent as the answer while a signal is pending, the kernel makes
// of it what it makes of any interrupted call: EINTR, or a restart with SA_RESTART.
const restartSys = unix.Errno(512)

// lane runs calls that may wait for others: opens of FIFOs, opens under a lease,
// connects of blocking sockets. A call is given up when its caller is killed and
// interrupted when its caller has a signal to handle.
type lane struct {
	b    *Broker
	jobs chan *job

	mu      sync.Mutex
	threads int
	idle    int
	active  map[*job]struct{}
	wg      sync.WaitGroup
	kick    chan struct{} // a call has begun to wait
	done    chan struct{}
}

// job is one waiting call. run acts and answers; it returns EINTR when it was interrupted.
type job struct {
	req    notification
	fds    []int // closed after run
	run    func(w *worker) unix.Errno
	reader int // of a FIFO, without waiting; else -1
	w      *worker
	state  atomic.Int32
}

// States of a job.
const (
	jobWaits int32 = iota
	jobGone        // the caller was killed
	jobSignalled
)

func newLane(b *Broker) *lane {
	l := &lane{b: b, jobs: make(chan *job), active: map[*job]struct{}{}, kick: make(chan struct{}, 1), done: make(chan struct{})}
	l.wg.Add(1)
	go l.watch()
	return l
}

// later leaves the open of the object fd to a lane.
func (w *worker) later(fd int, r *request, a about) unix.Errno {
	reader := -1
	if w.st.Mode&unix.S_IFMT == unix.S_IFIFO && r.flags&unix.O_ACCMODE == unix.O_RDONLY {
		// The reader must be there all the time: a writer that comes and goes
		// while a lane starts has been met.
		w.how = unix.OpenHow{Flags: r.flags&^unix.O_NOFOLLOW | ours | unix.O_CLOEXEC}
		got, e := openat2(unix.AT_FDCWD, w.magic(fd), &w.how)
		if e != 0 {
			return w.done(a, e)
		}
		reader = got
	}
	w.keep(fd)
	w.release() // a first reader of the FIFO among them
	j := &job{req: w.req, fds: []int{fd}, reader: reader}
	if reader >= 0 {
		j.fds = append(j.fds, reader)
	}
	req, st, acc, rules := *r, w.st, w.acc, w.rules
	a.path = append([]byte(nil), a.path...)
	j.run = func(l *worker) unix.Errno {
		l.st, l.acc, l.rules = st, acc, rules // for the record: nothing is decided any more
		return l.openWaiting(j, fd, &req, a)
	}
	return w.wait(j)
}

// openWaiting opens fd's object and sleeps as long as that takes.
func (w *worker) openWaiting(j *job, fd int, r *request, a about) unix.Errno {
	if j.reader < 0 || !arrived(j.reader) {
		w.how = unix.OpenHow{Flags: r.flags&^(unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW) | unix.O_NOCTTY | unix.O_CLOEXEC}
		name := w.magic(fd)
		w.masked(false)
		got, e := openat2(unix.AT_FDCWD, name, &w.how)
		w.masked(true)
		if e == unix.EINTR {
			return e
		}
		if e != 0 {
			w.reply(0, w.done(a, e))
			return 0
		}
		w.hold(got)
		fd = got
	}
	if j.reader >= 0 {
		// Only the caller's reader may be left when the caller goes on: a writer
		// that comes then must not take one of ours for a reader.
		w.release()
		fd = j.reader
		j.fds = j.fds[:1]
		w.hold(fd)
		if e := setStatusFlags(fd, int(r.flags&statusFlags)); e != 0 {
			w.reply(0, e)
			return 0
		}
	}
	w.done(a, 0)
	if e := w.surrender(fd, r.flags&unix.O_CLOEXEC != 0); e != 0 {
		w.reply(0, e)
	}
	return 0
}

// wait hands the present call to a lane.
func (w *worker) wait(j *job) unix.Errno {
	if !w.b.lane.submit(j) {
		for _, fd := range j.fds {
			closeFD(fd)
		}
		return unix.EAGAIN
	}
	w.sent = true
	return 0
}

func (l *lane) submit(j *job) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.stopping.Load() {
		return false
	}
	if l.idle == 0 {
		if l.threads >= maxLanes {
			return false
		}
		l.threads++
		l.idle++
		l.wg.Add(1)
		go l.work()
	}
	l.idle--
	l.active[j] = struct{}{}
	select {
	case l.kick <- struct{}{}:
	default:
	}
	l.wg.Add(1)
	go func() { // the thread may still be starting
		defer l.wg.Done()
		l.jobs <- j
	}()
	return true
}

// work is one waiting thread.
func (l *lane) work() {
	defer l.wg.Done()
	w := newWorker(l.b)
	broken := w.begin() != nil
	defer w.end()
	for j := range l.jobs {
		if broken {
			j.run = func(w *worker) unix.Errno { w.reply(0, unix.EACCES); return 0 }
		}
		l.one(w, j)
	}
}

func (l *lane) one(w *worker, j *job) {
	w.req, w.sent, w.val, w.acc, w.rules = j.req, false, 0, Answer{}, nil
	l.mu.Lock()
	j.w = w
	l.mu.Unlock()
	for {
		if e := j.run(w); e != unix.EINTR {
			break
		}
		switch j.state.Load() {
		case jobSignalled:
			w.reply(0, restartSys)
		case jobGone:
		default:
			if !l.b.stopping.Load() {
				continue
			}
		}
		break
	}
	w.release()
	for _, fd := range j.fds {
		closeFD(fd)
	}
	l.mu.Lock()
	j.w = nil
	delete(l.active, j)
	l.idle++
	l.mu.Unlock()
}

// watch looks after the waiting calls while there are any.
func (l *lane) watch() {
	defer l.wg.Done()
	for {
		select {
		case <-l.done:
			return
		case <-l.kick:
		}
		for l.look() {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// look interrupts the calls that have something to learn, and reports whether any waits.
func (l *lane) look() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for j := range l.active {
		switch {
		case l.b.stopping.Load():
		case !valid(l.b.listener, j.req.id):
			j.state.Store(jobGone)
		case signalled(j.req.tid):
			j.state.Store(jobSignalled)
		case j.reader >= 0 && arrived(j.reader):
		default:
			continue
		}
		if j.w != nil {
			j.w.interrupt()
		}
	}
	return len(l.active) > 0
}

// arrived reports whether a FIFO opened for reading has or had a writer.
func arrived(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1
}

// stop gives up all waiting calls and waits for the threads.
func (l *lane) stop() {
	for {
		l.mu.Lock()
		n := len(l.active)
		l.mu.Unlock()
		if n == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	close(l.jobs)
	close(l.done)
	l.wg.Wait()
}

// Signals that stop a process unless it catches or ignores them.
const stopping = 1<<(unix.SIGSTOP-1) | 1<<(unix.SIGTSTP-1) | 1<<(unix.SIGTTIN-1) | 1<<(unix.SIGTTOU-1)

// signalled reports whether a thread has a pending signal that it will act on.
func signalled(tid uint32) bool {
	text, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(tid), 10) + "/status")
	if err != nil {
		return false
	}
	var pending, blocked, caught, ignored uint64
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte{':'})
		v, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
		if err != nil {
			continue
		}
		switch string(name) {
		case "SigPnd", "ShdPnd":
			pending |= v
		case "SigBlk":
			blocked = v
		case "SigIgn":
			ignored = v
		case "SigCgt":
			caught = v
		}
	}
	return pending&^blocked&(caught|stopping&^ignored) != 0
}
