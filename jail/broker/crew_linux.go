package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	beat    = 2 * time.Millisecond // of the watch
	rest    = 25                   // beats without a call after which the watch sleeps
	measure = 10                   // beats over which the load is measured
)

// overdue marks a turn that lasts longer than a beat.
const overdue = 1 << 63

// crew says which workers receive calls. One does, as a rule:
//
//	receiver  ->  call  ->  call  ->  waits for a disk ....  ->  done, nobody needs it  ->  parked
//	watch                                  a beat: relieve it
//	parked    ------------------------------------>  receiver  ->  call  ->  call  ->
//
// Why not all: each call wakes every thread that sleeps in SECCOMP_IOCTL_NOTIF_RECV
// (kernel/seccomp.c, recv_wait_event: the wait is not exclusive), all of them on the
// caller's processor, in its way. Why not hand the receiving over at each call: that is a
// wake-up per call too.
//
// A worker that is in one call for a beat is replaced, and there are more receivers when
// their threads use up a processor each.
type crew struct {
	b      *Broker
	want   atomic.Int32 // receivers that there should be
	on     atomic.Int32 // that there are; written under mu
	awake  atomic.Bool  // the watch looks
	kick   chan struct{}
	relief chan struct{} // one token makes one parked worker a receiver
	halt   chan struct{} // closed at the end

	mu     sync.Mutex
	parked int
}

func newCrew(b *Broker) *crew {
	c := &crew{b: b, kick: make(chan struct{}, 1), relief: make(chan struct{}, b.c.Workers), halt: make(chan struct{})}
	c.want.Store(1)
	return c
}

// join makes a worker that is in no call a receiver, now or when one is needed; false
// means the end.
func (c *crew) join(w *worker) bool {
	c.mu.Lock()
	if c.on.Load() < c.want.Load() {
		c.on.Add(1)
		c.mu.Unlock()
		return true
	}
	c.parked++
	c.mu.Unlock()
	w.forget()
	select {
	case <-c.relief:
		return true
	case <-c.halt:
		return false
	}
}

// begin is called with each call.
func (c *crew) begin(w *worker) {
	w.turn.Add(1)
	if !c.awake.Load() {
		c.wake()
	}
}

// end is called after each call; false means the end.
func (c *crew) end(w *worker) bool {
	if t := w.turn.Load(); t&overdue == 0 && w.turn.CompareAndSwap(t, t+1) {
		if c.on.Load() <= c.want.Load() {
			return true
		}
		c.mu.Lock()
		if c.on.Load() <= c.want.Load() {
			c.mu.Unlock()
			return true
		}
		c.on.Add(-1)
		c.mu.Unlock()
		return c.join(w)
	}
	w.turn.Store(w.turn.Load()&^overdue + 1) // the watch does not count us any more, and leaves the turn alone
	return c.join(w)
}

func (c *crew) wake() {
	if c.awake.CompareAndSwap(false, true) {
		select {
		case c.kick <- struct{}{}:
		default:
		}
	}
}

// watch looks while there are calls.
func (c *crew) watch() {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-c.halt:
			return
		case <-c.kick:
		}
		tick.Reset(beat)
		var l load
		for idle := 0; idle < rest; idle++ {
			select {
			case <-c.halt:
				return
			case <-tick.C:
			}
			if c.look() {
				idle = 0
			}
			c.adapt(&l)
		}
		tick.Reset(time.Hour)
		c.awake.Store(false)
		if c.look() { // a call that began meanwhile saw us awake
			c.wake()
		}
	}
}

// look replaces the receivers that have been in one call since the last look, and reports
// whether there were calls.
func (c *crew) look() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := false
	for _, w := range c.b.workers {
		t := w.turn.Load()
		switch {
		case t&overdue != 0:
			continue
		case t != w.seen:
			calls = true
		case t&1 == 1:
			calls = true
			if w.turn.CompareAndSwap(t, t|overdue) {
				c.on.Add(-1)
			}
		}
		w.seen = t
	}
	c.relieve()
	return calls
}

// relieve fills up the receivers from the parked workers. Callers hold mu.
func (c *crew) relieve() {
	for c.parked > 0 && c.on.Load() < c.want.Load() {
		c.parked--
		c.on.Add(1)
		c.relief <- struct{}{} // has room for all workers
	}
}

// load is what the workers have used of the processors.
type load struct {
	beats int
	since time.Time
	used  time.Duration
}

// adapt has one receiver more when those that are there are busy all the time, and one less
// when it would not be missed.
func (c *crew) adapt(l *load) {
	if l.beats++; l.beats < measure {
		return
	}
	now, used := time.Now(), c.used()
	if !l.since.IsZero() {
		share := float64(used-l.used) / float64(now.Sub(l.since))
		want := c.want.Load()
		switch {
		case share > 0.85*float64(want) && int(want) < c.b.receivers():
			c.want.Store(want + 1)
		case want > 1 && share < 0.6*float64(want-1):
			c.want.Store(want - 1)
		}
	}
	*l = load{since: now, used: used}
	c.mu.Lock()
	c.relieve()
	c.mu.Unlock()
}

// used is the processor time of all workers.
func (c *crew) used() (sum time.Duration) {
	for _, w := range c.b.workers {
		const threadCPU = 6 // CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED, include/linux/posix-timers.h
		var ts unix.Timespec
		if tid := w.tid.Load(); tid != 0 && unix.ClockGettime(^tid<<3|threadCPU, &ts) == nil {
			sum += time.Duration(ts.Nano())
		}
	}
	return sum
}
