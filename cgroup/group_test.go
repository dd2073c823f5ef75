//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// actEnv makes this test binary do something as a process in a group.
const actEnv = "AGENTOS_TEST_ACT"

func TestMain(m *testing.M) {
	switch os.Getenv(actEnv) {
	case "":
		os.Exit(m.Run())
	case "sleep":
		fmt.Println("up")
		time.Sleep(time.Minute)
	case "spin":
		fmt.Println("up")
		for {
			_ = os.Getpid()
		}
	case "memory":
		var all [][]byte
		for range 256 { // MiB
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			all = append(all, b)
		}
		fmt.Println(len(all), "MiB")
	case "forks":
		for range 64 {
			if err := exec.Command("/bin/sleep", "30").Start(); err != nil {
				fmt.Println("refused")
			}
		}
	case "threads":
		fmt.Println(runtime.NumCPU())
	}
	os.Exit(0)
}

func layout(t *testing.T) Layout {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("wanted root, got uid", os.Getuid())
	}
	l, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	if l.Unified == "" {
		t.Skip("wanted a cgroup v2 mount, got layout", l.Kind())
	}
	return l
}

// prune removes the parents at the end of a test that made them: a helper that
// runs on this machine gates on the id of the one on v2.
func prune(t *testing.T, l Layout) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(l.Unified, Parent)); err == nil {
		return
	}
	t.Cleanup(func() {
		if err := Prune(l); err != nil {
			t.Error(err)
		}
	})
}

// create makes a group that is gone when the test ends, and says so if not.
func create(t *testing.T, l Layout, lim Limits) (*Group, []Missing) {
	t.Helper()
	prune(t, l)
	name := fmt.Sprintf("test-%d-%d", os.Getpid(), time.Now().UnixNano())
	g, err := Create(l, name)
	var missing []Missing
	if err == nil {
		missing, err = g.Limit(l, lim)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if g.v2.File != nil {
			if err := errors.Join(g.Kill(), g.Delete(5*time.Second)); err != nil {
				t.Error(err)
			}
		}
		for _, h := range hierarchies(l) {
			if _, err := os.Stat(filepath.Join(h.mount, Parent, name)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s still has %s (%v)", h.mount, name, err)
			}
		}
	})
	return g, missing
}

// start runs an act in the group, from a thread that entered the v1 hierarchies.
func start(t *testing.T, g *Group, act string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), actEnv+"="+act)
	out := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.FD(), Setpgid: true}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	leave, err := g.Enter()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	if err := leave(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("not reached:", what)
}

