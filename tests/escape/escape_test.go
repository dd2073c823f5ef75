//go:build root

package escape

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mayDie names acts that may end without a word, because the kernel or the limit of the jail kills the process.
var mayDie = regexp.MustCompile(`^(res-memory|kernel-old-abi|kernel-surface|init-signal)$`)

// TestEscapeAsUser and TestEscapeAsRoot run every act in a jail of its own, called by an ordinary user and by root.
func TestEscapeAsUser(t *testing.T) { escape(t, 60217) }

func TestEscapeAsRoot(t *testing.T) { escape(t, 0) }

func escape(t *testing.T, uid int) {
	w := newWorld(t, uid)
	w.startHelper()
	w.reset()
	if r := w.run("", "/bin/sh", "-c", "cat README.md && echo work > made && git status --short && ./act --list | wc -l"); r.code != 0 || !strings.Contains(r.out, "?? made") {
		t.Fatalf("control: ordinary work is impossible in this jail (exit %d):\n%s", r.code, r.out)
	}
	if st, err := os.Stat(w.path("ws/made")); err != nil || st.Sys().(*syscall.Stat_t).Uid != uint32(uid) {
		t.Fatalf("control: a file made in the workspace does not belong to the caller: %v", st)
	}
	for _, a := range chosen(t) {
		id, need, what := a[0], a[1], a[2]
		t.Run(id, func(t *testing.T) {
			saved := w.t
			w.t = t
			defer func() { w.t = saved }()
			if id == "ipc-mq" && w.noQueue != nil {
				t.Skipf("wanted a message queue of the host to reach for, got none: %v", w.noQueue)
			}
			for _, e := range w.try(id, need) {
				t.Errorf("%s (%s): %s", id, what, e)
			}
		})
	}
}

// chosen are the acts to run: all of them, or those that AGENTOS_ACTS names (machines under emulation), each of which must exist.
func chosen(t *testing.T) [][3]string {
	t.Helper()
	all := acts(t)
	names := strings.Fields(os.Getenv("AGENTOS_ACTS"))
	if len(names) == 0 {
		return all
	}
	var some [][3]string
	for _, name := range names {
		i := slices.IndexFunc(all, func(a [3]string) bool { return a[0] == name })
		if i < 0 {
			t.Fatalf("AGENTOS_ACTS names %s, which is no act", name)
		}
		some = append(some, all[i])
	}
	return some
}

// try runs one act and answers what was seen that must not be.
func (w *world) try(id, need string) []string {
	w.reset()
	if need == "linked" {
		w.late("late/.env", w.canary("an old link to a denied file"), 0o644)
		must(w.t, os.Link(w.path("ws/late/.env"), w.path("ws/late/plain.txt")))
	}
	before, linked := w.state(), describe(w.path("ws/late/.env"))
	signals := w.victimLog.String()
	stop := make(chan struct{})
	var host sync.WaitGroup
	if need == "fifo" {
		secret := w.canary("what a denied fifo gives")
		w.late("late/note", "", 0o644)
		must(w.t, unix.Mkfifo(w.path("ws/late/pipe.pem"), 0o644))
		must(w.t, os.Chown(w.path("ws/late/pipe.pem"), w.uid, w.uid))
		host.Go(func() { w.fill("ws/late/pipe.pem", secret, stop) })
	}
	host.Go(func() { w.outsider(need, stop) })
	r := w.run(need, w.path("ws/act"), id)
	close(stop)
	host.Wait() // it is not to meet the next act's workspace

	seen := w.said(id, r)
	for c, place := range w.secrets {
		if strings.Contains(r.out, c) {
			seen = append(seen, "it read "+place)
		}
	}
	if strings.HasPrefix(id, "git-") || strings.HasPrefix(id, "late-") {
		w.develop()
	}
	seen = append(seen, diff(before, w.state())...)
	if now := describe(w.path("ws/late/.env")); need == "linked" && now != linked {
		seen = append(seen, fmt.Sprintf("a denied file was changed: %s, before %s", now, linked))
	}
	seen = append(seen, w.litter(id)...)
	w.mu.Lock()
	seen = append(seen, w.heard...)
	w.mu.Unlock()
	if s := w.victimLog.String(); s != signals {
		seen = append(seen, "a process of the host got signals: "+strings.TrimPrefix(s, signals))
	}
	if err := w.victim.Process.Signal(syscall.Signal(0)); err != nil {
		seen = append(seen, "a process of the host died")
		w.startVictim()
	}
	if len(seen) > 0 {
		seen = append(seen, "output:\n"+tail(r.out, 2000))
		w.repair()
	}
	return seen
}

