//go:build root && linux

package leak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	seed  = 20261121
	group = "agentos-leak" // beside a helper that this machine may run
)

// scale is how many jails are made, and how much more patience is needed: an
// emulated machine (tests/machine) is some thirty times slower.
func scale() (jails int, patience time.Duration) {
	if os.Getenv("AGENTOS_MACHINE") != "" {
		return 24, 12
	}
	return 200, 1
}

// machine is a helper with directories of its own.
type machine struct {
	t           *testing.T
	bin, dir    string
	policy      string // beside strict
	helper      *exec.Cmd
	env         []string
	helperStart int
}

func newMachine(t *testing.T) *machine {
	bin := os.Getenv("AGENTOS_BIN")
	if bin == "" {
		t.Fatal("AGENTOS_BIN does not name the directory of the built programs (make build)")
	}
	dir := t.TempDir()
	// The agent's ids must get through; the machine's own directory of temporary
	// files is everybody's already, and stays as it is.
	for d := dir; d != "/" && d != filepath.Clean(os.TempDir()); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m := &machine{t: t, bin: bin, dir: dir}
	t.Cleanup(func() {
		if m.helper != nil && m.helper.ProcessState == nil {
			m.stop(unix.SIGTERM)
		}
	})
	// Half of the jails share a directory that stays and write over one of the host's.
	m.policy = filepath.Join(m.dir, "leak.toml")
	text := "version = 1\nname = \"leak\"\nextends = [\"builtin:strict\"]\n[files]\npersist = [\"~/.npm\"]\noverlay = [\"~/over\"]\n"
	if err := errors.Join(os.MkdirAll(filepath.Join(m.dir, "home", "over"), 0o755), os.WriteFile(m.policy, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	m.env = append(os.Environ(), "HOME="+filepath.Join(m.dir, "home"), "AGENTOS_SOCKET="+m.socket(), "AGENTOS_LIBEXEC="+bin)
	return m
}

func (m *machine) socket() string { return filepath.Join(m.dir, "run", "helper.sock") }

func (m *machine) start() {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Join(m.dir, "run"), 0o755); err != nil {
		m.t.Fatal(err)
	}
	m.helper = exec.Command(filepath.Join(m.bin, "agentos-helper"), "--foreground", "--spare", "2s", "--state", filepath.Join(m.dir, "state"),
		"--run", filepath.Join(m.dir, "run"), "--org", filepath.Join(m.dir, "org"), "--group", group, "--log", "info")
	m.helper.Stderr = os.Stderr
	if err := m.helper.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.helperStart++
	m.await(time.Minute, "the helper to listen", func() bool {
		c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return false
		}
		defer unix.Close(c)
		return unix.Connect(c, &unix.SockaddrUnix{Name: m.socket()}) == nil
	})
}

func (m *machine) await(d time.Duration, what string, ok func() bool) {
	m.t.Helper()
	_, patience := scale()
	d *= patience
	for end := time.Now().Add(d); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("waited %s for %s", d, what)
		}
	}
}

// stop ends the helper and waits for it.
func (m *machine) stop(sig os.Signal) {
	_ = m.helper.Process.Signal(sig)
	_ = m.helper.Wait()
}

// run starts a jail and ends it in one of the ways; which says how.
func (m *machine) run(ctx context.Context, r *rand.Rand, how string) {
	cmd := exec.CommandContext(ctx, filepath.Join(m.bin, "agentos"), "run", "--policy", []string{"strict", m.policy}[r.IntN(2)], "--workspace", filepath.Join(m.dir, "ws"), "--",
		"/bin/sh", "-c", "sleep 0.0$(( $$ % 9 )); echo x > made.$$; for d in ~ ~/.npm ~/over; do echo x > $d/made.$$; done; sleep 30 & exec sleep "+map[bool]string{true: "0.01", false: "30"}[how == "end"])
	cmd.Env = m.env
	_, patience := scale()
	if how == "end" {
		if out, err := cmd.CombinedOutput(); err != nil {
			m.t.Errorf("a jail that should end by itself: %v\n%s", err, out)
		}
		return
	}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond * patience) // the random moment
	switch how {
	case "cli":
		_ = cmd.Process.Kill()
	case "init":
		killed := inits() // also one that was made ahead, for the next
		for _, pid := range killed {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		m.await(time.Minute, "the killed to be gone", func() bool {
			return !slices.ContainsFunc(killed, func(pid int) bool { return unix.Kill(pid, 0) == nil })
		})
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Process.Signal(unix.SIGTERM)
	case "helper":
		m.stop(unix.SIGKILL)
		m.start()
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(time.Minute * patience):
		m.t.Errorf("%s: agentos run does not end", how)
		_ = cmd.Process.Kill()
		<-done
	}
}

