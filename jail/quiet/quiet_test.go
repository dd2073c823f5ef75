package quiet

import (
	"slices"
	"testing"
	"time"
)

func TestFreesOnceAfterEachBurst(t *testing.T) {
	// Bytes allocated before each look, and whether that look frees them.
	looks := []struct {
		allocates uint64
		frees     bool
		pause     time.Duration
	}{
		{4 << 20, false, often}, // starting
		{1 << 20, false, often},
		{0, true, often}, // over
		{0, false, 2 * often},
		{48 << 10, false, 4 * often}, // what waiting itself takes: less than 32 KiB a second
		{worth / 2, false, often},
		{0, false, 2 * often}, // not worth it
		{worth / 2, false, often},
		{0, true, often}, // both together are
		{0, false, 2 * often},
	}
	var sum uint64
	freed, calls := 0, 0
	w := watch{allocated: func() uint64 { return sum }, free: func(garbage uint64) {
		calls++
		if garbage > 0 {
			freed++
		}
		if garbage > 0 && garbage < worth {
			t.Errorf("freed for %d bytes", garbage)
		}
		sum += 1 << 10
	}, pause: often}
	for i, l := range looks {
		sum += l.allocates
		before := freed
		w.look()
		if (freed > before) != l.frees || w.pause != l.pause {
			t.Errorf("look %d: freed %v, next in %v; want %v, %v", i, freed > before, w.pause, l.frees, l.pause)
		}
	}
	for range 10 {
		w.look()
	}
	before := calls
	w.look()
	if w.pause != seldom || calls != before {
		t.Errorf("a program that rests is looked at every %v, want %v; and %d times more was freed", w.pause, seldom, calls-before)
	}
}

func TestCountsAllocations(t *testing.T) {
	before := allocated()
	var keep [][]byte
	for range 64 {
		keep = append(keep, make([]byte, 64<<10))
	}
	if got := allocated() - before; before == 0 || got < 4<<20 {
		t.Errorf("%d bytes allocated before, %d by %d slices of 64 KiB", before, got, len(slices.Clip(keep)))
	}
}

func TestStop(t *testing.T) {
	stop := Start()
	stop()
	stop()
}
