package broker

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail/opens"
)

func want(t *testing.T, what string, r result, e unix.Errno) {
	t.Helper()
	if unix.Errno(r.Errno) != e {
		t.Errorf("%s: %v, want %v", what, unix.Errno(r.Errno), e)
	}
}

func TestOpen(t *testing.T) {
	c := startChild(t, nil)
	c.put("a.txt", "plain")
	c.put("dir/b.txt", "nested")
	c.put(".env", "SECRET")
	c.put("dir/.env", "SECRET")
	c.put("secrets/k", "SECRET")
	c.put("ro/f", "protected")
	ws := c.base + "/ws"
	must(t, os.Symlink("a.txt", ws+"/good"))
	must(t, os.Symlink(ws+"/.env", ws+"/bad"))
	must(t, os.Symlink("dir", ws+"/dlink"))
	must(t, os.Symlink("secrets", ws+"/slink"))
	must(t, os.Symlink("loop", ws+"/loop"))
	must(t, os.Symlink("/proc/self/cwd", ws+"/pcwd"))

	for path, text := range map[string]string{
		"a.txt": "plain", ws + "/a.txt": "plain", "dir/b.txt": "nested", "dir/../a.txt": "plain", "good": "plain",
		"dlink/b.txt": "nested", "dlink/../a.txt": "plain", "/proc/self/cwd/a.txt": "plain", "/proc/thread-self/cwd/dir/b.txt": "nested",
		".//./dir///b.txt": "nested", "/proc/self/root" + ws + "/a.txt": "plain", "pcwd/good": "plain",
		"secrets/../a.txt": "plain",
	} {
		if got, e := c.content(path); got != text || e != 0 {
			t.Errorf("read %s: %q %v, want %q", path, got, e, text)
		}
	}
	for path, e := range map[string]unix.Errno{
		".env": unix.EACCES, ws + "/.env": unix.EACCES, "dir/.env": unix.EACCES, "bad": unix.EACCES, "secrets/k": unix.EACCES,
		"slink/k": unix.EACCES, "secrets": unix.EACCES, "dir/../.env": unix.EACCES, "/proc/self/cwd/.env": unix.EACCES,
		"/proc/self/root" + ws + "/.env": unix.EACCES, ".//./.env": unix.EACCES, "pcwd/bad": unix.EACCES,
		"missing": unix.ENOENT, "missing/x": unix.ENOENT, "a.txt/x": unix.ENOTDIR, "a.txt/": unix.ENOTDIR, "loop": unix.ELOOP,
		"": unix.ENOENT, strings.Repeat("n", 256): unix.ENAMETOOLONG, strings.Repeat("/x", 2100): unix.ENAMETOOLONG,
		"/proc/self/fd/99": unix.ENOENT, "/etc/shadow": unix.EACCES,
	} {
		want(t, "read "+path, c.open(path, unix.O_RDONLY), e)
	}
	for _, absent := range []string{"gone/.env", ws + "/gone/../.gone/.env", "secrets/none"} {
		want(t, "read absent "+absent, c.open(absent, unix.O_RDONLY), unix.ENOENT)
	}
	if !c.saw(func(e event.Event) bool {
		return e.Verdict == event.Deny && e.Path == ws+"/gone/.env" && unix.Errno(e.Errno) == unix.ENOENT
	}) {
		t.Error("no record of the try to read a denied name that is not there")
	}
	want(t, "write protected", c.open("ro/f", unix.O_WRONLY), unix.EACCES)
	want(t, "truncate protected", c.open("ro/f", unix.O_RDONLY|unix.O_TRUNC), unix.EACCES)
	want(t, "write outside", c.open("/etc/hostname", unix.O_WRONLY), unix.EACCES)
	want(t, "write", c.open("a.txt", unix.O_RDWR|unix.O_APPEND), 0)
	want(t, "nofollow", c.open("good", unix.O_RDONLY|unix.O_NOFOLLOW), unix.ELOOP)
	want(t, "directory", c.open("a.txt", unix.O_RDONLY|unix.O_DIRECTORY), unix.ENOTDIR)
	want(t, "directory", c.open("dir", unix.O_RDONLY|unix.O_DIRECTORY), 0)
	want(t, "noatime of another", c.open("/etc/hostname", unix.O_RDONLY|unix.O_NOATIME), unix.EPERM)
	want(t, "bad pointer", c.sys(unix.SYS_OPENAT, unix.AT_FDCWD, 8, 0), unix.EFAULT)
	want(t, "bad dirfd", c.sys(unix.SYS_OPENAT, 99, "x", 0), unix.EBADF)
	if !c.saw(func(e event.Event) bool {
		return e.Kind == event.Open && e.Verdict == event.Deny && e.Path == ws+"/dir/.env" && e.Rule == "rule 7" &&
			e.Exe == c.base+"/child" && int(e.JailPid) == c.cmd.Process.Pid
	}) {
		t.Error("no event of the denied dir/.env")
	}
	if !c.saw(func(e event.Event) bool { return e.Verdict == event.Allow && e.Path == ws+"/a.txt" }) {
		t.Error("no event of the allowed a.txt")
	}
}

