package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/agentos/agentos/policy/glob"
)

// naive is the semantics of docs/policy.md, written from the documents and
// without any code that Resolve, judge or the automaton use.
func naive(layers []Layer, v Vars, op Kind, p string) bool {
	hits := func(text string) bool {
		for from, to := range map[string]string{"${workspace}": v.Workspace, "~": v.Home} {
			if rest, ok := strings.CutPrefix(text, from); ok {
				text = to + rest
			}
		}
		return len(glob.Reference([]string{text}, p)) > 0
	}
	last := func(list []Item) bool {
		on := false
		for _, it := range list {
			if text, except := strings.CutPrefix(it.Text, "!"); hits(text) {
				on = !except
			}
		}
		return on
	}
	for _, l := range layers {
		f := l.Doc.Files
		if last(f.Deny) || op == Write && last(f.Protect) {
			return false
		}
		list := map[Kind][]Item{Read: f.Read, Write: f.Write, Exec: f.Exec}[op]
		if list == nil && l.Kind != Profile {
			continue
		}
		if !slices.ContainsFunc(list, func(it Item) bool { return hits(it.Text) }) {
			return false
		}
	}
	return true
}

// naiveHidden is the same for hiding: in some layer an entry of deny that hides matches, and none
// below it that is an exception.
func naiveHidden(layers []Layer, v Vars, p string) bool {
	for _, l := range layers {
		hidden := false
		for _, it := range l.Doc.Files.Deny {
			one := *l.Doc
			one.Files = Files{Deny: []Item{{Text: strings.TrimPrefix(it.Text, "!")}}, Read: []Item{{Text: "/**"}}}
			if naive([]Layer{{Profile, &one}}, v, Read, p) {
				continue // does not match
			}
			hidden = !strings.HasPrefix(it.Text, "!") && (hidden || it.Hide)
		}
		if hidden {
			return true
		}
	}
	return false
}

func TestAutomatonAgainstNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	globs := []string{
		"${workspace}/**", "~/**", "/usr/**", "/**", "**/.env", "**/.env.*", "${workspace}/**/*.pem", "${workspace}/**/a/**", "/usr/a", "~/a/**",
		"${workspace}/{a,b}/**", "**/b", "${workspace}/**/[ab]?", "/usr/**/b/**", "~/*", "${workspace}/a",
	}
	names := []string{"a", "b", "ab", ".env", ".env.x", "x.pem", "c"}
	v := Vars{Workspace: "/h/w", Home: "/h"}
	hiding := false // only deny hides
	list := func(neg bool) []Item {
		if rng.IntN(4) == 0 {
			return nil
		}
		var out []Item
		for range rng.IntN(5) {
			it := Item{Text: globs[rng.IntN(len(globs))]}
			if neg && rng.IntN(3) == 0 {
				it.Text = "!" + it.Text
			}
			it.Hide = neg && hiding && it.Text[0] != '!' && rng.IntN(3) == 0
			out = append(out, it)
		}
		if out == nil {
			out = []Item{}
		}
		return out
	}
	for round := range 150 {
		var layers []Layer
		for kind := Org; kind <= Profile; kind++ {
			if kind != Profile && rng.IntN(2) == 0 {
				continue
			}
			d := &Document{File: fmt.Sprintf("%s-%d", kind, round), Version: 1, Name: "x"}
			d.Files = Files{Read: list(false), Write: list(false), Exec: list(false), Protect: list(true)}
			hiding = round%2 == 0
			d.Files.Deny = list(true)
			hiding = false
			if kind == Profile {
				d.Files.Read = append(d.Files.Read, Item{Text: "/h/**"})
				d.Files.Write = append(d.Files.Write, Item{Text: "${workspace}/**"})
			}
			layers = append(layers, Layer{kind, d})
		}
		r, err := Resolve(layers, v)
		if err != nil {
			t.Fatal(err)
		}
		e, err := r.Explainer()
		if err != nil {
			t.Fatal(err)
		}
		again := reload(t, layers, v)
		if again.Hash() != r.Hash() {
			t.Fatal("the hash does not survive JSON")
		}
		for range 80 {
			p := []string{"/h/w", "/h", "/usr", "/"}[rng.IntN(4)]
			for range rng.IntN(4) {
				p = path.Join(p, names[rng.IntN(len(names))])
			}
			hidden := naiveHidden(layers, v, p)
			if along := p != "/" && e.Automaton().Along(p, glob.See); along && hidden || hidden && !r.Hides() {
				t.Fatalf("%s is hidden and seen (%t, %t)", p, along, r.Hides())
			}
			for _, op := range []Op{OpRead, OpWrite, OpExec} {
				want := naive(layers, v, Kind(op), p)
				if got := e.Explain(op, p); got.Hidden != hidden || hidden && (got.Allow || got.Rule == nil || !got.Rule.Hide) {
					t.Fatalf("%s %s: got %+v, want hidden %t", op, p, got, hidden)
				}
				got := e.Explain(op, p)
				if got.Allow != want || got.Allow && got.Rule == nil || strings.Contains(got.Why, "disagree") {
					js, _ := json.Marshal(layers)
					t.Fatalf("%s %s: got %+v, want %v\n%s", op, p, got, want, js)
				}
			}
		}
	}
}

