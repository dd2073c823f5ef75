package hook

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

// TestUring: the same rules for operations that no system call of the task makes.
func TestUring(t *testing.T) {
	x := enforcing(t)
	dir := place(t)
	j := x.jail(Jail{Rules: rules(t, dir), Enforce: true, Strict: true})
	var acts [][]string
	var wants []string
	for _, way := range []string{"uring", "uring-async"} {
		acts = append(acts, []string{way, filepath.Join(dir, "ok")}, []string{way, filepath.Join(dir, ".env")},
			[]string{way + "-unlink", filepath.Join(dir, "sub/.env")})
		wants = append(wants, "ok", "EACCES", "EACCES")
	}
	check(t, j.do(acts...), wants, acts)
}

// TestReceive: a descriptor that arrives is judged as if it were opened.
func TestReceive(t *testing.T) {
	x := enforcing(t)
	dir := place(t)
	j := x.jail(Jail{Rules: rules(t, dir), Enforce: true, Strict: true})
	inet, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inet)
	for _, c := range []struct {
		name string
		fd   func() (int, error)
		want string
	}{
		{"allowed file", func() (int, error) { return unix.Open(filepath.Join(dir, "ok"), unix.O_RDONLY, 0) }, "1"},
		{"denied file", func() (int, error) { return unix.Open(filepath.Join(dir, ".env"), unix.O_RDONLY, 0) }, "0"},
		{"read-only file for writing", func() (int, error) { return unix.Open(filepath.Join(dir, "ro/file"), unix.O_RDWR, 0) }, "0"},
		{"memfd", func() (int, error) { return unix.MemfdCreate("x", 0) }, "1"},
		{"inet socket made outside", func() (int, error) { return unix.Dup(inet) }, "0"},
	} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := c.fd()
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(fd), nil, 0); err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		far := os.NewFile(uintptr(pair[1]), "pair")
		cmd := j.command(self(t))
		cmd.Env, cmd.ExtraFiles = append(os.Environ(), "AGENTOS_ACT=receive"), []*os.File{far}
		out, err := cmd.CombinedOutput()
		if got := string(out); err != nil || got != c.want+"\n" {
			t.Errorf("%s: got %q descriptors, %v, want %s", c.name, got, err, c.want)
		}
		far.Close()
		unix.Close(pair[0])
	}
	x.wait("refused descriptor", func(e event.Event) bool {
		return e.Kind == event.Receive && e.Verdict == event.Deny && e.Path == filepath.Join(dir, ".env")
	})
}

// receive counts the descriptors that arrive on fd 3.
func receive() int {
	oob := make([]byte, 256)
	_, n, _, _, err := unix.Recvmsg(3, make([]byte, 1), oob, 0)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	count := 0
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m)
		count += len(fds)
	}
	fmt.Println(count)
	return 0
}

// TestOverlay: rules are about the merged view; the files below it, which the kernel
// opens by itself, are nobody's business.
func TestOverlay(t *testing.T) {
	x := enforcing(t)
	base := t.TempDir()
	p := func(name string) string { return filepath.Join(base, name) }
	for _, d := range []string{"lower/sub", "upper", "work", "home"} {
		if err := os.MkdirAll(p(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"lower/ok", "lower/ok2", "lower/.env", "lower/sub/x", "upper/key.pem"} {
		if err := os.WriteFile(p(f), []byte("text\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, "/bin/busybox", p("lower/true"))
	copyFile(t, "/bin/busybox", p("lower/denied-true"))
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", p("lower"), p("upper"), p("work"))
	if err := unix.Mount("overlay", p("home"), "overlay", 0, options); err != nil {
		t.Skipf("wanted overlayfs, got %v", err)
	}
	defer unix.Unmount(p("home"), unix.MNT_DETACH)
	j := x.jail(Jail{Rules: rules(t, p("home")), Enforce: true, Strict: true, Audit: AuditAll})
	var acts [][]string
	var wants []string
	add := func(want string, act ...string) { acts, wants = append(acts, act), append(wants, want) }
	add("ok", "read", p("home/ok"))
	add("ok", "write", p("home/ok")) // copied up
	add("ok", "truncate", p("home/ok2"))
	add("ok", "create", p("home/new"))
	add("ok", "mkdir", p("home/dir"))
	add("ok", "rename", p("home/ok2"), p("home/ok3"))
	add("ok", "unlink", p("home/ok3")) // a whiteout
	add("ok", "exec", p("home/true"))
	add("EACCES", "read", p("home/.env"))
	add("EACCES", "read", p("home/key.pem"))
	add("EACCES", "unlink", p("home/.env"))
	add("EACCES", "create", p("home/other.pem"))
	add("EACCES", "exec", p("home/denied-true"))
	check(t, j.do(acts...), wants, acts)
	if b, err := os.ReadFile(p("lower/ok2")); err != nil || string(b) != "text\n" {
		t.Errorf("the lower file changed: %q, %v", b, err)
	}
	x.wait("open in the merged view", func(e event.Event) bool { return e.Kind == event.Open && e.Path == p("home/ok") })
	for _, e := range x.events {
		if filepath.Dir(e.Path) == p("upper") || filepath.Dir(e.Path) == p("work") {
			t.Errorf("recorded below the view: %+v", e)
		}
	}
}
