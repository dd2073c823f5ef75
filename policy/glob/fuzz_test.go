package glob

import (
	"errors"
	"strings"
	"testing"
)

// walkAll takes every way that could leave the tables of a hostile blob.
func walkAll(a *Automaton, name []byte) {
	seen := map[State]bool{}
	todo := []State{a.Start()}
	for len(todo) > 0 && len(seen) < 64 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[s] {
			continue
		}
		seen[s] = true
		a.Accept(s)
		a.NoGain(a.Start(), s)
		a.NoGain(s, a.Start())
		for i := range name {
			todo = append(todo, a.Step(s, name[i:]), a.Step(s, name[:i+1]))
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, globs := range [][]string{{"/a"}, {"/a/**", "**/*.b", "**/c*d", "**/?e*f*"}, nil} {
		a, err := Compile(globs, layered([]uint16{0, 3, 3, 4}))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(a.Bytes(), []byte("a.bcd"), 0, uint32(0))
		f.Add(a.Bytes(), []byte("xef"), len(a.Bytes())/2, uint32(0xffff))
	}
	f.Fuzz(func(t *testing.T, blob, name []byte, at int, flip uint32) {
		if len(blob) > 3 && at >= 0 { // hit the tables, not the header's checks
			blob = append([]byte(nil), blob...)
			for i := range 4 {
				blob[(at+i)%len(blob)] ^= byte(flip >> (8 * i))
			}
		}
		a, err := Load(blob)
		if err != nil {
			if !errors.Is(err, ErrBlob) {
				t.Fatalf("untyped: %v", err)
			}
			return
		}
		walkAll(a, name[:min(len(name), 16)])
		a.Match("/" + string(name))
	})
}

func FuzzCompile(f *testing.F) {
	f.Add("/a/**\n**/*.b\n**/c*d\n**/?e*f*", "/a/x.b/cd")
	f.Add("/{a,b{c,d}}/[!a-c]*\n**", "/a/b")
	f.Add("/a*a\n**/aba*aba", "/a")
	f.Add("**/a/**/b/**/c\n/*/*/*", "/a/b/c")
	f.Fuzz(func(t *testing.T, text, path string) {
		if len(text) > 300 || len(path) > 100 {
			return
		}
		globs := strings.Split(text, "\n")
		kinds := make([]uint16, len(globs))
		for i, g := range globs {
			kinds[i] = uint16(len(g) % 5)
		}
		decide := layered(kinds)
		a, err := Compile(globs, decide)
		var e *Error
		if err != nil {
			if !errors.As(err, &e) || e.Index >= len(globs) {
				t.Fatalf("untyped: %v", err)
			}
			if e.Index >= 0 && Valid(globs[e.Index]) == nil && !strings.Contains(e.Msg, "many") && !strings.Contains(e.Msg, "more than") {
				t.Fatalf("%v, but glob %d is valid", err, e.Index)
			}
			return
		}
		if n := strings.Count(text, "*"); n > 24 {
			return // the reference would take for ever
		}
		if got, want := a.Match(path), decide(Reference(globs, path)); got != want {
			t.Fatalf("globs %q path %q: got %v want %v", globs, path, got, want)
		}
		b, err := Load(a.Bytes())
		if err != nil || b.Match(path) != a.Match(path) {
			t.Fatalf("loaded copy: %v", err)
		}
	})
}
