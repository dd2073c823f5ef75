package broker

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestThreads(t *testing.T) {
	c := startChild(t, quiet)
	p := c.put("a", "content")
	if r := c.op("threads", []string{p, "content"}); r.Val != 64*200 {
		t.Errorf("%d of %d reads were right", r.Val, 64*200)
	}
}

func TestRace(t *testing.T) {
	c := startChild(t, quiet)
	c.put("race-a", "harmless")
	c.put(".env", "SECRET")
	c.put("sub/pub/k", "harmless")
	c.put("other/secrets/k", "SECRET")
	must(t, os.Symlink(".env", c.base+"/ws/race-b"))
	must(t, os.Symlink("other/secrets", c.base+"/ws/dir-b"))
	must(t, os.Symlink("sub/pub", c.base+"/ws/dir-a"))
	for _, names := range [][]string{{"race-a", "race-b", "SECRET"}, {"dir-a", "dir-b", "SECRET"}} {
		argv := names
		if names[0] == "dir-a" {
			argv = []string{"dir-a", "dir-b", "SECRET"}
		}
		r := c.op("race", argv, 2000)
		if r.Val != 0 {
			t.Errorf("%s: %d leaks in %s", names[0], r.Val, r.Data)
		}
		t.Logf("%s: %s", names[0], r.Data)
	}
}

func TestSignals(t *testing.T) {
	c := startChild(t, quiet)
	must(t, os.Mkdir(c.base+"/ws/sig", 0o777))
	must(t, os.Chmod(c.base+"/ws/sig", 0o777))
	if r := c.op("signals", []string{c.base + "/ws/sig"}, 2000); r.Errno != 0 {
		t.Errorf("file %d: %v", r.Val, unix.Errno(r.Errno))
	}
}

// descriptors counts those of ours that refer to the child's tree or processes, without what
// the workers remember of their callers (see TestRemembered). The runtime and os/exec open
// others whenever they like.
func (c *child) descriptors() int {
	n, _ := c.held()
	return n
}

// held counts descriptors: of calls, and of remembered callers.
func (c *child) held() (calls, callers int) {
	c.t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	must(c.t, err)
	self := fmt.Sprintf("/proc/%d/", os.Getpid())
	for _, e := range d {
		to, _ := os.Readlink("/proc/self/fd/" + e.Name())
		switch {
		case strings.HasPrefix(to, self):
		case strings.HasPrefix(to, "/proc/") && (strings.HasSuffix(to, "/exe") || strings.HasSuffix(to, "/status")), to == "anon_inode:[pidfd]":
			callers++
		case strings.HasPrefix(to, c.base), strings.HasPrefix(to, "/proc/"):
			calls++
		}
	}
	return calls, callers
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			links, _ := exec.Command("ls", "-l", "/proc/"+strconv.Itoa(os.Getpid())+"/fd").Output()
			t.Fatalf("not in a minute: %s\n%s", what, links)
		}
	}
}

func TestFifo(t *testing.T) {
	c := startChild(t, quiet)
	want(t, "mkfifo", c.sys(unix.SYS_MKNODAT, fdcwd, "fifo", unix.S_IFIFO|0o600, 0), 0)
	c.put("a", "a")

	// A reader waits for a writer; other calls go on.
	reader := c.begin(sysCommand(unix.SYS_OPENAT, fdcwd, "fifo", unix.O_RDONLY, 0))
	for range 20 {
		if got, e := c.content("a"); got != "a" {
			t.Fatal("another call during a blocked one:", e)
		}
	}
	select {
	case r := <-reader:
		t.Fatalf("reader did not wait: %+v", r)
	default:
	}
	w := c.open("fifo", unix.O_WRONLY)
	want(t, "writer", w, 0)
	r := <-reader
	want(t, "reader", r, 0)
	if flags := c.sys(unix.SYS_FCNTL, r.Val, unix.F_GETFL, 0).Val; flags&unix.O_NONBLOCK != 0 {
		t.Error("reader does not block any more")
	}
	c.sys(unix.SYS_WRITE, w.Val, []byte("hello"), 5)
	n := 10
	if got := c.sys(unix.SYS_READ, r.Val, &n, n); string(got.Data) != "hello" {
		t.Errorf("read %q", got.Data)
	}
	c.sys(unix.SYS_CLOSE, w.Val)
	if got := c.sys(unix.SYS_READ, r.Val, &n, n); got.Errno != 0 || got.Val != 0 {
		t.Errorf("no end of file: %+v", got)
	}
	c.sys(unix.SYS_CLOSE, r.Val)

	// A writer waits for a reader; without waiting it is ENXIO.
	want(t, "nonblocking writer", c.open("fifo", unix.O_WRONLY|unix.O_NONBLOCK), unix.ENXIO)
	want(t, "nonblocking reader", c.open("fifo", unix.O_RDONLY|unix.O_NONBLOCK), 0)
	want(t, "both", c.open("fifo", unix.O_RDWR), 0)

	// A writer that comes and goes before the reader has looked.
	if r := c.op("run", []string{"sh", "-c", "mkfifo q; for i in 1 2 3 4 5 6 7 8 9 10; do (echo hi > q) & x=$(cat q); [ \"$x\" = hi ] || exit 1; wait; done"}); r.Errno != 0 {
		t.Errorf("writer and reader: %s", r.Data)
	}
	// A waiting process ends by a signal it handles, and by one that kills.
	script := "mkfifo z; sh -c 'trap \"exit 7\" TERM; cat < z' & p=$!; sleep 0.3; kill -TERM $p; wait $p; a=$?; cat z & p=$!; sleep 0.2; kill -KILL $p; wait $p; echo $a $?"
	r = c.op("run", []string{"sh", "-c", script})
	if got := strings.TrimSpace(string(r.Data)); !strings.HasSuffix(got, "7 137") {
		t.Errorf("signals during a blocked open: %q, want 7 137", got)
	}
	eventually(t, "all descriptors are closed", func() bool { return c.descriptors() == 0 })
}

// TestKilled kills callers in the middle of calls and counts our descriptors.
func TestKilled(t *testing.T) {
	c := startChild(t, quiet)
	c.put("a", "a")
	script := "for i in 1 2 3 4 5 6 7 8; do (while :; do cat a a a a > b$i; rm b$i; done) & p=$!; sleep 0.05; kill -KILL $p; wait $p; done 2>/dev/null; true"
	if r := c.op("run", []string{"sh", "-c", script}); r.Errno != 0 {
		t.Errorf("%s", r.Data)
	}
	eventually(t, "all descriptors are closed", func() bool { return c.descriptors() == 0 })
}

// TestBusy runs programs that were written just before: none may be "text file busy".
func TestBusy(t *testing.T) {
	c := startChild(t, quiet)
	script := "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do cp /bin/true t$0 && ./t$0 || exit 1; rm t$0; done"
	var all []chan result
	for i := range 4 {
		all = append(all, c.begin(command{Op: "run", Argv: []string{"sh", "-c", script, strconv.Itoa(i)}}))
	}
	for _, ch := range all {
		if r := <-ch; r.Errno != 0 {
			t.Errorf("%s", r.Data)
		}
	}
}

// TestEnd: Serve ends by itself when nobody is left.
func TestEnd(t *testing.T) {
	c := startChild(t, quiet)
	c.in.Close()
	must(t, c.cmd.Wait())
}
