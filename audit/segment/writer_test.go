package segment

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentos/agentos/audit/event"
)

func TestWriteReadVerify(t *testing.T) {
	m, k := newMemory(), testKey(1)
	o := testOptions()
	o.BlockEvents, o.SegmentSize = 100, 8<<10
	var heads []Head
	o.OnHead = func(h Head) { heads = append(heads, h) }
	w, err := create(m, k, testHeader("s1"), o)
	if err != nil {
		t.Fatal(err)
	}
	var want []event.Event
	for i := range 5000 {
		e := testEvent(i)
		if err := w.Append(e); err != nil {
			t.Fatal(err)
		}
		e.Jail = "s1"
		want = append(want, e)
	}
	if err := w.Sync(); err != nil {
		t.Fatal(err)
	}
	if s := w.State(); s.Pending != 0 || s.Seq != 5000 || s.Head.Seq != 5000 || s.Held != nil {
		t.Errorf("state after sync: %+v", s)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if err := w.Append(want[0]); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	segments := m.bytes()
	recs, problems := all(t, segments)
	if len(problems) > 0 || len(recs) != len(want) {
		t.Fatalf("%d records, problems %v", len(recs), problems)
	}
	for i, r := range recs {
		if r.Seq != uint64(i+1) || !reflect.DeepEqual(r.Event, want[i]) {
			t.Fatalf("record %d: %+v\nwant %+v", i, r, want[i])
		}
	}
	rep := check(t, segments, k, heads...)
	if !rep.Complete() || rep.Records != 5000 || rep.Signed != 5000 || rep.Segments < 3 || rep.Heads != len(heads) {
		t.Errorf("report: %+v, %d heads told", rep, len(heads))
	}
}

func TestConcurrentAppend(t *testing.T) {
	m, k := newMemory(), testKey(1)
	w, err := create(m, k, testHeader("s1"), testOptions())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				e := testEvent(i)
				e.Code = g
				if err := w.Append(e, e); err != nil {
					t.Error(err)
				}
				if i%500 == 0 {
					if err := w.Sync(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if rep := check(t, m.bytes(), k); !rep.Complete() || rep.Records != 16000 {
		t.Errorf("report: %+v", rep)
	}
}

// TestDiskFull fills the disk at every possible byte of a small log: nothing
// may be half-written, lost or reordered, and the log must come back.
func TestDiskFull(t *testing.T) {
	k := testKey(1)
	reference, _ := build(t, k, "s1", 30, -30, 30)
	total := 0
	for _, s := range reference {
		total += len(s)
	}
	for room := 0; room < total+200; room += 23 {
		m := newMemory()
		o := testOptions()
		o.Flush, o.SegmentSize = 100*time.Microsecond, 1500
		o.BlockEvents = 10
		states := make(chan State, 100)
		o.OnState = func(s State) { states <- s }
		m.room = room
		w, err := create(m, k, testHeader("s1"), o)
		if err != nil {
			if !errors.Is(err, errDisk) {
				t.Fatalf("room %d: create: %v", room, err)
			}
			continue
		}
		for i := range 90 {
			if err := w.Append(testEvent(i)); err != nil && !errors.Is(err, ErrHeld) {
				t.Fatalf("room %d: append: %v", room, err)
			}
		}
		if err := w.Sync(); err != nil {
			if !errors.Is(err, errDisk) {
				t.Fatalf("room %d: sync: %v", room, err)
			}
			if s := <-states; s.Held == nil {
				t.Fatalf("room %d: not told that the log is held", room)
			}
			if err := w.Append(testEvent(90)); !errors.Is(err, ErrHeld) || !errors.Is(err, errDisk) {
				t.Fatalf("room %d: append to a held log: %v", room, err)
			}
			for _, s := range m.bytes() {
				for _, p := range check(t, [][]byte{s}, k).Problems {
					if strings.Contains(p.What, "tail") {
						t.Fatalf("room %d: half-written: %v", room, p)
					}
				}
			}
			m.set(func(m *memory) { m.room = -1 })
			if s := <-states; s.Held != nil {
				t.Fatalf("room %d: still held: %v", room, s.Held)
			}
		} else {
			w.Append(testEvent(90))
		}
		m.set(func(m *memory) { m.room = -1 })
		if err := w.Close(); err != nil {
			t.Fatalf("room %d: close: %v", room, err)
		}
		if rep := check(t, m.bytes(), k); !rep.Complete() || rep.Records != 91 {
			t.Fatalf("room %d: %+v", room, rep)
		}
	}
}

func TestDiskBroken(t *testing.T) {
	k := testKey(1)
	for name, fault := range map[string]func(*memory){
		"cannot cut":    func(m *memory) { m.room, m.noCut = 50, true },
		"cannot sync":   func(m *memory) { m.noSync = true },
		"cannot create": func(m *memory) { m.noCreate = true },
	} {
		m := newMemory()
		o := testOptions()
		o.SegmentSize = 1000
		w, err := create(m, k, testHeader("s1"), o)
		if err != nil {
			t.Fatal(err)
		}
		m.set(fault)
		for i := range 200 {
			w.Append(testEvent(i))
		}
		if err := w.Sync(); !errors.Is(err, errDisk) {
			t.Errorf("%s: sync: %v", name, err)
		}
		if s := w.State(); s.Held == nil || s.Since.IsZero() {
			t.Errorf("%s: state %+v", name, s)
		}
		m.set(func(m *memory) { m.room, m.noCut, m.noSync, m.noCreate = -1, false, false, false })
		if err := w.Sync(); err != nil {
			t.Errorf("%s: sync of the mended disk: %v", name, err)
		}
		if s := w.State(); s.Held != nil {
			t.Errorf("%s: still held: %v", name, s.Held)
		}
		if err := w.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
		rep := check(t, m.bytes(), k)
		if wantGaps := map[bool]int{true: 1}[name == "cannot sync"]; !rep.Complete() || rep.Gaps != wantGaps || rep.Records != 200+uint64(wantGaps) {
			t.Errorf("%s: %+v", name, rep)
		}
	}
}

func TestMemoryFull(t *testing.T) {
	m, k := newMemory(), testKey(1)
	o := testOptions()
	o.Memory = 20 << 10
	w, err := create(m, k, testHeader("s1"), o)
	if err != nil {
		t.Fatal(err)
	}
	m.set(func(m *memory) { m.room = 0 })
	taken := 0
	for ; ; taken++ {
		if err = w.Append(testEvent(taken)); errors.Is(err, ErrFull) {
			break
		}
		if taken > 10000 {
			t.Fatal("memory never full")
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("wait on a full log: %v", err)
	}
	m.set(func(m *memory) { m.room = -1 })
	if err := w.Wait(context.Background()); err != nil {
		t.Errorf("wait: %v", err)
	}
	if err := w.Append(testEvent(taken)); errors.Is(err, ErrFull) {
		t.Errorf("append after wait: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if rep := check(t, m.bytes(), k); !rep.Complete() || rep.Records != uint64(taken+1) {
		t.Errorf("taken %d: %+v", taken+1, rep)
	}
}

func TestCloseOnFullDiskSaysWhatIsLost(t *testing.T) {
	m, k := newMemory(), testKey(1)
	w, err := create(m, k, testHeader("s1"), testOptions())
	if err != nil {
		t.Fatal(err)
	}
	m.set(func(m *memory) { m.room = 0 })
	for i := range 7 {
		w.Append(testEvent(i))
	}
	if err := w.Close(); !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "7 records not stored") {
		t.Errorf("close: %v", err)
	}
	if err := w.Sync(); !errors.Is(err, ErrClosed) {
		t.Errorf("sync after close: %v", err)
	}
	if rep := check(t, m.bytes(), k); !rep.OK() || rep.Closed {
		t.Errorf("report: %+v", rep)
	}
}

// TestHeadsWhileDirty: heads and fsyncs come by themselves.
func TestHeadsWhileDirty(t *testing.T) {
	m, k := newMemory(), testKey(1)
	o := testOptions()
	o.HeadEvery, o.SyncEvery = time.Millisecond, time.Millisecond
	heads := make(chan Head, 10)
	o.OnHead = func(h Head) { heads <- h }
	w, err := create(m, k, testHeader("s1"), o)
	if err != nil {
		t.Fatal(err)
	}
	if h := <-heads; h.Seq != 0 || h.Number != 1 {
		t.Errorf("first head: %+v", h)
	}
	for i := range 3 {
		w.Append(testEvent(i))
		if h := <-heads; h.Seq != uint64(i+1) || h.Verify(k.Public()) != nil {
			t.Errorf("head %+v after event %d", h, i)
		}
	}
	if err := w.Abandon(); err != nil {
		t.Error(err)
	}
	if rep := check(t, m.bytes(), k); !rep.OK() || rep.Closed || rep.Signed != 3 {
		t.Errorf("report: %+v", rep)
	}
	if m.syncs < 2 {
		t.Errorf("%d fsyncs", m.syncs)
	}
}

func TestCreateRefuses(t *testing.T) {
	for _, bad := range []string{"", ".", "..", "a/b", "a\x00", "a b", "é", strings.Repeat("x", 65)} {
		if _, err := create(newMemory(), testKey(1), testHeader(bad), Options{}); err == nil {
			t.Errorf("session %q accepted", bad)
		}
	}
	if _, err := create(newMemory(), Key{}, testHeader("s"), Options{}); err == nil {
		t.Error("zero key accepted")
	}
}
