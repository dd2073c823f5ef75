package segment

import (
	"errors"
	"fmt"
	"time"

	"github.com/agentos/agentos/audit/event"
)

// flusher is the writer's goroutine: it alone touches the output.
type flusher struct {
	*Writer
	out *output

	lastHead time.Time
	lastSync time.Time
	retry    time.Time  // a held log does nothing before
	dirty    bool       // written since the last fsync began
	syncing  chan error // result of the fsync under way, nil for none
	synced   func()     // what to call when it succeeded
	syncErr  error      // the last fsync failed
	lastWork time.Time  // a block was written
	resting  bool       // and what writing needs was given back since
}

// restAfter is how long nothing must come before memory is given back: most logs
// are of agents that wait for their user.
const restAfter = time.Second

func (f *flusher) run() {
	defer close(f.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-f.kick:
		case <-timer.C:
		case err := <-f.syncing:
			f.endSync(err)
		}
		f.mu.Lock()
		asks, closing, abandoned, target := f.asks, f.closing, f.abandoned, f.state.Seq
		f.asks = nil
		f.mu.Unlock()
		if closing {
			f.err = f.finish(abandoned, target)
			for _, ask := range asks {
				ask <- f.err
			}
			return
		}
		err := f.step(time.Now(), len(asks) > 0, target)
		for _, ask := range asks {
			ask <- err
		}
		now := time.Now()
		wait := f.pause(now)
		if wait > restAfter && !f.resting {
			if now.Sub(f.lastWork) >= restAfter {
				f.rest()
			} else {
				wait = restAfter
			}
		}
		timer.Reset(wait)
	}
}

// rest frees the buffers of a log that has nothing to write.
func (f *flusher) rest() {
	f.mu.Lock()
	f.free = nil
	if f.cur.count == 0 {
		f.cur = &batch{}
	}
	f.mu.Unlock()
	f.out.rest()
	f.resting = true
}

// step does what is due. With force it stores every record up to target,
// signs and syncs.
func (f *flusher) step(now time.Time, force bool, target uint64) error {
	if f.held() && now.Before(f.retry) && !force {
		return nil
	}
	err := f.store(now, force, target)
	if err == nil && force {
		f.awaitSync()
		f.dirty, f.lastSync = false, now
		f.endSyncAll(f.out.syncAll())
	}
	if err == nil && !force && f.dirty && f.syncing == nil && now.Sub(f.lastSync) >= f.o.SyncEvery {
		f.beginSync(now)
	}
	if err == nil {
		err = f.syncErr
	}
	f.settle(now, err)
	return err
}

// store writes blocks, heads and new segments as they are due.
func (f *flusher) store(now time.Time, force bool, target uint64) error {
	for {
		if err := f.begin(now); err != nil {
			return err
		}
		b := f.take(now, force && f.out.seq < target)
		if b == nil {
			break
		}
		if err := f.out.block(b); err != nil {
			return err
		}
		f.dirty, f.resting, f.lastWork = true, false, now
		f.recycle(b)
		if f.out.seq > f.out.headed && now.Sub(f.lastHead) >= f.o.HeadEvery {
			break
		}
		if now = time.Now(); !force {
			break // one block a step: heads and syncs keep their times
		}
	}
	if f.out.seq > f.out.headed && (force || now.Sub(f.lastHead) >= f.o.HeadEvery) {
		if err := f.out.sign(Running); err != nil {
			return err
		}
		f.signed(now)
	}
	return nil
}

// begin gives the next block a segment: what is missing after a failure or a
// crash, or a new one when the current one is long enough.
func (f *flusher) begin(now time.Time) error {
	before := f.out.number
	err := f.out.ready()
	if err == nil && f.out.size >= f.o.SegmentSize && f.out.seq+1 > f.out.head.FirstSeq {
		err = f.out.rotate()
	}
	if f.out.number != before {
		f.signed(now)
	}
	return err
}

// take returns the oldest batch that is due and leaves it in the queue.
func (f *flusher) take(now time.Time, force bool) *batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 && f.cur.count > 0 && (force || now.Sub(f.since) >= f.o.Flush) {
		f.seal()
	}
	if len(f.queue) == 0 {
		return nil
	}
	return f.queue[0]
}

