package segment

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// frames splits a good segment.
func frames(t testing.TB, segment []byte) [][]byte {
	t.Helper()
	var out [][]byte
	s := newScanner(bytes.NewReader(segment))
	for at := int64(0); at < int64(len(segment)); {
		f, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, segment[at:f.end()])
		at = f.end()
	}
	return out
}

// rechain is what an attacker who has the files and no key can do best: make
// every hash and link right again.
func rechain(parts [][]byte, prev hash) []byte {
	var out []byte
	for _, p := range parts {
		n := binary.LittleEndian.Uint32(p[4:])
		out, prev = appendFrame(out, p[3], prev, p[framePrefix:framePrefix+n])
	}
	return out
}

// log is what a tampering works on: three segments.
//
//	1: H S B(1-30) S B(31-60) S
//	2: H S B(61-90) S B(91-120) S
//	3: H S B(121-150) S S(closed)
type tampering struct {
	name string
	do   func(t *testing.T, s [][]byte) [][]byte
	want string // part of a problem; "": only not closed
}

func joined(parts ...[]byte) []byte { return slices.Concat(parts...) }

// edit returns s with segment i replaced by f of its frames.
func edit(i int, f func(p [][]byte) [][]byte) func(*testing.T, [][]byte) [][]byte {
	return func(t *testing.T, s [][]byte) [][]byte {
		s[i] = joined(f(frames(t, s[i]))...)
		return s
	}
}

// forge is edit with every hash and link of the segment made right again.
func forge(i int, f func(p [][]byte) [][]byte) func(*testing.T, [][]byte) [][]byte {
	return func(t *testing.T, s [][]byte) [][]byte {
		parts := frames(t, s[i])
		prev := hash(parts[0][8:framePrefix])
		s[i] = rechain(f(parts), prev)
		return s
	}
}

func flip(i, off int) func(*testing.T, [][]byte) [][]byte {
	return func(t *testing.T, s [][]byte) [][]byte {
		if off < 0 {
			off += len(s[i])
		}
		s[i][off] ^= 4
		return s
	}
}

// inFrame flips a byte of frame n of segment i.
func inFrame(i, n, off int) func(*testing.T, [][]byte) [][]byte {
	return edit(i, func(p [][]byte) [][]byte {
		p[n] = bytes.Clone(p[n])
		if off < 0 {
			off += len(p[n])
		}
		p[n][off] ^= 4
		return p
	})
}

func drop(p [][]byte, from, to int) [][]byte { return slices.Delete(slices.Clone(p), from, to) }

func swap(p [][]byte, a, b int) [][]byte {
	p = slices.Clone(p)
	p[a], p[b] = p[b], p[a]
	return p
}

