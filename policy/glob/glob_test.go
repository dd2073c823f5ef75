package glob

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// layered is a small policy: glob i has verb i%kinds: reads, writes, execs, denies,
// protects. The first rule in order decides.
func layered(kinds []uint16) func([]uint16) Accept {
	return func(set []uint16) Accept {
		acc := deny()
		for _, g := range set {
			for op := range Op(3) {
				switch k := kinds[g]; {
				case k == 3, k == 4 && op == Write:
					if acc.Rule[op] == NoRule || acc.Allows(op) {
						acc.Rule[op] = g
						acc.Bits &^= 1 << op
					}
				case Op(k) == op && acc.Rule[op] == NoRule:
					acc.Rule[op] = g
					acc.Bits |= 1 << op
				}
			}
		}
		return acc
	}
}

func anyKinds(r *rand.Rand, n int) []uint16 {
	kinds := make([]uint16, n)
	for i := range kinds {
		kinds[i] = uint16(r.IntN(5))
	}
	return kinds
}

// randomComponent draws from few bytes, so that patterns meet.
func randomComponent(r *rand.Rand, others bool) string {
	word := func(n int) string {
		var s strings.Builder
		for range n {
			s.WriteByte("ab"[r.IntN(2)])
		}
		return s.String()
	}
	most := 6
	if others {
		most = 9
	}
	switch r.IntN(most) {
	case 0:
		return "*"
	case 1:
		return word(1+r.IntN(2)) + "*"
	case 2:
		return "*" + word(1+r.IntN(2))
	case 3:
		return word(1+r.IntN(2)) + "*" + word(1+r.IntN(2))
	case 6:
		return "*" + word(1) + "*" + word(r.IntN(2))
	case 7:
		return word(r.IntN(2)) + "?" + word(r.IntN(2))
	case 8:
		return "[!" + word(1) + "]" + word(r.IntN(2)) + "*"
	default:
		return word(1 + r.IntN(2))
	}
}

func randomGlob(r *rand.Rand, others bool) string {
	var s strings.Builder
	if r.IntN(2) == 0 {
		s.WriteString("**")
	}
	for range 1 + r.IntN(3) {
		s.WriteByte('/')
		if r.IntN(5) == 0 {
			s.WriteString("**")
			continue
		}
		if r.IntN(10) == 0 {
			fmt.Fprintf(&s, "{%s,%s}", randomComponent(r, others), randomComponent(r, others))
			continue
		}
		s.WriteString(randomComponent(r, others))
	}
	return s.String()
}

func randomName(r *rand.Rand) string {
	b := make([]byte, 1+r.IntN(4))
	for i := range b {
		b[i] = "aabbz"[r.IntN(5)]
	}
	return string(b)
}

func randomPath(r *rand.Rand) string {
	var s strings.Builder
	for range r.IntN(5) {
		s.WriteByte('/')
		s.WriteString(randomName(r))
	}
	if s.Len() == 0 {
		return "/"
	}
	return s.String()
}

func randomGlobs(r *rand.Rand, n int, others bool) []string {
	globs := make([]string, n)
	for i := range globs {
		globs[i] = randomGlob(r, others)
	}
	return globs
}

func TestEqualsReference(t *testing.T) {
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(1, seed))
		globs := randomGlobs(r, 1+r.IntN(8), seed%3 > 0)
		kinds := anyKinds(r, len(globs))
		decide := layered(kinds)
		a, err := Compile(globs, decide)
		if err != nil {
			t.Fatalf("%q: %v", globs, err)
		}
		for range 100 {
			path := randomPath(r)
			want := decide(Reference(globs, path))
			if got := a.Match(path); got != want {
				t.Fatalf("seed %d: globs %q kinds %d path %q:\n got %v\nwant %v", seed, globs, kinds, path, got, want)
			}
		}
	}
}

// merged compiles as CompileKinds does when the exact form is too large.
func merged(t *testing.T, globs []string, kinds []uint16) *Automaton {
	t.Helper()
	tr, bad := plant(globs)
	if bad != nil {
		t.Fatal(bad)
	}
	tr, f := tr.fold(kinds)
	a, err := compile(tr, f, large(), len(globs), layered(kinds))
	if err != nil {
		t.Fatalf("%q: %v", globs, err)
	}
	return a
}

func TestMergedBitsEqualReference(t *testing.T) {
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(2, seed))
		globs := randomGlobs(r, 1+r.IntN(12), seed%3 > 0)
		kinds := anyKinds(r, len(globs))
		decide := layered(kinds)
		a := merged(t, globs, kinds)
		for range 100 {
			path := randomPath(r)
			set := Reference(globs, path)
			want, got := decide(set), a.Match(path)
			if got.Bits != want.Bits {
				t.Fatalf("seed %d: globs %q kinds %d path %q: got %v want %v", seed, globs, kinds, path, got, want)
			}
			for op, rule := range got.Rule {
				switch w := want.Rule[op]; {
				case rule == w:
				case w == NoRule, rule == NoRule:
					t.Fatalf("globs %q path %q op %d: rule %d, want %d", globs, path, op, rule, w)
				case rule == SomeRule:
				case !slices.Contains(set, rule):
					t.Fatalf("globs %q kinds %d path %q op %d: rule %d of %d", globs, kinds, path, op, rule, set)
				}
			}
		}
	}
}

