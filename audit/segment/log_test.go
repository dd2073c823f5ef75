package segment

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/agentos/agentos/audit/event"
)

// memory is a store whose disk can be filled and broken.
type memory struct {
	mu       sync.Mutex
	files    []*memoryFile
	room     int  // bytes that may still be written; -1: no limit
	noCut    bool // truncate fails
	noSync   bool // fsync fails
	syncs    int
	noCreate bool
}

type memoryFile struct {
	m    *memory
	data []byte
}

var errDisk = errors.New("no space left on device")

func newMemory() *memory { return &memory{room: -1} }

func (m *memory) set(f func(m *memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

func (m *memory) create(n uint32) (file, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.noCreate {
		return nil, errDisk
	}
	if int(n) != len(m.files)+1 {
		return nil, fmt.Errorf("create %d of %d", n, len(m.files))
	}
	m.files = append(m.files, &memoryFile{m: m})
	return m.files[n-1], nil
}

func (m *memory) reopen(n uint32) (file, error) { return m.files[n-1], nil }
func (m *memory) last() (uint32, error)         { return uint32(len(m.files)), nil }
func (m *memory) close() error                  { return nil }
func (m *memory) sync() error                   { return nil }

func (m *memory) size(f file) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(f.(*memoryFile).data)), nil
}

func (f *memoryFile) Write(p []byte) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	n := len(p)
	if f.m.room >= 0 {
		n = min(n, f.m.room)
		f.m.room -= n
	}
	f.data = append(f.data, p[:n]...)
	if n < len(p) {
		return n, errDisk
	}
	return n, nil
}

func (f *memoryFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return bytes.NewReader(f.data).ReadAt(p, off)
}

func (f *memoryFile) Truncate(n int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.m.noCut {
		return errDisk
	}
	f.data = f.data[:n]
	return nil
}

func (f *memoryFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.syncs++
	if f.m.noSync {
		return errDisk
	}
	return nil
}

func (f *memoryFile) Close() error { return nil }

// bytes returns copies of the segments.
func (m *memory) bytes() [][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out [][]byte
	for _, f := range m.files {
		out = append(out, bytes.Clone(f.data))
	}
	return out
}

// load makes a store of segments.
func load(segments [][]byte) *memory {
	m := newMemory()
	for _, data := range segments {
		m.files = append(m.files, &memoryFile{m: m, data: bytes.Clone(data)})
	}
	return m
}

func testKey(n byte) Key {
	return Key{ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))}
}

// clock is a clock that steps by a millisecond at each look.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Millisecond)
	return c.now
}

func testOptions() Options {
	c := &clock{now: time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)}
	return Options{
		Flush: time.Millisecond, HeadEvery: time.Hour, SyncEvery: time.Hour, Retry: time.Millisecond,
		wall: c.wall, boot: func() uint64 { return 5e12 },
	}
}

func testHeader(session string) Header {
	return Header{Session: session, Policy: "deadbeef", Kernel: "6.18.0"}
}

// testEvent is event i of a session that does ordinary things.
func testEvent(i int) event.Event {
	e := event.Event{
		Time: time.Unix(1795233600, int64(i)*1e5).UTC(), Mono: 5e12 + uint64(i)*1e5, Kind: event.Open, Verdict: event.Allow,
		Pid: int32(4000 + i/50), Tid: int32(4000 + i/50), JailPid: int32(7 + i/50), Ppid: 3999, TaskStart: 4e12 + uint64(i/50),
		Exe: "/usr/bin/node", Comm: "node", Path: fmt.Sprintf("/w/node_modules/pkg-%d/lib/file%d.js", i/20, i), Dev: 2049, Ino: uint64(123456 + i*7),
		Flags: 0o2000000,
	}
	switch {
	case i%50 == 0:
		e.Kind, e.Path, e.Argv = event.Exec, "/usr/bin/node", []string{"node", fmt.Sprintf("step%d.js", i/50)}
	case i%17 == 0:
		e.Verdict, e.Rule, e.Errno, e.Path = event.Deny, "strict.toml:12:3 **/.env", 13, "/w/.env"
	}
	return e
}

// build writes a closed log: each count is a run of events that ends with a
// Sync, so one block and one head; a negative count also ends the segment.
func build(t testing.TB, k Key, session string, runs ...int) ([][]byte, []Head) {
	t.Helper()
	m := newMemory()
	o := testOptions().withDefaults()
	h := testHeader(session)
	h.Format, h.Version, h.Segment, h.Key = formatName, Version, 1, k.ID()
	out := &output{comp: &Compressor{}, store: m, key: k, head: h, wall: o.wall, boot: o.boot, need: needFile}
	var heads []Head
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(heads); out.number > 0 && (n == 0 || heads[n-1].Number != out.number) {
			heads = append(heads, out.last)
		}
	}
	must(out.ready())
	i := 0
	for _, n := range runs {
		b := &batch{first: out.seq + 1}
		for range max(n, -n) {
			e := testEvent(i)
			e.Jail = session
			b.add(&e, session)
			i++
		}
		must(out.block(b))
		if n < 0 {
			must(out.rotate())
		} else {
			must(out.sign(Running))
		}
		out.rest() // as between bursts of events
	}
	must(out.sign(Closed))
	return m.bytes(), heads
}

func readers(segments [][]byte) []io.ReaderAt {
	var out []io.ReaderAt
	for _, s := range segments {
		out = append(out, bytes.NewReader(s))
	}
	return out
}

func check(t testing.TB, segments [][]byte, k Key, witness ...Head) Report {
	t.Helper()
	rep, err := verify(readers(segments), k.Public(), witness)
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	return rep
}

// all reads every record, and the problems on the way.
func all(t testing.TB, segments [][]byte) (recs []Record, problems []string) {
	t.Helper()
	r := &Reader{files: readers(segments)}
	if err := r.open(); err != nil {
		return nil, []string{err.Error()}
	}
	for {
		rec, err := r.Next()
		var p *Problem
		switch {
		case errors.Is(err, io.EOF):
			return recs, problems
		case errors.As(err, &p):
			problems = append(problems, p.Error())
		case err != nil:
			t.Fatalf("next: %v", err)
		default:
			recs = append(recs, rec)
		}
	}
}