func tamperings(t testing.TB) []tampering {
	other, _ := build(t, testKey(1), "s2", 30, -30, 30, -30, 30)
	foreign, _ := build(t, testKey(2), "s1", 30, -30, 30, -30, 30)
	edited := func(p [][]byte) [][]byte { // change a stored name, keep it a block
		p = slices.Clone(p)
		p[2] = bytes.Clone(foreignBlock(t))
		return p
	}
	seg := func(i int, f func(s [][]byte) [][]byte) func(*testing.T, [][]byte) [][]byte {
		return func(_ *testing.T, s [][]byte) [][]byte { return f(s) }
	}
	return []tampering{
		{"cut the closing head", edit(2, func(p [][]byte) [][]byte { return drop(p, 4, 5) }), ""},
		{"cut back to an earlier head", edit(2, func(p [][]byte) [][]byte { return drop(p, 2, 5) }), ""},
		{"cut inside a block", func(_ *testing.T, s [][]byte) [][]byte { s[2] = s[2][:len(s[2])-500]; return s }, "tail incomplete after seq 120"},
		{"cut inside the closing head", func(_ *testing.T, s [][]byte) [][]byte { s[2] = s[2][:len(s[2])-1]; return s }, "tail incomplete after seq 150"},
		{"cut inside a middle segment", func(_ *testing.T, s [][]byte) [][]byte { s[1] = s[1][:len(s[1])-1]; return s }, "are not a frame"},
		{"append garbage", func(_ *testing.T, s [][]byte) [][]byte { s[2] = append(s[2], "garbage"...); return s }, "7 bytes after the closing head"},
		{"append zeros", func(_ *testing.T, s [][]byte) [][]byte { s[2] = append(s[2], make([]byte, 4096)...); return s }, "4096 bytes after the closing head"},
		{"append a frame", func(t *testing.T, s [][]byte) [][]byte {
			p := frames(t, s[2])
			f, _ := appendFrame(nil, frameBlock, hash(p[4][len(p[4])-32:]), p[2][framePrefix:len(p[2])-32])
			s[2] = append(s[2], f...)
			return s
		}, "frame after the head that ends the log"},
		{"append an old frame", edit(2, func(p [][]byte) [][]byte { return append(p, p[2]) }), "frame after the head that ends the log"},
		{"insert garbage between frames", edit(1, func(p [][]byte) [][]byte { return slices.Insert(slices.Clone(p), 3, []byte("xx")) }), "2 bytes after seq 90 are not a frame"},
		{"flip the marker", inFrame(1, 2, 0), "after seq 60 are not a frame"},
		{"flip the type", inFrame(1, 2, 3), "after seq 60 are not a frame"},
		{"flip the length", inFrame(1, 2, 4), "after seq 60 are not a frame"},
		{"flip the link", inFrame(1, 2, 8), "block 3 (records 61 to 90 by its own account): hash mismatch"},
		{"flip a record", inFrame(1, 2, 200), "block 3 (records 61 to 90 by its own account): hash mismatch"},
		{"flip a stored hash", inFrame(1, 2, -1), "block 3 (records 61 to 90 by its own account): hash mismatch"},
		{"flip a header", flip(0, 60), "header: hash mismatch"},
		{"flip a later header", flip(2, 60), "header: hash mismatch"},
		{"flip a signature", inFrame(1, 3, -40), "head 5: hash mismatch"},
		{"remove a block", edit(1, func(p [][]byte) [][]byte { return drop(p, 2, 3) }), "head 5: chain broken"},
		{"remove a block and its head", edit(1, func(p [][]byte) [][]byte { return drop(p, 2, 4) }), "records 61 to 90 missing"},
		{"remove a head", edit(1, func(p [][]byte) [][]byte { return drop(p, 3, 4) }), "chain broken"},
		{"swap two blocks", edit(1, func(p [][]byte) [][]byte { return swap(p, 2, 4) }), "records 61 to 90 missing"},
		{"repeat a block", edit(1, func(p [][]byte) [][]byte { return slices.Insert(slices.Clone(p), 3, p[2]) }), "again or out of order"},
		{"remove a header", edit(1, func(p [][]byte) [][]byte { return drop(p, 0, 1) }), "header"},
		{"header twice", edit(1, func(p [][]byte) [][]byte { return slices.Insert(slices.Clone(p), 1, p[0]) }), "header in the wrong place"},
		{"forge: other records", forge(1, edited), "signature does not match"},
		{"forge: remove a block and its head", forge(1, func(p [][]byte) [][]byte { return drop(p, 2, 4) }), "signature does not match"},
		{"forge: remove all heads", forge(0, func(p [][]byte) [][]byte { return [][]byte{p[0], p[2], p[4]} }), "does not end with a head"},
		{"forge: remove one head", forge(1, func(p [][]byte) [][]byte { return drop(p, 3, 4) }), "signature does not match"},
		{"forge: another policy", forge(0, func(p [][]byte) [][]byte {
			p = slices.Clone(p)
			p[0] = bytes.Replace(p[0], []byte("deadbeef"), []byte("deadbeee"), 1)
			return p
		}), "signature does not match"},
		{"remove the first segment", seg(0, func(s [][]byte) [][]byte { return s[1:] }), "segment 1 missing"},
		{"remove a middle segment", seg(0, func(s [][]byte) [][]byte { return [][]byte{s[0], s[2]} }), "segment 2 missing"},
		{"remove the last segment", seg(0, func(s [][]byte) [][]byte { return s[:2] }), "segment 3 missing: segment 2 announces it"},
		{"empty a segment", seg(0, func(s [][]byte) [][]byte { s[1] = nil; return s }), "segment 2 is empty"},
		{"empty the first segment", seg(0, func(s [][]byte) [][]byte { s[0] = nil; return s }), "segment 1 is empty"},
		{"swap two segments", seg(0, func(s [][]byte) [][]byte { s[0], s[1] = s[1], s[0]; return s }), "segments are out of order: file 2 holds segment 1"},
		{"a segment twice", seg(0, func(s [][]byte) [][]byte { return [][]byte{s[0], s[1], s[1], s[2]} }), "segment 2 is there twice"},
		{"a segment of another session", seg(0, func(s [][]byte) [][]byte { s[1] = other[1]; return s }), "file 2 belongs to session s2, not s1"},
		{"a segment signed by another key", seg(0, func(s [][]byte) [][]byte { s[1] = foreign[1]; return s }), "signed by another key"},
		{"all signed by another key", seg(0, func([][]byte) [][]byte { return foreign }), "signed by another key"},
		{"text instead of a segment", seg(0, func(s [][]byte) [][]byte { s[1] = []byte("hello\n"); return s }), "header of segment 2: not a frame"},
	}
}