// names up to four bytes over two bytes of the patterns and one that is in none.
func allNames() (out []string) {
	level := []string{""}
	for range 4 {
		var next []string
		for _, s := range level {
			for _, c := range "abz" {
				next = append(next, s+string(c))
			}
		}
		out = append(out, next...)
		level = next
	}
	return out
}

// gains looks for a suffix that gives more at to than at from, by trying all names.
func gainful(a *Automaton, names []string, from, to State) bool {
	type pair struct{ f, t State }
	seen := map[pair]bool{}
	todo := []pair{{from, to}}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if a.Accept(p.t).Bits&^a.Accept(p.f).Bits != 0 {
			return true
		}
		core := pair{p.f & 0xffff, p.t & 0xffff}
		if seen[core] {
			continue
		}
		seen[core] = true
		for _, n := range names {
			todo = append(todo, pair{a.StepString(p.f, n), a.StepString(p.t, n)})
		}
	}
	return false
}

func TestNoGain(t *testing.T) {
	names := allNames()
	yes, no := 0, 0
	for seed := range uint64(250) {
		r := rand.New(rand.NewPCG(3, seed))
		others := seed%5 == 0
		globs := randomGlobs(r, 1+r.IntN(7), others)
		kinds := anyKinds(r, len(globs))
		a := merged(t, globs, kinds)
		if seed%2 == 0 {
			a, _ = Compile(globs, layered(kinds))
		}
		for range 6 {
			p, q := randomPath(r), randomPath(r)
			from, to := a.Walk(p), a.Walk(q)
			want, got := !gainful(a, names, from, to), a.NoGain(from, to)
			if got {
				yes++
			} else {
				no++
			}
			if got && !want || want && !got && !others {
				t.Fatalf("seed %d: globs %q kinds %d: %s -> %s: no gain is %v, want %v", seed, globs, kinds, p, q, got, want)
			}
		}
	}
	if yes < 100 || no < 100 {
		t.Fatalf("%d moves allowed, %d denied: the test draws badly", yes, no)
	}
}