func TestFlags(t *testing.T) {
	c := startChild(t, nil)
	c.put("f", "x")
	for _, flags := range []int{
		unix.O_RDONLY, unix.O_RDONLY | unix.O_CLOEXEC, unix.O_RDWR | unix.O_APPEND, unix.O_RDONLY | unix.O_NONBLOCK, unix.O_WRONLY | unix.O_SYNC,
		unix.O_RDWR | unix.O_DSYNC | unix.O_CLOEXEC, unix.O_RDONLY | unix.O_NOATIME, unix.O_WRONLY | unix.O_CREAT | unix.O_APPEND,
		unix.O_RDONLY | unix.O_DIRECT,
	} {
		r := c.open("f", flags, 0o644)
		if r.Errno == int(unix.EINVAL) && flags&unix.O_DIRECT != 0 {
			continue // not on every file system
		}
		want(t, fmt.Sprintf("open %#x", flags), r, 0)
		got := int(c.sys(unix.SYS_FCNTL, r.Val, unix.F_GETFL, 0).Val)
		if w := flags&^(unix.O_CLOEXEC|unix.O_CREAT) | nativeLargefile; got != w {
			t.Errorf("flags %#x became %#x", w, got)
		}
		if fd := int(c.sys(unix.SYS_FCNTL, r.Val, unix.F_GETFD, 0).Val); (fd == unix.FD_CLOEXEC) != (flags&unix.O_CLOEXEC != 0) {
			t.Errorf("open %#x: close-on-exec is %d", flags, fd)
		}
		c.sys(unix.SYS_CLOSE, r.Val)
	}
}

func TestReopen(t *testing.T) {
	c := startChild(t, nil)
	c.put("a.txt", "plain")
	c.put(".env", "SECRET")
	r := c.open(".env", unix.O_PATH)
	want(t, "O_PATH", r, 0)
	for _, f := range []string{"/proc/self/fd/%d", "/dev/fd/%d", "/proc/thread-self/fd/%d"} {
		want(t, "reopen "+f, c.open(fmt.Sprintf(f, r.Val), unix.O_RDONLY), unix.EACCES)
	}
	r = c.open("a.txt", unix.O_PATH)
	for _, f := range []string{"/proc/self/fd/%d", "/dev/fd/%d", "/proc/thread-self/fd/%d"} {
		if got, e := c.content(fmt.Sprintf(f, r.Val)); got != "plain" {
			t.Errorf("reopen %s: %q %v", f, got, e)
		}
	}
	d := c.open(".", unix.O_PATH|unix.O_DIRECTORY)
	want(t, "dirfd", c.sys(unix.SYS_OPENAT, d.Val, "a.txt", 0), 0)
	want(t, "dirfd denied", c.sys(unix.SYS_OPENAT, d.Val, ".env", 0), unix.EACCES)
	if got, e := c.content(fmt.Sprintf("/dev/fd/%d/a.txt", d.Val)); got != "plain" {
		t.Errorf("through /dev/fd: %q %v", got, e)
	}
	want(t, "through /dev/fd denied", c.open(fmt.Sprintf("/dev/fd/%d/.env", d.Val), 0), unix.EACCES)
	// A pipe has no name.
	n := 8
	p := c.sys(unix.SYS_PIPE2, &n, 0)
	_ = p
	m := c.sys(unix.SYS_MEMFD_CREATE, "m", 0)
	want(t, "memfd", c.open(fmt.Sprintf("/proc/self/fd/%d", m.Val), unix.O_RDWR), 0)
	// Unlinked, still open.
	u := c.open("gone", unix.O_CREAT|unix.O_RDWR, 0o600)
	must(t, os.Remove(c.base+"/ws/gone"))
	want(t, "unlinked", c.open(fmt.Sprintf("/proc/self/fd/%d", u.Val), unix.O_RDWR), 0)
}