func TestLife(t *testing.T) {
	l := layout(t)
	before, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	g, missing := create(t, l, Limits{Memory: 256 << 20, Pids: 50, CPU: 1, CountIO: true})
	for _, m := range missing {
		t.Errorf("missing %+v", m)
	}
	if _, err := Create(l, g.Name()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("same name again: %v", err)
	}
	cmd, _ := start(t, g, "sleep")
	member, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	where := parseMembership(member)
	for _, c := range []string{"", "memory", "pids", "cpu"} {
		if p := l.Where(c); c == "" || p.Mount != "" && !p.Unified {
			if want := "/" + Parent + "/" + g.Name(); where[c] != want {
				t.Errorf("controller %q: in %q, want %q", c, where[c], want)
			}
		}
	}
	if after, _ := os.ReadFile("/proc/thread-self/cgroup"); string(after) != string(before) {
		t.Errorf("this thread is elsewhere:\n%s\nbefore\n%s", after, before)
	}
	names, err := List(l)
	if err != nil || !slices.Contains(names, g.Name()) {
		t.Errorf("list: %v %v", names, err)
	}
	s := g.Stats()
	if s.Pids < 1 || s.Memory <= 0 || s.MemoryPeak < s.Memory {
		t.Errorf("stats %+v", s)
	}

	adopt(t, l, g)
	if err := g.Delete(0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("delete a group in use: %v", err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != unix.SIGKILL {
		t.Errorf("ended with %v", cmd.ProcessState)
	}
	if err := g.Empty(t.Context()); err != nil {
		t.Error(err)
	}
}

// adopt opens a group again, as a restarted helper does.
func adopt(t *testing.T, l Layout, g *Group) {
	t.Helper()
	again, err := Open(l, g.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	id1, _ := g.ID()
	id2, _ := again.ID()
	if id1 != id2 || id1 == 0 || again.pids != g.pids || again.memory != g.memory || len(again.legacy) != len(g.legacy) {
		t.Errorf("adopted: ids %d %d, %+v", id1, id2, again)
	}
}

func TestFreeze(t *testing.T) {
	g, _ := create(t, layout(t), Limits{})
	cmd, _ := start(t, g, "spin")
	eventually(t, "using the processor", func() bool { return g.Stats().CPU > 20*time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := g.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	used := g.Stats().CPU
	time.Sleep(30 * time.Millisecond) // time in which a running process would use some
	if now := g.Stats().CPU; now != used {
		t.Errorf("frozen, and used %v more", now-used)
	}
	if err := g.Thaw(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "going on", func() bool { return g.Stats().CPU > used })
	if err := g.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	if err := g.Kill(); err != nil { // also while frozen
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

func TestKillEach(t *testing.T) {
	g, _ := create(t, layout(t), Limits{})
	cmd, _ := start(t, g, "sleep")
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	if err := g.killEach(); err != nil {
		t.Fatal(err)
	}
	<-waited
	if err := g.Empty(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestMemoryLimit(t *testing.T) {
	g, missing := create(t, layout(t), Limits{Memory: 64 << 20})
	if len(missing) > 0 {
		t.Fatal(missing)
	}
	cmd, out := start(t, g, "memory")
	if err := cmd.Wait(); err == nil {
		t.Fatalf("took 256 MiB of 64: %s", out)
	}
	hits, now := g.Hits(Counts{})
	if len(hits) != 1 || !strings.HasPrefix(hits[0].Text, "memory limit of 64 MiB reached: the kernel ended ") {
		t.Errorf("%+v", hits)
	}
	if again, _ := g.Hits(now); len(again) != 0 {
		t.Errorf("the same hit twice: %+v", again)
	}
}

func TestPidsLimit(t *testing.T) {
	g, missing := create(t, layout(t), Limits{Pids: 20})
	if len(missing) > 0 {
		t.Fatal(missing)
	}
	cmd, out := start(t, g, "forks")
	_ = cmd.Wait()
	if n := g.Stats().Pids; n > 20 {
		t.Errorf("%d tasks, limit 20", n)
	}
	hits, _ := g.Hits(Counts{})
	if len(hits) != 1 || hits[0].Limit != "pids" || !strings.HasPrefix(hits[0].Text, "process limit of 20 reached: ") {
		t.Errorf("%+v\n%s", hits, out)
	}
}

func TestCPULimit(t *testing.T) {
	g, missing := create(t, layout(t), Limits{CPU: 0.1})
	if len(missing) > 0 {
		t.Fatal(missing)
	}
	start(t, g, "spin")
	eventually(t, "throttling", func() bool { return g.Stats().Throttled > 0 })
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
}

// TestJoin moves a running process, as adoption may.
func TestJoin(t *testing.T) {
	l := layout(t)
	g, _ := create(t, l, Limits{Pids: 9})
	cmd := exec.Command("/bin/sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Join(cmd.Process.Pid, true); err != nil {
		t.Fatal(err)
	}
	if n := g.Stats().Pids; n != 1 {
		t.Errorf("%d tasks", n)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// TestNowhere: limits without a controller are missing, with a reason.
func TestNowhere(t *testing.T) {
	l := layout(t)
	l.Controllers, l.Legacy = nil, nil
	_, missing := create(t, l, Limits{Memory: 1 << 30, Pids: 5, CPU: 1, MemoryHigh: 1})
	var got []string
	for _, m := range missing {
		got = append(got, m.String())
	}
	want := []string{
		"cgroup-memory: no cgroup hierarchy has the memory controller",
		"cgroup-memory: no cgroup hierarchy has the memory controller",
		"cgroup-pids: no cgroup hierarchy has the pids controller",
		"cgroup-cpu: no cgroup hierarchy has the cpu controller",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if _, err := Create(Layout{}, "x"); !errors.Is(err, ErrNoUnified) {
		t.Error(err)
	}
}

// TestNested: groups that were made below a jail's group go with it.
func TestNested(t *testing.T) {
	l := layout(t)
	g, _ := create(t, l, Limits{})
	if err := os.MkdirAll(filepath.Join(l.Unified, Parent, g.Name(), "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := g.Delete(time.Second); err != nil {
		t.Fatal(err)
	}
}

func TestTop(t *testing.T) {
	l := layout(t)
	prune(t, l)
	f, id, err := Top(l)
	if err != nil || id == 0 {
		t.Fatal(id, err)
	}
	f.Close()
	again, id2, err := Top(l)
	if err != nil || id2 != id {
		t.Fatalf("%d, then %d (%v)", id, id2, err)
	}
	again.Close()
}

// bounded makes a group with some of each limit.
func bounded(l Layout, name string) (*Group, error) {
	g, err := Create(l, name)
	if err == nil {
		_, err = g.Limit(l, Limits{Memory: 1 << 30, Pids: 50, CPU: 1})
	}
	return g, err
}

func BenchmarkCreateDelete(b *testing.B) {
	l, err := Detect()
	if err != nil || os.Getuid() != 0 {
		b.Skip(err)
	}
	for b.Loop() {
		g, err := bounded(l, "bench")
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Delete(time.Second); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEnterLeave(b *testing.B) {
	l, err := Detect()
	if err != nil || os.Getuid() != 0 {
		b.Skip(err)
	}
	g, err := bounded(l, "bench")
	if err != nil {
		b.Fatal(err)
	}
	defer g.Delete(time.Second)
	runtime.LockOSThread()
	for b.Loop() {
		leave, err := g.Enter()
		if err != nil {
			b.Fatal(err)
		}
		if err := leave(); err != nil {
			b.Fatal(err)
		}
	}
}
