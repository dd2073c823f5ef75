package jail_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
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
			{Path: "/home/dev/src/app", Dir: true, Exec: true},
		},
	}
}

func TestCompileGolden(t *testing.T) {
	spec, sources, err := jail.Compile(input())
	if err != nil {
		t.Fatal(err)
	}
	spec.Masks = nil
	got, err := json.MarshalIndent(map[string]any{"spec": spec, "sources": sources}, "", "  ")
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
	spec, _, err := jail.Compile(input())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range spec.Mounts {
		if m.Target == "/etc/passwd" && m.Kind != jail.File {
			t.Errorf("the host's /etc/passwd is mounted: %+v", m)
		}
	}
}

func TestCompileCovers(t *testing.T) {
	in := input()
	in.Given = append(in.Given, jail.Given{Path: "/srv", Dir: true, ReadOnly: true}, jail.Given{Path: "/srv/closed/app", Dir: true})
	in.Covers = []string{"/srv/closed"}
	spec, _, err := jail.Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	var order []jail.MountKind
	for _, m := range spec.Mounts {
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
		if _, _, err := jail.Compile(in); !errors.Is(err, jail.ErrPlan) {
			t.Errorf("path %q: %v", p, err)
		}
	}
	in := input()
	in.Given = append(in.Given, jail.Given{Path: "/proc", Dir: true})
	if _, _, err := jail.Compile(in); !errors.Is(err, jail.ErrPlan) {
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