func TestProc(t *testing.T) {
	c := startChild(t, nil)
	pid := c.cmd.Process.Pid
	if got, e := c.content("/proc/self/status"); e != 0 || !strings.Contains(got, fmt.Sprintf("\nPid:\t%d\n", pid)) {
		t.Errorf("/proc/self/status is not the caller's: %v %.60q", e, got)
	}
	if got, e := c.content("/proc/self/cmdline"); e != 0 || !strings.HasPrefix(got, c.base+"/child") {
		t.Errorf("/proc/self/cmdline: %v %q", e, got)
	}
	if got, e := c.content("/proc/self/environ"); e != 0 || !strings.Contains(got, childEnv) {
		t.Errorf("/proc/self/environ: %v %q", e, got)
	}
	if got, e := c.content("/proc/mounts"); e != 0 || got == "" {
		t.Errorf("/proc/mounts: %v", e)
	}
	if got, e := c.content("/proc/net/dev"); e != 0 || got == "" {
		t.Errorf("/proc/net/dev: %v", e)
	}
	us := os.Getpid()
	for _, p := range []string{"environ", "mem", "maps", "fd", "fd/0", "root/etc/hostname", "cwd", "exe", "ns/mnt", "task/%d/environ", "auxv", "stack"} {
		if strings.Contains(p, "%d") {
			p = fmt.Sprintf(p, us)
		}
		r := c.open(fmt.Sprintf("/proc/%d/%s", us, p), unix.O_RDONLY)
		if r.Errno != int(unix.EACCES) && r.Errno != int(unix.EPERM) && r.Errno != int(unix.ENOENT) {
			t.Errorf("the broker's %s: %v", p, unix.Errno(r.Errno))
		}
	}
	want(t, "the broker's stat", c.open(fmt.Sprintf("/proc/%d/stat", us), unix.O_RDONLY), 0)
	for _, f := range []string{"environ", "maps", "root/etc/hostname", "mem"} { // pid 1: root's, not ours
		want(t, "/proc/1/"+f, c.open("/proc/1/"+f, unix.O_RDONLY), unix.EACCES)
	}
	want(t, "write mem", c.open("/proc/self/mem", unix.O_RDWR), unix.EACCES)
	want(t, "write task mem", c.open(fmt.Sprintf("/proc/%d/task/%d/mem", pid, pid), unix.O_WRONLY), unix.EACCES)
	want(t, "sysctl", c.open("/proc/sys/net/ipv4/ip_forward", unix.O_WRONLY), unix.EACCES)
	want(t, "comm", c.open("/proc/self/comm", unix.O_WRONLY|unix.O_TRUNC|unix.O_CREAT, 0o644), 0)
	// Descriptors that the broker has and the caller has not.
	want(t, "tty", c.open("/dev/tty", unix.O_RDWR), unix.ENXIO)
	want(t, "null", c.open("/dev/null", unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o666), 0)
}

