package tree

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

var began = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

// play gives events to a builder, 10 ms apart.
func play(all ...event.Event) Tree {
	var b Builder
	for i, e := range all {
		e.Time, e.Jail = began.Add(time.Duration(i)*10*time.Millisecond), "s"
		b.Add(&segment.Record{Seq: uint64(i + 1), Event: e}, true)
	}
	return b.Result()
}

func proc(k event.Kind, pid int32, start uint64, ppid int32) event.Event {
	return event.Event{Kind: k, Verdict: event.Allow, Pid: pid, TaskStart: start, Ppid: ppid, JailPid: pid - 100, Comm: "sh"}
}

func with(e event.Event, f func(e *event.Event)) event.Event { f(&e); return e }

func TestTree(t *testing.T) {
	tree := play(
		event.Event{Kind: event.Receipt},
		proc(event.Fork, 110, 5, 90),
		with(proc(event.Exec, 110, 5, 90), func(e *event.Event) { e.Path, e.Argv = "/bin/sh", []string{"sh", "-c", "make it"} }),
		proc(event.Fork, 111, 6, 110),
		with(proc(event.Exec, 111, 6, 110), func(e *event.Event) { e.Path, e.Argv, e.Comm = "/bin/cat", []string{"cat", "x\n\x1b[2J"}, "cat" }),
		with(proc(event.Open, 111, 6, 110), func(e *event.Event) { e.Path = "/w/a" }),
		with(proc(event.Open, 111, 6, 110), func(e *event.Event) { e.Path, e.Errno = "/w/none", 2 }),
		with(proc(event.Open, 111, 6, 110), func(e *event.Event) { e.Path, e.Verdict, e.Errno = "/w/.env", event.Deny, 13 }),
		with(proc(event.Exit, 111, 6, 110), func(e *event.Event) { e.Code = 1 }),
		proc(event.Fork, 112, 7, 110),
		proc(event.Fork, 113, 8, 112),
		with(proc(event.Exit, 112, 7, 110), func(e *event.Event) { e.Code, e.Detail = 137, "signal 9" }),
		proc(event.Fork, 111, 9, 113), // the id again: another process
		with(proc(event.Create, 111, 0, 0), func(e *event.Event) { e.Path = "/w/new" }),
		with(proc(event.Rename, 111, 9, 1), func(e *event.Event) { e.Path, e.Path2 = "/w/new", "/w/newer" }), // its parent has ended
		with(proc(event.Unlink, 111, 9, 1), func(e *event.Event) { e.Path = "/w/newer" }),
		with(proc(event.Connect, 113, 8, 112), func(e *event.Event) { e.Addr, e.Name = "198.18.0.1:443", "x.example" }),
		event.Event{Kind: event.Resolve, Name: "evil.example", Addr: "127.0.0.53:53"},
		event.Event{Kind: event.Loss, Count: 3},
	)
	got := string(Text{}.Append(nil, &tree))
	want := strings.TrimPrefix(`
sh[10] /bin/sh -c 'make it'
├─ sh[11] /bin/cat x\n\x1b[2J
│     1 read, 1 failed, 1 denied; exit 1 after 50ms
│     denied open /w/.env
└─ sh[12]
   │  signal 9 after 20ms
   └─ sh[13]
      │  1 connected
      │  connected 198.18.0.1:443 (x.example)
      └─ sh[11]
            2 altered, 1 removed
            changed /w/new
            changed /w/newer
no process is known of: 1 denied
  denied resolve 127.0.0.53:53 (evil.example)
3 events were lost: processes may be missing
`, "\n")
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	data, err := json.Marshal(&tree)
	if err != nil {
		t.Fatal(err)
	}
	var flat struct{ Processes []struct{ ID, Parent string } }
	if err := json.Unmarshal(data, &flat); err != nil || len(flat.Processes) != 5 || flat.Processes[4].ID != "111@9" || flat.Processes[4].Parent != "113@8" || flat.Processes[0].Parent != "" {
		t.Errorf("%v %+v", err, flat)
	}
	short := string(Text{Short: true, Width: 40}.Append(nil, &tree))
	for l := range strings.Lines(short) {
		if n := len([]rune(strings.TrimSuffix(l, "\n"))); n > 40 {
			t.Errorf("%d cells: %s", n, l)
		}
	}
}

