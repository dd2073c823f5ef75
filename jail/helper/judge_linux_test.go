package helper

import (
	"testing"

	"github.com/agentos/agentos/policy"
)

// TestUnrecorded: a policy that wants file events and has no rule about single files gets none where the kernel has no rules,
// and is told so.
func TestUnrecorded(t *testing.T) {
	resolve := func(text string) *policy.Resolved {
		doc, err := policy.Parse("p", []byte("version = 1\nname = \"x\"\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		r, err := policy.Resolve([]policy.Layer{{Kind: policy.Profile, Doc: doc}}, policy.Vars{Workspace: "/srv/w", Home: "/home/u"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, row := range []struct {
		text       string
		unrecorded bool // on tier C
	}{
		{"extends = [\"builtin:permissive\"]", true},
		{"extends = [\"builtin:permissive\"]\n[audit]\nfiles = \"all\"", true},
		{"extends = [\"builtin:permissive\"]\n[audit]\nfiles = \"denied\"", false},
		{"extends = [\"builtin:permissive\"]\n[files]\nprotect = [\"**/x\"]", false},
		{"extends = [\"builtin:strict\"]", false},
	} {
		r := resolve(row.text)
		if got := unrecorded(r, false); got != row.unrecorded {
			t.Errorf("%s: unrecorded %t, want %t", row.text, got, row.unrecorded)
		}
		if unrecorded(r, true) {
			t.Errorf("%s: unrecorded where the kernel records", row.text)
		}
	}
}
