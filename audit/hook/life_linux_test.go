package hook

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/policy/glob"
)

// deniedTrue makes a program that the rules for dir deny to execute.
func deniedTrue(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "denied-true")
	if err := os.WriteFile(path, tinyELF, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// refused says whether an exec was refused: by an errno on tiers A and B, by a kill on C.
func refused(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "permission denied") || strings.Contains(err.Error(), "killed"))
}

func TestSetupIsTrusted(t *testing.T) {
	x := newFixture(t, 0)
	dir := t.TempDir()
	j := x.jail(Jail{Rules: rules(t, dir), Enforce: true, Strict: true, Setup: true})
	denied := deniedTrue(t, dir)
	if err := j.command(denied).Run(); err != nil {
		t.Errorf("during setup: %v", err)
	}
	if err := x.h.Start(j.id, 0); err != nil {
		t.Fatal(err)
	}
	if err := j.command(denied).Run(); !refused(err) {
		t.Errorf("after setup: %v, want it refused", err)
	}
	x.wait("denied exec", func(e event.Event) bool { return e.Kind == event.Exec && e.Verdict == event.Deny })
	for _, e := range x.events {
		if e.Kind == event.Exec && e.Verdict == event.Allow && e.Path == denied {
			t.Errorf("recorded during setup: %+v", e)
		}
	}
}

func TestRecordOnly(t *testing.T) {
	x := newFixture(t, 0)
	dir := t.TempDir()
	j := x.jail(Jail{Rules: rules(t, dir)})
	if err := j.command(deniedTrue(t, dir)).Run(); err != nil {
		t.Errorf("not enforced: %v", err)
	}
	x.wait("exec that would be denied", func(e event.Event) bool {
		return e.Kind == event.Exec && e.Verdict == event.Allow && strings.Contains(e.Detail, "not enforced")
	})
}

