package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

// call runs the command in this process, without a terminal and without a helper.
func call(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	t.Setenv("AGENTOS_SOCKET", t.TempDir()+"/none")
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	var files [2]*os.File
	for i := range files {
		if files[i], err = os.CreateTemp(t.TempDir(), "out"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = files[i].Close() }()
	}
	status = run(t.Context(), args, null, files[0], files[1])
	read := func(f *os.File) string {
		b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	return status, read(files[0]), read(files[1])
}

// project makes a home and a workspace and goes there.
func project(t *testing.T) {
	t.Helper()
	home := t.TempDir()
	dir := filepath.Join(home, "app")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Chdir(dir)
}

func TestVoice(t *testing.T) {
	project(t)
	for _, c := range []struct {
		args   string
		status int
	}{
		{"frobnicate", 125},
		{"run", 125},
		{"run --nosuch", 125},
		{"run nosuch\n\x1b[31m", 127},
		{"run --workspace / true", 126},
		{"run --policy nosuch true", 125},
		{"policy explain fly x", 125},
		{"policy show nosuch", 125},
		{"policy check /nosuch.toml", 125},
		{"audit show --kind nosuch", 125},
		{"audit query knid=open", 125},
		{"audit query path=/a[\x1b[31m", 125},
		{"audit tail fix-login =x", 125},
		{"audit stats since=soon", 125},
		{"audit tree fix-login (denied", 125},
		{"exec x", 125},
		{"man", 125},
		{"completion tcsh", 125},
	} {
		status, out, errs := call(t, strings.Split(c.args, " ")...)
		lines := strings.Split(strings.TrimSuffix(errs, "\n"), "\n")
		if status != c.status || out != "" || !strings.HasPrefix(lines[0], "agentos: ") || strings.HasSuffix(lines[0], ".") || len(lines) > 2 || strings.Contains(errs, "\x1b") {
			t.Errorf("%q: status %d (want %d), stdout %q, stderr %q", c.args, status, c.status, out, errs)
		}
		if len(lines) == 2 && !strings.HasPrefix(lines[1], "hint: ") {
			t.Errorf("%q: second line %q", c.args, lines[1])
		}
	}
}

func TestListingsAreJSON(t *testing.T) {
	project(t)
	for _, args := range []string{
		"policy list --json", "policy show --json", "policy show --effective --json", "policy check strict --json", "policy schema",
		"policy explain read README --json", "agents list --json", "version --json", "doctor --json",
	} {
		_, out, errs := call(t, strings.Split(args, " ")...)
		if !json.Valid([]byte(out)) {
			t.Errorf("%s: %.200q, stderr %q", args, out, errs)
		}
	}
}

func TestExplainNamesTheLine(t *testing.T) {
	project(t)
	status, out, _ := call(t, "policy", "explain", "read", ".env")
	if status != 126 || !strings.HasPrefix(out, "deny: ") || !strings.Contains(out, "at builtin:strict:") {
		t.Errorf("status %d, %q", status, out)
	}
	for name, want := range map[string]struct {
		status int
		begins string
	}{
		"openat": {0, "allow: the policy does not name it; the default seccomp profile allows it ("},
		"bpf":    {126, "deny: the policy does not name it; the default seccomp profile refuses it with EPERM"},
		"clone":  {0, "depends: the policy does not name it; the default seccomp profile looks at its arguments ("},
		"nosuch": {126, "deny: the policy does not name it; the default seccomp profile does not know it"},
	} {
		if status, out, _ := call(t, "policy", "explain", "syscall", name); status != want.status || !strings.HasPrefix(out, want.begins) {
			t.Errorf("%s: status %d, %q", name, status, out)
		}
	}
	if status, out, _ = call(t, "policy", "explain", "read", "/srv/other"); status != 126 || !strings.HasPrefix(out, "deny: nothing allows it: the read rules of profile layer strict") {
		t.Errorf("status %d, %q", status, out)
	}
	if status, out, _ = call(t, "policy", "explain", "write", "src/main.go"); status != 0 || !strings.HasPrefix(out, "allow: ") {
		t.Errorf("status %d, %q", status, out)
	}
}

func TestManual(t *testing.T) {
	dir := t.TempDir()
	if status, _, errs := call(t, "man", dir); status != 0 {
		t.Fatal(errs)
	}
	page, err := os.ReadFile(dir + "/agentos-run.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".TH AGENTOS\\-RUN 1", ".SH OPTIONS", "\\fB\\-\\-policy\\fR \\fIpolicy\\fR", ".BR agentos (1)"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("%q is missing", want)
		}
	}
}

func TestCompletion(t *testing.T) {
	project(t)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if status, out, errs := call(t, "completion", shell); status != 0 || !strings.Contains(out, "agentos") {
			t.Errorf("%s: %d %s", shell, status, errs)
		}
	}
	if _, out, _ := call(t, "__complete", "run", ""); !strings.Contains(out, "claude\tClaude Code") {
		t.Errorf("agents are not offered: %q", out)
	}
}

