package segment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentos/agentos/audit/event"
)

// Errors of [Writer.Append]; test with errors.Is.
var (
	// ErrHeld: all events were taken and are safe in memory, but the disk
	// refuses to store them (the error wraps why). Stop the jail until
	// Options.OnState or [Writer.State] says that the log is no longer held.
	ErrHeld = errors.New("audit log is held")
	// ErrFull: none of the events were taken, because Options.Memory is used
	// up. Keep them, stop the jail, [Writer.Wait] and append them again.
	ErrFull = errors.New("audit log memory is full")
	// ErrClosed: the log or the writer is closed.
	ErrClosed = errors.New("audit log is closed")
)

// Options of a [Writer]. The zero value of each field is its default.
type Options struct {
	Flush       time.Duration // longest time an event stays in memory; 10 ms
	BlockEvents int           // most records in a block; 1000
	BlockBytes  int           // most bytes of records in a block before one is added; 128 KiB, at most 256 KiB
	HeadEvery   time.Duration // longest time between signed heads while records come; 1 s
	SyncEvery   time.Duration // shortest time between fsyncs while records come; 100 ms
	SegmentSize int64         // a segment at least this long is closed; 64 MiB
	Memory      int           // bytes of encoded events kept while the disk is slow or full; 8 MiB
	Retry       time.Duration // how long a held log waits to try again; 200 ms

	// Compressor is what several logs of one process share; nil: this one has its own.
	Compressor *Compressor

	// OnState is called when the log becomes held and when it is no longer, by
	// the writer's goroutine: it must not call Sync or Close.
	OnState func(State)
	// OnHead is called with each signed head after it is written (the first one
	// by Create itself, later ones by the writer's goroutine): hand it to a
	// witness, do not block.
	OnHead func(Head)

	wall func() time.Time
	boot func() uint64
}

func (o Options) withDefaults() Options {
	def := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&o.Flush, 10*time.Millisecond)
	def(&o.HeadEvery, time.Second)
	def(&o.SyncEvery, 100*time.Millisecond)
	def(&o.Retry, 200*time.Millisecond)
	if o.BlockEvents <= 0 {
		o.BlockEvents = 1000
	}
	if o.BlockBytes <= 0 {
		o.BlockBytes = 128 << 10
	}
	o.BlockBytes = min(o.BlockBytes, 256<<10)
	if o.SegmentSize <= 0 {
		o.SegmentSize = 64 << 20
	}
	if o.Memory <= 0 {
		o.Memory = 8 << 20
	}
	if o.Compressor == nil {
		o.Compressor = &Compressor{}
	}
	if o.wall == nil {
		o.wall = time.Now
	}
	if o.boot == nil {
		o.boot = bootTime
	}
	return o
}

// State says how a log is. The zero value is a healthy, empty one.
type State struct {
	Held    error     // why the disk refuses, nil when healthy
	Since   time.Time // since when it is held
	Pending int       // bytes of events in memory
	Seq     uint64    // last record taken
	Head    Head      // last head signed
}

// Writer appends to one log. Its methods may be called by several goroutines.
type Writer struct {
	o       Options
	session string

	mu        sync.Mutex
	cur       *batch
	queue     []*batch // full batches, oldest first
	free      []*batch
	state     State
	closing   bool          // no more is taken; the flusher ends
	abandoned bool          // and writes nothing more
	since     time.Time     // when the current batch got its first event
	room      chan struct{} // closed and replaced when memory becomes free
	asks      []chan error  // waiting Syncs

	kick chan struct{} // wakes the flusher; one token
	done chan struct{} // closed when the flusher has ended
	err  error         // of closing; read after done
}

// start starts the flusher on an output that is ready.
func start(out *output, o Options) *Writer {
	w := &Writer{
		o: o, session: out.head.Session, cur: &batch{},
		room: make(chan struct{}), kick: make(chan struct{}, 1), done: make(chan struct{}),
	}
	w.state.Seq, w.state.Head = out.seq, out.last
	f := &flusher{Writer: w, out: out, lastHead: time.Now(), dirty: true} // what made it ready is not synced
	go f.run()                                                            // ends, and closes done, after Close or Abandon
	return w
}