func TestRulesChange(t *testing.T) {
	x := newFixture(t, 0)
	dir := t.TempDir()
	j := x.jail(Jail{Rules: rules(t, dir), Enforce: true})
	denied := deniedTrue(t, dir)
	large := append(rules(t, dir), make([]byte, rulesSmall)...)
	binary.LittleEndian.PutUint32(large[sizeAt:], uint32(len(large)))
	for _, c := range []struct {
		name  string
		rules []byte
		want  bool
	}{
		{"allowed", raceRules(t, dir), false},
		{"denied, too large for the small table", large, true},
		{"allowed again", raceRules(t, dir), false},
		{"denied again", rules(t, dir), true},
		{"allowed a third time", raceRules(t, dir), false},
	} {
		if err := x.h.SetRules(j.id, c.rules, nil); err != nil {
			t.Fatal(err)
		}
		if err := j.command(denied).Run(); refused(err) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := x.h.SetRules(j.id, large, nil); err != nil { // the small rules are in the large table
		t.Fatal(err)
	}
	if err := x.h.SetRules(j.id, large, nil); !errors.Is(err, ErrLarge) {
		t.Errorf("large after large: %v, want %v", err, ErrLarge)
	}
	if err := j.command(denied).Run(); !refused(err) {
		t.Errorf("after a swap that was refused: %v", err)
	}
	if err := x.h.SetRules(j.id, nil, nil); err == nil {
		t.Error("no rules were taken")
	}
}

// TestRulesStorm swaps two sets of rules that agree on one thing, that a program is
// denied, as fast as it goes: whatever moment it is started in, it is denied, and what
// both allow runs. The rule that is recorded is one of the set that decided.
func TestRulesStorm(t *testing.T) {
	x := newFixture(t, 0)
	dir := t.TempDir()
	one, two := rules(t, dir), renumbered(t, rules(t, dir))
	j := x.jail(Jail{Rules: one, Enforce: true})
	denied := deniedTrue(t, dir)
	stop, done, fastest := make(chan struct{}), make(chan int), time.Hour
	go func() {
		n := 0
		defer func() { done <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			rules, text := one, func(i uint16) string { return fmt.Sprint(i) }
			if n%2 == 0 {
				rules = two
			}
			began := time.Now()
			if err := x.h.SetRules(j.id, rules, text); err != nil {
				t.Error(err)
				return
			}
			fastest = min(fastest, time.Since(began))
			n++
		}
	}()
	for range 100 {
		if err := j.command(denied).Run(); !refused(err) {
			t.Errorf("denied by both: %v", err)
		}
		if err := j.command("/bin/true").Run(); err != nil {
			t.Errorf("allowed by both: %v", err)
		}
	}
	close(stop)
	t.Logf("%d swaps, the fastest in %s", <-done, fastest)
}

// renumbered are the same rules under numbers of their own.
func renumbered(t *testing.T, rules []byte) []byte {
	t.Helper()
	a, err := glob.Load(rules)
	if err != nil {
		t.Fatal(err)
	}
	return a.Renumber(func(i uint16) uint16 { return i&0xfff | 0x3000 }).Bytes()
}

// TestEscapeIsSticky moves a jailed process out of its group: it stays in its jail.
func TestEscapeIsSticky(t *testing.T) {
	x := newFixture(t, 0)
	dir := t.TempDir()
	j := x.jail(Jail{Rules: rules(t, dir), Enforce: true})
	cmd := j.command("/bin/sh", "-c", "read x; exec "+deniedTrue(t, dir))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(filepath.Dir(x.opts.Group), "cgroup.procs")
	if err := os.WriteFile(outside, fmt.Appendf(nil, "%d", cmd.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	x.wait("escape", func(e event.Event) bool { return e.Kind == event.Escape && int(e.Pid) == cmd.Process.Pid })
	io.WriteString(in, "go\n")
	in.Close()
	if err := cmd.Wait(); err == nil {
		t.Error("an escaped process executed what its jail denies")
	}
	x.wait("denied exec", func(e event.Event) bool {
		return e.Kind == event.Exec && e.Verdict == event.Deny && int(e.Pid) == cmd.Process.Pid
	})
	if err := exec.Command("/bin/true").Run(); err != nil {
		t.Errorf("the rest of the machine: %v", err)
	}
}

func TestNestedGroup(t *testing.T) {
	x := newFixture(t, 0)
	dir := t.TempDir()
	j := x.jail(Jail{Rules: rules(t, dir), Enforce: true})
	inner := &testJail{x: x, id: j.id, dir: filepath.Join(j.dir, "a")}
	if err := os.Mkdir(inner.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	defer removeGroup(inner.dir)
	if err := inner.command(deniedTrue(t, dir)).Run(); !refused(err) {
		t.Errorf("in a nested group: %v, want it refused", err)
	}
	if got := inner.act("dial", "tcp", "10.0.0.1:80"); got != "EACCES" {
		t.Errorf("dial in a nested group: %s, want EACCES", got)
	}
}

// TestUnknownGroup is a group below the parent that was never registered: nobody's jail
// (files and exec are not ours to judge), but it has no network either.
func TestUnknownGroup(t *testing.T) {
	x := newFixture(t, 0)
	dir := t.TempDir()
	stray := &testJail{x: x, dir: filepath.Join(x.opts.Group, "stray")}
	if err := os.Mkdir(stray.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	defer removeGroup(stray.dir)
	if err := stray.command(deniedTrue(t, dir)).Run(); err != nil {
		t.Errorf("exec: %v", err)
	}
	if got := stray.act("dial", "udp", "10.0.0.1:53"); got != "EPERM" { // it gets no socket at all
		t.Errorf("dial: %s, want EPERM", got)
	}
}

// TestRemovedJailDenies: tasks that outlive the registration of their jail.
func TestRemovedJailDenies(t *testing.T) {
	x := newFixture(t, 0)
	j := x.jail(Jail{Rules: rules(t, ""), Enforce: true})
	cmd := j.command("/bin/sh", "-c", "read x; exec /bin/true")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x.wait("exec of sh", func(e event.Event) bool { return e.Kind == event.Exec && int(e.Pid) == cmd.Process.Pid })
	if err := x.h.RemoveJail(j.id); err != nil {
		t.Fatal(err)
	}
	io.WriteString(in, "go\n")
	in.Close()
	if err := cmd.Wait(); err == nil {
		t.Error("a task of a removed jail executed a program")
	}
}

func TestHighWater(t *testing.T) {
	x := newFixture(t, 0)
	defer func(o Options) { x.h.opts = o }(x.h.opts)
	var said []bool
	x.stop() // read by hand
	x.h.opts.CritBytes = 8192
	x.h.opts.HighWater = func(_ uint32, full bool) { said = append(said, full) }
	j := x.jail(Jail{Rules: rules(t, ""), Enforce: true})
	loop := "i=0; while [ $i -lt 20 ]; do /bin/true; i=$((i+1)); done"
	if err := j.command("/bin/sh", "-c", loop).Run(); err != nil {
		t.Fatal(err)
	}
	if err := x.h.Drain(j.id, func(uint32, event.Event) {}); err != nil {
		t.Fatal(err)
	}
	if len(said) != 2 || !said[0] || said[1] {
		t.Errorf("said %v, want full and then not", said)
	}
}

// TestStrictNeedsRecord: what cannot be recorded does not happen.
func TestStrictNeedsRecord(t *testing.T) {
	x := newFixture(t, 0)
	defer func(o Options) { x.h.opts = o }(x.h.opts)
	x.stop()
	x.h.opts.CritBytes = 4096
	j := x.jail(Jail{Rules: rules(t, ""), Enforce: true, Strict: true})
	var err error
	for range 100 {
		if err = j.command("/bin/true").Run(); err != nil {
			break
		}
	}
	s, _ := x.h.Stats(j.id)
	if err == nil || s.Lost == 0 {
		t.Errorf("a full ring stopped nothing: %v, %+v", err, s)
	}
	if ws, ok := exitStatus(err); !ok || ws.Signal() != syscall.SIGKILL {
		t.Errorf("got %v, want it killed", err)
	}
}

func exitStatus(err error) (syscall.WaitStatus, bool) {
	exit, ok := err.(*exec.ExitError)
	if !ok {
		return 0, false
	}
	ws, ok := exit.Sys().(syscall.WaitStatus)
	return ws, ok
}