// said judges the act's own word and how the run ended.
func (w *world) said(id string, r result) []string {
	m := regexp.MustCompile(`(?m)^(REFUSED|DONE|TRIED|SKIP) `+regexp.QuoteMeta(id)+`( .*)?$`).FindAllStringSubmatch(r.out, -1)
	switch {
	case r.dead:
		return []string{"the run did not end by itself"}
	case r.code == 125 || r.code == 126 || r.code == 127:
		return []string{fmt.Sprintf("the jail did not start (exit %d)", r.code)}
	case len(m) == 0 && !mayDie.MatchString(id):
		return []string{fmt.Sprintf("the act ended without a word (exit %d)", r.code)}
	case len(m) == 0:
		return nil
	}
	for _, x := range m {
		switch x[1] {
		case "DONE":
			return []string{"it says it is done:" + x[2]}
		case "SKIP":
			return []string{"skipped:" + x[2]}
		}
	}
	w.t.Logf("%s%s", m[len(m)-1][1], m[len(m)-1][2])
	return nil
}

// outsider does what the host does while some acts run: write a secret under a denied name, connect to the jail's port.
func (w *world) outsider(need string, stop <-chan struct{}) {
	secret := w.canary("a secret that came later")
	for {
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
		if _, err := os.Stat(w.path("ws/please")); err != nil {
			continue
		}
		switch need {
		case "late":
			w.late("late/.env.tmp", secret, 0o600)
			_ = os.Rename(w.path("ws/late/.env.tmp"), w.path("ws/late/.env"))
		case "moved":
			w.late("late/plain.txt", "nothing yet\n", 0o644)
			for !w.exists("ws/moved") {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
			_ = os.Rename(w.path("ws/late/plain.txt"), w.path("ws/late/plain.pem"))
			_ = os.WriteFile(w.path("ws/late/plain.pem"), []byte(secret), 0o644)
			w.late("late/done", "", 0o644)
		case "swap":
			w.swap(stop)
		case "listen":
			if c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", w.listen), 100*time.Millisecond); err == nil {
				w.hear("the host reached a port of the jail")
				_ = c.Close()
			}
		}
		return
	}
}

// late makes a file below the workspace while an act runs.
func (w *world) late(name, text string, mode os.FileMode) {
	p := w.path("ws/" + name)
	_ = os.Mkdir(filepath.Dir(p), 0o755)
	_ = os.WriteFile(p, []byte(text), mode)
	for _, of := range []string{filepath.Dir(p), p} {
		_ = os.Chown(of, w.uid, w.uid)
	}
}

func (w *world) exists(name string) bool {
	_, err := os.Lstat(w.path(name))
	return err == nil
}

// fill writes to a fifo whenever somebody has opened it for reading.
func (w *world) fill(name, text string, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		f, err := os.OpenFile(w.path(name), os.O_WRONLY|unix.O_NONBLOCK, 0) // ENXIO: no reader
		if err != nil {
			time.Sleep(50 * time.Microsecond)
			continue
		}
		_, _ = f.WriteString(text)
		_ = f.Close()
	}
}

// swap puts other rules in the place of those of the one session that runs, then a secret under the name that they deny.
func (w *world) swap(stop <-chan struct{}) {
	secret := w.canary("a file that was denied while the session ran")
	tighter := w.path("tighter.toml")
	b, err := os.ReadFile("testdata/tighter.toml")
	if err == nil {
		err = os.WriteFile(tighter, b, 0o644)
	}
	if err != nil {
		w.hear("%v", err)
		return
	}
	id, seen := "", ""
	for over := false; id == "" && !over; { // it starts, or the storm has it held for a moment
		id, seen = w.running()
		select {
		case <-stop:
			over = true
		default:
		}
	}
	if id == "" {
		w.hear("no one session to swap the rules of: %s", seen)
		return
	}
	if out, err := w.command(context.Background(), "policy", "set", id, tighter).CombinedOutput(); err != nil {
		w.hear("policy set: %v: %s", err, out)
		return
	}
	_ = os.WriteFile(w.path("ws/held"), []byte(secret), 0o644)
	_ = os.WriteFile(w.path("ws/go"), nil, 0o666)
}

// running is the one session that runs, "" if there is none or another; and what there is.
func (w *world) running() (id, seen string) {
	out, err := w.command(context.Background(), "ps", "--json").Output()
	var list []struct{ ID, State string }
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil {
		return "", err.Error()
	}
	run := slices.DeleteFunc(slices.Clone(list), func(s struct{ ID, State string }) bool { return s.State != "running" })
	if len(run) != 1 {
		return "", fmt.Sprintf("%+v", list)
	}
	return run[0].ID, ""
}

