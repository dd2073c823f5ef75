package view

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

var update = flag.Bool("update", false, "write the golden files anew")

// story is a session in which everything happens.
func story() []segment.Record {
	at := time.Date(2026, 11, 20, 23, 59, 58, 0, time.UTC)
	node := event.Event{Pid: 4001, JailPid: 12, Ppid: 4000, Exe: "/usr/bin/node", Comm: "node", Verdict: event.Allow}
	var all []segment.Record
	add := func(e event.Event, f func(e *event.Event)) {
		f(&e)
		e.Time, e.Jail = at, "fix-login"
		all = append(all, segment.Record{Seq: uint64(len(all) + 1), Event: e})
		at = at.Add(137 * time.Millisecond)
	}
	own := event.Event{}
	add(own, func(e *event.Event) { e.Kind, e.Detail = event.Receipt, `{"tier":"C"}` })
	add(own, func(e *event.Event) { e.Kind, e.Path = event.Start, "/usr/bin/claude" })
	add(node, func(e *event.Event) {
		e.Kind, e.Path, e.Argv = event.Exec, "/usr/bin/node", []string{"node", "/usr/bin/claude", "--resume", "it's \x1b]0;x\a"}
	})
	add(node, func(e *event.Event) { e.Kind, e.Path = event.Open, "/w/package.json" })
	add(node, func(e *event.Event) { e.Kind, e.Path, e.Errno = event.Open, "/w/tsconfig.json", 2 })
	add(node, func(e *event.Event) {
		e.Kind, e.Path, e.Verdict, e.Errno, e.Rule = event.Open, "/w/.env", event.Deny, 13, "strict.toml:12:3 deny **/.env"
	})
	for range 3 {
		add(node, func(e *event.Event) {
			e.Kind, e.Path, e.Verdict, e.Errno, e.Rule = event.Open, "/w/sub/dir/.env", event.Deny, 13, "strict.toml:12:3 deny **/.env"
		})
	}
	add(node, func(e *event.Event) {
		e.Kind, e.Path, e.Verdict, e.Errno = event.Open, "/home/u/.ssh/id_ed25519", event.Deny, 13
	})
	add(node, func(e *event.Event) {
		e.Kind, e.Path, e.Flags = event.Open, "/w/very/long/path/that/does/not/fit/anywhere/at/all/in/eighty/columns/src/index.test.ts", 0o1101
	})
	add(node, func(e *event.Event) { e.Kind, e.Path = event.Create, "/w/new.txt" })
	add(node, func(e *event.Event) { e.Kind, e.Path = event.Create, "/w/.git/index.lock" })
	add(node, func(e *event.Event) {
		e.Kind, e.Path, e.Path2 = event.Rename, "/w/.git/index.lock", "/w/.git/index"
	})
	add(node, func(e *event.Event) { e.Kind, e.Path = event.Create, "/w/temp" })
	add(node, func(e *event.Event) { e.Kind, e.Path = event.Unlink, "/w/temp" })
	add(node, func(e *event.Event) { e.Kind, e.Path = event.Unlink, "/w/old\nname\u202e.txt" })
	add(node, func(e *event.Event) { e.Kind, e.Path, e.Flags = event.Chmod, "/w/run.sh", 0o755 })
	add(node, func(e *event.Event) {
		e.Kind, e.Addr, e.Name = event.Connect, "198.18.0.7:443", "api.anthropic.com"
	})
	add(node, func(e *event.Event) {
		e.Kind, e.Addr, e.Verdict, e.Errno, e.Rule = event.Connect, "169.254.169.254:80", event.Deny, 13, ""
	})
	add(node, func(e *event.Event) { e.Kind, e.Addr, e.Errno = event.Connect, "127.0.0.1:5432", 111 })
	add(node, func(e *event.Event) {
		e.Kind, e.Addr, e.Verdict, e.Rule = event.UnixConnect, "/var/run/docker.sock", event.Deny, "strict.toml:40:1 net.unix"
	})
	add(node, func(e *event.Event) { e.Kind, e.Name, e.Verdict = event.Resolve, "evil.example", event.Deny })
	add(node, func(e *event.Event) {
		e.Kind, e.Name, e.Verdict, e.Errno = event.Syscall, "mount", event.Deny, 1
		e.Comm = "日本語のプロセス\x1b[31m"
	})
	add(node, func(e *event.Event) { e.Kind, e.Code = event.Exit, 137 })
	add(own, func(e *event.Event) { e.Kind, e.Name, e.Detail = event.Limit, "memory", "4 GB" })
	add(own, func(e *event.Event) { e.Kind, e.Count = event.Loss, 412 })
	add(own, func(e *event.Event) { e.Kind, e.Detail = event.Gap, "the recorder was not running after record 9" })
	add(node, func(e *event.Event) { e.Kind, e.Verdict, e.Detail = event.Escape, event.Deny, "left its cgroup" })
	add(own, func(e *event.Event) { e.Kind, e.Code = event.End, 0 })
	return all
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (-update writes it):\n%s", path, got)
	}
}

