package dirent

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
)

// entry makes one entry as the kernel does (fs/readdir.c, filldir64).
func entry(ino, off uint64, kind byte, name string) []byte {
	b := make([]byte, (nameAt+len(name)+1+7)&^7)
	binary.NativeEndian.PutUint64(b, ino)
	binary.NativeEndian.PutUint64(b[8:], off)
	binary.NativeEndian.PutUint16(b[lenAt:], uint16(len(b)))
	b[typeAt] = kind
	copy(b[nameAt:], name)
	return b
}

func names(b []byte) (out []string) {
	for {
		e, rest, ok := Next(b)
		if !ok {
			return out
		}
		out = append(out, string(e.Text()))
		b = rest
	}
}

// TestFilter: for random lists and random choices what stays is, byte for byte, the
// entries that were kept.
func TestFilter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var all, want []byte
		hidden := map[string]bool{}
		for range r.IntN(40) {
			name := strings.Repeat(string(rune('a'+r.IntN(26))), 1+r.IntN(255))
			if r.IntN(10) == 0 {
				name = []string{".", "..", "...", ".env"}[r.IntN(4)]
			}
			e := entry(r.Uint64(), r.Uint64(), byte(r.IntN(16)), name)
			all = append(all, e...)
			if _, known := hidden[name]; !known {
				hidden[name] = r.IntN(2) == 0
			}
			if !hidden[name] || name == "." || name == ".." {
				want = append(want, e...)
			}
		}
		whole := bytes.Clone(all)
		if got := Filter(all, func([]byte) bool { return true }); !bytes.Equal(got, whole) {
			t.Fatal("a list of which all is kept changed")
		}
		if got := Filter(all, func(name []byte) bool { return !hidden[string(name)] }); !bytes.Equal(got, want) {
			t.Fatalf("got %q, want %q", names(got), names(want))
		}
	}
	if n := len(entry(1, 1, 8, strings.Repeat("x", 255))); n != MaxLen {
		t.Errorf("the longest entry has %d bytes, MaxLen is %d", n, MaxLen)
	}
}

// TestBroken: what is no entry ends the list, and what stands behind it is not shown.
func TestBroken(t *testing.T) {
	good, bad := entry(1, 1, 8, "good"), entry(2, 2, 8, "secret")
	if got := names(append(bytes.Clone(good), bad[:20]...)); len(got) != 1 {
		t.Errorf("half an entry: %q", got)
	}
	for name, list := range map[string][]byte{
		"length 0": func() []byte { b := entry(1, 1, 8, "x"); b[lenAt] = 0; return b }(),
		"too long": func() []byte { b := entry(1, 1, 8, "x"); b[lenAt+1] = 0xff; return b }(),
		"no name":  func() []byte { b := entry(1, 1, 8, "x"); b[nameAt] = 0; return b }(),
		"no NUL":   func() []byte { b := entry(1, 1, 8, "x"); copy(b[nameAt:], "xxxxxxxx"); return b }(),
		"a path":   entry(1, 1, 8, "a/b"),
	} {
		all := append(append(bytes.Clone(good), list...), bad...)
		if got := names(Filter(all, func(n []byte) bool { return string(n) != "secret" })); len(got) != 1 || got[0] != "good" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add(append(entry(1, 2, 4, "a"), entry(3, 4, 8, ".env")...), byte('a'))
	f.Add([]byte{}, byte(0))
	f.Add(entry(1, 2, 4, "a")[:19], byte(1))
	f.Fuzz(func(t *testing.T, b []byte, first byte) {
		in := bytes.Clone(b)
		got := Filter(b, func(name []byte) bool { return name[0] != first })
		if len(got) > len(in) {
			t.Fatal("a filter makes a list longer")
		}
		for _, name := range names(got) {
			if name[0] == first && name != "." && name != ".." {
				t.Fatalf("%q was to be dropped", name)
			}
		}
		before, after := names(in), names(got)
		at := 0
		for _, name := range after { // in the order that they had
			for at < len(before) && before[at] != name {
				at++
			}
			if at == len(before) {
				t.Fatalf("%q of %q is not of %q, or out of its order", name, after, before)
			}
			at++
		}
	})
}
