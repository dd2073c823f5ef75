//go:build root

package script

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// repeats is a user who starts the same thing again and again.
type repeats struct {
	t               *testing.T
	bin, dir, ws    string
	org             string
	socket, command string
	tier            string // of the last receipt
}

// run starts the command, answers what it printed, and whether it got a jail that was built ahead, as the receipt says.
func (r *repeats) run(wrap []string, args ...string) (out string, ahead bool) {
	r.t.Helper()
	argv := append(append(wrap, filepath.Join(r.bin, "agentos"), "run"), args...)
	argv = append(argv, "--", "sh", "-c", r.command)
	got, err := r.exec(argv...)
	if err != nil {
		r.t.Fatalf("%q: %v\n%s", argv, err, got)
	}
	record, err := r.exec(filepath.Join(r.bin, "agentos"), "audit", "show", "--json")
	if err != nil {
		r.t.Fatalf("%v\n%s", err, record)
	}
	var first struct{ Kind, Detail string }
	if err := json.NewDecoder(strings.NewReader(record)).Decode(&first); err != nil || first.Kind != "receipt" {
		r.t.Fatalf("the record begins with %+v, %v", first, err)
	}
	var receipt map[string]any
	if err := json.Unmarshal([]byte(first.Detail), &receipt); err != nil {
		r.t.Fatal(err)
	}
	if checks, ok := receipt["checks"].([]any); !ok || len(checks) == 0 {
		r.t.Errorf("a receipt without a check: %s", first.Detail)
	}
	r.tier, _ = receipt["tier"].(string)
	return got, receipt["checked_at"] != nil
}

func (r *repeats) exec(argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = r.ws, []string{"PATH=/usr/bin:/bin", "HOME=" + filepath.Join(r.dir, "home"), "AGENTOS_SOCKET=" + r.socket}
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return string(out), err
}

// inits are the jails there are, by their inits' pids, and whether the workspace is mounted in them: a spare has none.
func (r *repeats) inits() map[int]bool {
	pids := map[int]bool{}
	groups, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, g := range groups {
		in, err := os.ReadFile(g)
		name, nerr := os.ReadFile(filepath.Join(filepath.Dir(g), "cmdline"))
		if err != nil || nerr != nil || !strings.Contains(string(in), "/agentos-script/") || !strings.HasPrefix(string(name), "agentos-init") {
			continue
		}
		mounts, err := os.ReadFile(filepath.Join(filepath.Dir(g), "mountinfo"))
		if err != nil {
			continue // it has ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(g))); err == nil {
			pids[pid] = strings.Contains(string(mounts), " "+r.ws+" ")
		}
	}
	return pids
}

// ready repeats the command until it gets a jail that was built ahead, then waits for the next one.
func (r *repeats) ready() {
	r.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	before := r.inits()
	for ahead := false; !ahead; {
		if time.Now().After(deadline) {
			r.t.Fatal("the same again and again gets no jail that was built ahead")
		}
		before = r.inits()
		_, ahead = r.run(nil)
	}
	for ; !r.stands(before); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("inits %v, before the last run %v (true: has the workspace); want a new one that stands, and a spare", r.inits(), before)
		}
	}
}

// stands reports whether a jail was built ahead since before, when there were these inits. No session
// is left whose init it could be, and the helper begins the spare when it has built and checked the other.
func (r *repeats) stands(before map[int]bool) bool {
	r.t.Helper()
	out, err := r.exec(filepath.Join(r.bin, "agentos"), "ps", "--json")
	var sessions []struct{ Name string }
	if err == nil {
		err = json.Unmarshal([]byte(out), &sessions)
	}
	if err != nil {
		r.t.Fatalf("ps: %v\n%s", err, out)
	}
	if len(sessions) > 0 {
		return false
	}
	built, spare := false, false
	for pid, workspace := range r.inits() {
		built, spare = built || workspace && !before[pid], spare || !workspace
	}
	return built && spare
}