// reload resolves what the helper would read.
func reload(t *testing.T, layers []Layer, v Vars) *Resolved {
	t.Helper()
	js, err := json.Marshal(PolicyDocument{Layers: layers, Vars: v})
	if err != nil {
		t.Fatal(err)
	}
	var back PolicyDocument
	if err := json.Unmarshal(js, &back); err != nil {
		t.Fatal(err)
	}
	r, err := Resolve(back.Layers, back.Vars)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestBuiltinsSurviveJSON(t *testing.T) {
	for _, name := range BuiltinNames() {
		d, err := Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		layers := []Layer{{Profile, d}}
		if r := resolve(t, Vars{}, layers...); r.Hash() != reload(t, layers, SampleVars()).Hash() {
			t.Errorf("%s: hash differs after JSON", name)
		}
	}
}

// What the outside corpus plants and reads (escape/policy.json) must be denied
// by strict under any depth and name around it.
func TestStrictMinimum(t *testing.T) {
	d, err := Builtin("strict")
	if err != nil {
		t.Fatal(err)
	}
	v := Vars{Workspace: "/tmp/probe/ws", Home: "/tmp/probe/home"}
	e, err := resolve(t, v, Layer{Profile, d}).Explainer()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"~/.ssh/id_rsa", "~/.aws/credentials", "~/.netrc", "~/.kube/config", "~/.vault/s/t", ".env", "late/.env", "late/sub/new.pem", "k.pem", "secrets/x", "a/secrets/b/c", ".aws/c", "x/.aws/y"} {
		for _, op := range []Op{OpRead, OpWrite, OpExec} {
			if got := e.Explain(op, p); got.Allow {
				t.Errorf("%s %s: %s", op, p, got.Why)
			}
		}
	}
	for _, p := range []string{".git/hooks/pre-commit", ".git/hooks", ".git/config", ".git/config.worktree", ".git", "sub/.git", ".claude/x", ".claude", ".vscode/settings.json", ".idea/x", ".mcp.json", ".envrc", "/etc/cron.d/x", "/srv/x", "/usr/local/bin/x", "bare/HEAD"} {
		if got := e.Explain(OpWrite, p); got.Allow {
			t.Errorf("write %s: %s", p, got.Why)
		}
	}
	for _, p := range []string{".git/objects/aa/bb", ".git/index.lock", ".git/refs/heads/x", ".git/HEAD", "src/main.c", ".hb-TOKEN", "evt-TOKEN", "/tmp/x", "/dev/shm/x", "/var/tmp/x", "/run/x"} {
		if got := e.Explain(OpWrite, p); !got.Allow {
			t.Errorf("write %s: %s", p, got.Why)
		}
	}
}