func TestCreate(t *testing.T) {
	c := startChild(t, nil)
	c.put("a.txt", "plain")
	c.put("secrets/k", "SECRET")
	c.put(".git/hooks/x", "hook")
	c.put("ro/f", "protected")
	ws := c.base + "/ws"
	must(t, os.Symlink("made", ws+"/dangling"))
	must(t, os.Symlink(ws+"/.env", ws+"/dangling-env"))
	must(t, os.Symlink("/etc/made-by-test", ws+"/dangling-out"))
	must(t, os.Symlink("dangling2", ws+"/dangling1"))
	must(t, os.Symlink("deep/made", ws+"/dangling2"))
	must(t, os.Symlink("a.txt", ws+"/good"))
	must(t, os.Mkdir(ws+"/deep", 0o777))
	must(t, os.Chmod(ws+"/deep", 0o777))
	const creat = unix.O_CREAT | unix.O_WRONLY

	for path, e := range map[string]unix.Errno{
		"new": 0, ws + "/new2": 0, "deep/new": 0, "deep/../new3": 0, "good": 0, "dangling": 0, "dangling1": 0,
		".env": unix.EACCES, "deep/.env": unix.EACCES, "x.pem": unix.EACCES, "secrets/new": unix.EACCES, "secrets/k": unix.EACCES,
		".git/hooks/pre-commit": unix.EACCES, ".git/hooks/x": unix.EACCES, "dangling-env": unix.EACCES, "dangling-out": unix.EACCES,
		"/etc/made-by-test": unix.EACCES, "missing/new": unix.ENOENT, "a.txt/new": unix.ENOTDIR, ".": unix.EISDIR, "deep": unix.EISDIR,
		"newslash/": unix.EISDIR, "ro/f": unix.EACCES, "ro/new": unix.EACCES,
	} {
		want(t, "create "+path, c.open(path, creat, 0o666), e)
	}
	for _, p := range []string{"/.env", "/x.pem", "/secrets/new"} {
		if _, err := os.Lstat(ws + p); err == nil {
			t.Error(p, "was made")
		}
	}
	if _, err := os.Lstat(ws + "/deep/made"); err != nil {
		t.Error("chain of dangling links:", err)
	}
	if _, err := os.Lstat(ws + "/made"); err != nil {
		t.Error("dangling link:", err)
	}
	want(t, "excl existing", c.open("a.txt", creat|unix.O_EXCL, 0o666), unix.EEXIST)
	want(t, "excl link", c.open("good", creat|unix.O_EXCL, 0o666), unix.EEXIST)
	want(t, "excl new", c.open("excl", creat|unix.O_EXCL, 0o666), 0)
	want(t, "nofollow", c.open("good", creat|unix.O_NOFOLLOW, 0o666), unix.ELOOP)
	want(t, "read-only create of existing", c.open("ro/f", unix.O_RDONLY|unix.O_CREAT, 0o666), 0)
	want(t, "setuid", c.open("suid", creat, 0o4755), unix.EPERM)
	want(t, "tmpfile", c.open("deep", unix.O_TMPFILE|unix.O_RDWR, 0o600), 0)
	want(t, "tmpfile denied", c.open("secrets", unix.O_TMPFILE|unix.O_RDWR, 0o600), unix.EACCES)
	want(t, "tmpfile outside", c.open("/etc", unix.O_TMPFILE|unix.O_RDWR, 0o600), unix.EACCES)
	if unix.SYS_OPENAT != 56 { // not arm64
		want(t, "creat", c.sys(oldCreat, "made-by-creat", 0o666), 0)
	}

	c.op("umask", nil, 0o027)
	want(t, "create with umask", c.open("masked", creat, 0o666), 0)
	st, err := os.Stat(ws + "/masked")
	must(t, err)
	if st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, want 0640", st.Mode())
	}
	var sys unix.Stat_t
	must(t, unix.Stat(ws+"/masked", &sys))
	if sys.Uid != testUID || sys.Gid != testGID {
		t.Errorf("made as %d:%d", sys.Uid, sys.Gid)
	}
	if !c.saw(func(e event.Event) bool { return e.Kind == event.Create && e.Path == ws+"/masked" && e.Errno == 0 }) {
		t.Error("no event of a file that was made")
	}
	if !c.saw(func(e event.Event) bool { return e.Verdict == event.Deny && e.Path == ws+"/.git/hooks/pre-commit" }) {
		t.Error("no event of a file that was not made")
	}
}

func how(flags, mode, resolve uint64, more ...byte) []byte {
	var b []byte
	for _, v := range []uint64{flags, mode, resolve} {
		for i := range 8 {
			b = append(b, byte(v>>(8*i)))
		}
	}
	return append(b, more...)
}