// foreignBlock is block 61-90 with other contents: the one of another run.
func foreignBlock(t testing.TB) []byte {
	s, _ := build(t, testKey(3), "s1", 60, 30)
	p := frames(t, s[0])[4]
	p = bytes.Clone(p)
	p[framePrefix+12] ^= 1 // its wall clock
	return p
}

func TestTamperings(t *testing.T) {
	k := testKey(1)
	good, heads := build(t, k, "s1", 30, -30, 30, -30, 30)
	if rep := check(t, good, k, heads...); !rep.Complete() || rep.Records != 150 || rep.Segments != 3 {
		t.Fatalf("good log: %+v", rep)
	}
	all := tamperings(t)
	if len(all) < 30 {
		t.Errorf("only %d tamperings", len(all))
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			s := make([][]byte, len(good))
			for i := range good {
				s[i] = bytes.Clone(good[i])
			}
			s = c.do(t, s)
			rep := check(t, s, k)
			if rep.Complete() {
				t.Fatal("not detected")
			}
			if len(rep.Problems) > 8 {
				t.Errorf("%d problems for one act: %v", len(rep.Problems), rep.Problems)
			}
			if c.want == "" {
				if !rep.OK() || rep.Closed {
					t.Errorf("want only not closed: %+v", rep)
				}
				if rep = check(t, s, k, heads[len(heads)-2]); rep.OK() && rep.LastSeq < 150 {
					t.Error("not detected with a witness")
				}
				return
			}
			found := false
			for _, p := range rep.Problems {
				found = found || strings.Contains(p.Error(), c.want)
				t.Log(p.Error())
			}
			if !found {
				t.Errorf("no problem says %q", c.want)
			}
		})
	}
}

