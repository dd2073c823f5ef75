//go:build unix

package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func openDir(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func sessionDir(t testing.TB) (state, dir *os.File) {
	t.Helper()
	state = openDir(t, t.TempDir())
	dir, err := MakeDir(state, "s1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return state, dir
}

func verifyDir(t testing.TB, dir *os.File, k Key) Report {
	t.Helper()
	files, err := OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	rep, err := Verify(files, k.Public())
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func TestOnDisk(t *testing.T) {
	state, dir := sessionDir(t)
	k, err := LoadOrCreateKey(state)
	if err != nil {
		t.Fatal(err)
	}
	w, err := Create(dir, k, testHeader("s1"), Options{SegmentSize: 20 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Resume(dir, k, Options{}); !errors.Is(err, ErrBusy) {
		t.Errorf("resume of a log that is written: %v", err)
	}
	for i := range 20000 {
		for w.Append(testEvent(i)) != nil {
			if err := w.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if rep := verifyDir(t, dir, k); !rep.Complete() || rep.Records != 20000 || rep.Segments < 2 {
		t.Errorf("report: %+v", rep)
	}
	files, err := OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(files...)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if n++; err != nil || rec.Seq != uint64(n) {
			t.Fatalf("record %d: %v, %v", n, rec.Seq, err)
		}
	}
	for _, f := range files {
		st, _ := f.Stat()
		if st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", f.Name(), st.Mode())
		}
		f.Close()
	}
	if n != 20000 {
		t.Errorf("read %d records", n)
	}
	if _, err := Create(dir, k, testHeader("s1"), Options{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create over a log: %v", err)
	}
	if _, err := Resume(dir, k, Options{}); !errors.Is(err, ErrClosed) {
		t.Errorf("resume of a closed log: %v", err)
	}
	if all, err := Sessions(state); err != nil || len(all) != 1 || all[0] != "s1" {
		t.Errorf("sessions: %q, %v", all, err)
	}
}

func TestResumeRefuses(t *testing.T) {
	k := testKey(1)
	good, _ := build(t, k, "s1", 30, 30)
	p := frames(t, good[0])
	open := joined(p[:5]...) // header, head, block, head, block
	damaged := joined(p[:4]...)
	damaged[len(p[0])+len(p[1])+200] ^= 1 // in the first block; a head follows
	for name, c := range map[string]struct {
		key  Key
		data []byte
		want error
	}{
		"another key": {testKey(2), open, ErrSignature},
		"damage":      {k, damaged, ErrDamaged},
		"closed":      {k, good[0], ErrClosed},
		"relinked":    {k, joined(p[0], p[1], p[3]), ErrDamaged},
		"empty":       {k, nil, fs.ErrNotExist},
		"text":        {k, []byte("hello"), fs.ErrNotExist},
	} {
		if _, err := resume(load([][]byte{c.data}), c.key, testOptions()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := resume(newMemory(), k, testOptions()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no segment: %v", err)
	}
	m := load([][]byte{append(open, "torn garbage"...)})
	w, err := resume(m, k, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	recs, problems := all(t, m.bytes())
	last := recs[len(recs)-1]
	if len(problems) > 0 || last.Seq != 61 || last.Count != 12 ||
		last.Detail != "the recorder was not running after record 60; 12 bytes of an incomplete tail were cut; 30 records before were not covered by a signed head" {
		t.Errorf("gap: %+v, problems %v", last, problems)
	}
}

func TestSymlinksAndRights(t *testing.T) {
	state, dir := sessionDir(t)
	path := state.Name()
	k := testKey(1)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	target := filepath.Join(path, "target")
	must(os.WriteFile(target, nil, 0o600))
	must(os.Symlink(target, filepath.Join(dir.Name(), "000001.seg")))
	if _, err := Create(dir, k, testHeader("s1"), Options{}); err == nil {
		t.Error("create followed a symlink")
	}
	if _, err := Resume(dir, k, Options{}); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("resume of a symlink: %v", err)
	}
	if _, err := OpenFiles(dir); err == nil {
		t.Error("open followed a symlink")
	}
	must(os.Symlink("s1", filepath.Join(path, "s2")))
	if _, err := MakeDir(state, "s2"); err == nil {
		t.Error("MakeDir followed a symlink")
	}
	must(os.Mkdir(filepath.Join(path, "s3"), 0o755))
	must(os.Chmod(filepath.Join(path, "s3"), 0o755))
	if _, err := MakeDir(state, "s3"); err == nil {
		t.Error("MakeDir took a directory that others may read")
	}
	must(os.WriteFile(filepath.Join(path, keyFile), []byte(k.text()), 0o644))
	must(os.Chmod(filepath.Join(path, keyFile), 0o644))
	if _, err := LoadOrCreateKey(state); err == nil {
		t.Error("a key that others may read was taken")
	}
	must(os.Remove(filepath.Join(path, keyFile)))
	must(os.Symlink(target, filepath.Join(path, keyFile)))
	if _, err := LoadOrCreateKey(state); err == nil {
		t.Error("a key behind a symlink was taken")
	}
}

func TestKeyFiles(t *testing.T) {
	state := openDir(t, t.TempDir())
	if _, err := LoadKey(state); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("load of no key: %v", err)
	}
	a, err := LoadOrCreateKey(state)
	if err != nil {
		t.Fatal(err)
	}
	b, err := LoadOrCreateKey(state)
	if err != nil || !a.private.Equal(b.private) {
		t.Errorf("second load: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(state.Name(), publicFile))
	if err != nil {
		t.Fatal(err)
	}
	if pub, err := ParsePublic(string(text)); err != nil || !pub.Equal(a.Public()) {
		t.Errorf("audit.pub: %v", err)
	}
	left, _ := os.ReadDir(state.Name())
	if len(left) != 2 {
		t.Errorf("files left: %v", left)
	}
}

// TestKilled kills a writing process with SIGKILL again and again: the log
// resumes, misses nothing that was synced, and verifies.
func TestKilled(t *testing.T) {
	if path := os.Getenv("SEGMENT_TEST_WRITE"); path != "" {
		writeForever(path)
	}
	_, dir := sessionDir(t)
	k := testKey(1)
	for round := range 8 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), "SEGMENT_TEST_WRITE="+dir.Name(), "GORACE=")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var synced, last uint64
		for range 3 + round { // kill between two syncs, at no particular point
			if _, err := fmt.Fscanln(out, &last); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			synced = last
		}
		time.Sleep(time.Duration(round) * 300 * time.Microsecond) // spreads the point; nothing waits for it
		cmd.Process.Kill()
		cmd.Wait()
		rep := verifyDir(t, dir, k)
		if rep.LastSeq < synced {
			t.Fatalf("round %d: %d records, %d were synced", round, rep.LastSeq, synced)
		}
		for _, p := range rep.Problems {
			t.Logf("round %d: %s", round, p.Error())
		}
	}
	w, err := Resume(dir, k, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if rep := verifyDir(t, dir, k); !rep.Complete() || rep.Gaps != 8 {
		t.Errorf("in the end: %+v", rep)
	}
}

// writeForever is the process that TestKilled kills.
func writeForever(path string) {
	dir, err := os.Open(path)
	if err != nil {
		os.Exit(3)
	}
	o := Options{Flush: time.Millisecond, BlockEvents: 50, SegmentSize: 30 << 10}
	w, err := Resume(dir, testKey(1), o)
	if errors.Is(err, fs.ErrNotExist) {
		w, err = Create(dir, testKey(1), testHeader("s1"), o)
	}
	for i := 0; err == nil; i++ {
		if err = w.Append(testEvent(i)); errors.Is(err, ErrFull) {
			err = nil
		}
		if i%500 == 499 {
			if err = w.Sync(); err == nil {
				fmt.Println(w.State().Head.Seq)
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(4)
}