func TestOpenat2(t *testing.T) {
	c := startChild(t, nil)
	c.put("a.txt", "plain")
	c.put("dir/b.txt", "nested")
	c.put(".env", "SECRET")
	ws := c.base + "/ws"
	must(t, os.Symlink("a.txt", ws+"/good"))
	must(t, os.Symlink("/a.txt", ws+"/abs"))
	d := int(c.open("dir", unix.O_PATH).Val)
	w := int(c.open(".", unix.O_PATH).Val)
	proc := int(c.open("/proc", unix.O_PATH).Val)
	for _, x := range []struct {
		at   int
		path string
		how  []byte
		e    unix.Errno
	}{
		{unix.AT_FDCWD, "a.txt", how(0, 0, 0), 0},
		{unix.AT_FDCWD, ".env", how(0, 0, 0), unix.EACCES},
		{d, "../a.txt", how(0, 0, 0), 0},
		{d, "../a.txt", how(0, 0, unix.RESOLVE_BENEATH), unix.EXDEV},
		{d, "b.txt", how(0, 0, unix.RESOLVE_BENEATH), 0},
		{w, "/a.txt", how(0, 0, unix.RESOLVE_IN_ROOT), 0},
		{w, "/../a.txt", how(0, 0, unix.RESOLVE_IN_ROOT), 0},
		{w, "abs", how(0, 0, unix.RESOLVE_IN_ROOT), 0},
		{w, "/.env", how(0, 0, unix.RESOLVE_IN_ROOT), unix.EACCES},
		{w, "abs", how(0, 0, unix.RESOLVE_BENEATH), unix.EXDEV},
		{w, "good", how(0, 0, unix.RESOLVE_NO_SYMLINKS), unix.ELOOP},
		{w, "good", how(unix.O_PATH|unix.O_NOFOLLOW, 0, unix.RESOLVE_NO_SYMLINKS), unix.ENOSYS},
		{w, "/proc/self/cwd/a.txt", how(0, 0, unix.RESOLVE_NO_MAGICLINKS), unix.ELOOP},
		{w, "/proc/self/stat", how(0, 0, unix.RESOLVE_NO_MAGICLINKS), 0},
		{proc, "self/stat", how(0, 0, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_XDEV|unix.RESOLVE_NO_MAGICLINKS), 0},
		{w, "/proc/self/stat", how(0, 0, unix.RESOLVE_NO_XDEV), unix.EXDEV},
		{w, "a.txt", how(0, 0, resolveCached), unix.EAGAIN},
		{w, "a.txt", how(0, 0o644, 0), unix.EINVAL},
		{w, "a.txt", how(1<<40, 0, 0), unix.EINVAL},
		{w, "a.txt", how(0, 0, 1<<20), unix.EINVAL},
		{w, "a.txt", how(unix.O_PATH|unix.O_RDWR, 0, 0), unix.EINVAL},
		{w, "a.txt", how(0, 0, 0, 0, 0, 0), 0},
		{w, "a.txt", how(0, 0, 0, 0, 0, 1), unix.E2BIG},
		{w, "a.txt", how(0, 0, 0)[:16], unix.EINVAL},
		{w, "beneath", how(unix.O_CREAT|unix.O_RDWR, 0o600, unix.RESOLVE_BENEATH), 0},
		{d, "../beneath2", how(unix.O_CREAT|unix.O_RDWR, 0o600, unix.RESOLVE_BENEATH), unix.EXDEV},
	} {
		r := c.sys(unix.SYS_OPENAT2, x.at, x.path, x.how, len(x.how))
		want(t, fmt.Sprintf("openat2 %s %x", x.path, x.how), r, x.e)
		if r.Errno == 0 {
			c.sys(unix.SYS_CLOSE, r.Val)
		}
	}
}

// TestLinked: a file that was refused under one of its names is refused under the others, to be read and to be changed; others are not.
func TestLinked(t *testing.T) {
	c := startChild(t, func(c *Config) { c.Linked = &opens.Linked{} })
	for _, name := range []string{".env", "ro/f", "a.txt"} {
		c.put(name, "content")
		must(t, os.Link(c.base+"/ws/"+name, c.base+"/ws/link-"+strings.ReplaceAll(name, "/", "-")))
	}
	const trunc = unix.O_TRUNC
	want(t, "not known yet", c.open("link-.env", unix.O_RDWR), 0)
	want(t, "the denied name", c.open(".env", unix.O_RDWR), unix.EACCES)
	want(t, "the protected name", c.open("ro/f", unix.O_WRONLY|unix.O_CREAT), unix.EACCES)
	for _, flags := range []int{unix.O_RDONLY, unix.O_RDWR, unix.O_WRONLY | trunc, unix.O_RDWR | unix.O_CREAT, unix.O_WRONLY | unix.O_CREAT | trunc} {
		want(t, fmt.Sprintf("denied, flags %#x", flags), c.open("link-.env", flags), unix.EACCES)
		want(t, fmt.Sprintf("plain, flags %#x", flags), c.open("link-a.txt", flags), 0)
		if flags != unix.O_RDONLY {
			want(t, fmt.Sprintf("protected, flags %#x", flags), c.open("link-ro-f", flags), unix.EACCES)
		}
	}
	want(t, "protected, read", c.open("link-ro-f", unix.O_RDONLY), 0)
	want(t, "truncate", c.sys(unix.SYS_TRUNCATE, "link-ro-f", 0), unix.EACCES)
	want(t, "chmod", c.sys(unix.SYS_FCHMODAT, fdcwd, "link-.env", 0o777), unix.EACCES)
	for _, name := range []string{".env", "ro/f"} {
		if b, err := os.ReadFile(c.base + "/ws/" + name); err != nil || string(b) != "content" {
			t.Errorf("%s is %q now (%v)", name, b, err)
		}
	}
}
