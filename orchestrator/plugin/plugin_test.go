package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/agentos/agentos/policy"
)

func TestBuiltinPlugins(t *testing.T) {
	var got []string
	for _, p := range Builtin() {
		got = append(got, p.Name)
		if p.Title == "" || p.Install == "" || p.File != "builtin:"+p.Name {
			t.Errorf("%s: title, install or file is missing: %+v", p.Name, p)
		}
		v := p.Vars("/home/a/w", "/home/a", Install{Tree: []string{"/home/a/.local/share/x", "/home/a/w/node_modules"}})
		if err := v.Validate(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if !slices.Equal(v.Tool, []string{"/home/a/.local/share/x"}) {
			t.Errorf("%s: a tree inside the workspace is not the tool's: %v", p.Name, v.Tool)
		}
		for _, s := range v.Protect {
			if !slices.ContainsFunc(v.State, func(d string) bool { return below(s, d) }) {
				t.Errorf("%s protects %s, which is no state of it", p.Name, s)
			}
		}
	}
	want := []string{"aider", "amp", "claude", "codex", "copilot", "gemini", "opencode", "shell"}
	if !slices.Equal(got, want) {
		t.Errorf("plugins %v, want %v", got, want)
	}
}

// Every agent must be able to use its state and its key under every builtin
// policy, and must not be able to change what it would run outside in strict.
func TestPluginsUnderPolicies(t *testing.T) {
	for _, name := range []string{"strict", "standard", "permissive"} {
		doc, err := policy.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range Builtin() {
			v := p.Vars("/home/a/w", "/home/a", Install{})
			r, err := policy.Resolve([]policy.Layer{{Kind: policy.Profile, Doc: doc}}, v)
			if err != nil {
				t.Fatalf("%s %s: %v", name, p.Name, err)
			}
			if p.Name != "claude" && p.Name != "copilot" {
				continue // compiling is slow; two agents show it
			}
			e, err := r.Explainer()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range v.State {
				for _, op := range []policy.Op{policy.OpRead, policy.OpWrite} {
					if got := e.Explain(op, s+"/x.json"); !got.Allow {
						t.Errorf("%s %s: %s %s/x.json: %s", name, p.Name, op, s, got.Why)
					}
				}
			}
			for _, s := range v.Protect {
				if got := e.Explain(policy.OpWrite, s); name == "strict" && got.Allow {
					t.Errorf("%s %s: write %s is allowed", name, p.Name, s)
				}
			}
			for _, k := range p.Env.Pass {
				if k = strings.ReplaceAll(k, "*", "X"); !e.Explain(policy.OpEnv, k).Allow {
					t.Errorf("%s %s: %s is dropped", name, p.Name, k)
				}
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		`unknown key "stat"`:   "name = \"x\"\ncommand = [\"x\"]\nstat = []\n",
		"command is missing":   "name = \"x\"\n",
		"name must be":         "name = \"X y\"\ncommand = [\"x\"]\n",
		"must lie below ~/":    "name = \"x\"\ncommand = [\"x\"]\nstate = [\"/etc\"]\n",
		"wants a path":         "name = \"x\"\ncommand = [\"x\"]\nstate = [\"~/../b\"]\n",
		"below ~/":             "name = \"x\"\ncommand = [\"x\"]\n[[unless]]\nfile = \"/etc/x\"\nhas = \"x\"\nargs = [\"x\"]\n",
		"has is missing":       "name = \"x\"\ncommand = [\"x\"]\n[[unless]]\nfile = \"~/x\"\nargs = [\"x\"]\n",
		"set are missing":      "name = \"x\"\ncommand = [\"x\"]\n[[unless]]\nfile = \"~/x\"\nhas = \"x\"\n",
		`hosts: "example.com"`: "name = \"x\"\ncommand = [\"x\"]\nhosts = [\"example.com\"]\n",
		"x.toml:1:":            "name = 3\n",
		"larger than":          "name = \"x\"\n" + strings.Repeat("#\n", 40_000),
	} {
		_, err := Parse("x.toml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

func TestLoadReplacesByName(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/claude.toml", "name = \"claude\"\ncommand = [\"my-claude\"]\n", 0o644)
	write(t, dir+"/notes.txt", "not a plugin", 0o644)
	list, err := Load(dir, dir+"/missing")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != len(Builtin()) {
		t.Errorf("%d plugins", len(list))
	}
	for _, want := range list { // Find and Load must agree about every name
		if p, err := Find(want.Name, dir, dir+"/missing"); err != nil || !reflect.DeepEqual(p, want) {
			t.Errorf("found %v (%v), loaded %v", p, err, want)
		}
	}
	if p, err := Find("claude", dir); err != nil || p.Command[0] != "my-claude" {
		t.Errorf("got %v %v", p, err)
	}
	if _, err := Find("nobody"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "claude") {
		t.Errorf("got %v", err)
	}
	write(t, dir+"/bad.toml", "nme = 1\n", 0o644)
	if _, err := Find("shell", dir); err == nil || !strings.Contains(err.Error(), dir+"/bad.toml:1:1") {
		t.Errorf("got %v", err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), dir+"/bad.toml:1:1") {
		t.Errorf("got %v", err)
	}
}

// write makes a file and its directories.
func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}
