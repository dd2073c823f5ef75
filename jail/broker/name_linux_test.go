package broker

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

const fdcwd = unix.AT_FDCWD

func (c *child) rename(from, to string, flags int) result {
	c.t.Helper()
	return c.sys(unix.SYS_RENAMEAT2, fdcwd, from, fdcwd, to, flags)
}

func TestRename(t *testing.T) {
	c := startChild(t, nil)
	c.put("a", "a")
	c.put("b", "b")
	c.put("dir/x", "x")
	c.put("dir2/y", "y")
	c.put("plain/k", "k")
	c.put("secrets/k", "SECRET")
	c.put("sub/secrets/k", "SECRET")
	c.put(".env", "SECRET")
	c.put("ro/f", "protected")
	c.put("deep/ro/f", "protected")
	c.put(".git/hooks/h", "hook")
	c.put("wo", "write only")
	ws := c.base + "/ws"
	for _, x := range []struct {
		from, to string
		flags    int
		e        unix.Errno
	}{
		{"a", "a2", 0, 0},
		{"a2", "dir/a", 0, 0},
		{"dir/a", ws + "/a", 0, 0},
		{"a", "b", unix.RENAME_NOREPLACE, unix.EEXIST},
		{"a", "b", unix.RENAME_EXCHANGE, 0},
		{"dir", "dir3", 0, 0},
		{"dir3/", "dir/", 0, 0},
		{".env", "env", 0, unix.EACCES},
		{".env", ".ENV", 0, unix.EACCES},
		{"a", ".env", 0, unix.EACCES},
		{"a", "secrets/a", 0, unix.EACCES},
		{"secrets/k", "k", 0, unix.EACCES},
		{"secrets", "pub", 0, unix.EACCES},
		{"plain", "secrets", 0, unix.EACCES},
		{"secrets", "plain", unix.RENAME_EXCHANGE, unix.EACCES},
		{"sub", "sub2", 0, 0}, // secrets stays secrets
		{".git", "git-old", 0, unix.EXDEV},
		{".git/hooks", "hooks", 0, unix.EACCES},
		{"ro", "rw", 0, unix.EACCES},
		{"deep/ro", "rw", 0, unix.EACCES},
		{"deep", "deeper", 0, 0},
		{"wo", "readable", 0, unix.EACCES},
		{"a", "/etc/a", 0, unix.EACCES},
		{"/etc/hostname", "a", 0, unix.EACCES},
		{"missing", "x", 0, unix.ENOENT},
		{"a/", "x", 0, unix.ENOTDIR},
		{"dir", "dir/sub", 0, unix.EINVAL},
		{".", "x", 0, unix.EBUSY},
		{"a", "x", unix.RENAME_WHITEOUT, unix.EPERM},
		{"a", "x", 64, unix.EINVAL},
		{"/proc/self/comm", "x", 0, unix.EPERM},
	} {
		want(t, fmt.Sprintf("rename %s %s %d", x.from, x.to, x.flags), c.rename(x.from, x.to, x.flags), x.e)
	}
	if !c.saw(func(e event.Event) bool {
		return e.Kind == event.Rename && e.Verdict == event.Deny && e.Path == ws+"/.env" && e.Path2 == ws+"/env"
	}) {
		t.Error("no event of a rename that was refused")
	}
}

