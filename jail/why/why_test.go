package why

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/policy"
)

var now = time.Unix(1_800_000_000, 0)

func denied(kind event.Kind, path, rule string) *event.Event {
	return &event.Event{Time: now.Add(-3 * time.Second), Kind: kind, Path: path, Rule: rule, Errno: 13, Comm: "cat", JailPid: 7}
}

func ground() Ground {
	return Ground{Session: "fix", Workspace: "/srv/ws", Home: "/home/u", Layers: []policy.LayerInfo{
		{Kind: policy.Org, Name: "org", File: "/etc/agentos/policy.d/a.toml", Lists: []policy.Kind{policy.Write}},
		{Kind: policy.User, Name: "me", File: "/home/u/.agentos/policy.toml"},
		{Kind: policy.Project, Name: "p", File: "/srv/ws/.agentos/policy.toml"},
		{Kind: policy.Profile, Name: "mine", File: "/home/u/mine.toml"},
	}}
}

// TestAdvice: who can allow it, and the line that would.
func TestAdvice(t *testing.T) {
	builtin := ground()
	builtin.Layers = []policy.LayerInfo{{Kind: policy.Profile, Name: "strict", File: "builtin:strict"}}
	for _, c := range []struct {
		name string
		g    Ground
		op   policy.Op
		path string
		rule string
		want []string
		not  string
	}{
		{"organisation", ground(), policy.OpRead, "/srv/ws/x", "/etc/agentos/policy.d/a.toml:3:9: deny **/x", []string{"why: deny **/x", "at: /etc/agentos/policy.d/a.toml:3:9", "only who administers /etc/agentos/policy.d/a.toml"}, "[files]"},
		{"user", ground(), policy.OpRead, "/srv/ws/x", "/home/u/.agentos/policy.toml:3:9: deny **/x", []string{"the user's own policy", "/home/u/.agentos/policy.toml"}, "[files]"},
		{"project", ground(), policy.OpRead, "/srv/ws/x", "/srv/ws/.agentos/policy.toml:3:9: deny **/x", []string{"the policy of this project"}, "[files]"},
		{"own profile", ground(), policy.OpRead, "/srv/ws/x", "/home/u/mine.toml:3:9: deny **/x", []string{"an entry under [files] of /home/u/mine.toml", `deny = ["!${workspace}/x"]`, "agentos policy set fix /home/u/mine.toml"}, "extends"},
		{"a builtin that it extends", ground(), policy.OpWrite, "/srv/ws/.git/hooks/x", "builtin:strict:9:1: protect **/.git/hooks/**", []string{"[files] of /home/u/mine.toml", `protect = ["!${workspace}/.git/hooks/x"]`}, "extends"},
		{"builtin", builtin, policy.OpRead, "/home/u/.ssh/id", "builtin:strict:9:1: deny ~/.ssh/**", []string{`extends = ["builtin:strict"]`, `deny = ["!~/.ssh/id"]`, "policy set fix mine"}, ""},
		{"nothing grants it", ground(), policy.OpWrite, "/opt/x", "", []string{"no rule allows it", `write = ["/opt/x"]`, "must name it: /etc/agentos/policy.d/a.toml"}, "exception"},
		{"bytes that mean something", ground(), policy.OpRead, "/srv/ws/a[1]*", "", []string{`read = ['${workspace}/a\[1\]\*']`}, ""},
		{"bytes that act on a terminal", ground(), policy.OpRead, "/srv/ws/\x1b]0;x\a\n\"", "", []string{`\x1b`}, "\x1b"},
	} {
		got := string(c.g.Advise(nil, c.op, c.path, c.rule))
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: no %q in\n%s", c.name, w, got)
			}
		}
		if c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%s: %q in\n%s", c.name, c.not, got)
		}
	}
}

