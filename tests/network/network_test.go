//go:build root && linux

package network

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReach: what is allowed works, what is not gets an error at once and is heard by nobody.
func TestReach(t *testing.T) {
	w := newWorld(t)
	p := w.policy("reach", fmt.Sprintf(`allow = ["ok.example.org:80,443", "other.example.org:443", "db.example.org:5432", "host:%d",
  "loop.example.org:*", "meta.example.org:*", "own.example.org:*", "lan.example.org:*", {to = "lanok.example.org:80", private = true}]
deny = ["bad.ok.example.org:*"]
`, w.local))
	local, act := strconv.Itoa(w.local), w.jail(p)
	for _, c := range []struct {
		act   string
		want  string // how the act ends
		heard string // by the servers, of the act; "-": nothing at all
	}{
		{"get http://ok.example.org/", "ok", "http ok.example.org GET /"},
		{"get https://ok.example.org/", "ok", "http ok.example.org GET /"},
		{"get http://OK.example.org/big", "ok", "GET /big"},
		{"get http://host:" + local + "/", "ok", "host host:"},
		{"get http://lanok.example.org/", "ok", "http lanok.example.org GET /"},
		{"dial db.example.org:5432 token", "ok", "tcp token"},
		{"resolve ok.example.org", "ok", "-"},
		{"resolve ok.example.org 8.8.8.8:53", "ok", "-"},
		{"resolve ok.example.org 8.8.8.8:53 tcp", "ok", "-"},

		{"get http://no.example.org/", "NXDOMAIN", "-"},
		{"resolve secret-data.example.org", "NXDOMAIN", "-"},
		{"resolve secret-data.example.org 8.8.8.8:53", "NXDOMAIN", "-"},
		{"resolve secret-data.example.org 8.8.8.8:53 tcp", "NXDOMAIN", "-"},
		{"resolve secret-data.ok.example.org", "NXDOMAIN", "-"},
		{"resolve secret-data.example.org 127.0.0.53:53", "NXDOMAIN", "-"},
		{"resolve bad.ok.example.org", "NXDOMAIN", "-"},
		{"txt ok.example.org", "", "-"},
		{"txt secret-data.example.org", "NXDOMAIN", "-"},

		{"dial " + outside + ":5432 token", "EACCES", "-"},
		{"dial [::ffff:" + outside + "]:5432 token", "EACCES", "-"},
		{"dial [2001:db8::1]:443 token", "EACCES", "-"},
		{"dial 169.254.169.254:80 token", "EACCES", "-"},
		{"dial " + hostSide + ":" + local + " token", "EACCES", "-"},
		{"dial " + lan + ":5432 token", "EACCES", "-"},
		{"dial 127.0.0.1:" + local + " token", "ECONNREFUSED", "-"},
		{"dial [::1]:" + local + " token", "ECONNREFUSED", "-"},
		{"dial 198.18.99.99:80 token", "", "-"},
		{"dial 198.18.0.53:80 token", "", "-"},
		{"dial ok.example.org:5432 token", "", "-"},
		{"dial ok.example.org:8080 token", "", "-"},
		{"get http://loop.example.org:" + local + "/token", "", "dns A loop.example.org."},
		{"get http://own.example.org:" + local + "/token", "", "dns A own.example.org."},
		{"get http://meta.example.org/token", "", "dns A meta.example.org."},
		{"get http://lan.example.org/token", "", "dns A lan.example.org."},
		{"dial ok.example.org:80 token", "", "-"}, // neither HTTP nor TLS
		{"send " + outside + ":443 token", "EACCES", "-"},
		{"send [::ffff:" + outside + "]:443 token", "EACCES", "-"},
		{"send 198.18.99.99:443 token", "EACCES", "-"},
		{"send 8.8.8.8:53 not-a-question", "ok", "-"}, // nobody hears it
		{"raw", "EPERM", "-"},
		{"tls ok.example.org:443 evil.example.org", "", "-"},
		{"tls ok.example.org:443 other.example.org", "", "-"},
		{"get http://ok.example.org/front evil.example.org", "", "-"},
	} {
		w.hears()
		out := act(strings.Fields(c.act)...)
		heard := w.hears()
		word, _, _ := strings.Cut(out, " ")
		switch {
		case c.want != "" && word != c.want:
			t.Errorf("%s: %s\nwant %s; heard %q", c.act, out, c.want, heard)
		case c.want == "" && word == "ok" && !strings.Contains(out, "403") && !strings.Contains(out, "421"):
			t.Errorf("%s: %s\nwant an error; heard %q", c.act, out, heard)
		case c.heard == "-" && word != "ok" && heard != "" && !harmless(heard):
			t.Errorf("%s: the servers heard %q", c.act, heard)
		case c.heard != "-" && !strings.Contains(heard, c.heard):
			t.Errorf("%s: %s\nthe servers heard %q, want %q", c.act, out, heard, c.heard)
		case strings.Contains(heard, "token") && c.want != "ok", strings.Contains(heard, "secret-data"), strings.Contains(heard, "evil"):
			t.Errorf("%s: it came through: %q", c.act, heard)
		default:
			continue
		}
		if record, err := w.agentos("audit", "show", "--kind", "net").CombinedOutput(); err == nil {
			t.Logf("%s: the record:\n%s", c.act, record)
		}
	}
}