func TestLink(t *testing.T) {
	c := startChild(t, nil)
	c.put("a", "a")
	c.put(".env", "SECRET")
	c.put("ro/f", "protected")
	ws := c.base + "/ws"
	must(t, os.Symlink(".env", ws+"/to-env"))
	must(t, os.Lchown(ws+"/to-env", testUID, testGID)) // fs.protected_hardlinks
	must(t, os.Symlink("a", ws+"/to-a"))
	link := func(from, to string, flags int) result { return c.sys(unix.SYS_LINKAT, fdcwd, from, fdcwd, to, flags) }
	want(t, "link", link("a", "a2", 0), 0)
	want(t, "link existing", link("a", "a2", 0), unix.EEXIST)
	want(t, "link denied", link(".env", "x1", 0), unix.EACCES)
	want(t, "link to denied name", link("a", "x.pem", 0), unix.EACCES)
	want(t, "link protected", link("ro/f", "x2", 0), unix.EACCES)
	want(t, "link outside", link("/etc/hostname", "x3", 0), unix.EACCES)
	want(t, "link through link", link("to-env", "x4", unix.AT_SYMLINK_FOLLOW), unix.EACCES)
	want(t, "link through link", link("to-a", "x5", unix.AT_SYMLINK_FOLLOW), 0)
	want(t, "link of link", link("to-env", "x6", 0), 0)
	want(t, "read through it", c.open("x6", 0), unix.EACCES)
	p := c.open(".env", unix.O_PATH)
	want(t, "link of descriptor", link(fmt.Sprintf("/proc/self/fd/%d", p.Val), "x7", unix.AT_SYMLINK_FOLLOW), unix.EACCES)
	want(t, "link of empty path", c.sys(unix.SYS_LINKAT, p.Val, "", fdcwd, "x8", unix.AT_EMPTY_PATH), unix.EACCES)
	tmp := c.open(".", unix.O_TMPFILE|unix.O_RDWR, 0o644)
	want(t, "O_TMPFILE", tmp, 0)
	want(t, "name it denied", link(fmt.Sprintf("/proc/self/fd/%d", tmp.Val), "y.pem", unix.AT_SYMLINK_FOLLOW), unix.EACCES)
	want(t, "name it", link(fmt.Sprintf("/proc/self/fd/%d", tmp.Val), "named", unix.AT_SYMLINK_FOLLOW), 0)

	sym := func(to, name string) result { return c.sys(unix.SYS_SYMLINKAT, to, fdcwd, name) }
	want(t, "symlink", sym(".env", "s1"), 0)
	want(t, "read through it", c.open("s1", 0), unix.EACCES)
	want(t, "symlink at denied name", sym("a", "s.pem"), unix.EACCES)
	want(t, "symlink in protected", sym("a", "ro/s"), unix.EACCES)
	want(t, "symlink existing", sym("a", "s1"), unix.EEXIST)
	want(t, "symlink empty", sym("", "s2"), unix.ENOENT)
}

func TestMakeAndRemove(t *testing.T) {
	c := startChild(t, nil)
	c.put("a", "a")
	c.put(".env", "SECRET")
	c.put("secrets/k", "SECRET")
	c.put("ro/f", "protected")
	c.put("full/x", "x")
	ws := c.base + "/ws"
	mkdir := func(p string) result { return c.sys(unix.SYS_MKDIRAT, fdcwd, p, 0o777) }
	for p, e := range map[string]unix.Errno{
		"d1": 0, "d2/": 0, "full": unix.EEXIST, ".": unix.EEXIST, "secrets/d": unix.EACCES, "x.pem": unix.EACCES, "ro/d": unix.EACCES,
		"/etc/d": unix.EACCES, "none/d": unix.ENOENT, "a/d": unix.ENOTDIR, "/proc/self/d": unix.EPERM,
	} {
		want(t, "mkdir "+p, mkdir(p), e)
	}
	mknod := func(p string, mode int) result { return c.sys(unix.SYS_MKNODAT, fdcwd, p, mode, 0) }
	want(t, "mkfifo", mknod("fifo", unix.S_IFIFO|0o600), 0)
	want(t, "mknod file", mknod("file", unix.S_IFREG|0o600), 0)
	want(t, "mknod sock", mknod("sock", unix.S_IFSOCK|0o600), 0)
	want(t, "mknod char", mknod("char", unix.S_IFCHR|0o600), unix.EPERM)
	want(t, "mknod block", mknod("block", unix.S_IFBLK|0o600), unix.EPERM)
	want(t, "mknod setuid", mknod("suid", unix.S_IFREG|0o4700), unix.EPERM)
	want(t, "mknod denied", mknod("k.pem", unix.S_IFREG|0o600), unix.EACCES)

	unlink := func(p string, flags int) result { return c.sys(unix.SYS_UNLINKAT, fdcwd, p, flags) }
	for _, x := range []struct {
		p     string
		flags int
		e     unix.Errno
	}{
		{"file", 0, 0},
		{"file", 0, unix.ENOENT},
		{"d1", 0, unix.EISDIR},
		{"d1", unix.AT_REMOVEDIR, 0},
		{"d2/", unix.AT_REMOVEDIR, 0},
		{"full", unix.AT_REMOVEDIR, unix.ENOTEMPTY},
		{"full/.", unix.AT_REMOVEDIR, unix.EINVAL},
		{"full/..", unix.AT_REMOVEDIR, unix.ENOTEMPTY},
		{"/", unix.AT_REMOVEDIR, unix.EBUSY},
		{"a/", 0, unix.ENOTDIR},
		{"a", unix.AT_REMOVEDIR, unix.ENOTDIR},
		{".env", 0, unix.EACCES},
		{"secrets/k", 0, unix.EACCES},
		{"ro/f", 0, unix.EACCES},
		{"/etc/hostname", 0, unix.EACCES},
		{"a", 1, unix.EINVAL},
		{"a", 0, 0},
	} {
		want(t, fmt.Sprintf("unlink %s %d", x.p, x.flags), unlink(x.p, x.flags), x.e)
	}
	if !c.saw(func(e event.Event) bool {
		return e.Kind == event.Unlink && e.Verdict == event.Deny && e.Path == ws+"/.env"
	}) {
		t.Error("no event of an unlink that was refused")
	}
	if !c.saw(func(e event.Event) bool { return e.Kind == event.Rmdir && e.Path == ws+"/d1" && e.Errno == 0 }) {
		t.Error("no event of a directory that was removed")
	}
}