func TestWitness(t *testing.T) {
	k := testKey(1)
	good, heads := build(t, k, "s1", 30, 30)
	cut := [][]byte{joined(frames(t, good[0])[:4]...)}
	if rep := check(t, cut, k); !rep.OK() || rep.Closed || rep.Signed != 30 {
		t.Errorf("cut at a frame: %+v", rep)
	}
	for _, c := range []struct {
		name string
		head func(h Head) Head
		want string
	}{
		{"later head", func(h Head) Head { return h }, "covers 60 records, the log has 30: records 31 to 60 were removed"},
		{"forged head", func(h Head) Head { h.Seq = 99; return h }, "is not signed by this key"},
		{"rewritten log", func(Head) Head {
			_, other := build(t, k, "s1", 29, 1)
			return other[1]
		}, "is not part of this log"},
		{"other session", func(Head) Head {
			_, other := build(t, k, "s2", 30)
			return other[1]
		}, "is of session s2"},
	} {
		rep := check(t, cut, k, c.head(heads[2]))
		if len(rep.Problems) != 1 || !strings.Contains(rep.Problems[0].What, c.want) {
			t.Errorf("%s: %v", c.name, rep.Problems)
		}
	}
	if rep := check(t, good, k, heads...); !rep.Complete() {
		t.Errorf("all heads: %+v", rep)
	}
}

// TestTruncateEverywhere cuts a log at every byte: never complete, the report
// says after which record, and Resume goes on.
func TestTruncateEverywhere(t *testing.T) {
	k := testKey(1)
	good, _ := build(t, k, "s1", 6, -3, 2)
	for i := range good {
		ends := map[int]bool{}
		end, lastSeq := 0, []uint64{0, 9}[i]
		var seqAt []uint64
		for _, p := range frames(t, good[i]) {
			for range p {
				seqAt = append(seqAt, lastSeq)
			}
			if p[3] == frameBlock {
				lastSeq += uint64(binary.LittleEndian.Uint32(p[framePrefix+8:]))
			}
			end += len(p)
			ends[end] = true
		}
		for n := range good[i] {
			s := [][]byte{good[0], good[1]}[:i+1]
			s[i] = good[i][:n]
			rep := check(t, s, k)
			if rep.Complete() {
				t.Fatalf("segment %d cut at %d: complete", i+1, n)
			}
			tail := slices.ContainsFunc(rep.Problems, func(p Problem) bool {
				return strings.HasPrefix(p.What, "tail incomplete after seq ") && p.Seq == seqAt[n]
			})
			if header := i == 0 && n < len(frames(t, good[0])[0]); !header && n > 0 && !ends[n] != tail {
				t.Fatalf("segment %d cut at %d, last record %d: %+v", i+1, n, seqAt[n], rep.Problems)
			}
			resumeTruncated(t, s, k, seqAt[n], i == 0 && n < len(frames(t, good[0])[0]))
		}
	}
}

