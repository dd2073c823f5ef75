package hook

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/agentos/agentos/audit/event"
)

func TestProbe(t *testing.T) {
	rootOnly(t)
	f, err := Probe()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", f)
	if f.Tier < TierC {
		t.Errorf("tier %s, want at least C: %v", f.Tier, f.Why)
	}
}

func TestCanary(t *testing.T) {
	for _, tier := range []Tier{0, TierC} {
		x := newFixture(t, tier)
		if err := x.h.Canary(t.Context(), exec.Command(self(t))); err != nil {
			t.Errorf("tier %s: %v", x.h.Tier(), err)
		}
		// A canary that sings in vain is heard: as if the programs did nothing.
		results := make([]string, len(attempts))
		if err := assess(x.h.Tier(), results, nil); !errors.Is(err, ErrTier) {
			t.Errorf("nothing was denied: %v, want %v", err, ErrTier)
		}
		x.stop()
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestExecRecord(t *testing.T) {
	x := newFixture(t, 0)
	j := x.jail(Jail{Rules: rules(t, ""), Enforce: true, Audit: AuditAll})
	out, err := j.command("/bin/sh", "-c", "/bin/echo one two; exit 3").CombinedOutput()
	if err == nil || string(out) != "one two\n" {
		t.Fatalf("out %q, err %v", out, err)
	}
	sh := x.wait("exec of sh", func(e event.Event) bool { return e.Kind == event.Exec && len(e.Argv) == 3 && e.Argv[1] == "-c" })
	echo := x.wait("exec of echo", func(e event.Event) bool { return e.Kind == event.Exec && len(e.Argv) == 3 && e.Argv[0] == "/bin/echo" })
	if want := []string{"/bin/echo", "one", "two"}; !slices.Equal(echo.Argv, want) {
		t.Errorf("argv %q, want %q", echo.Argv, want)
	}
	fork := x.wait("fork", func(e event.Event) bool { return e.Kind == event.Fork && e.Pid == echo.Pid })
	if fork.Ppid != sh.Pid || fork.TaskStart != echo.TaskStart {
		t.Errorf("fork %+v: want parent %d start %d", fork, sh.Pid, echo.TaskStart)
	}
	end := x.wait("exit of sh", func(e event.Event) bool { return e.Kind == event.Exit && e.Pid == sh.Pid })
	if end.Code != 3 || end.Exe != sh.Path {
		t.Errorf("exit %+v: want code 3 and exe %s", end, sh.Path)
	}
	var st syscall.Stat_t
	if err := syscall.Stat("/bin/sh", &st); err != nil || st.Ino != sh.Ino || st.Dev != sh.Dev {
		t.Errorf("inode %d:%d, want %d:%d (%v)", sh.Dev, sh.Ino, st.Dev, st.Ino, err)
	}
}

func TestScriptRecord(t *testing.T) {
	x := newFixture(t, 0)
	j := x.jail(Jail{Rules: rules(t, ""), Enforce: true})
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := j.command(script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	e := x.wait("exec of script", func(e event.Event) bool { return e.Kind == event.Exec && e.Path == script })
	if e.Path2 != e.Exe || !strings.HasPrefix(e.Exe, "/") {
		t.Errorf("interpreter %q, exe %q", e.Path2, e.Exe)
	}
}

func TestDeniedExecIsKilled(t *testing.T) {
	x := newFixture(t, TierC)
	dir := t.TempDir()
	j := x.jail(Jail{Rules: rules(t, dir), Enforce: true})
	denied, mark := filepath.Join(dir, "denied-touch"), filepath.Join(dir, "mark")
	copyFile(t, "/bin/touch", denied)
	err := j.command("/bin/sh", "-c", denied+" "+mark+"; exit $?").Run() // the shell reports a killed child as 137
	if err == nil || !strings.Contains(err.Error(), "137") {
		t.Errorf("denied exec: %v, want exit status 137", err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the denied program ran")
	}
	e := x.wait("denied exec", func(e event.Event) bool { return e.Kind == event.Exec && e.Verdict == event.Deny })
	if e.Path != denied || e.Errno != int(syscall.EACCES) {
		t.Errorf("got %+v", e)
	}
}

func TestLoopbackOnly(t *testing.T) {
	x := newFixture(t, 0)
	j := x.jail(Jail{Rules: rules(t, ""), Enforce: true})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct{ act, network, addr, want string }{
		{"dial", "tcp", l.Addr().String(), "ok"},
		{"dial", "udp", "127.0.0.9:9", "ok"},
		{"dial", "tcp", "10.0.0.1:80", "EACCES"},
		{"dial", "udp", "10.0.0.1:53", "EACCES"},
		{"dial", "tcp", "[::ffff:10.0.0.1]:80", "EACCES"},
		{"dial", "tcp", "[fd00::1]:80", "EACCES"},
		{"raw", "", "", "EPERM"},
		{"sendto", "", "", "EACCES"},
	} {
		if got := j.act(c.act, c.network, c.addr); got != c.want {
			t.Errorf("%s %s %s: %s, want %s", c.act, c.network, c.addr, got, c.want)
		}
	}
	for _, want := range []struct {
		kind event.Kind
		addr string
	}{{event.Connect, "10.0.0.1:80"}, {event.Connect, "10.0.0.1:53"}, {event.Connect, "[fd00::1]:80"}, {event.Send, "10.0.0.1:53"}} {
		x.wait("refused "+want.addr, func(e event.Event) bool {
			return e.Kind == want.kind && e.Verdict == event.Deny && e.Addr == want.addr && e.Errno == int(syscall.EACCES)
		})
	}
	x.wait("allowed connect", func(e event.Event) bool {
		return e.Kind == event.Connect && e.Verdict == event.Allow && e.Addr == l.Addr().String() && e.Name == "tcp"
	})
	x.wait("raw socket", func(e event.Event) bool { return e.Kind == event.Socket && e.Verdict == event.Deny })
}

func TestLossIsCounted(t *testing.T) {
	x := newFixture(t, 0)
	defer func(o Options) { x.h.opts = o }(x.h.opts)
	x.h.opts.CritBytes, x.h.opts.BulkBytes = 4096, 4096
	j := x.jail(Jail{Rules: rules(t, ""), Enforce: true})
	x.stop() // nobody reads
	if err := j.command("/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do /bin/true; done").Run(); err != nil {
		t.Fatal(err)
	}
	s, err := x.h.Stats(j.id)
	if err != nil || s.Lost == 0 {
		t.Fatalf("stats %+v, %v: want losses", s, err)
	}
	var got, lost uint64
	if err := x.h.Drain(j.id, func(_ uint32, e event.Event) {
		if e.Kind == event.Loss {
			lost += e.Count
			return
		}
		got++
	}); err != nil {
		t.Fatal(err)
	}
	if lost != s.Lost || got+lost != s.Attempted {
		t.Errorf("%d read + %d lost, attempted %d", got, lost, s.Attempted)
	}
	x.read()
}

func TestOpensAtSyscallExit(t *testing.T) {
	x := newFixture(t, TierC)
	j := x.jail(Jail{Rules: rules(t, ""), Enforce: true, Opens: true})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := j.command("/bin/cat", file).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	x.wait("open", func(e event.Event) bool { return e.Kind == event.Open && e.Path == file })
}

func TestAdoption(t *testing.T) {
	x := newFixture(t, 0)
	j := x.jail(Jail{Rules: rules(t, ""), Enforce: true})
	x.stop()
	x.h.Close()
	if out, err := j.command("/bin/echo", "meanwhile").CombinedOutput(); err != nil { // nobody is there, all is enforced and kept
		t.Fatalf("%s: %v", out, err)
	}
	if got := j.act("dial", "tcp", "10.0.0.1:80"); got != "EACCES" {
		t.Errorf("dial without a helper: %s, want EACCES", got)
	}
	h, _, err := Load(x.opts)
	if err != nil {
		t.Fatal(err)
	}
	x.h = h
	if _, ok := h.Jails()[j.id]; !ok {
		t.Fatal("the jail was not adopted")
	}
	x.read()
	x.wait("exec from before the adoption", func(e event.Event) bool {
		return e.Kind == event.Exec && slices.Contains(e.Argv, "meanwhile")
	})
}