// recycle removes the stored batch b from the queue.
func (f *flusher) recycle(b *batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = f.queue[1:]
	f.state.Pending -= len(b.raw)
	b.reset()
	if len(f.free) < 4 && cap(b.raw) <= 512<<10 {
		f.free = append(f.free, b)
	}
	if f.state.Pending <= f.o.Memory/2 {
		close(f.room)
		f.room = make(chan struct{})
	}
}

// signed notes the head that was just written.
func (f *flusher) signed(now time.Time) {
	f.lastHead, f.dirty = now, true
	f.mu.Lock()
	f.state.Head = f.out.last
	f.mu.Unlock()
}

func (f *flusher) held() bool { return f.State().Held != nil }

// settle makes err, or its absence, the state of the log.
func (f *flusher) settle(now time.Time, err error) {
	f.mu.Lock()
	was := f.state.Held != nil
	if err != nil {
		f.retry = now.Add(f.o.Retry)
		if !was {
			f.state.Since = now
		}
	} else {
		f.state.Since = time.Time{}
	}
	f.state.Held = err
	s := f.state
	f.mu.Unlock()
	if was != (err != nil) && f.o.OnState != nil {
		f.o.OnState(s)
	}
}

// pause returns how long nothing is due.
func (f *flusher) pause(now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.Held != nil {
		return max(f.retry.Sub(now), time.Millisecond)
	}
	if len(f.queue) > 0 {
		return 0
	}
	wait := time.Hour
	if f.cur.count > 0 {
		wait = min(wait, f.since.Add(f.o.Flush).Sub(now))
	}
	if f.out.seq > f.out.headed {
		wait = min(wait, f.lastHead.Add(f.o.HeadEvery).Sub(now))
	}
	if f.dirty && f.syncing == nil {
		wait = min(wait, f.lastSync.Add(f.o.SyncEvery).Sub(now))
	}
	return max(wait, 0)
}

// beginSync starts an fsync beside the writing.
func (f *flusher) beginSync(now time.Time) {
	files, synced := f.out.unsynced()
	f.dirty, f.lastSync = false, now
	f.syncing, f.synced = make(chan error, 1), synced
	go func(s store, answer chan<- error) { answer <- syncFiles(s, files) }(f.out.store, f.syncing) // awaited by endSync or awaitSync
}

func (f *flusher) awaitSync() {
	if f.syncing != nil {
		f.endSync(<-f.syncing)
	}
}

// endSync ends the fsync that beginSync began.
func (f *flusher) endSync(err error) {
	if err == nil {
		f.synced()
	}
	f.syncing, f.synced = nil, nil
	f.endSyncAll(err)
}

// endSyncAll remembers a failed fsync, and records it when the disk is well
// again: what the kernel dropped meanwhile may be missing after a power cut.
func (f *flusher) endSyncAll(err error) {
	if err != nil {
		f.syncErr, f.dirty = err, true
		return
	}
	if failed := f.syncErr; failed != nil {
		f.syncErr = nil
		e := event.Event{
			Time: f.o.wall(), Mono: f.o.boot(), Kind: event.Gap,
			Detail: fmt.Sprintf("fsync failed (%v) and works again: records up to %d may be missing after a power cut", failed, f.out.seq),
		}
		// The error is the caller's news of a held log, which this goroutine makes.
		_ = f.Append(e)
	}
}

// finish stores what is left, closes the log and frees everything.
func (f *flusher) finish(abandoned bool, target uint64) error {
	f.awaitSync()
	if abandoned {
		return f.out.close()
	}
	now := time.Now()
	err := f.store(now, true, target)
	if err == nil {
		if err = f.out.ready(); err == nil {
			err = f.out.sign(Closed)
		}
	}
	if err == nil {
		f.signed(now)
		err = f.out.syncAll()
	}
	if err != nil {
		err = fmt.Errorf("close audit log of %s, %d records not stored: %w", f.session, target-f.out.seq, err)
	}
	return errors.Join(err, f.out.close())
}
