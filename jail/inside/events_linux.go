package inside

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/packet"
)

const (
	batchSize  = 32 << 10 // bytes after which a batch is sent at once
	batchDelay = 5 * time.Millisecond
)

// emitter collects the events of init and sends them in batches. When the
// helper does not read, Emit blocks, and with it whoever did the act: the
// record is never held back, the jail is.
type emitter struct {
	conn *packet.Conn

	mu      sync.Mutex
	batch   []byte
	waiting bool // the flusher has been told
	dirty   chan struct{}
}

func newEmitter(conn *packet.Conn) *emitter {
	e := &emitter{conn: conn, dirty: make(chan struct{}, 1)}
	go e.run() // lives as long as the process
	return e
}

func (e *emitter) run() {
	for range e.dirty {
		time.Sleep(batchDelay)
		e.flush()
	}
}

// emit stamps and queues one event.
func (e *emitter) emit(ev event.Event) {
	if ev.Time.IsZero() {
		ev.Time = time.Now()
	}
	if ev.Mono == 0 {
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) == nil {
			ev.Mono = uint64(ts.Nano())
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	before := len(e.batch)
	e.batch = jail.AppendEvent(e.batch, &ev)
	if len(e.batch) >= batchSize {
		e.sendLocked(before)
		return
	}
	if !e.waiting {
		e.waiting = true
		select {
		case e.dirty <- struct{}{}:
		default: // a flush is due already
		}
	}
}

// flush sends what is queued.
func (e *emitter) flush() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sendLocked(len(e.batch))
}

// sendLocked sends the batch; if it is larger than a datagram, first what came
// before the last event.
func (e *emitter) sendLocked(before int) {
	e.waiting = false
	if len(e.batch) > packet.MaxSize && before > 0 {
		_ = e.conn.SendBytes(e.batch[:before])
		e.batch = append(e.batch[:0], e.batch[before:]...)
	}
	if len(e.batch) > 0 {
		_ = e.conn.SendBytes(e.batch) // the helper is gone: init ends
		e.batch = e.batch[:0]
	}
}
