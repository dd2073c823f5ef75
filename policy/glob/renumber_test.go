package glob

import (
	"bytes"
	"testing"
)

// TestRenumber: the same decisions under other numbers, from the blob as from
// the automaton, and the first one unchanged.
func TestRenumber(t *testing.T) {
	globs := []string{"/usr/**", "**/.env", "/home/*/x?y", "/srv/**/*.pem"}
	a, err := Compile(globs, func(matched []uint16) Accept {
		acc := deny()
		for _, m := range matched {
			acc.Bits, acc.Rule[Read], acc.Rule[Write] = 1, m, SomeRule
		}
		return acc
	})
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(a.Bytes())
	b := a.Renumber(func(i uint16) uint16 { return i&0xfff | 0x3000 })
	loaded, err := Load(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/", "/usr", "/usr/bin/x", "/a/.env", "/home/u/xay", "/srv/a/b.pem", "/nothing"} {
		want := a.Match(p)
		for i, r := range want.Rule {
			want.Rule[i] = r&0xfff | 0x3000
		}
		if got := b.Match(p); got != want {
			t.Errorf("%s: %v, want %v", p, got, want)
		}
		if got := loaded.Match(p); got != want {
			t.Errorf("%s, loaded: %v, want %v", p, got, want)
		}
	}
	if !bytes.Equal(a.Bytes(), before) {
		t.Error("the first automaton changed")
	}
	if (*Automaton)(nil).Renumber(nil) != nil {
		t.Error("no automaton became one")
	}
}