func TestTableGolden(t *testing.T) {
	for name, table := range map[string]*Table{
		"plain.txt":   {},
		"width80.txt": {Width: 80},
		"width120.txt": {
			Width: 120, Session: true, Location: time.FixedZone("CET", 3600),
		},
		"color.txt": {Width: 100, Color: true},
	} {
		var out []byte
		for _, r := range story() {
			out = table.Append(out, &r)
		}
		golden(t, name, out)
		for _, l := range strings.Split(string(out), "\n") {
			plain := l
			for _, sgr := range []string{"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[1;31m"} {
				if table.Color {
					plain = strings.ReplaceAll(plain, sgr, "")
				}
			}
			for _, r := range plain {
				if !unicode.IsPrint(r) {
					t.Errorf("%s: %U in %q", name, r, l)
				}
			}
			if n := cells(plain); table.Width > 0 && n > table.Width {
				t.Errorf("%s: %d cells: %s", name, n, plain)
			}
			if strings.HasSuffix(plain, " ") {
				t.Errorf("%s: spaces at the end of %q", name, l)
			}
		}
	}
}

func TestJSONLines(t *testing.T) {
	var out []byte
	for _, r := range story() {
		out = AppendLine(out, &r)
	}
	golden(t, "lines.jsonl", out)
	lines := bytes.Split(bytes.TrimSuffix(out, []byte("\n")), []byte("\n"))
	for i, want := range story() {
		var got segment.Record
		if err := json.Unmarshal(lines[i], &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("line %d: %v\n got %+v\nwant %+v", i, err, got, want)
		}
	}
}

func TestSummaryGolden(t *testing.T) {
	var s Summary
	for _, r := range story() {
		s.Add(&r)
	}
	res := s.Result()
	out, err := json.MarshalIndent(res, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "summary.json", append(out, '\n'))
	golden(t, "report.txt", Report{}.Append(nil, &res))
	golden(t, "report60.txt", Report{Width: 60, Top: 2, Color: true}.Append(nil, &res))
	var none Summary
	empty := none.Result()
	golden(t, "empty.txt", Report{}.Append(nil, &empty))
}

func TestSummaryIsBounded(t *testing.T) {
	var s Summary
	r := segment.Record{Event: event.Event{Kind: event.Create, Verdict: event.Allow}}
	for i := range maxChanges + 5 {
		r.Path = "/w/" + number(uint64(i))
		s.Add(&r)
	}
	r.Kind, r.Verdict = event.Open, event.Deny
	for i := range maxNames + 5 {
		r.Rule = number(uint64(i))
		s.Add(&r)
	}
	res := s.Result()
	if len(res.Changes) != maxChanges || len(res.Denials) != maxNames || res.More != 10+maxChanges || res.Denied != maxNames+5 {
		t.Errorf("%d changes, %d denials, %d more", len(res.Changes), len(res.Denials), res.More)
	}
}

func TestFilesUsedOftenStay(t *testing.T) {
	var s Summary
	r := segment.Record{Event: event.Event{Kind: event.Open, Verdict: event.Allow}}
	for i := range 3 * maxChanges {
		r.Path = "/w/" + number(uint64(i))
		s.Add(&r)
		if i%1000 == 0 {
			r.Path = "/often"
			s.Add(&r)
		}
	}
	res := s.Result()
	if res.Files[0] != (Count{"/often", 3 * maxChanges / 1000}) || len(res.Files) > maxChanges || res.More == 0 {
		t.Errorf("%v first of %d, %d more", res.Files[0], len(res.Files), res.More)
	}
}

