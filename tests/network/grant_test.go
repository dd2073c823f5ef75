//go:build root && linux

package network

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// session runs a program of ours in a jail until the test is over; said is what it prints.
func (w *world) session(name, policy, script string) (said func() string) {
	w.t.Helper()
	run := w.agentos("run", "--name", name, "--policy", policy, "--", "/bin/sh", "-c", script)
	file, err := os.Create(filepath.Join(w.root, name+".output"))
	check(w.t, err)
	run.Stdout, run.Stderr = file, file
	check(w.t, run.Start())
	w.t.Cleanup(func() {
		_ = w.agentos("kill", name).Run()
		_ = run.Wait()
		_ = file.Close()
	})
	said = func() string { data, _ := os.ReadFile(file.Name()); return string(data) }
	await(w.t, "session "+name, func() bool {
		out, _ := w.agentos("ps").Output()
		return strings.Contains(string(out), name+" ") && strings.Contains(string(out), " running ")
	})
	return said
}

// says runs a command of the user's, which has to end with status.
func (w *world) says(status int, args ...string) string {
	w.t.Helper()
	c := w.agentos(args...)
	out, _ := c.CombinedOutput()
	if got := c.ProcessState.ExitCode(); got != status {
		w.t.Fatalf("agentos %s: status %d, want %d: %s", strings.Join(args, " "), got, status, out)
	}
	return string(out)
}

// state is what net --json says.
type state struct {
	Served      bool
	Connections []struct {
		Pid                    int
		Exe, Host, Rule, State string
		Address                string
		Port                   int
		Sent, Received         uint64
		Opened                 time.Time
	}
	Destinations []struct {
		Host                           string
		Port, Open                     int
		Opened, Denied, Sent, Received uint64
	}
	Budgets []struct {
		Rule        string
		Used, Bytes uint64
	}
	Grants []struct{ ID int }
}

func (w *world) state(session string) (s state) {
	w.t.Helper()
	check(w.t, json.Unmarshal([]byte(w.says(0, "net", session, "--json")), &s))
	return s
}

// probe is a loop in the jail: it says every moment whether a destination answers, to a file that is read outside.
func (w *world) probe(dest string) string { return w.probing("dial " + dest + " probe") }

func (w *world) probeGet(url string) string { return w.probing("get " + url) }

func (w *world) probing(act string) string {
	return fmt.Sprintf(`while :; do if %s act %s | grep -q '^ok'; then echo yes; else echo no; fi >now.new; mv now.new now; sleep 0.1; done`,
		filepath.Join(w.root, "ws", "netact"), act)
}

// answers is what the probe found, of a try that began after the call.
func (w *world) answers() string {
	now := filepath.Join(w.root, "ws", "now")
	for range 2 { // the one that is under way began before
		_ = os.Remove(now)
		await(w.t, "a probe", func() bool { _, err := os.Stat(now); return err == nil })
	}
	data, _ := os.ReadFile(now)
	return strings.TrimSpace(string(data))
}

// The table names the process, the name, the address and the rule of an open connection, and counts what went through; to
// its owner alone.
func TestTable(t *testing.T) {
	w := newWorld(t)
	p := w.policy("table", "allow = [{to = \"db.example.org:5432\", budget = \"1MB\"}, \"ok.example.org:80\"]\n")
	bin := filepath.Join(w.root, "ws", "netact")
	w.session("table", p, bin+" act get http://ok.example.org/big; "+bin+" act dial ok.example.org:8080 x; exec "+bin+" act drip db.example.org:5432")
	dripping := filepath.Join(w.root, "ws", "dripping")
	await(t, "a connection", func() bool { _, err := os.Stat(dripping); return err == nil })

	s := w.state("table")
	if len(s.Connections) != 1 {
		t.Fatalf("connections: %+v", s)
	}
	c := s.Connections[0]
	if c.Host != "db.example.org" || c.Port != 5432 || c.Address != outside+":5432" || c.Exe != bin || c.State != "open" || c.Sent == 0 || c.Received < c.Sent || !strings.Contains(c.Rule, "table.toml:") || time.Since(c.Opened) > time.Minute {
		t.Errorf("the connection is %+v", c)
	}
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", c.Pid)); err != nil || filepath.Base(exe) != "netact" {
		t.Errorf("process %d: %s %v", c.Pid, exe, err)
	}
	seen := map[string]bool{}
	for _, d := range s.Destinations {
		switch {
		case d.Host == "ok.example.org" && d.Port == 80:
			seen["big"] = d.Received > 8<<20 && d.Opened == 1 && d.Open == 0
		case d.Host == "ok.example.org" && d.Port == 8080:
			seen["denied"] = d.Denied > 0 && d.Opened == 0 // a client may try both families
		case d.Host == "db.example.org":
			seen["open"] = d.Open == 1 && d.Opened == 1 && d.Sent > 0
		}
	}
	if !seen["big"] || !seen["denied"] || !seen["open"] {
		t.Errorf("destinations: %+v", s.Destinations)
	}
	if len(s.Budgets) != 1 || s.Budgets[0].Bytes != 1e6 || s.Budgets[0].Used == 0 || !strings.Contains(s.Budgets[0].Rule, "db.example.org") {
		t.Errorf("budgets: %+v", s.Budgets)
	}
	table := w.says(0, "net", "table")
	for _, want := range []string{"PROCESS", "netact (", "db.example.org:5432", outside + ":5432", "open", "DESTINATION", "BUDGET", "table.toml:"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	if got := w.says(0, "net"); !strings.Contains(got, "db.example.org:5432") { // the newest
		t.Errorf("without a session: %s", got)
	}

	// Another user sees nothing of it, and changes nothing.
	program := filepath.Join(w.root, "ws", "agentos")
	data, err := os.ReadFile(filepath.Join(w.bin, "agentos"))
	check(t, err)
	check(t, os.WriteFile(program, data, 0o755))
	for _, args := range [][]string{{"net", "table"}, {"net", "rules", "table"}, {"net", "allow", "table", "ok.example.org:443"}, {"net", "revoke", "table", "all"}} {
		other := w.agentos(args...)
		other.Path = program
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}}
		out, _ := other.CombinedOutput()
		if other.ProcessState.ExitCode() != 127 || !strings.Contains(string(out), "no running session") {
			t.Errorf("another user, %v: status %d: %s", args, other.ProcessState.ExitCode(), out)
		}
	}
}

