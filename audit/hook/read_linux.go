package hook

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/bpf"
)

const (
	pollBusy   = 5 * time.Millisecond  // while records come
	pollIdle   = 10 * time.Millisecond // after a second without any
	pollEmpty  = 50 * time.Millisecond // no jails
	readerNice = -10

	countsAge = 200 * time.Millisecond
	countsOld = 5 * time.Second // of a jail without records: what is lost was in a ring that was full of others
)

// Read hands every record to f, per jail in the order of time, until ctx is done. It looks
// every few milliseconds, and when a ring becomes a quarter full (a wake-up for each record
// would cost an exec 60 us). f must not call back into h. One reader at a time.
func (h *Hook) Read(ctx context.Context, f func(jail uint32, e event.Event)) error {
	// On a busy machine a ring would fill before it is our turn. The thread ends with its goroutine.
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), readerNice)
	var lastSeen, lastCounts, lastMisses time.Time
	for wait := time.Duration(0); h.waiter.sleep(ctx, wait); {
		now := time.Now()
		check := now.Sub(lastCounts) >= countsAge
		n, jails, err := h.poll(f, check)
		if err != nil {
			return err
		}
		if check {
			lastCounts = now
		}
		if n > 0 {
			lastSeen = now
		}
		if h.tier == TierB && now.Sub(lastMisses) >= missesAge {
			lastMisses = now
			if err := h.readMisses(f); err != nil {
				return err
			}
		}
		wait = pollBusy
		switch {
		case jails == 0:
			wait = pollEmpty
		case now.Sub(lastSeen) > time.Second:
			wait = pollIdle
		}
	}
	return ctx.Err()
}

// Drain reads what is in the rings of one jail now, and its last losses: before
// [Hook.RemoveJail], after its tasks are gone.
func (h *Hook) Drain(id uint32, f func(jail uint32, e event.Event)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.jails[id]
	if j == nil {
		return fmt.Errorf("drain jail %d: %w", id, ErrNoJail)
	}
	h.readJail(j, f)
	return h.readCounts(j, f)
}

func (h *Hook) poll(f func(uint32, event.Event), counts bool) (records, jails int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, j := range h.jails {
		records += h.readJail(j, f)
		if counts && (j.active || time.Since(j.counted) >= countsOld) {
			j.active, j.counted = false, time.Now()
			if err := h.readCounts(j, f); err != nil {
				return records, len(h.jails), err
			}
		}
	}
	return records, len(h.jails), nil
}

// readJail empties both rings, sorted by time.
func (h *Hook) readJail(j *jail, f func(uint32, event.Event)) int {
	if j.tap != nil {
		f = j.tap
	}
	if j.rings[0].pending() == 0 && j.rings[1].pending() == 0 {
		return 0
	}
	j.active = true
	j.dec.boot = bootTime()
	buf := make([]byte, 0, maxRecord)
	var records []record
	for _, r := range j.rings {
		h.water(j, r)
		// Bounded by what is there now: a flooding jail must not starve the others.
		for left := r.pending(); left > 0; {
			b, ok := r.next(buf)
			if !ok {
				break
			}
			left -= len(b) + ringHeader
			rec, err := parseRecord(slices.Clone(b))
			if err != nil {
				h.opts.Logger.Error("drop malformed record", "jail", j.id, "err", err)
				continue
			}
			records = append(records, rec)
		}
		h.water(j, r)
	}
	sort.SliceStable(records, func(a, b int) bool { return records[a].time < records[b].time })
	for i := range records {
		f(j.id, j.dec.event(&records[i]))
	}
	return len(records)
}

// water announces that a ring became over half full, or again less than an eighth.
func (h *Hook) water(j *jail, r *ring) {
	fill, size := r.pending(), len(r.data)
	switch {
	case !r.full && fill > size/2:
		r.full = true
	case r.full && fill < size/8:
		r.full = false
	default:
		return
	}
	if h.opts.HighWater != nil && (r.full || !j.rings[0].full && !j.rings[1].full) {
		h.opts.HighWater(j.id, r.full)
	}
}

// readCounts turns lost records into events, one per kind.
func (h *Hook) readCounts(j *jail, f func(uint32, event.Event)) error {
	if j.tap != nil {
		f = j.tap
	}
	lost, _, err := h.counts(j)
	if err != nil {
		return err
	}
	for kind, n := range lost {
		if n <= j.lost[kind] {
			continue
		}
		now := time.Now()
		f(j.id, event.Event{
			Time: now, Mono: uint64(bootClock()), Kind: event.Loss, Verdict: event.Allow,
			Name: fmt.Sprint(event.Kind(kind)), Code: kind, Count: n - j.lost[kind],
			Detail: "the ring of the jail was full",
		})
		j.lost[kind] = n
	}
	return nil
}

// counts sums over CPUs.
func (h *Hook) counts(j *jail) (lost [kinds]uint64, s Stats, err error) {
	var perCPU []bpf.TraceCount
	if err := h.maps["counts"].Lookup(j.slot.index, &perCPU); err != nil {
		return lost, s, fmt.Errorf("read counts of jail %d: %w", j.id, err)
	}
	for _, c := range perCPU {
		s.Attempted += c.Attempted
		s.Lost += c.LostCrit + c.LostBulk
		s.Denied += c.Denied
		s.FailClosed += c.FailClosed
		s.Retries += c.Retries
		for kind, n := range c.Lost {
			lost[kind] += uint64(n)
		}
	}
	return lost, s, nil
}

// Stats counts what the kernel saw of a jail.
func (h *Hook) Stats(id uint32) (Stats, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.jails[id]
	if j == nil {
		return Stats{}, fmt.Errorf("count jail %d: %w", id, ErrNoJail)
	}
	_, s, err := h.counts(j)
	return s, err
}

func bootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

func bootTime() time.Time { return time.Now().Add(-bootClock()).Round(0) }