// inits are the processes that run as pid 1 of a jail.
func inits() []int {
	var out []int
	for _, p := range processes() {
		if strings.HasPrefix(p.cmd, "agentos-init") {
			out = append(out, p.pid)
		}
	}
	return out
}

type process struct {
	pid int
	cmd string
}

// processes lists the processes in the groups of our jails.
func processes() []process {
	entries, _ := os.ReadDir("/proc")
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmd, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		// Every process of a jail is in its group; this leaves out other helpers' jails.
		groups, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		if err == nil && strings.Contains(string(groups), "/"+group+"/") {
			out = append(out, process{pid, strings.ReplaceAll(string(cmd), "\x00", " ")})
		}
	}
	return out
}

// remains is everything on the machine that could be of a jail.
func (m *machine) remains() []string {
	var out []string
	for _, p := range processes() {
		out = append(out, fmt.Sprintf("process %d %s", p.pid, p.cmd))
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/" + group + "/*/cgroup.procs")
	more, _ := filepath.Glob("/sys/fs/cgroup/*/" + group + "/*/cgroup.procs")
	out = append(out, append(groups, more...)...)
	layers, _ := filepath.Glob(filepath.Join(m.dir, "state", "layers", "*"))
	out = append(out, layers...)
	written, _ := filepath.Glob(filepath.Join(m.dir, "home", "over", "*"))
	out = append(out, written...)
	f, err := os.Open("/proc/self/mountinfo")
	if err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if strings.Contains(s.Text(), "agentos") && !strings.Contains(s.Text(), " - bpf ") {
				out = append(out, "mount "+s.Text())
			}
		}
	}
	return out
}

func descriptors(pid int) int {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(entries)
}

// netns counts the network namespaces of processes that could be ours: those of our jails, and who is where this test is. Other helpers'
// jails, and services, come and go.
func netns() int {
	n := map[string]bool{}
	own, _ := os.ReadFile("/proc/self/cgroup")
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, l := range links {
		in, err := os.ReadFile(filepath.Join(l, "../../cgroup"))
		if err != nil || string(in) != string(own) && !strings.Contains(string(in), "/"+group+"/") {
			continue
		}
		if t, err := os.Readlink(l); err == nil {
			n[t] = true
		}
	}
	return len(n)
}

func TestNothingIsLeftBehind(t *testing.T) {
	m := newMachine(t)
	ws := filepath.Join(m.dir, "ws")
	if err := os.MkdirAll(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := m.remains(); len(got) > 0 {
		t.Fatalf("the machine is not clean to begin with:\n%s", strings.Join(got, "\n"))
	}
	namespaces := netns()
	m.start()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	jails, _ := scale()
	r := rand.New(rand.NewPCG(seed, 1))
	m.run(ctx, r, "end") // everything that is opened once is open now
	before := descriptors(m.helper.Process.Pid)
	count := map[string]int{}
	for i := range jails {
		how := "end"
		if i%3 == 0 {
			how = []string{"cli", "init", "helper"}[r.IntN(3)]
		}
		count[how]++
		m.run(ctx, r, how)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d jails: %v; the helper was started %d times", jails, count, m.helperStart)
	m.await(time.Minute, "the last jails to go", func() bool { return len(m.remains()) == 0 })
	m.await(time.Minute, "the helper's descriptors", func() bool { return descriptors(m.helper.Process.Pid) <= before+4 })
	m.stop(unix.SIGTERM)
	if got := m.remains(); len(got) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(got, "\n"))
	}
	if kept, err := os.ReadDir(filepath.Join(m.dir, "state", "persist")); err != nil || len(kept) != 1 || strings.HasPrefix(kept[0].Name(), ".") {
		t.Errorf("want the one directory that the policy keeps, got %v, %v", kept, err)
	}
	if _, err := os.Stat(m.socket()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	if pins, _ := filepath.Glob("/sys/fs/bpf/" + group + "*"); len(pins) > 0 {
		t.Errorf("pins are left behind: %v", pins)
	}
	if got, _ := filepath.Glob("/sys/fs/cgroup/*/" + group); len(got) > 0 {
		t.Errorf("groups are left behind: %v", got)
	}
	m.await(10*time.Second, "the network namespaces to go", func() bool { return netns() <= namespaces }) // others may have one for a moment
}
