package jail_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail"
)

var update = flag.Bool("update", false, "rewrite golden files")

func input() jail.Input {
	return jail.Input{
		Session: "0123456789ab", Name: "Fix Login!", Build: "test", UID: 1000, GID: 100, User: "dev", Home: "/home/dev", HomeBind: true,
		Devices: []string{"null", "zero"}, OpenFiles: 4096,
		System: []jail.Given{{Path: "/sys/devices/system/cpu", Dir: true, ReadOnly: true}},
		Given: []jail.Given{
			{Path: "/usr", Dir: true, ReadOnly: true, Exec: true},
			{Path: "/bin", Link: "usr/bin"},
			{Path: "/etc/passwd", ReadOnly: true},
			{Path: "/etc/ssl", Dir: true, ReadOnly: true},
			{Path: "/home/dev/src/app", Dir: true, Exec: true, Own: true},
			{Path: "/srv/data", Dir: true, Own: true},
			{Path: "/srv/data/tools", Dir: true, ReadOnly: true, Exec: true},
			{Path: "/usr/src/app/.cache", Dir: true, Own: true},
		},
	}
}

func TestCompileGolden(t *testing.T) {
	plan, err := jail.Compile(input())
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(plan, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "plan.json")
	if *update {
		if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Errorf("the mount plan changed; look at it and run with -update:\n%s", got)
	}
}

func TestCompileKeepsOurIdentityFiles(t *testing.T) {
	plan, err := jail.Compile(input())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range slices.Concat(plan.Tree, plan.Spec.Mounts) {
		if m.Target == "/etc/passwd" && m.Kind != jail.File {
			t.Errorf("the host's /etc/passwd is mounted: %+v", m)
		}
	}
}

// Nothing that belongs to one jail may be in the tree that jails share, and
// everything of its own has a place there or below something else of its own.
func TestCompileKeepsWhatIsOwnOutOfTheSharedTree(t *testing.T) {
	plan, err := jail.Compile(input())
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]bool{}
	for _, m := range plan.Tree {
		if m.Own {
			t.Errorf("shared: %+v", m)
		}
		if strings.HasPrefix(m.Target, "/srv/data/") || strings.HasPrefix(m.Target, "/home/dev/") {
			t.Errorf("shared below something of the jail's own: %+v", m)
		}
		places[m.Target] = m.Kind == jail.Point
	}
	var tops []string
	for _, m := range plan.Spec.Mounts {
		below := slices.ContainsFunc(tops, func(top string) bool { return strings.HasPrefix(m.Target, top+"/") })
		if !below && !places[m.Target] {
			t.Errorf("no place for %s", m.Target)
		}
		tops = append(tops, m.Target)
	}
}

// A rule that a rule above gives already changes nothing; every other stays.
func TestCompileDropsLandlockRulesThatAreGiven(t *testing.T) {
	plan, err := jail.Compile(input())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, a := range plan.Spec.Allow {
		got[a.Path] = true
	}
	for path, want := range map[string]bool{
		"/etc/ssl":            false, // "/etc" is readable
		"/usr":                true,
		"/srv/data":           true,
		"/srv/data/tools":     true,  // what is above gives no execute
		"/usr/src/app/.cache": true,  // what is above gives no write
		"/home/dev/src/app":   false, // the home layer gives as much
	} {
		if got[path] != want {
			t.Errorf("rule for %s: %t, want %t", path, got[path], want)
		}
	}
}

func TestCompileCovers(t *testing.T) {
	in := input()
	in.Given = append(in.Given, jail.Given{Path: "/srv", Dir: true, ReadOnly: true}, jail.Given{Path: "/srv/closed/app", Dir: true})
	in.Covers = []string{"/srv/closed"}
	plan, err := jail.Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	var order []jail.MountKind
	for _, m := range slices.Concat(plan.Tree, plan.Spec.Mounts) {
		if m.Kind == jail.Point {
			continue
		}
		switch m.Target {
		case "/srv", "/srv/closed", "/srv/closed/app":
			order = append(order, m.Kind)
		}
		if m.Target == "/srv/closed" && (m.Agent || m.Mode&0o022 != 0) {
			t.Errorf("the agent may write the cover: %+v", m)
		}
	}
	if !slices.Equal(order, []jail.MountKind{jail.Bind, jail.Tmpfs, jail.Bind}) {
		t.Errorf("host, cover and what lies below are mounted as %v", order)
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, p := range []string{"relative", "/", "/a/../b", "/a/", "/a\x00b", ""} {
		in := input()
		in.Given = append(in.Given, jail.Given{Path: p})
		if _, err := jail.Compile(in); !errors.Is(err, jail.ErrPlan) {
			t.Errorf("path %q: %v", p, err)
		}
	}
	in := input()
	in.Given = append(in.Given, jail.Given{Path: "/proc", Dir: true})
	if _, err := jail.Compile(in); !errors.Is(err, jail.ErrPlan) {
		t.Errorf("a bind over the jail's own /proc: %v", err)
	}
}

func TestBatchRoundTrip(t *testing.T) {
	var batch []byte
	for i := range 100 {
		batch = jail.AppendEvent(batch, &event.Event{Kind: event.Open, Path: string(rune('a'+i%26)) + "\n\x00", Pid: int32(i)})
	}
	n := 0
	if err := jail.EachEvent(batch, func(e event.Event) {
		if e.Kind != event.Open || e.Pid != int32(n) {
			t.Errorf("event %d is %+v", n, e)
		}
		n++
	}); err != nil || n != 100 {
		t.Errorf("%d events, %v", n, err)
	}
	if err := jail.EachEvent(batch[:len(batch)-1], func(event.Event) {}); !errors.Is(err, jail.ErrBatch) {
		t.Errorf("cut batch: %v", err)
	}
}

func FuzzEachEvent(f *testing.F) {
	f.Add(jail.AppendEvent(nil, &event.Event{Kind: event.Exec, Argv: []string{"a"}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := jail.EachEvent(data, func(event.Event) {}); err != nil && !errors.Is(err, jail.ErrBatch) {
			t.Error(err)
		}
	})
}

// Directories of the home on the way to what has room belong to the agent, but no
// directory of the host and none on the way to the workspace alone.
func TestCompileMakesRoom(t *testing.T) {
	in := input()
	in.System = append(in.System, jail.Given{Path: "/home/dev/.cache/x/pip", Dir: true, Own: true, Room: true})
	in.Given = append(in.Given, jail.Given{Path: "/home/dev/.cache/go-build", Dir: true, Overlay: true, Room: true},
		jail.Given{Path: "/home/dev/.config", Dir: true, Own: true}, jail.Given{Path: "/home/dev/.config/a/b", Dir: true, Own: true, Room: true})
	plan, err := jail.Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range plan.Spec.Mounts {
		if m.Kind == jail.Dir && strings.HasPrefix(m.Target, "/home/dev/") {
			got = append(got, m.Target)
			if !m.Agent {
				t.Errorf("%s is not the agent's", m.Target)
			}
		}
	}
	if want := []string{"/home/dev/.cache", "/home/dev/.cache/x"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	binds := jail.Binds(plan.Spec.Mounts)
	if i := slices.Index(binds, "/home/dev/.cache/go-build"); i < 0 || binds[i+1] != jail.Upper("/home/dev/.cache/go-build") {
		t.Errorf("the overlay's descriptors do not follow each other: %q", binds)
	}
}