// TestMemory: the last denials, each once, bounded, newest first; nothing else.
func TestMemory(t *testing.T) {
	var m Memory
	ask := func(q string) string { return m.Answer(q, 4096, ground(), nil, now) }
	if got := ask(""); got != "0nothing was denied so far\n" {
		t.Errorf("empty: %q", got)
	}
	m.Add(&event.Event{Kind: event.Open, Path: "/allowed", Verdict: event.Allow})
	m.Add(&event.Event{Kind: event.Policy, Name: "refused"})
	m.Add(denied(event.Open, "/srv/ws/first", ""))
	for range 500 {
		m.Add(denied(event.Open, "/srv/ws/loop", "builtin:strict:1:1: deny **/loop"))
	}
	got := ask("why")
	first, loop := strings.Index(got, "/srv/ws/first"), strings.Index(got, "/srv/ws/loop")
	if loop < 0 || first < loop || !strings.Contains(got, "500 times") || !strings.Contains(got, "EACCES") || !strings.Contains(got, "3 s ago, by cat[7]") || strings.Contains(got, "/allowed") {
		t.Errorf("got\n%s", got)
	}
	if got := ask("why\x00/srv/ws/first"); strings.Contains(got, "loop") || !strings.Contains(got, "/srv/ws/first") {
		t.Errorf("about one path:\n%s", got)
	}
	for i := range 1000 {
		m.Add(denied(event.Open, fmt.Sprintf("/srv/ws/%d", i), ""))
	}
	if len(m.list) != remembered || cap(m.list) > 4*remembered {
		t.Errorf("remembers %d of %d", len(m.list), cap(m.list))
	}
	if got := m.Answer("why", 200, ground(), nil, now); len(got) != 200 || !strings.HasSuffix(got, "...\n") {
		t.Errorf("%d bytes where there is room for 200", len(got))
	}
}

// TestQuestions: what is no question gets a word about questions; what is static is
// answered by the rules.
func TestQuestions(t *testing.T) {
	doc, err := policy.Builtin("strict")
	if err != nil {
		t.Fatal(err)
	}
	r, err := policy.Resolve([]policy.Layer{{Kind: policy.Profile, Doc: doc}}, policy.Vars{Workspace: "/srv/ws", Home: "/home/u"})
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Explainer()
	if err != nil {
		t.Fatal(err)
	}
	var m Memory
	g := Ground{Session: "fix", Workspace: "/srv/ws", Home: "/home/u", Layers: r.Layers}
	for q, want := range map[string]string{
		"read\x00/srv/ws/a":             "1read /srv/ws/a: allowed",
		"read\x00/srv/ws/.env":          "0read /srv/ws/.env: denied\n  why: deny ${workspace}/**/",
		"write\x00/srv/ws/.git/hooks/x": "0write /srv/ws/.git/hooks/x: denied\n  why: protect ",
		"exec\x00/usr/bin/git":          "1exec /usr/bin/git: allowed",
		"why\x00/srv/ws/.env":           "0nothing of it was denied lately; by the rules that hold now:\nread /srv/ws/.env: denied",
		"read":                          "0ask:",
		"read\x00":                      "0ask:",
		"list":                          "0ask:",
		"connect\x00/x":                 "0ask:",
		"read\x00../x":                  "0paths must be absolute",
		"read\x00/srv/\x1b[2J":          "0read /srv/\\x1b[2J: denied",
		"\x00\x00":                      "0paths must be absolute",
	} {
		if got := m.Answer(q, 4096, g, e, now); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q, want %q", q, got, want)
		}
	}
	n := 0
	for range 1000 {
		if m.May(now) {
			n++
		}
	}
	if n != perSecond {
		t.Errorf("%d questions at once", n)
	}
	if !m.May(now.Add(time.Second)) {
		t.Error("a second later nobody may ask")
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add("why\x00/a")
	f.Add("read\x00/a\x1b")
	f.Fuzz(func(t *testing.T, q string) {
		var m Memory
		m.Add(denied(event.Open, q, q))
		for _, r := range m.Answer(q, 4096, ground(), nil, now) {
			if r < ' ' && r != '\n' {
				t.Fatalf("%q in the answer to %q", r, q)
			}
		}
	})
}