func TestChanges(t *testing.T) {
	ev := func(k event.Kind, path, path2 string, flags uint32) event.Event {
		return event.Event{Kind: k, Path: path, Path2: path2, Flags: flags, Verdict: event.Allow}
	}
	for name, c := range map[string]struct {
		events []event.Event
		want   []Change
	}{
		"read":                 {[]event.Event{ev(event.Open, "/a", "", 0)}, nil},
		"written":              {[]event.Event{ev(event.Open, "/a", "", 2)}, []Change{{"/a", "written"}}},
		"new and written":      {[]event.Event{ev(event.Create, "/a", "", 0), ev(event.Open, "/a", "", 1)}, []Change{{"/a", "new"}}},
		"new and deleted":      {[]event.Event{ev(event.Create, "/a", "", 0), ev(event.Unlink, "/a", "", 0)}, nil},
		"deleted and new":      {[]event.Event{ev(event.Unlink, "/a", "", 0), ev(event.Create, "/a", "", 0)}, []Change{{"/a", "written"}}},
		"new and renamed":      {[]event.Event{ev(event.Create, "/a", "", 0), ev(event.Rename, "/a", "/b", 0)}, []Change{{"/b", "written"}}},
		"renamed onto new":     {[]event.Event{ev(event.Create, "/b", "", 0), ev(event.Rename, "/a", "/b", 0)}, []Change{{"/a", "deleted"}, {"/b", "new"}}},
		"renamed":              {[]event.Event{ev(event.Rename, "/a", "/b", 0)}, []Change{{"/a", "deleted"}, {"/b", "written"}}},
		"replaced after write": {[]event.Event{ev(event.Open, "/b", "", 1), ev(event.Create, "/a", "", 0), ev(event.Rename, "/a", "/b", 0)}, []Change{{"/b", "written"}}},
		"hard link":            {[]event.Event{ev(event.Link, "/a", "/b", 0)}, []Change{{"/b", "new"}}},
		"denied":               {[]event.Event{{Kind: event.Unlink, Path: "/a"}}, nil},
		"failed":               {[]event.Event{{Kind: event.Unlink, Path: "/a", Verdict: event.Allow, Errno: 2}}, nil},
		"attributes":           {[]event.Event{ev(event.Chmod, "/a", "", 0)}, []Change{{"/a", "attributes"}}},
	} {
		var s Summary
		for _, e := range c.events {
			s.Add(&segment.Record{Event: e})
		}
		if got := s.Result().Changes; !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{cutRight("abcdef", 6), "abcdef"},
		{cutRight("abcdef", 4), "abc…"},
		{cutRight("日本語", 4), "日…"},
		{cutRight("abc", 0), ""},
		{cutLeft("abcdef", 4), "…def"},
		{cutLeft("日本語", 4), "…語"},
		{cutLeft("xxe\u0301yy", 3), "…yy"},
		{cutLeft("/aaaaaaaaaa/bbbbbbbbbb/cccccccccc", 24), "/aaaaaaa…bbbb/cccccccccc"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func FuzzTable(f *testing.F) {
	f.Add("comm", "/path", "/p2", "rule", "a", uint16(5), uint8(1), 80)
	f.Add("\x1b", "\n\u202e\xff", "", "\u0301", "", uint16(8), uint8(0), 60)
	f.Fuzz(func(t *testing.T, comm, path, path2, rule, arg string, kind uint16, verdict uint8, width int) {
		r := segment.Record{Event: event.Event{
			Kind: event.Kind(kind % 64), Verdict: event.Verdict(verdict), Comm: comm, Path: path, Path2: path2, Rule: rule, Argv: []string{arg, arg},
			Pid: 1, Name: arg, Detail: path2, Jail: rule, Addr: arg,
		}}
		table := Table{Width: 60 + width&255, Session: true}
		out := string(table.Append(nil, &r))
		if n := strings.Count(out, "\n"); n != 2 && n != 3 {
			t.Fatalf("lines: %q", out)
		}
		for _, c := range out {
			if c != '\n' && !unicode.IsPrint(c) {
				t.Fatalf("%U in %q", c, out)
			}
		}
		var s Summary
		s.Add(&r)
		res := s.Result()
		for _, c := range string(Report{Width: 70}.Append(nil, &res)) {
			if c != '\n' && !unicode.IsPrint(c) {
				t.Fatalf("%U in report", c)
			}
		}
	})
}
