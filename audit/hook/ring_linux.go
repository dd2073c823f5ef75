package hook

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ring reads a BPF ring buffer by polling: producers never wake us. Unlike the
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