// create begins a log in an empty store, which it owns.
func create(s store, k Key, h Header, o Options) (*Writer, error) {
	o = o.withDefaults()
	if k.private == nil {
		return nil, errors.Join(errors.New("create audit log: no key"), s.close())
	}
	if err := ValidSession(h.Session); err != nil {
		return nil, errors.Join(fmt.Errorf("create audit log: %w", err), s.close())
	}
	h.Format, h.Version, h.Segment, h.Key = formatName, Version, 1, k.ID()
	out := &output{comp: o.Compressor, store: s, key: k, head: h, wall: o.wall, boot: o.boot, tell: o.OnHead, need: needFile}
	if err := out.ready(); err != nil {
		return nil, errors.Join(fmt.Errorf("create audit log of %s: %w", h.Session, err), out.close())
	}
	return start(out, o), nil
}

// Append gives the events the next sequence numbers and takes them into
// memory; it does no I/O. Strings are copied. Jail becomes the log's session
// where it is empty. All or none are taken:
//
//	nil        taken; stored within Options.Flush
//	ErrHeld    taken; the disk refuses: stop the jail
//	ErrFull    not taken: stop the jail, Wait, append again
//	ErrClosed  not taken
func (w *Writer) Append(events ...event.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return ErrClosed
	}
	if w.state.Pending >= w.o.Memory {
		if w.state.Held != nil {
			return fmt.Errorf("%w: %w", ErrFull, w.state.Held)
		}
		return ErrFull
	}
	wake := false
	for i := range events {
		b := w.cur
		if b.count == 0 {
			b.first, w.since = w.state.Seq+1, time.Now()
			wake = true
		}
		before := len(b.raw)
		b.add(&events[i], w.session)
		w.state.Seq++
		w.state.Pending += len(b.raw) - before
		if int(b.count) >= w.o.BlockEvents || len(b.raw) >= w.o.BlockBytes {
			w.seal()
			wake = true
		}
	}
	if wake {
		w.wake()
	}
	if w.state.Held != nil {
		return fmt.Errorf("%w: %w", ErrHeld, w.state.Held)
	}
	return nil
}

// seal moves the current batch to the queue. Preconditions: mu is held.
func (w *Writer) seal() {
	if w.cur.count == 0 {
		return
	}
	w.queue = append(w.queue, w.cur)
	if n := len(w.free); n > 0 {
		w.cur, w.free = w.free[n-1], w.free[:n-1]
	} else {
		w.cur = &batch{raw: make([]byte, 0, len(w.cur.raw)+4096)} // the next is often like the last
	}
}

func (w *Writer) wake() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// Wait returns when at least half of Options.Memory is free. It returns
// ctx's error, or ErrClosed.
func (w *Writer) Wait(ctx context.Context) error {
	for {
		w.mu.Lock()
		free, closing, room := w.state.Pending <= w.o.Memory/2, w.closing, w.room
		w.mu.Unlock()
		switch {
		case closing:
			return ErrClosed
		case free:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.done:
			return ErrClosed
		case <-room:
		}
	}
}

// State says how the log is now.
func (w *Writer) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Sync stores everything appended before, signs a head and makes it durable.
// An error wraps why it could not; the events are still held and tried.
func (w *Writer) Sync() error {
	ask := make(chan error, 1)
	w.mu.Lock()
	if w.closing {
		w.mu.Unlock()
		return ErrClosed
	}
	w.asks = append(w.asks, ask)
	w.mu.Unlock()
	w.wake()
	select {
	case err := <-ask:
		return err
	case <-w.done:
		select {
		case err := <-ask:
			return err
		default:
			return ErrClosed
		}
	}
}

// Close stores everything, signs the closing head, makes it durable and frees
// what the writer holds. When the disk refuses, it says how many records are
// lost and the log is not closed; a caller that can wait stops the jail and
// waits until [State] is healthy first. Later calls return the same error.
func (w *Writer) Close() error { return w.end(true) }

// Abandon ends the writer as a crash would: what is in memory is lost, no
// closing head is written, [Resume] may go on.
func (w *Writer) Abandon() error { return w.end(false) }

func (w *Writer) end(orderly bool) error {
	w.mu.Lock()
	if !w.closing {
		w.closing, w.abandoned = true, !orderly
	}
	w.mu.Unlock()
	w.wake()
	<-w.done
	return w.err
}