// The independent check: against the reference matcher, on random suffixes.
func TestNoGainAgainstReference(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(4, seed))
		globs := randomGlobs(r, 1+r.IntN(7), seed%2 == 0)
		kinds := anyKinds(r, len(globs))
		a, err := Compile(globs, layered(kinds))
		if err != nil {
			t.Fatal(err)
		}
		decide := layered(kinds)
		p, q := "/"+randomName(r), randomPath(r)+"/"+randomName(r)
		q = strings.TrimPrefix(q, "/")
		if q[0] != '/' {
			q = "/" + q
		}
		if !a.NoGain(a.Walk(p), a.Walk(q)) {
			continue
		}
		for range 200 {
			w := randomPath(r)
			if w == "/" {
				w = ""
			}
			if b := decide(Reference(globs, q+w)).Bits &^ decide(Reference(globs, p+w)).Bits; b != 0 {
				t.Fatalf("globs %q kinds %d: %s -> %s gains %b at %q", globs, kinds, p, q, b, w)
			}
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		glob    string
		yes, no string // space-separated paths
	}{
		{"/", "/", "/a"},
		{"/**", "/ /a /a/b", ""},
		{"**", "/ /a /a/b", ""},
		{"/a", "/a", "/ /b /a/a /ab"},
		{"/a/**", "/a /a/b /a/b/c", "/ /b /ab"},
		{"/a/**/b", "/a/b /a/x/b /a/x/y/b /a/b/b", "/a /b /a/b/c"},
		{"**/x", "/x /a/x /a/b/x", "/ /x/y /xx"},
		{"**/.git/hooks/**", "/.git/hooks /r/.git/hooks/pre /r/.git/.git/hooks", "/.git /hooks /r/.git/x/hooks"},
		{"/*", "/a /ab", "/ /a/b"},
		{"/*/b", "/a/b /b/b", "/b /a/a/b"},
		{"/a*a", "/aa /aba /aaa", "/a /ab"},
		{"/aba*aba", "/abaaba /aba-aba", "/aba /ababa /abaab"},
		{"/a*b*c", "/abc /axbxc /abcc", "/ac /acb /abcd"},
		{"/?", "/a /\xff", "/aa /"},
		{"/a?c", "/abc", "/ac /abbc"},
		{"/[a-c]x", "/ax /cx", "/dx /x"},
		{"/[!a-c]x", "/dx /-x", "/ax /x"},
		{"/[]a]", "/] /a", "/["},
		{"/[a-]", "/a /-", "/b"},
		{`/[\]x]`, "/] /x", `/\`},
		{`/\*`, "/*", "/a"},
		{`/\{a,b}`, "", "/a /b"},
		{"/{a,b}", "/a /b", "/ab"},
		{"/{a,b/c}/d", "/a/d /b/c/d", "/b/d"},
		{"/a{,.bak}", "/a /a.bak", "/a."},
		{"/a{,/b}", "/a /a/b", "/b"},
		{"/{a,{b,c}d}", "/a /bd /cd", "/b /d"},
		{"/[{,}]", "/{ /, /}", "/a"},
		{"/x\n", "/x\n", "/x"},
		{"**/**/x", "/x /a/x", "/a"},
		{"/**/a/**/b/**", "/a/b /x/a/y/b/z /a/b/c", "/a /b/a"},
	} {
		a, err := Compile([]string{c.glob}, layered([]uint16{0}))
		if err != nil {
			if c.yes != "" {
				t.Errorf("%q: %v", c.glob, err)
			}
			continue
		}
		for want, paths := range map[bool]string{true: c.yes, false: c.no} {
			for path := range strings.SplitSeq(paths, " ") {
				if path == "" {
					continue
				}
				if got := a.Match(path).Allows(Read); got != want {
					t.Errorf("%q on %q: %v, want %v", c.glob, path, got, want)
				}
				if got := len(Reference([]string{c.glob}, path)) > 0; got != want {
					t.Errorf("reference: %q on %q: %v, want %v", c.glob, path, got, want)
				}
			}
		}
	}
}

func TestNotClean(t *testing.T) {
	a, err := Compile([]string{"/**"}, layered([]uint16{0}))
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 256)
	for _, path := range []string{"", "a", "a/b", "//", "/a/", "/a//b", "/.", "/a/..", "/../a", "/" + long, "/" + long + "/a"} {
		if a.Match(path) != deny() || Reference([]string{"/**"}, path) != nil {
			t.Errorf("%q allowed", path)
		}
	}
	if !a.Match("/" + long[1:]).Allows(Read) {
		t.Error("255 bytes refused")
	}
	if a.NoGain(Bad, a.Start()) || a.NoGain(a.Start(), Bad) || a.Step(Bad, []byte("a")) != Bad || a.Step(a.Start(), nil) != Bad {
		t.Error("bad state is not bad")
	}
	var none *Automaton
	if none.Match("/a") != deny() || none.Start() != Bad || none.NoGain(0, 0) || none.Bytes() != nil {
		t.Error("nil automaton allows")
	}
}

func TestErrors(t *testing.T) {
	for glob, msg := range map[string]string{
		"":                                     "empty glob",
		"a":                                    "must begin",
		"*/a":                                  "must begin",
		"**a":                                  "must begin",
		"/a/":                                  "empty component",
		"/a//b":                                "empty component",
		"//":                                   "empty component",
		"/a**":                                 "whole component",
		"/**b":                                 "whole component",
		"/a/../b":                              "clean",
		"/./b":                                 "clean",
		"/{..,a}":                              "clean",
		"/[a":                                  "[ without ]",
		"/[]":                                  "[ without ]",
		"/[!]":                                 "[ without ]",
		"/[a/b]":                               "[ without ]",
		"/[^a]":                                "[!...]",
		"/[z-a]":                               "range",
		"/{a":                                  "{ without }",
		"/a}":                                  "} without {",
		`/a\`:                                  "escape",
		"/a\x00":                               "zero byte",
		"/" + strings.Repeat("a", 256):         "longer than 255",
		"/" + strings.Repeat("a/", 2100) + "a": "longer than 4096",
		"/" + strings.Repeat("{a,b}", 9):       "more than 256 alternatives",
		"/" + strings.Repeat("{a}", 65):        "more than 64 braces",
	} {
		err := Valid(glob)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Msg, msg) || e.Index != 0 {
			t.Errorf("%.40q: %v, want %q", glob, err, msg)
		}
		if _, err := Compile([]string{"/ok", glob}, nil); !errors.As(err, &e) || e.Index != 1 {
			t.Errorf("%.40q: compile: %v", glob, err)
		}
	}
	var e *Error
	if err := Valid("/a/{b,c//d}"); !errors.As(err, &e) || e.Pos != 8 {
		t.Errorf("position: %+v", e)
	}
	globs := []string{"/ok"}
	for i := range 14 {
		globs = append(globs, fmt.Sprintf("**/*%c*%c*%c*", 'a'+i, 'b'+i, 'c'+i))
	}
	if _, err := Compile(globs, nil); !errors.As(err, &e) || e.Index != 14 {
		t.Errorf("DFA: %v", err)
	}
	if _, err := CompileKinds(globs, nil, nil); err == nil {
		t.Error("no kinds accepted")
	}
}

func TestNoAllocation(t *testing.T) {
	a, err := Compile([]string{"/home/*/**", "**/.env", "**/a*b*c", "**/x*y"}, layered([]uint16{0, 3, 3, 3}))
	if err != nil {
		t.Fatal(err)
	}
	name := []byte("x.env")
	if n := testing.AllocsPerRun(100, func() {
		a.Match("/home/u/project/src/main.go")
		a.NoGain(a.Step(a.Start(), name), a.Start())
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
