//go:build unix

package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/agentos/agentos/audit/event"
)

// benchEvents is a build: eight processes at once open files of a tree of
// 40,000, in no order, with inodes and clocks that do not compress.
func benchEvents(n int) []event.Event {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]event.Event, n)
	mono := uint64(5e12)
	for i := range all {
		pid := 4000 + i/400*8 + random.IntN(8)
		mono += uint64(random.IntN(40_000))
		file := random.IntN(40_000)
		e := testEvent(1)
		e.Mono, e.Time = mono, time.Unix(0, 1795233600e9+int64(mono)+int64(random.IntN(300)))
		e.Pid, e.Tid, e.JailPid = int32(pid), int32(pid), int32(pid-3990)
		e.TaskStart = 4e12 + uint64(pid)*7_777_777
		e.Path = fmt.Sprintf("/w/node_modules/%s/lib/%s.js", words[file%len(words)]+strconv.Itoa(file%800), words[file/7%len(words)]+strconv.Itoa(file/800))
		e.Ino = 1_000_000 + uint64(file)*13
		if i%9 == 0 {
			e.Verdict, e.Errno, e.Path = event.Allow, 2, e.Path+"on"
		}
		all[i] = e
	}
	return all
}

var words = []string{"index", "util", "parse", "stream", "react", "babel", "core", "type", "lodash", "express", "chalk", "semver", "glob", "path"}

// BenchmarkAppend measures events/s durable at rest (fsync as by default) and
// bytes per event.
func BenchmarkAppend(b *testing.B) {
	events := benchEvents(1 << 16)
	_, dir := sessionDir(b)
	w, err := Create(dir, testKey(1), testHeader("s1"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	const group = 64 // as a reader of a ring appends
	for n := 0; n < b.N; n += group {
		at := n % (len(events) - group)
		for {
			err := w.Append(events[at : at+group]...)
			if err == nil {
				break
			}
			if !errors.Is(err, ErrFull) {
				b.Fatal(err)
			}
			if err := w.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	records := float64((b.N + group - 1) / group * group)
	b.ReportMetric(records/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(cpuTime(b)-before)/records, "cpu-ns/event") // both goroutines; what a loaded machine cannot blur
	b.ReportMetric(float64(sizeOnDisk(b, dir))/records, "B/event")
}

func sizeOnDisk(b *testing.B, dir *os.File) (total int64) {
	files, err := OpenFiles(dir)
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range files {
		st, err := f.Stat()
		if err != nil {
			b.Fatal(err)
		}
		total += st.Size()
		f.Close()
	}
	return total
}

// BenchmarkVerify measures proven records/s.
func BenchmarkVerify(b *testing.B) {
	events := benchEvents(1 << 18)
	_, dir := sessionDir(b)
	w, err := Create(dir, testKey(1), testHeader("s1"), Options{Memory: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	if err := w.Append(events...); err != nil {
		b.Fatal(err)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	n := 0
	before := cpuTime(b)
	for b.Loop() {
		if rep := verifyDir(b, dir, testKey(1)); !rep.Complete() {
			b.Fatalf("%+v", rep)
		}
		n += len(events)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(cpuTime(b)-before)/float64(n), "cpu-ns/event")
}

// cpuTime is what this process has used so far.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