// A jail that was built ahead is used for exactly what it was built for, and is as new as any other.
func TestBuiltAhead(t *testing.T) {
	bin, root, socket := stage(t)
	r := &repeats{t: t, bin: bin, dir: root, ws: filepath.Join(root, "ws"), org: filepath.Join(root, "org"), socket: socket}
	r.command = `cat "$HOME/left" /tmp/left /run/left 2>/dev/null; touch "$HOME/left" /tmp/left /run/left; for f in *; do echo "$f"; done; cat secret sub/file 2>/dev/null; echo "$X $PWD"; id -u; cat /etc/hostname; true`
	for _, d := range []string{r.ws, filepath.Join(root, "home"), filepath.Join(r.ws, "sub")} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(r.ws, "secret"), "first\n")
	expect := func(out, want, not string) {
		t.Helper()
		if !strings.Contains(out, want) || not != "" && strings.Contains(out, not) {
			t.Errorf("got %q, want %q and not %q", out, want, not)
		}
	}

	r.ready()
	write(filepath.Join(r.ws, "new"), "")
	for i := range 2 {
		out, ahead := r.run(nil, "--env", "X=turn"+strconv.Itoa(i))
		if expect(out, "new\nsecret\nsub\nfirst\nturn"+strconv.Itoa(i)+" "+r.ws, "left"); !ahead {
			t.Error("the same again got no jail that was built ahead")
		}
		r.ready()
	}

	r.elsewhere()
	for _, tt := range r.differences(write) {
		r.ready()
		if tt.change != nil {
			tt.change()
		}
		out, ahead := r.run(tt.wrap, tt.args...)
		if ahead && (!tt.onC || r.tier == "C") {
			t.Errorf("%s got the jail that was built ahead for something else", tt.name)
		}
		t.Log(tt.name)
		expect(out, tt.want, cmp.Or(tt.not, "left"))
	}
}

// elsewhere mounts and unmounts where the jail shows nothing: it is the same jail.
func (r *repeats) elsewhere() {
	r.t.Helper()
	point := r.t.TempDir()
	for _, tt := range []struct {
		name   string
		change func() error
	}{
		{"mounted", func() error { return unix.Mount("none", point, "tmpfs", 0, "") }},
		{"unmounted", func() error { return unix.Unmount(point, 0) }},
	} {
		r.ready()
		if err := tt.change(); err != nil {
			r.t.Fatal(err)
		}
		if _, ahead := r.run(nil); !ahead {
			r.t.Errorf("the jail that was built ahead was not used after something was %s elsewhere", tt.name)
		}
	}
}

// difference is something that makes a jail another one than that which was built ahead.
type difference struct {
	name      string
	change    func()
	wrap      []string
	args      []string
	want, not string
	onC       bool // it is used on tiers A and B, where the kernel denies
}