func TestRoff(t *testing.T) {
	if got, want := roff("a-b \\x\n.dot\n'quote"), "a\\-b \\ex\n\\&.dot\n\\&'quote"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func record(e event.Event) *segment.Record { return &segment.Record{Seq: 1, Event: e} }

func TestSelection(t *testing.T) {
	for _, c := range []struct {
		s    selection
		args string
		e    event.Event
		want bool
	}{
		{selection{}, "", event.Event{Kind: event.Open, Verdict: event.Allow}, true},
		{selection{denied: true}, "", event.Event{Kind: event.Open, Verdict: event.Allow}, false},
		{selection{denied: true}, "", event.Event{Kind: event.Open, Verdict: event.Deny, JailPid: 7, Mono: 101}, true},
		{selection{denied: true}, "", event.Event{Kind: event.Open, Verdict: event.Deny, JailPid: 7, Mono: 99}, false}, // the jail check, recorded late
		{selection{denied: true}, "", event.Event{Kind: event.Open, Verdict: event.Deny, JailPid: 1, Mono: 101}, true}, // init, after it
		{selection{denied: true}, "", event.Event{Kind: event.Escape, Mono: 99}, true},
		{selection{denied: true}, "", event.Event{Kind: event.End}, false},
		{selection{kinds: []string{"net"}}, "", event.Event{Kind: event.Connect}, true},
		{selection{kinds: []string{"file", "exec"}}, "", event.Event{Kind: event.Connect}, false},
		{selection{kinds: []string{"exec"}}, "", event.Event{Kind: event.Exit}, true},
		{selection{kinds: []string{"rename"}}, "", event.Event{Kind: event.Open}, false},
		{selection{path: "*.env"}, "", event.Event{Kind: event.Open, Path: "/a/b/x.env"}, true},
		{selection{path: "~/.ssh/**"}, "", event.Event{Kind: event.Open, Path: "/home/u/.ssh/id"}, true},
		{selection{path: "~/.ssh/**"}, "", event.Event{Kind: event.Open, Path: "/home/u/x"}, false},
		{selection{path: "/a/**"}, "", event.Event{Kind: event.Rename, Path: "/b", Path2: "/a/c"}, true},
		{selection{path: "/a b/**"}, "", event.Event{Kind: event.Open, Path: "/a b/c"}, true},
		{selection{path: "/a/**"}, "", event.Event{Kind: event.Connect, Addr: "1.2.3.4:5"}, false},
		{selection{}, "fix-login kind=open", event.Event{Kind: event.Open}, true},
		{selection{}, "denied kind=open", event.Event{Kind: event.Open, Mono: 101}, true},
		{selection{denied: true}, "kind=open or kind=exec", event.Event{Kind: event.Exec, Verdict: event.Allow}, false},
	} {
		if err := c.s.prepare(&program{home: "/home/u"}, strings.Fields(c.args)); err != nil {
			t.Error(err)
			continue
		}
		m := c.s.query.Matcher("", "")
		_ = m.Match(record(event.Event{Kind: event.Receipt, Mono: 100}))
		if got := m.Match(record(c.e)); got != c.want || (c.s.session == "") == strings.HasPrefix(c.args, "fix-login") {
			t.Errorf("%+v on %+v: %t, session %q", c.s, c.e, got, c.s.session)
		}
	}
	for _, bad := range []selection{{kinds: []string{"files"}}, {kinds: []string{"open", "", "exec"}}, {path: "/a["}} {
		if err := bad.prepare(&program{}, nil); err == nil || !strings.HasPrefix(err.Error(), "--") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestRecordLinesCannotAct(t *testing.T) {
	evil := "\x1b[2J\n\u202eevil"
	for _, k := range event.Kinds() {
		p := &program{out: newPrinter(nil, true)}
		print := p.laid(true)
		head := print(nil, record(event.Event{Kind: event.Open}))
		r := record(event.Event{Kind: k, Comm: evil, Exe: evil, Path: evil, Path2: evil, Addr: evil, Name: evil, Detail: evil, Rule: evil, Argv: []string{evil, evil}})
		if s := string(print(nil, r)); len(head) == 0 || strings.Count(s, "\n") != 1 || strings.ContainsAny(s, "\x1b\u202e") {
			t.Errorf("%s: %q", k, s)
		}
	}
}

func TestJSONCannotAct(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	p := newPrinter(f, true)
	const evil = "\x1b\x7f\u009b\u202e\u200b\U000e0001 ä日\\\"\ufffd"
	if err := p.json(map[string]string{"a": evil}); err != nil {
		t.Fatal(err)
	}
	if err := p.flush(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]string
	if err := json.Unmarshal(text, &back); err != nil || back["a"] != evil || strings.ContainsAny(string(text), "\x1b\x7f\u009b\u202e\u200b\U000e0001") || !strings.Contains(string(text), "ä日") {
		t.Errorf("%v: %q", err, text)
	}
}

func TestTableCountsCharacters(t *testing.T) {
	if got := cellWidth("\x1b[31mäöü\x1b[0m日"); got != 4 {
		t.Error(got)
	}
}
