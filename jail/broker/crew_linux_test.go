package broker

import (
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

// TestCrew: calls that wait do not stop the others, and end when what they wait for comes.
func TestCrew(t *testing.T) {
	release := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	c := startChild(t, func(c *Config) {
		c.Workers, c.Audit = 4, AuditDenied
		c.Emit = func(event.Event) { <-release }
	})
	c.put("a", "a")
	c.put(".env", "SECRET")
	t.Cleanup(letGo) // before the broker is stopped
	var waiting []chan result
	for range 3 {
		waiting = append(waiting, c.begin(sysCommand(unix.SYS_OPENAT, fdcwd, ".env", unix.O_RDONLY, 0)))
		select {
		case r := <-c.begin(sysCommand(unix.SYS_OPENAT, fdcwd, "a", unix.O_RDONLY, 0)):
			want(t, "another call", r, 0)
		case <-time.After(time.Minute):
			t.Fatalf("%d waiting calls stop all others", len(waiting))
		}
	}
	for _, ch := range waiting {
		select {
		case r := <-ch:
			t.Fatalf("did not wait: %+v", r)
		default:
		}
	}
	letGo()
	for _, ch := range waiting {
		want(t, "after waiting", <-ch, unix.EACCES)
	}
	eventually(t, "one receiver", func() bool { return c.b.crew.on.Load() == 1 })
	if got, e := c.content("a"); got != "a" {
		t.Error("afterwards:", e)
	}
}

// TestRemembered: what workers keep of their callers is bounded, and is never what a caller before
// them was.
func TestRemembered(t *testing.T) {
	c := startChild(t, nil)
	c.put(".env", "SECRET")
	// One process is two programs after another; many more come after it.
	script := `read x <.env; exec cat .env; exit 0`
	for range 40 {
		_ = c.do(command{Op: "run", Argv: []string{"sh", "-c", script}})
	}
	c.mu.Lock()
	events := c.events
	c.mu.Unlock()
	shell, err := os.Readlink("/bin/sh")
	must(t, err)
	byPid := map[int32][]string{}
	for _, e := range events {
		if strings.HasSuffix(e.Path, "/.env") {
			byPid[e.JailPid] = append(byPid[e.JailPid], path.Base(e.Exe))
		}
	}
	if len(byPid) != 40 {
		t.Errorf("%d processes instead of 40", len(byPid))
	}
	for pid, programs := range byPid {
		if strings.Join(programs, " ") != path.Base(shell)+" cat" {
			t.Errorf("process %d was %q", pid, programs)
		}
	}
	if _, n := c.held(); n == 0 || n > 3*remembered*2 {
		t.Errorf("%d descriptors of callers", n)
	}
}

// TestRootLinks: a way through a link of the root directory is the way it stands for.
func TestRootLinks(t *testing.T) {
	target, err := os.Readlink("/lib")
	if err != nil {
		t.Skip("wanted /lib to be a link:", err)
	}
	b, err := New(Config{UID: testUID})
	must(t, err)
	must(t, b.openRoots())
	b.closeRoots()
	if len(b.rootLinks) == 0 {
		t.Error("no link was found")
	}
	c := startChild(t, nil)
	name := "/lib/os-release"
	r := c.open(name, unix.O_RDONLY)
	want(t, "open", r, 0)
	full := path.Join("/", target, "os-release")
	if real, err := os.Readlink(full); err == nil {
		full = path.Join(path.Dir(full), real)
	}
	if !c.saw(func(e event.Event) bool { return e.Path == full && e.Verdict == event.Allow }) {
		t.Error("no record of", full)
	}
	want(t, "missing", c.open("/lib/no-such-file", unix.O_RDONLY), unix.ENOENT)
	want(t, "not followed", c.open("/lib", unix.O_RDONLY|unix.O_NOFOLLOW), unix.ELOOP)
	want(t, "no directory", c.open("/lib/os-release/x", unix.O_RDONLY), unix.ENOTDIR)
	// The agent's own links are followed as they are.
	must(t, os.Symlink(c.base+"/ws", c.base+"/ws/link"))
	c.put("a", "a")
	if got, e := c.content("link/link/a"); got != "a" {
		t.Error("through links:", e)
	}
	want(t, "missing behind links", c.open("link/link/b", unix.O_RDONLY), unix.ENOENT)
}

// TestAbsent: the record of a name that is not there has it as the rules would.
func TestAbsent(t *testing.T) {
	c := startChild(t, quiet)
	must(t, os.Mkdir(c.base+"/ws/d", 0o755))
	dir := c.open("d", unix.O_RDONLY|unix.O_DIRECTORY)
	want(t, "directory", dir, 0)
	want(t, "by descriptor", c.sys(unix.SYS_OPENAT, dir.Val, "..//./d/.env", unix.O_RDONLY, 0), unix.ENOENT)
	if !c.saw(func(e event.Event) bool { return e.Path == c.base+"/ws/d/.env" && e.Errno == int(unix.ENOENT) }) {
		t.Error("not recorded")
	}
	want(t, "harmless", c.sys(unix.SYS_OPENAT, dir.Val, "env", unix.O_RDONLY, 0), unix.ENOENT)
	if c.saw(func(e event.Event) bool { return strings.HasSuffix(e.Path, "/env") }) {
		t.Error("a name that no rule denies was recorded")
	}
}

func TestAppendClean(t *testing.T) {
	for _, dir := range []string{"", "/", "/a", "/a/b"} {
		for _, p := range []string{"/", "x", "x/", ".", "..", "../..", "../../../x", "a//b/./c", "x/../y", "/../x", "a/b/../../..", "...", ".x/..y"} {
			if dir == "" && p[0] != '/' {
				continue
			}
			if got, want := string(appendClean([]byte(dir), []byte(p))), path.Join("/", dir, p); got != want {
				t.Errorf("%q %q: %q instead of %q", dir, p, got, want)
			}
		}
	}
}
