package policy

import (
	"testing"

	"github.com/agentos/agentos/policy/glob"
)

// TestHide: what hides is denied, layers only tighten, an exception ends what stands above it in
// its own layer, and what lies in a hidden directory cannot be seen either.
func TestHide(t *testing.T) {
	parse := func(deny string) *Document {
		d, err := Parse("p", []byte(head+"[files]\nread = [\"/**\"]\n"+deny))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	org := parse(`deny = [{ glob = "**/.env", hide = true }, "**/.env*"]`)
	profile := parse("deny = [\n  { glob = \"**/k/**\", hide = true },\n  \"!**/k/pub\",\n  { glob = \"**/*.pem\", hide = false },\n  \"!**/.env\",\n]")
	r, err := Resolve([]Layer{{Org, org}, {Profile, profile}}, Vars{Workspace: "/h/w", Home: "/h"})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Hides() {
		t.Error("the policy does not hide")
	}
	a, err := r.Automaton()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		path               string
		read, hidden, seen bool
	}{
		{"/h/w", true, false, true},
		{"/h/w/.env", false, true, false},
		{"/h/w/.env.local", false, false, true},
		{"/h/w/x.pem", false, false, true},
		{"/h/w/k", false, true, false},
		{"/h/w/k/a", false, true, false},
		{"/h/w/k/pub", true, false, false}, // reachable only through what is hidden
		{"/h/w/.env/x", true, false, false},
	} {
		v := r.Explain(OpRead, row.path)
		if v.Allow != row.read || v.Hidden != row.hidden || v.Hidden && !v.Rule.Hide {
			t.Errorf("%s: %+v, want read %t, hidden %t", row.path, v, row.read, row.hidden)
		}
		if got := a.Along(row.path, glob.See); got != row.seen {
			t.Errorf("%s: seen %t, want %t", row.path, got, row.seen)
		}
	}
	if a.Along("h/w", glob.See) || a.Along("/h/../w", glob.See) || (*glob.Automaton)(nil).Along("/h", glob.See) {
		t.Error("what is no path, or judged by nothing, is seen")
	}
}