// develop does what a developer does after the agent, where planted code would run.
func (w *world) develop() {
	for _, args := range [][]string{{"status"}, {"add", "README.md"}, {"commit", "-q", "--allow-empty", "-m", "x"}, {"checkout", "-q", "-b", "next"}} {
		_, _ = w.git("ws", args...)
	}
	for _, dir := range []string{"ws/sub", "ws/planted"} {
		_, _ = w.git(dir, "status")
	}
}

// litter finds what an act left in the workspace or on the host that no developer wants to find.
func (w *world) litter(id string) []string {
	var seen []string
	known := map[string]bool{".env": true, "sub/.env": true, "secrets": true, "secrets/gold": true, "secrets/echo": true, "suid": true}
	_ = filepath.WalkDir(w.path("ws"), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		rel := strings.TrimPrefix(p, w.path("ws")+"/")
		var st unix.Stat_t
		if unix.Lstat(p, &st) != nil || known[rel] {
			return nil
		}
		name := d.Name()
		if name == ".env" && rel != "late/.env" || strings.HasSuffix(name, ".pem") && rel != "late/plain.pem" && rel != "late/pipe.pem" || name == ".envrc" || strings.Contains(rel, ".vscode/") || strings.Contains(rel, "secrets/") {
			seen = append(seen, fmt.Sprintf("%q was made, which a rule denies or protects", rel))
		}
		if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 && st.Mode&unix.S_IFMT == unix.S_IFREG {
			seen = append(seen, fmt.Sprintf("%s has mode %o and uid %d", rel, st.Mode, st.Uid))
		}
		if k := st.Mode & unix.S_IFMT; k == unix.S_IFCHR || k == unix.S_IFBLK {
			seen = append(seen, rel+" is a device")
		}
		if n, err := unix.Lgetxattr(p, "security.capability", nil); err == nil && n > 0 {
			seen = append(seen, rel+" has file capabilities")
		}
		return nil
	})
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run", "/dev/mqueue", "/var/lock"} {
		p := filepath.Join(dir, "act-"+w.token)
		if _, err := os.Lstat(p); err == nil {
			seen = append(seen, p+" is on the host")
			_ = os.Remove(p)
		}
	}
	if id == "proc-outlive" {
		a, _ := os.ReadFile(w.path("ws/.heartbeat"))
		time.Sleep(300 * time.Millisecond)
		if b, _ := os.ReadFile(w.path("ws/.heartbeat")); len(a) == 0 || string(a) != string(b) {
			seen = append(seen, fmt.Sprintf("the daemon lives on (or never ran): %q, then %q", a, b))
		}
	}
	return seen
}

// repair puts back what an act changed outside, so that the next one is judged for itself.
func (w *world) repair() {
	for p := range map[string]bool{"out/made-by-act": true, "home/.ssh/authorized_keys": true, "home/made-by-act": true, "mark/ran": true} {
		_ = os.RemoveAll(w.path(p))
	}
	w.put("out/keep.txt", "keep\n", 0o644)
	w.put("home/.bashrc", "# rc\n", 0o644)
	w.own("home", "out")
}

// TestRecord: what the acts were denied is in the record, one JSON object a line, and names with control bytes forge nothing.
func TestRecord(t *testing.T) {
	w := newWorld(t, 60217)
	w.startHelper()
	for _, id := range []string{"file-spelling", "late-control-bytes", "net-tcp"} {
		w.reset()
		if r := w.run("", w.path("ws/act"), id); r.dead || r.code >= 125 {
			t.Fatalf("%s: exit %d\n%s", id, r.code, r.out)
		}
		args := []string{"audit", "show", "--json"}
		if id != "net-tcp" { // the ports of the host are tried on the jail's own loopback, which is allowed and has no such server
			args = append(args, "--denied")
		}
		out, err := w.command(t.Context(), args...).Output()
		if err != nil {
			t.Fatalf("audit show: %v", err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		for _, l := range lines {
			if !json.Valid([]byte(l)) {
				t.Errorf("%s: not JSON: %q", id, l)
			}
		}
		want := map[string]string{"file-spelling": ".env", "late-control-bytes": "secrets/", "net-tcp": fmt.Sprint(w.tcp)}[id]
		if !strings.Contains(string(out), want) {
			t.Errorf("%s: no record of a denied %q among %d:\n%s", id, want, len(lines), tail(string(out), 2000))
		}
		if strings.Contains(string(out), "\n{\"FORGED") || strings.ContainsAny(string(out), "\033\a") {
			t.Errorf("%s: a name forged a line or a terminal sequence", id)
		}
		if out, err := w.command(t.Context(), "audit", "verify").CombinedOutput(); err != nil {
			t.Errorf("audit verify: %v\n%s", err, out)
		}
	}
}

func hostAddr() string {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	return ""
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}