// differences are made one after the other, each on top of those before it.
func (r *repeats) differences(write func(name, text string)) []difference {
	t := r.t
	return []difference{
		{name: "another host name", args: []string{"--name", "other"}, want: "\nother\n"},
		{name: "another policy", args: []string{"--policy", "standard"}, want: "first\n"},
		{name: "another user", wrap: []string{"setpriv", "--reuid", "60217", "--regid", "60217", "--clear-groups"}, change: func() {
			if err := os.Chown(r.ws, 60217, 60217); err != nil {
				t.Fatal(err)
			}
		}, want: "\n60217\n"},
		{name: "another policy of the organisation", change: func() {
			write(filepath.Join(r.org, "a.toml"), "version = 1\nname = \"org\"\n[files]\ndeny = [\""+r.ws+"/secret\"]\n")
		}, want: "secret\n", not: "first"},
		{name: "the same policy in other words", change: func() {
			write(filepath.Join(r.org, "a.toml"), "version = 1\nname = \"org\"\n\n[files]\ndeny = [\""+r.ws+"/secret\"]\n")
		}, want: "secret\n", not: "first"},
		{name: "another object at the path of the workspace", change: func() {
			if err := os.Rename(r.ws, r.ws+".old"); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(r.ws, "sub", "second"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, want: "sub\n", not: "secret"},
		{name: "something mounted below the workspace", change: func() {
			if err := unix.Mount("none", filepath.Join(r.ws, "sub"), "tmpfs", 0, "mode=755"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(filepath.Join(r.ws, "sub"), unix.MNT_DETACH) })
			write(filepath.Join(r.ws, "sub", "file"), "mounted\n")
		}, want: "mounted\n"},
		{name: "that made read-only", change: func() {
			if err := unix.Mount("", filepath.Join(r.ws, "sub"), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
		}, want: "mounted\n"},
		{name: "a workspace that others may search", change: func() {
			if err := os.Chmod(r.ws, 0o751); err != nil {
				t.Fatal(err)
			}
		}, want: "mounted\n"},
		{name: "a FIFO that is denied", change: func() {
			if err := unix.Mkfifo(filepath.Join(r.ws, ".env"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, want: "mounted\n", onC: true},
		{name: "an init that was killed while it waited", change: func() {
			for pid := range r.inits() {
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		}, want: "mounted\n"},
	}
}

// A session in a jail that was built ahead has all that others have: its own name, home layer, second processes, questions and
// answers about denials, and rules that can be swapped.
func TestInJailBuiltAhead(t *testing.T) {
	bin, root, socket := stage(t)
	r := &repeats{t: t, bin: bin, dir: root, ws: filepath.Join(root, "ws"), org: filepath.Join(root, "org"), socket: socket}
	if err := os.MkdirAll(filepath.Join(root, "home"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(r.ws, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"open.txt": "text\n", ".env": "key\n",
		"../tight.toml": "version = 1\nname = \"tight\"\nextends = [\"builtin:strict\"]\n[files]\ndeny = [\"${workspace}/open.txt\"]\n",
	} {
		if err := os.WriteFile(filepath.Join(r.ws, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Without "go" it ends at once; with it, it tells what it sees until it is told to end.
	r.command = `[ -e go ] || exit 0; echo made > "$HOME/made"; cat .env; agentos why; cat open.txt; touch running
		until [ -e swapped ]; do sleep 0.02; done; cat open.txt; agentos why open.txt; echo "$AGENTOS_SESSION"`
	r.ready()
	if err := os.WriteFile(filepath.Join(r.ws, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	type result struct {
		out   string
		ahead bool
	}
	ended := make(chan result, 1)
	go func() {
		out, ahead := r.run(nil)
		ended <- result{out, ahead}
	}()
	agentos := func(args ...string) string {
		t.Helper()
		out, err := r.exec(append([]string{filepath.Join(bin, "agentos")}, args...)...)
		if err != nil {
			t.Errorf("agentos %q: %v", args, err)
		}
		return out
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(r.ws, "running")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the session does not run")
		}
	}
	var sessions []struct{ Name, State string }
	if err := json.Unmarshal([]byte(agentos("ps", "--json")), &sessions); err != nil || len(sessions) != 1 {
		t.Fatalf("%+v, %v", sessions, err)
	}
	name := sessions[0].Name
	if out := agentos("exec", name, "--", "sh", "-c", `cat "$HOME/made"; id -u`); !strings.HasPrefix(out, "made\n") {
		t.Errorf("exec: %q", out)
	}
	if out := agentos("changes", name); !strings.Contains(out, "~/made") {
		t.Errorf("changes: %q", out)
	}
	if out := agentos("why", name); !strings.Contains(out, "/.env: denied") {
		t.Errorf("why: %q", out)
	}
	agentos("policy", "set", name, filepath.Join(root, "tight.toml"))
	if err := os.WriteFile(filepath.Join(r.ws, "swapped"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	got := <-ended
	if !got.ahead {
		t.Error("the session's jail was not built ahead")
	}
	for _, want := range []string{"/.env: denied", "text\n", "/open.txt: denied", "tight.toml:5:", "\n" + name + "\n"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("no %q in %q", want, got.out)
		}
	}
	if strings.Contains(got.out, "key") || strings.Count(got.out, "text\n") != 1 {
		t.Errorf("it read what is denied: %q", got.out)
	}
}
