package hook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ring reads a BPF ring buffer by looking every now and then: its producers wake us only when
// it becomes a quarter full, see waiter. Unlike the
// library's reader it maps the data once, not twice (every mapped page counts as our
// memory), and puts wrapped records together by copying.
//
// See kernel/bpf/ringbuf.c: a page with the consumer position, a page with the
// producer position, then data; each record is preceded by an 8-byte header {u32
// length | busy | discard; u32} and padded to 8 bytes.
type ring struct {
	consumer []byte
	producer []byte // and data behind
	data     []byte
	full     bool // high water was announced
}

const (
	ringBusy    = 1 << 31
	ringDiscard = 1 << 30
	ringHeader  = 8
)

// openRing maps a ring; closing it leaves m open.
func openRing(m *ebpf.Map) (*ring, error) {
	page, size := unix.Getpagesize(), int(m.MaxEntries())
	consumer, err := unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map ring position: %w", err)
	}
	producer, err := unix.Mmap(m.FD(), int64(page), page+size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		unix.Munmap(consumer)
		return nil, fmt.Errorf("map ring data: %w", err)
	}
	return &ring{consumer: consumer, producer: producer, data: producer[page:]}, nil
}

func (r *ring) close() {
	unix.Munmap(r.consumer)
	unix.Munmap(r.producer)
}

// skip forgets what is in the ring.
func (r *ring) skip() { storeWord(r.consumer, loadWord(r.producer)) }

// pending is how much of the ring is in use, in bytes.
func (r *ring) pending() int { return int(loadWord(r.producer) - loadWord(r.consumer)) }

// next copies the oldest record to buf[:0] and frees its room. ok is false when there
// is none, or its producer is not done yet.
func (r *ring) next(buf []byte) (rec []byte, ok bool) {
	mask := uint64(len(r.data) - 1)
	for {
		pos := loadWord(r.consumer)
		if pos >= loadWord(r.producer) {
			return nil, false
		}
		at := pos & mask
		head := loadHalf(r.data[at:])
		if head&ringBusy != 0 {
			return nil, false
		}
		size := uint64(head &^ (ringBusy | ringDiscard))
		next := pos + (size+ringHeader+7)&^7
		if head&ringDiscard != 0 {
			storeWord(r.consumer, next)
			continue
		}
		from := (at + ringHeader) & mask
		n := min(size, uint64(len(r.data))-from)
		rec = append(buf[:0], r.data[from:from+n]...)
		rec = append(rec, r.data[:size-n]...)
		storeWord(r.consumer, next)
		return rec, true
	}
}

// waiter sleeps until a ring becomes a quarter full.
type waiter struct{ epoll, stop int }

func newWaiter() (*waiter, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make epoll: %w", err)
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	w := &waiter{epoll, stop}
	if err := w.add(stop, unix.EPOLLIN); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *waiter) add(fd int, events uint32) error {
	err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("watch descriptor %d: %w", fd, err)
	}
	return nil
}

// watch wakes the waiter from now on when m, a ring, is written to with a wake-up: on the
// edge, because a ring that is not empty is always readable. It ends with m.
func (w *waiter) watch(m *ebpf.Map) error { return w.add(m.FD(), unix.EPOLLIN|unix.EPOLLET) }

// sleep waits at most so long; false means that ctx is done.
func (w *waiter) sleep(ctx context.Context, most time.Duration) bool {
	woken := context.AfterFunc(ctx, func() { _, _ = unix.Write(w.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0}) })
	defer woken()
	var events [8]unix.EpollEvent
	_, _ = unix.EpollWait(w.epoll, events[:], int(most.Milliseconds())) // EINTR is an early look
	return ctx.Err() == nil
}

func (w *waiter) close() {
	_ = unix.Close(w.stop)
	_ = unix.Close(w.epoll)
}
