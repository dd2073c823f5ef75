//go:build root

package escape

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentos/agentos/jail/posture"
)

// TestPosture reads in /proc, from outside, how the agent of a live jail and a second process in it are confined: for an ordinary user,
// and for root, whose agent must be nobody special all the same.
func TestPosture(t *testing.T) {
	host, err := posture.Host()
	must(t, err)
	for name, c := range map[string]struct{ caller, inside int }{"user": {60217, 60217}, "root": {0, 65533}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.caller)
			w.startHelper()
			w.reset()
			agent, second := number(), number()
			end := w.start("run", "--name", "posture", "--policy", w.policy(), "--workspace", w.path("ws"), "--", "/bin/sleep", agent)
			defer end()
			pid := w.find("sleep", agent)
			endSecond := w.start("exec", "posture", "--", "/bin/sleep", second)
			defer endSecond()
			for what, pid := range map[string]int{"agent": pid, "second process": w.find("sleep", second)} {
				p, err := posture.Read(pid)
				must(t, err)
				for _, bad := range posture.Check(p, w.confined(p, host, c.inside)) {
					t.Errorf("%s: %s", what, bad)
				}
				if t.Failed() {
					t.Logf("%+v", p)
				}
			}
			free, err := posture.Read(w.victim.Process.Pid)
			must(t, err)
			if got := posture.Check(free, w.confined(free, host, c.inside)); len(got) < 10 {
				t.Errorf("a process of the host passes for jailed but for %q", got)
			}
		})
	}
}

// confined is what a process in this world's jail may be at most. Only what nobody outside can know, the jail's base id and the name of
// its group, is taken from the process, and must be of the right kind.
func (w *world) confined(p posture.Posture, host posture.Namespaces, inside int) posture.Expect {
	var base uint32
	if len(p.UIDMap) == 1 {
		base = p.UIDMap[0].Outside
	}
	if base < 0x70000000 || base%0x10000 != 0 {
		base = 0x7fff0000 // a lie that every check of ids will find
	}
	group := p.Cgroups[""]
	if !regexp.MustCompile(`^/[a-z][a-z0-9-]*/[0-9a-z-]+$`).MatchString(group) { // the helper's, then the jail's
		group = "(a group of a jail)"
	}
	e := posture.Expect{
		UID: base + uint32(inside), GID: base + uint32(inside), IDs: posture.IDRange{Outside: base, Count: 0x10000},
		Host: host, Cgroup: group, Dumpable: true,
		Writable: []string{w.path("ws"), w.path("home"), "/proc", "/dev", "/dev/pts", "/dev/shm", "/tmp", "/var/tmp", "/run"},
		Limits: map[string]posture.Limit{
			"Max core file size": {}, "Max open files": {Soft: 256, Hard: 256}, "Max msgqueue size": {Soft: 819200, Hard: 819200},
		},
	}
	for _, d := range []string{"full", "null", "random", "tty", "urandom", "zero"} {
		e.Writable, e.Devices = append(e.Writable, "/dev/"+d), append(e.Devices, "/dev/"+d)
	}
	e.Devices = append(e.Devices, "/dev/pts")
	for _, m := range p.Mounts { // masks of procfs are the null device, which needs no nodev, read-only
		if strings.HasPrefix(m.Point, "/proc/") && m.Type == "devtmpfs" && m.Root == "/null" && m.Has("ro") {
			e.Devices = append(e.Devices, m.Point)
		}
	}
	for _, controller := range []string{"memory", "pids", "cpu"} {
		if _, v1 := p.Cgroups[controller]; v1 {
			e.Controllers = append(e.Controllers, controller)
		}
	}
	return e
}

// number is an argument of sleep that nobody else has.
func number() string { return strconv.Itoa(1e8 + rand.IntN(1e8)) }

// start runs agentos in the background and returns how to end it.
func (w *world) start(args ...string) (end func()) {
	w.t.Helper()
	var out lockedBuffer
	cmd := w.command(w.t.Context(), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	must(w.t, cmd.Start())
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if w.t.Failed() {
			w.t.Logf("%s: %s", args[0], out.String())
		}
	}
}

// find waits for the process of a jail that has this argument.
func (w *world) find(name, arg string) int {
	w.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		all, err := filepath.Glob("/proc/[0-9]*/cmdline")
		must(w.t, err)
		for _, f := range all {
			b, _ := os.ReadFile(f)
			words := strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
			if filepath.Base(words[0]) == name && slices.Equal(words[1:], []string{arg}) {
				pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
				must(w.t, err)
				return pid
			}
		}
	}
	w.t.Fatalf("no process %s %s appears", name, arg)
	return 0
}
