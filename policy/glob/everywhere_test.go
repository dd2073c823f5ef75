package glob

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestEverywhere: whatever is drawn below a state that allows everywhere is allowed, and
// where every glob is literal the answer is exact.
func TestEverywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	yes := 0
	for range 400 {
		globs := []string{"/**"}
		for range 1 + r.IntN(4) {
			globs = append(globs, "/"+randomComponent(r, true)+"/"+randomComponent(r, true))
		}
		kinds := anyKinds(r, len(globs))
		kinds[0] = 0
		a, err := Compile(globs, layered(kinds))
		if err != nil {
			t.Fatal(err)
		}
		dir := "/" + strings.Repeat("a", 1+r.IntN(2))
		if !a.Everywhere(a.Walk(dir), 1<<Read) {
			continue
		}
		yes++
		for range 50 {
			path := dir
			for range 1 + r.IntN(3) {
				path += "/"
				for range 1 + r.IntN(3) {
					path += string("ab"[r.IntN(2)])
				}
			}
			if !a.Match(path).Allows(Read) {
				t.Fatalf("%q with kinds %v: everywhere below %s, but not %s", globs, kinds, dir, path)
			}
		}
	}
	if yes < 20 {
		t.Errorf("only %d states allow everywhere: the test says little", yes)
	}
}

func TestEverywhereExcept(t *testing.T) {
	globs := []string{"/p/**", "/p/{kcore,keys}", "/p/bus/**", "/w/**", "/w/**/.env", "/w/k*"}
	kinds := []uint16{0, 3, 3, 0, 3, 3}
	var flat []string
	var ids []uint16
	for i, g := range globs { // braces are several globs of one kind
		for _, e := range strings.Split(strings.NewReplacer("{kcore,keys}", "kcore|/p/keys").Replace(g), "|") {
			flat, ids = append(flat, e), append(ids, kinds[i])
		}
	}
	a, err := Compile(flat, layered(ids))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path   string
		except []string
		want   bool
	}{
		{"/p", nil, false},
		{"/p", []string{"kcore", "keys"}, false},
		{"/p", []string{"kcore", "keys", "bus"}, true},
		{"/p/self", nil, true},
		{"/p/bus", nil, false},
		{"/w", nil, false},
		{"/w/sub", nil, false},
		{"/w", []string{"kx"}, false}, // one of many that k* stands for
		{"/elsewhere", nil, false},
	} {
		if got := a.Everywhere(a.Walk(c.path), 1<<Read, c.except...); got != c.want {
			t.Errorf("everywhere below %s except %q: %t", c.path, c.except, got)
		}
	}
	if a.Everywhere(a.Walk("/p/self"), 1<<Read|1<<Write) {
		t.Error("what cannot be written is not written everywhere")
	}
	if (*Automaton)(nil).Everywhere(0, 0) || a.Everywhere(Bad, 0) {
		t.Error("nothing allows something")
	}
}
