package hook

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

// enforcing answers the installation where files are enforced in the kernel, and
// skips elsewhere. AGENTOS_KERNEL_ROW says what this machine was booted for.
func enforcing(t *testing.T) *fixture {
	t.Helper()
	x := newFixture(t, 0)
	want := map[string]Tier{"A": TierA, "B": TierB, "full": TierC}
	if row, ok := os.LookupEnv("AGENTOS_KERNEL_ROW"); ok && x.f.Tier != want[row] {
		t.Fatalf("tier %s on a machine booted for row %s: %v", x.f.Tier, row, x.f.Why)
	}
	if x.f.Tier < TierB {
		t.Skipf("wanted tier A or B, got %s: %v", x.f.Tier, x.f.Why)
	}
	return x
}

// place makes a directory with the files of the matrix. A mount namespace root of its
// own is not needed: rules are anchored at the directory.
func place(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"secrets", "pub", "ro", "sub", "plain", "a/b"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{".env", "ok", "ok2", "ok3", "ok4", "ro/file", "secrets/file", "sub/key.pem", "pub/file", "sub/.env", "big", "a/b/f"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("text\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, ".env"), filepath.Join(dir, "innocent")); err != nil {
		t.Fatal(err)
	}
	copyFile(t, "/bin/busybox", filepath.Join(dir, "true"))
	copyFile(t, "/bin/busybox", filepath.Join(dir, "denied-true"))
	return dir
}

// TestFileMatrix is the functional matrix of the research, section 2.
func TestFileMatrix(t *testing.T) {
	x := enforcing(t)
	dir := place(t)
	j := x.jail(Jail{Rules: rules(t, dir), Enforce: true, Strict: true, Audit: AuditAll})
	p := func(name string) string { return filepath.Join(dir, name) }
	var acts [][]string
	var wants []string
	add := func(want string, act ...string) { acts, wants = append(acts, act), append(wants, want) }

	for _, way := range []string{"read", "write", "mode3", "relative", "dotdot", "procroot", "opath"} {
		add("EACCES", way, p(".env"))
		add("EACCES", way, p("sub/key.pem"))
		add("EACCES", way, p("secrets/file"))
		add("ok", way, p("ok"))
	}
	add("EACCES", "handle", p(".env"))
	add("EACCES", "tree", p("ok")) // a detached mount has no path here
	add("EACCES", "read", p("innocent"))
	add("ok", "read", p("ro/file"))
	add("EACCES", "write", p("ro/file"))
	add("EACCES", "trunc", p("ro/file"))
	add("EACCES", "create", p("new.pem"))
	add("EACCES", "create", p("ro/new"))
	add("EACCES", "create", p("secrets/new"))
	add("ok", "create", p("new"))
	add("EACCES", "mkdir", p("secrets/dir"))
	add("EACCES", "mkdir", p("dir.pem"))
	add("ok", "mkdir", p("dir"))
	add("EACCES", "mkfifo", p("fifo.pem"))
	add("ok", "mkfifo", p("fifo"))
	add("EACCES", "symlink", "/x", p("link.pem"))
	add("ok", "symlink", p(".env"), p("link"))
	add("EACCES", "read", p("link"))
	add("EACCES", "link", p(".env"), p("copy"))
	add("EACCES", "link", p("ok"), p("copy.pem"))
	add("EACCES", "link", p("ro/file"), p("copy"))
	add("ok", "link", p("ok"), p("copy"))
	add("EACCES", "tmpfile", p("tmp.pem"))
	add("ok", "tmpfile", p("tmp"))
	add("EACCES", "rename", p(".env"), p("env"))
	add("EACCES", "rename", p("ok2"), p("ok2.pem"))
	add("EACCES", "rename", p("ro/file"), p("rofile"))
	add("ok", "rename", p("ok2"), p("ok2b"))
	add("EACCES", "rename", p("secrets"), p("open"))
	add("EACCES", "rename", p("plain"), p("secrets/plain"))
	add("ok", "rename", p("plain"), p("plain2"))
	add("EACCES", "rename", dir, dir+"-moved") // what is below secrets would get out
	add("EACCES", "exchange", p(".env"), p("ok3"))
	add("EACCES", "exchange", p("ok3"), p(".env"))
	add("EACCES", "exchange", p("secrets"), p("pub"))
	add("EACCES", "exchange", p("pub"), p("secrets"))
	add("ok", "exchange", p("ok3"), p("ok4"))
	add("EACCES", "truncate", p(".env"))
	add("EACCES", "truncate", p("ro/file"))
	add("ok", "truncate", p("big"))
	add("EACCES", "chmod", p(".env"))
	add("ok", "chmod", p("big"))
	add("EACCES", "chmod-suid", p("big"))
	add("ok", "chmod-sgid", p("dir"))
	add("EACCES", "create-suid", p("suid"))
	add("EACCES", "tmpfile-suid", dir)
	add("EACCES", "chown", p("ro/file"))
	add("ok", "chown", p("big"))
	add("EACCES", "watch", p(".env"))
	add("ok", "watch", p("big"))
	add("EACCES", "unlink", p(".env"))
	add("EACCES", "unlink", p("ro/file"))
	add("EACCES", "rmdir", p("secrets"))
	add("ok", "unlink", p("copy"))
	add("ok", "rmdir", p("dir"))
	add("EACCES", "chroot", dir, "/.env")
	add("ok", "chroot", dir, "/ok")
	add("EACCES", "deep", p("sub"), "20", "250", ".env")
	add("ok", "deep", p("sub"), "20", "250", "fine")
	add("EACCES", "deep", p("a"), "300", "1", "fine") // more components than MAX_DEPTH
	add("EACCES", "exec", p("denied-true"))
	add("ok", "exec", p("true"))
	add("EACCES", "memfd", p("true")) // no path, so no rule allows it
	check(t, j.do(acts...), wants, acts)

	for _, f := range []string{"new.pem", "ro/new", "secrets/new", "dir.pem", "fifo.pem", "copy.pem", "tmp.pem", "ok2.pem"} {
		if _, err := os.Lstat(p(f)); err == nil {
			t.Errorf("%s was made", f)
		}
	}
	recorded(t, x, p)
}

// recorded waits for the records of some acts of the matrix.
func recorded(t *testing.T, x *fixture, p func(string) string) {
	t.Helper()
	x.wait("denied open", func(e event.Event) bool {
		return e.Kind == event.Open && e.Verdict == event.Deny && e.Path == p(".env") && e.Errno == int(unix.EACCES) && e.Flags&0o3 == 0
	})
	x.wait("allowed open", func(e event.Event) bool {
		return e.Kind == event.Open && e.Verdict == event.Allow && e.Path == p("ok") && e.Exe == self(t)
	})
	x.wait("denied rename", func(e event.Event) bool {
		return e.Kind == event.Rename && e.Verdict == event.Deny && e.Path == p("secrets") && e.Path2 == p("open")
	})
	x.wait("denied exec", func(e event.Event) bool {
		return e.Kind == event.Exec && e.Verdict == event.Deny && e.Path == p("denied-true")
	})
	x.wait("cut path", func(e event.Event) bool { return e.Kind == event.Create && e.Cut && e.Verdict == event.Deny })
	x.wait("symlink", func(e event.Event) bool {
		return e.Kind == event.Symlink && e.Path == p("link") && e.Path2 == p(".env")
	})
}

func check(t *testing.T, got, wants []string, acts [][]string) {
	t.Helper()
	for i, want := range wants {
		if got[i] != want {
			t.Errorf("%s: %s, want %s", strings.Join(acts[i], " "), got[i], want)
		}
	}
}

// TestGuardMatrix is what no jail may do, whatever its rules.
func TestGuardMatrix(t *testing.T) {
	x := enforcing(t)
	dir := place(t)
	j := x.jail(Jail{Rules: rules(t, dir), Enforce: true, Strict: true})
	outside := filepath.Join(dir, "outside.sock")
	l, err := net.Listen("unix", outside)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	granted, err := net.Listen("unix", filepath.Join(dir, "granted.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer granted.Close()
	abstract := fmt.Sprintf("@agentos-test-%d", os.Getpid())
	la, err := net.Listen("unix", abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer la.Close()
	dgram, err := net.ListenPacket("unixgram", filepath.Join(dir, "dgram.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer dgram.Close()
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "granted.sock"), &st); err != nil {
		t.Fatal(err)
	}
	if err := x.h.AllowUnix(j.id, st.Dev, st.Ino); err != nil {
		t.Fatal(err)
	}
	var acts [][]string
	var wants []string
	add := func(want string, act ...string) { acts, wants = append(acts, act), append(wants, want) }
	add("EPERM", "mount", filepath.Join(dir, "sub"))
	add("EPERM", "bind", dir, filepath.Join(dir, "sub"))
	add("EPERM", "umount", "/tmp")
	add("EPERM", "bpf")
	add("EPERM", "socket", "17", "3", "0")  // AF_PACKET
	add("EPERM", "socket", "40", "1", "0")  // AF_VSOCK
	add("EPERM", "socket", "38", "5", "0")  // AF_ALG
	add("EPERM", "socket", "16", "3", "15") // netlink, kobject events
	add("EPERM", "socket", "2", "3", "1")   // raw
	add("ok", "socket", "16", "3", "0")     // netlink, route
	add("ok", "socket", "2", "1", "0")
	add("ok", "socket", "1", "1", "0")
	add("EPERM", "unix", "unix", outside)
	add("EPERM", "unix", "unix", abstract)
	add("EPERM", "unix", "unixgram", filepath.Join(dir, "dgram.sock"))
	add("ok", "unix", "unix", filepath.Join(dir, "granted.sock"))
	add("EPERM", "ptrace", strconv.Itoa(os.Getpid()))
	add("EACCES", "mem", strconv.Itoa(os.Getpid()))
	check(t, j.do(acts...), wants, acts)
	x.wait("refused unix", func(e event.Event) bool {
		return e.Kind == event.UnixConnect && e.Verdict == event.Deny && e.Path == outside
	})
	x.wait("refused abstract", func(e event.Event) bool {
		return e.Kind == event.UnixConnect && e.Verdict == event.Deny && e.Addr == abstract
	})
	x.wait("mount", func(e event.Event) bool { return e.Kind == event.Mount && e.Verdict == event.Deny })
}

// race opens x/secrets/f (a[0]) for a[1] ms and prints how often it got in.
func race(a []string) int {
	var ms int
	fmt.Sscan(a[1], &ms)
	got, tries := 0, 0
	for end := time.Now().Add(time.Duration(ms) * time.Millisecond); time.Now().Before(end); tries++ {
		if fd, err := unix.Open(a[0], unix.O_RDONLY, 0); err == nil {
			got++
			unix.Close(fd)
		}
	}
	fmt.Println(got, tries)
	return 0
}

// TestRenameRace: an outsider moves the directory to and fro between two names that are
// both denied; a lockless walk could see neither.
func TestRenameRace(t *testing.T) {
	x := enforcing(t)
	dir := t.TempDir()
	for _, d := range []string{"x/secrets", "secrets"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	one, two := filepath.Join(dir, "secrets", "pub"), filepath.Join(dir, "y")
	// Deep, so that most of an open is the walk: an emulated machine changes tasks seldom, and has
	// to do so within one.
	deep := strings.Repeat("d/", 60)
	if err := os.MkdirAll(filepath.Join(one, deep), 0o755); err != nil {
		t.Fatal(err)
	}
	// one is denied by secrets/**, two by being named *.pem: no name of it is allowed.
	two += ".pem"
	if err := os.WriteFile(filepath.Join(one, deep, "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(one) // found again wherever it is
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	// Not strict: 16,000 denials a second fill the ring, and a strict jail whose record of an
	// exec is lost ends that exec (TestStrictNeedsRecord), here the next round's.
	j := x.jail(Jail{Rules: raceRules(t, dir), Enforce: true})
	stop := make(chan struct{})
	done := make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				done <- n
				return
			default:
			}
			unix.Rename(one, two)
			unix.Rename(two, one)
			n += 2
		}
	}()
	var s Stats
	for began := time.Now(); s.Retries < 3 && time.Since(began) < 4*time.Minute; {
		if s.Retries > 0 && time.Since(began) > 30*time.Second {
			break // met, on a machine that meets it seldom
		}
		cmd := j.command(self(t), "/proc/self/fd/3/"+deep+"f", "1000")
		cmd.Env, cmd.ExtraFiles = append(os.Environ(), "AGENTOS_ACT=race"), []*os.File{held}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "0 ") {
			t.Errorf("opened while renamed (times, tries): %s, %v", out, err)
		}
		if s, err = x.h.Stats(j.id); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if n, err := x.h.Misses(); n != 0 || err != nil {
		t.Errorf("%d operations were not judged, %v", n, err)
	}
	t.Logf("%d renames, %+v", <-done, s)
	if s.Retries == 0 {
		t.Error("the race was not met: no walk was repeated")
	}
}