// A grant opens what the policy does not, and cuts it again when it is taken back or its time is over; a denial the other way round.
func TestGrant(t *testing.T) {
	w := newWorld(t)
	p := w.policy("grant", "allow = [\"ok.example.org:80\"]\ndeny = [\"*.never.example.org:*\"]\n")
	bin := filepath.Join(w.root, "ws", "netact")
	w.session("grant", p, "("+w.probe("db.example.org:5432")+") & while :; do "+bin+" act drip db.example.org:5432 >>dripped; sleep 0.1; done")
	if got := w.answers(); got != "no" {
		t.Fatalf("before any grant: %s", got)
	}
	out := w.says(0, "net", "allow", "grant", "db.example.org:5432")
	if !strings.HasPrefix(out, "grant: grant 1: allow db.example.org:5432 until the session ends") {
		t.Errorf("allow: %s", out)
	}
	if got := w.answers(); got != "yes" {
		t.Errorf("granted, and %s", got)
	}
	await(t, "a held connection", func() bool {
		for _, c := range w.state("grant").Connections {
			if c.Host == "db.example.org" && strings.Contains(c.Rule, "grant 1 of uid 0: net-allow db.example.org:5432") && c.Sent > 50 {
				return true
			}
		}
		return false
	})
	if rules := w.says(0, "net", "rules", "grant"); !strings.Contains(rules, "grant 1 of uid 0") || !strings.Contains(rules, "grant.toml:") {
		t.Errorf("rules: %s", rules)
	}

	w.says(0, "net", "revoke", "grant", "1")
	for _, c := range w.state("grant").Connections {
		if c.Host == "db.example.org" && c.State == "open" {
			t.Errorf("open after it was taken back: %+v", c)
		}
	}
	if got := w.answers(); got != "no" {
		t.Errorf("taken back, and %s", got)
	}

	// For a time. Nobody comes by to end it.
	w.says(0, "net", "allow", "grant", "db.example.org:5432", "--for", "3s")
	if got := w.answers(); got != "yes" {
		t.Errorf("granted for 3 s, and %s", got)
	}
	await(t, "its end", func() bool { return len(w.state("grant").Grants) == 0 })
	w.hears()
	if got := w.answers(); got != "no" || strings.Contains(w.hears(), "tcp") {
		t.Errorf("its time is over, and %s", got)
	}

	// A denial cuts what the policy allows, and a grant does not overrule it.
	w.says(0, "net", "allow", "grant", "db.example.org:*")
	w.says(0, "net", "deny", "grant", "db.example.org")
	if got := w.answers(); got != "no" {
		t.Errorf("denied, and %s", got)
	}
	if out := w.says(126, "net", "allow", "grant", "db.example.org:5432"); !strings.Contains(out, "refused by grant 4 of uid 0: net-deny") {
		t.Errorf("a grant of what was denied: %s", out)
	}
	w.says(0, "net", "revoke", "grant", "db.example.org:*") // both have that text
	if got := w.answers(); got != "no" {
		t.Errorf("both taken back, and %s", got)
	}

	// What is refused, and what makes no sense. Nothing of it holds.
	for entry, status := range map[string]int{"x.never.example.org:443": 126, "db.example.org": 125, "db.example.org:5432 tls=opaque methods=GET": 125, "DB.example.org:1": 125, "10.0.0.0/8:123 udp": 126} {
		w.says(status, append([]string{"net", "allow", "grant"}, strings.Fields(entry)...)...)
	}
	w.says(125, "net", "allow", "grant", "db.example.org:5432", "--for", "0s")
	w.says(127, "net", "revoke", "grant", "db.example.org:5432")
	w.says(127, "net", "allow", "nobody", "db.example.org:5432")
	if got := w.state("grant").Grants; len(got) != 0 {
		t.Errorf("grants: %v", got)
	}
	record := w.says(0, "audit", "show", "grant", "--kind", "grant")
	for _, want := range []string{"uid 0 made grant 1", "uid 0 took back grant 1 of uid 0", "uid 0 made grant 2, until ", "grant 2 of uid 0: its time is over", "uid 0 made denial 4", "uid 0 was refused a grant: x.never.example.org:443 is refused by"} {
		if !strings.Contains(record, want) {
			t.Errorf("no %q in the record:\n%s", want, record)
		}
	}
}

