package generation

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/glob"
)

func resolve(t *testing.T, name string, layers ...string) *policy.Resolved {
	t.Helper()
	var stack []policy.Layer
	for i, text := range layers {
		kind := policy.Org
		if i == len(layers)-1 {
			kind = policy.Profile
		}
		doc, err := policy.Parse(name+".toml", []byte("version = 1\nname = \""+name+"\"\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		stack = append(stack, policy.Layer{Kind: kind, Doc: doc})
	}
	r, err := policy.Resolve(stack, policy.Vars{Workspace: "/srv/ws", Home: "/home/u"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func rules(t *testing.T, number uint32, r *policy.Resolved) Rules {
	t.Helper()
	e, err := r.Explainer()
	if err != nil {
		t.Fatal(err)
	}
	return Rules{Number: number, From: uint64(number) * 1000, Policy: r, Explain: e}
}

const base = "extends = [\"builtin:strict\"]\n"

// TestNumbers: what the kernel writes for a rule of any of the generations that are
// kept means that rule of that generation, and nothing once it is forgotten.
func TestNumbers(t *testing.T) {
	r := resolve(t, "p", base)
	b := New(rules(t, 0, r))
	for n := uint32(0); n < 20; n++ {
		if n > 0 {
			b.Add(rules(t, n, r))
		}
		for g := max(kept, n+1) - kept; g <= n; g++ {
			for _, i := range []uint16{0, 1, 8191} {
				number := Renumber(g)(i)
				if got, rule, ok := b.Kernel(number); !ok || got != g || rule != i {
					t.Fatalf("at %d: rule %d of %d is written %#x and read as rule %d of %d, %t", n, i, g, number, rule, got, ok)
				}
			}
			for _, i := range []uint16{glob.NoRule, glob.SomeRule} {
				got, rule, ok := b.Kernel(Renumber(g)(i))
				if g > 0 && (!ok || got != g || rule != glob.NoRule) || g == 0 && ok {
					t.Fatalf("at %d: %#x of %d is read as rule %d of %d, %t", n, i, g, rule, got, ok)
				}
			}
		}
	}
	if text := b.Text(1, 0, &event.Event{}); text != "" {
		t.Errorf("a rule of a generation that is not kept is called %q", text)
	}
}

// TestNames: an event is explained by the rules that judged it, not by those of now.
func TestNames(t *testing.T) {
	old, now := resolve(t, "old", base+"[files]\ndeny = [\"/srv/ws/a\"]"), resolve(t, "now", base+"[files]\ndeny = [\"/srv/ws/b\"]")
	b := New(rules(t, 0, old))
	b.Add(rules(t, 1, now))
	find := func(r *policy.Resolved, g string) uint16 {
		return uint16(slices.IndexFunc(r.Files, func(x policy.Rule) bool { return x.Glob == g }))
	}
	read := func(p string) *event.Event { return &event.Event{Kind: event.Open, Path: p, Mono: 1500} }
	for _, c := range []struct{ got, want string }{
		{b.Text(0, find(old, "/srv/ws/a"), read("/srv/ws/a")), "old.toml:5:9: deny /srv/ws/a"},
		{b.Text(1, find(now, "/srv/ws/b"), read("/srv/ws/b")), "now.toml:5:9: deny /srv/ws/b"},
		{b.Text(0, glob.NoRule, read("/srv/ws/a")), "old.toml:5:9: deny /srv/ws/a"},
		{b.Text(1, glob.NoRule, read("/srv/ws/a")), ""},
		{b.Text(7, 0, read("/srv/ws/a")), ""},
		{b.At(&event.Event{Kind: event.Open, Path: "/srv/ws/a", Mono: 10}), "old.toml:5:9: deny /srv/ws/a"},
		{b.At(&event.Event{Kind: event.Open, Path: "/srv/ws/b", Mono: 2000}), "now.toml:5:9: deny /srv/ws/b"},
		{b.At(&event.Event{Kind: event.Open, Path: "/srv/ws/b", Mono: 2000, Verdict: event.Allow}), ""},
		{b.At(&event.Event{Kind: event.Signal, Path: "/srv/ws/b", Mono: 2000}), ""},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	b.Drop()
	if b.Now().Policy != old {
		t.Error("a generation that never held is still there")
	}
	if b.Drop(); b.Now().Policy != old {
		t.Error("the first generation was dropped")
	}
}

func TestChanges(t *testing.T) {
	start := resolve(t, "p", base)
	for _, c := range []struct {
		name   string
		layers []string
		want   string
	}{
		{"the same", []string{base}, ""},
		{"rules", []string{base + "[files]\ndeny = [\"/srv/ws/x\"]\nprotect = [\"/srv/ws/y\"]\nread = [\"~/z\"]"}, ""},
		{"a layer that has a say about files only", []string{"[files]\ndeny = [\"/srv/ws/x\"]", base}, ""},
		{"private", []string{base + "[files]\nprivate = [\"/srv/cache\"]"}, "files.private"},
		{"kept directory", []string{base + "[files]\npersist = [\"~/.npm\"]"}, "files.persist"},
		{"overlay", []string{base + "[files]\noverlay = [\"~/.cache\"]"}, "files.overlay"},
		{"net", []string{base + "[net]\nallow = [\"example.org:443\"]"}, "net"},
		{"env of another layer", []string{"[env]\npass = []", base}, "env"},
		{"socket", []string{base + "[net]\nunix = [\"/run/x.sock\"]"}, "net"},
		{"listen", []string{base + "[net]\nlisten = \"host:3000\""}, "net.listen"},
		{"calls", []string{base + "[syscalls]\ndeny = [\"ptrace\"]"}, "syscalls"},
		{"two limits", []string{base + "[resources]\nmemory = \"64MB\"\ntmp = \"1MB\""}, "resources.memory, resources.tmp"},
		{"env", []string{base + "[env]\npass = [\"X_*\"]"}, "env"},
		{"audit", []string{"[audit]\non_overload = \"deny\"", base}, "audit"},
		{"terminal", []string{base + "[terminal]\ntitle = false"}, "terminal"},
		{"require", []string{base + "[require]\nbpf-lsm = \"require\""}, "require.bpf-lsm"},
	} {
		if got := strings.Join(Changes(start, resolve(t, "q", c.layers...), false), ", "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Who may be reached can change where netd serves the jail; its sockets are mounts.
func TestChangesOfTheNetwork(t *testing.T) {
	start := resolve(t, "p", base+"[net]\nallow = [\"example.org:80\"]")
	for _, c := range []struct{ net, want string }{
		{"allow = [\"example.org:443\"]", ""},
		{"allow = []\nask = true", ""},
		{"allow = [\"example.org:80\"]\nunix = [\"/run/x.sock\"]", "net"},
	} {
		if got := strings.Join(Changes(start, resolve(t, "q", base+"[net]\n"+c.net), true), ", "); got != c.want {
			t.Errorf("%s: %q, want %q", c.net, got, c.want)
		}
	}
}

func TestBeyond(t *testing.T) {
	start := resolve(t, "p", base+"[files]\nread = [\"/srv/data/**\"]")
	for _, c := range []struct{ name, files, want string }{
		{"the same", "read = [\"/srv/data/**\"]", ""},
		{"less", "", ""},
		{"inside what is there", "read = [\"/srv/data/x/**\"]\nwrite = [\"${workspace}/x/**\"]", ""},
		{"the jail's own", "read = [\"/tmp/x\"]\nwrite = [\"~/x\"]", "/home/u/x is not mounted; /tmp/x is not mounted"},
		{"elsewhere", "read = [\"/srv/other/**\"]", "/srv/other is not mounted"},
		{"writable", "write = [\"/srv/data/x/**\"]", "/srv/data/x is mounted read-only"},
		{"executable and writable", "write = [\"/srv/data/**\"]\nexec = [\"/srv/data/**\"]", "/srv/data is mounted read-only and is mounted without exec"},
	} {
		if got := strings.Join(Beyond(start.View(), resolve(t, "q", base+"[files]\n"+c.files)), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