func resumeTruncated(t *testing.T, s [][]byte, k Key, seq uint64, noHeader bool) {
	t.Helper()
	m := load(s)
	w, err := resume(m, k, testOptions())
	if noHeader {
		if err == nil {
			t.Fatal("resumed a log without a header")
		}
		return
	}
	if err != nil {
		t.Fatalf("resume of %d bytes: %v", len(s[len(s)-1]), err)
	}
	if err := w.Append(testEvent(99)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	rep := check(t, m.bytes(), k)
	if !rep.Complete() || rep.Gaps != 1 || rep.LastSeq != seq+2 {
		t.Fatalf("after resume at %d: %+v", seq, rep)
	}
}

// TestFlipEverywhere flips a bit in every byte, in turn.
func TestFlipEverywhere(t *testing.T) {
	k := testKey(1)
	good, _ := build(t, k, "s1", 6, -3, 2)
	for i := range good {
		for n := range good[i] {
			bit := byte(1) << (n % 8)
			good[i][n] ^= bit
			if rep := check(t, good, k); rep.OK() {
				t.Fatalf("segment %d: flip at %d not detected", i+1, n)
			}
			if n%7 == 0 {
				all(t, good) // the reader survives
			}
			good[i][n] ^= bit
		}
	}
}

func TestReaderGoesOnBehindDamage(t *testing.T) {
	good, _ := build(t, testKey(1), "s1", 10, 10, 10)
	p := frames(t, good[0])
	p[4] = bytes.Clone(p[4])
	p[4][100] ^= 1
	recs, problems := all(t, [][]byte{joined(p...)})
	if len(recs) != 20 || recs[9].Seq != 10 || recs[10].Seq != 21 || len(problems) == 0 || !strings.Contains(problems[0], "hash mismatch") {
		t.Errorf("%d records, problems %q", len(recs), problems)
	}
}

func TestReaderFromAndFollow(t *testing.T) {
	k := testKey(1)
	m := newMemory()
	w, err := create(m, k, testHeader("s1"), testOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abandon()
	r := &Reader{}
	f, _ := m.reopen(1)
	r.files = append(r.files, f)
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	r.From(3)
	for i := range 5 {
		if err := w.Append(testEvent(i)); err != nil {
			t.Fatal(err)
		}
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
		rec, err := r.Next()
		if i < 2 && err == nil || i >= 2 && (err != nil || rec.Seq != uint64(i+1)) {
			t.Errorf("after event %d: %v, %v", i+1, rec.Seq, err)
		}
	}
	if h := r.Header(); h.Session != "s1" || h.Policy != "deadbeef" || h.Segment != 1 {
		t.Errorf("header %+v", h)
	}
}

func TestVerifyRefusesNothing(t *testing.T) {
	if _, err := Verify(nil, testKey(1).Public()); err == nil {
		t.Error("no files: no error")
	}
	if _, err := verify(readers([][]byte{{}}), nil, nil); err == nil {
		t.Error("no key: no error")
	}
	if rep := check(t, [][]byte{{}}, testKey(1)); rep.OK() {
		t.Error("an empty file is a good log")
	}
}

// FuzzVerify feeds the decoder: it must end, and call nothing good that was
// not signed.
func FuzzVerify(f *testing.F) {
	k := testKey(1)
	good, _ := build(f, k, "s1", 5, -2, 3)
	for _, s := range good {
		f.Add(s)
	}
	f.Add([]byte(frameMarker))
	whole := slices.Clone(good[0])
	f.Fuzz(func(t *testing.T, data []byte) {
		rep, err := verify(readers([][]byte{data}), k.Public(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if rep.OK() && !bytes.HasPrefix(whole, data) && rep.Signed > 0 {
			t.Fatalf("forged: %+v", rep)
		}
		all(t, [][]byte{data})
		if w, err := resume(load([][]byte{data}), k, testOptions()); err == nil {
			if err := w.Abandon(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzBlock skips the hashes, which a fuzzer cannot guess.
func FuzzBlock(f *testing.F) {
	k := testKey(1)
	good, _ := build(f, k, "s1", 5)
	p := frames(f, good[0])[2]
	f.Add(p[framePrefix : len(p)-32])
	var prev hash
	header, headerHash := appendFrame(nil, frameHeader, prev, frames(f, good[0])[0][framePrefix:len(frames(f, good[0])[0])-32])
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > maxPayload {
			return
		}
		s, _ := appendFrame(bytes.Clone(header), frameBlock, headerHash, payload)
		if _, err := verify(readers([][]byte{s}), k.Public(), nil); err != nil {
			t.Fatal(err)
		}
		all(t, [][]byte{s})
	})
}

func TestKeyText(t *testing.T) {
	k := testKey(9)
	back, err := parseKey(k.text())
	if err != nil || !back.private.Equal(k.private) {
		t.Errorf("key: %v", err)
	}
	pub, err := ParsePublic(FormatPublic(k.Public()))
	if err != nil || !pub.Equal(ed25519.PublicKey(k.Public())) || KeyID(pub) != k.ID() {
		t.Errorf("public key: %v", err)
	}
	for _, bad := range []string{"", "x", keyPrefix, keyPrefix + "AAAA", keyPrefix + "!", FormatPublic(pub)} {
		if _, err := parseKey(bad); err == nil {
			t.Errorf("key %q accepted", bad)
		}
	}
}