// harmless says that nothing but allowed names was asked for.
func harmless(heard string) bool {
	for line := range strings.Lines(heard) {
		if line != "dns A ok.example.org.\n" && line != "dns AAAA ok.example.org.\n" {
			return false
		}
	}
	return true
}

// Without an entry a jail is as it was before there was a netd.
func TestNothingAllowed(t *testing.T) {
	w := newWorld(t)
	p := w.policy("nothing", "allow = []\n")
	do := w.jail(p)
	for act, want := range map[string]string{
		"resolve ok.example.org": "NXDOMAIN", "dial 198.18.0.53:53 x": "EACCES", "dial " + outside + ":80 x": "EACCES", "send 198.18.0.53:53 x": "EACCES", "resolve ok.example.org 198.18.0.53:53": "failed",
	} {
		out := do(strings.Fields(act)...)
		if word, _, _ := strings.Cut(out, " "); word != want {
			t.Errorf("%s: %s\nwant %s", act, out, want)
		}
	}
	if heard := w.hears(); heard != "" {
		t.Errorf("the servers heard %q", heard)
	}
	if pid := w.netd(); pid != 0 {
		t.Errorf("agentos-netd runs (%d), and no jail wants it", pid)
	}
}

// netd is the process id of the helper's netd, 0 for none.
func (w *world) netd() int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", w.helper.Process.Pid))
	for _, f := range tasks {
		data, _ := os.ReadFile(f)
		for _, word := range strings.Fields(string(data)) {
			if args, _ := os.ReadFile("/proc/" + word + "/cmdline"); strings.HasPrefix(string(args), "agentos-netd") {
				pid, _ := strconv.Atoi(word)
				return pid
			}
		}
	}
	return 0
}

// netd has no privilege, and another one goes on when it is killed; rules change while a connection is
// open, and cut it when they no longer allow it.
func TestLife(t *testing.T) {
	w := newWorld(t)
	check(t, os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", w.helper.Process.Pid), []byte("100"), 0)) // not what others have, as under its unit
	p := w.policy("life", "allow = [\"db.example.org:5432\", \"ok.example.org:80\"]\n")
	none := w.policy("less", "allow = [\"ok.example.org:80\"]\n")
	bin := filepath.Join(w.root, "ws", "netact")
	run := w.agentos("run", "--name", "life", "--policy", p, "--", "/bin/sh", "-c", bin+" act drip db.example.org:5432; rm -f dripping; "+bin+" act drip db.example.org:5432; "+bin+" act get http://ok.example.org/; "+bin+" act dial db.example.org:5432 late")
	file, err := os.Create(filepath.Join(w.root, "output"))
	check(t, err)
	defer file.Close()
	run.Stdout, run.Stderr = file, file
	said := func() string { data, _ := os.ReadFile(file.Name()); return string(data) }
	check(t, run.Start())
	dripping := filepath.Join(w.root, "ws", "dripping")
	await(t, "a first connection", func() bool { _, err := os.Stat(dripping); return err == nil })

	pid := w.netd()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(t, err)
	for _, want := range []string{"Uid:\t65522\t65522\t65522\t65522", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("netd: no %q in\n%s", want, status)
		}
	}
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	check(t, err)
	if string(score) != "0\n" {
		t.Errorf("netd has the OOM score of the helper: %s", score)
	}
	check(t, syscall.Kill(pid, syscall.SIGKILL))
	await(t, "a second connection, of a second netd", func() bool {
		_, err := os.Stat(dripping)
		return err == nil && w.netd() != pid && w.netd() != 0 && strings.Contains(said(), " in ")
	})
	set, err := w.agentos("policy", "set", "life", none).CombinedOutput()
	if err != nil {
		t.Fatalf("policy set: %v: %s", err, set)
	}
	check(t, run.Wait())
	lines := strings.Split(strings.TrimSpace(said()), "\n")
	if !strings.Contains(said(), "ok in") || strings.Contains(said(), "echo late") {
		t.Errorf("after the change: %q", lines)
	}
	record, err := w.agentos("audit", "show", "life", "--kind", "net", "--json").Output()
	check(t, err)
	seen, broken := map[string]bool{}, 0
	for line := range strings.Lines(string(record)) {
		var e struct {
			Kind, Verdict, Name, Exe, Detail, Addr string
			Pid                                    int
		}
		check(t, json.Unmarshal([]byte(line), &e))
		seen[e.Kind+" "+e.Verdict+" "+e.Name] = true
		if e.Kind == "disconnect" && strings.Contains(e.Detail, "agentos-netd ended") {
			broken++
		}
		if e.Name == "db.example.org" && (e.Pid == 0 || e.Exe != bin) {
			t.Errorf("no process: %s", line)
		}
	}
	if broken != 1 {
		t.Errorf("%d connections ended with the netd that was killed, want 1:\n%s", broken, record)
	}
	for _, want := range []string{"resolve allow db.example.org", "connect allow db.example.org", "disconnect allow db.example.org", "connect allow ok.example.org", "resolve deny db.example.org"} {
		if !seen[want] {
			t.Errorf("no %q in the record: %v", want, seen)
		}
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within a minute", what)
		}
	}
}