func TestIDsInTheJail(t *testing.T) {
	made := func(mono uint64, path string) event.Event {
		return event.Event{Kind: event.Create, Verdict: event.Allow, JailPid: 10, Mono: mono, Path: path}
	}
	tree := play(
		made(6, "/early"), // told of before its process
		made(3, "/nobody"),
		proc(event.Fork, 110, 5, 90),
		proc(event.Exit, 110, 5, 90),
		with(proc(event.Fork, 210, 20, 90), func(e *event.Event) { e.JailPid = 10 }),
		made(19, "/late"), // told of when the id is another's
		made(21, "/now"),
	)
	var got []string
	for _, p := range tree.All {
		got = append(got, p.ID+" "+strings.Join(p.Acts.Changed, ","))
	}
	if want := "110@5 /late,/early; 210@20 /now"; strings.Join(got, "; ") != want || tree.Rest.Altered != 1 {
		t.Errorf("%s; unattributed %d", strings.Join(got, "; "), tree.Rest.Altered)
	}
}

func TestHostileTrees(t *testing.T) {
	var deep, wide Builder
	const depth = 20_000 // more than readers of JSON take
	for i := range maxProcesses + 10 {
		e := proc(event.Fork, int32(i+200), uint64(i+1), int32(i+199))
		if i < depth {
			deep.Add(&segment.Record{Event: e}, true)
		}
		e.Ppid = 200
		wide.Add(&segment.Record{Event: e}, true)
	}
	tree := deep.Result()
	if lines := strings.Count(string(Text{}.Append(nil, &tree)), "\n"); len(tree.Roots) != 1 || lines != depth {
		t.Errorf("deep: %d roots, %d lines", len(tree.Roots), lines)
	}
	if data, err := json.Marshal(&tree); err != nil || !json.Valid(data) {
		t.Errorf("deep: %v", err)
	}
	if tree = wide.Result(); len(tree.All) != maxProcesses || tree.More != 10 || len(tree.Roots) != 1 || len(tree.Roots[0].Children) != maxProcesses-1 {
		t.Errorf("wide: %d processes, %d more, %d roots", len(tree.All), tree.More, len(tree.Roots))
	}
	// ids that name each other as parents
	tree = play(proc(event.Fork, 300, 5, 301), proc(event.Fork, 301, 5, 300), proc(event.Fork, 302, 0, 302))
	if len(tree.Roots) != 3 {
		t.Errorf("%d roots", len(tree.Roots))
	}
}

func FuzzText(f *testing.F) {
	f.Add("comm", "/path", "arg", uint16(5), int32(3), uint64(4))
	f.Add("\x1b", "\n\u202e\xff", "\u0301", uint16(12), int32(0), uint64(0))
	f.Fuzz(func(t *testing.T, comm, path, arg string, kind uint16, pid int32, start uint64) {
		e := event.Event{Kind: event.Kind(kind % 64), Comm: comm, Path: path, Path2: arg, Argv: []string{arg, arg}, Pid: pid, TaskStart: start, Addr: path, Name: arg, Detail: comm}
		allowed := e
		allowed.Verdict = event.Allow
		tree := play(e, allowed, with(allowed, func(e *event.Event) { e.Kind = event.Exec }))
		for _, c := range string(Text{Width: 60}.Append(nil, &tree)) {
			if c != '\n' && !unicode.IsPrint(c) {
				t.Fatalf("%U in the tree", c)
			}
		}
	})
}