func TestAttributes(t *testing.T) {
	c := startChild(t, nil)
	c.put("a", "aaaa")
	c.put(".env", "SECRET")
	c.put("ro/f", "protected")
	c.put("dir/x", "x")
	ws := c.base + "/ws"
	must(t, os.Symlink("ro/f", ws+"/to-ro"))
	must(t, os.Symlink("a", ws+"/to-a"))
	fd := int(c.open("a", unix.O_RDWR).Val)
	ro := int(c.open("ro/f", unix.O_RDONLY).Val)
	opath := int(c.open("a", unix.O_PATH).Val)
	ts := make([]byte, 32)
	ts[0] = 7
	for _, x := range []struct {
		name string
		r    func() result
		e    unix.Errno
	}{
		{"truncate", func() result { return c.sys(unix.SYS_TRUNCATE, "a", 2) }, 0},
		{"truncate protected", func() result { return c.sys(unix.SYS_TRUNCATE, "ro/f", 2) }, unix.EACCES},
		{"truncate through link", func() result { return c.sys(unix.SYS_TRUNCATE, "to-ro", 2) }, unix.EACCES},
		{"truncate directory", func() result { return c.sys(unix.SYS_TRUNCATE, "dir", 2) }, unix.EISDIR},
		{"truncate negative", func() result { return c.sys(unix.SYS_TRUNCATE, "a", -2) }, unix.EINVAL},
		{"chmod", func() result { return c.sys(unix.SYS_FCHMODAT, fdcwd, "a", 0o640) }, 0},
		{"chmod link", func() result { return c.sys(unix.SYS_FCHMODAT, fdcwd, "to-a", 0o644) }, 0},
		{"chmod protected", func() result { return c.sys(unix.SYS_FCHMODAT, fdcwd, "ro/f", 0o777) }, unix.EACCES},
		{"chmod denied", func() result { return c.sys(unix.SYS_FCHMODAT, fdcwd, ".env", 0o777) }, unix.EACCES},
		{"chmod setuid", func() result { return c.sys(unix.SYS_FCHMODAT, fdcwd, "a", 0o4755) }, unix.EPERM},
		{"chmod setgid", func() result { return c.sys(unix.SYS_FCHMODAT, fdcwd, "a", 0o2755) }, unix.EPERM},
		{"chmod directory setgid", func() result { return c.sys(unix.SYS_FCHMODAT, fdcwd, "dir", 0o2755) }, 0},
		{"chmod other's", func() result { return c.sys(unix.SYS_FCHMODAT, fdcwd, "/dev/null", 0o777) }, unix.EPERM},
		{"fchmodat2 nofollow", func() result { return c.sys(unix.SYS_FCHMODAT2, fdcwd, "to-a", 0o644, unix.AT_SYMLINK_NOFOLLOW) }, unix.EOPNOTSUPP},
		{"fchmod", func() result { return c.sys(unix.SYS_FCHMOD, fd, 0o644) }, 0},
		{"fchmod setuid", func() result { return c.sys(unix.SYS_FCHMOD, fd, 0o4755) }, unix.EPERM},
		{"fchmod protected", func() result { return c.sys(unix.SYS_FCHMOD, ro, 0o777) }, unix.EACCES},
		{"fchmod path descriptor", func() result { return c.sys(unix.SYS_FCHMOD, opath, 0o644) }, unix.EBADF},
		{"fchmod nothing", func() result { return c.sys(unix.SYS_FCHMOD, 99, 0o644) }, unix.EBADF},
		{"chown", func() result { return c.sys(unix.SYS_FCHOWNAT, fdcwd, "a", testUID, testGID, 0) }, 0},
		{"chown away", func() result { return c.sys(unix.SYS_FCHOWNAT, fdcwd, "a", 0, 0, 0) }, unix.EPERM},
		{"chown protected", func() result { return c.sys(unix.SYS_FCHOWNAT, fdcwd, "ro/f", testUID, testGID, 0) }, unix.EACCES},
		{"lchown", func() result {
			return c.sys(unix.SYS_FCHOWNAT, fdcwd, "to-a", testUID, testGID, unix.AT_SYMLINK_NOFOLLOW)
		}, unix.EPERM}, // the link is root's
		{"fchown", func() result { return c.sys(unix.SYS_FCHOWN, fd, -1, testGID) }, 0},
		{"fchown protected", func() result { return c.sys(unix.SYS_FCHOWN, ro, -1, testGID) }, unix.EACCES},
		{"utimensat", func() result { return c.sys(unix.SYS_UTIMENSAT, fdcwd, "a", ts, 0) }, 0},
		{"utimensat now", func() result { return c.sys(unix.SYS_UTIMENSAT, fdcwd, "a", 0, 0) }, 0},
		{"utimensat protected", func() result { return c.sys(unix.SYS_UTIMENSAT, fdcwd, "ro/f", ts, 0) }, unix.EACCES},
		{"futimens", func() result { return c.sys(unix.SYS_UTIMENSAT, fd, 0, ts, 0) }, 0},
		{"futimens protected", func() result { return c.sys(unix.SYS_UTIMENSAT, ro, 0, ts, 0) }, unix.EACCES},
		{"setxattr", func() result { return c.sys(unix.SYS_SETXATTR, "a", "user.x", []byte("v"), 1, 0) }, 0},
		{"setxattr again", func() result { return c.sys(unix.SYS_SETXATTR, "a", "user.x", []byte("v"), 1, unix.XATTR_CREATE) }, unix.EEXIST},
		{"setxattr protected", func() result { return c.sys(unix.SYS_SETXATTR, "ro/f", "user.x", []byte("v"), 1, 0) }, unix.EACCES},
		{"setxattr security", func() result { return c.sys(unix.SYS_SETXATTR, "a", "trusted.x", []byte("v"), 1, 0) }, unix.EPERM},
		{"fsetxattr protected", func() result { return c.sys(unix.SYS_FSETXATTR, ro, "user.x", []byte("v"), 1, 0) }, unix.EACCES},
		{"removexattr", func() result { return c.sys(unix.SYS_REMOVEXATTR, "a", "user.x") }, 0},
		{"removexattr protected", func() result { return c.sys(unix.SYS_REMOVEXATTR, "ro/f", "user.x") }, unix.EACCES},
		{"fremovexattr", func() result { return c.sys(unix.SYS_FREMOVEXATTR, fd, "user.x") }, unix.ENODATA},
	} {
		r := x.r()
		if strings.Contains(x.name, "xattr") && unix.Errno(r.Errno) == unix.EOPNOTSUPP {
			continue // the file system has none
		}
		want(t, x.name, r, x.e)
	}
	in := int(c.sys(unix.SYS_INOTIFY_INIT1, 0).Val)
	want(t, "watch", c.sys(unix.SYS_INOTIFY_ADD_WATCH, in, ".", unix.IN_ALL_EVENTS), 0)
	want(t, "watch denied", c.sys(unix.SYS_INOTIFY_ADD_WATCH, in, ".env", unix.IN_ALL_EVENTS), unix.EACCES)
	want(t, "watch denied directory", c.sys(unix.SYS_INOTIFY_ADD_WATCH, in, "secrets", unix.IN_ALL_EVENTS), unix.ENOENT)
	want(t, "watch file as directory", c.sys(unix.SYS_INOTIFY_ADD_WATCH, in, "a", unix.IN_ALL_EVENTS|unix.IN_ONLYDIR), unix.ENOTDIR)
	want(t, "watch with a file", c.sys(unix.SYS_INOTIFY_ADD_WATCH, fd, "a", unix.IN_ALL_EVENTS), unix.EINVAL)
	c.open("fresh", unix.O_CREAT|unix.O_WRONLY, 0o600)
	n := 4096
	if r := c.sys(unix.SYS_READ, in, &n, n); !strings.Contains(string(r.Data), "fresh") {
		t.Error("the watch saw nothing")
	}
}