// A grant stays within the organisation's policy, whatever the user's own layers say, and goes with the user who may take it back.
func TestGrantWithinOrganisation(t *testing.T) {
	w := newWorld(t)
	check(t, os.WriteFile(filepath.Join(w.root, "org", "net.toml"), []byte("version = 1\nname = \"corp\"\n[net]\nallow = [\"*.example.org:80,443,5432\"]\ndeny = [\"other.example.org:*\"]\n"), 0o644))
	p := w.policy("org", "allow = [\"ok.example.org:80\"]\n")
	w.session("org", p, w.probe("db.example.org:5432"))
	for _, entry := range []string{"db.example.org:5433", "db.example.org:*", "db.example.net:5432", "other.example.org:443", "lan.example.org:80 private", "*:443", "11.22.33.44:5432", "host:5432"} {
		out := w.says(126, append([]string{"net", "allow", "org"}, strings.Fields(entry)...)...)
		if !strings.Contains(out, "net.toml") {
			t.Errorf("%s: %s", entry, out)
		}
	}
	w.says(0, "net", "allow", "org", "db.example.org:5432")
	if got := w.answers(); got != "yes" {
		t.Errorf("within the organisation's policy, and %s", got)
	}
	// The files as they are at that moment count, too, and one that cannot be read refuses.
	check(t, os.WriteFile(filepath.Join(w.root, "org", "later.toml"), []byte("version = 1\nname = \"later\"\n[net]\nallow = [\"db.example.org:*\"]\n"), 0o644))
	if out := w.says(126, "net", "allow", "org", "ok.example.org:443"); !strings.Contains(out, "later.toml") {
		t.Errorf("beyond files that came later: %s", out)
	}
	check(t, os.WriteFile(filepath.Join(w.root, "org", "later.toml"), []byte("nonsense"), 0o644))
	w.says(126, "net", "allow", "org", "db.example.org:80")
	check(t, os.Remove(filepath.Join(w.root, "org", "later.toml")))
	w.says(0, "net", "deny", "org", "db.example.org:5432", "--for", "1h")
	if got := w.answers(); got != "no" {
		t.Errorf("denied, and %s", got)
	}
}

// Other rules of [net] for a running session: grants stay, invalid ones change nothing, and what is open is cut.
func TestSetWithGrants(t *testing.T) {
	w := newWorld(t)
	p := w.policy("first", "allow = [\"db.example.org:5432\"]\n")
	less := w.policy("less", "allow = [\"ok.example.org:80\"]\n")
	bad := w.policy("bad", "allow = [\"db.example.org:5432\", \"10.0.0.0/8:123 udp\"]\n")
	bin := filepath.Join(w.root, "ws", "netact")
	w.session("set", p, "("+w.probe("db.example.org:5432")+") & "+bin+" act drip db.example.org:5432 >dripped; sleep 600")
	if got := w.answers(); got != "yes" {
		t.Fatalf("allowed, and %s", got)
	}
	if out := w.says(126, "policy", "set", "set", bad); !strings.Contains(out, "not carried by this version") {
		t.Errorf("set: %s", out)
	}
	if got := w.answers(); got != "yes" {
		t.Errorf("after rules that were refused: %s", got)
	}
	if got, _ := os.ReadFile(filepath.Join(w.root, "ws", "dripped")); len(got) > 0 {
		t.Errorf("the open connection ended: %s", got)
	}
	w.says(0, "policy", "set", "set", less)
	await(t, "the cut", func() bool { got, _ := os.ReadFile(filepath.Join(w.root, "ws", "dripped")); return len(got) > 0 })
	if got := w.answers(); got != "no" {
		t.Errorf("under rules without it: %s", got)
	}
	w.says(0, "net", "allow", "set", "db.example.org:5432")
	w.says(0, "policy", "set", "set", w.policy("third", "allow = [\"other.example.org:443\"]\n"))
	if got := w.answers(); got != "yes" {
		t.Errorf("granted, then other rules, and %s", got)
	}
	w.says(0, "net", "revoke", "set", "all")
	if got := w.answers(); got != "no" {
		t.Errorf("taken back, and %s", got)
	}
}
