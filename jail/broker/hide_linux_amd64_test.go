package broker

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail/dirent"
)

// Acts of the child on directories.
func init() {
	// list answers the names in Argv[0], read with buffers of Args[0] bytes, as JSON.
	ops["list"] = func(c command) (r result) {
		fd, err := unix.Open(c.Argv[0], unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			r.Errno = int(errnoOf(err))
			return r
		}
		defer unix.Close(fd)
		names, err := listing(fd, int(c.Args[0].Int))
		if err != nil {
			r.Errno = int(errnoOf(err))
		}
		r.Data, _ = json.Marshal(names)
		return r
	}
	// turn reads Argv[0] entry by entry, goes back behind each of them, and says where what came then was
	// not what had come first.
	ops["turn"] = func(c command) (r result) {
		fd, err := unix.Open(c.Argv[0], unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			r.Errno = int(errnoOf(err))
			return r
		}
		defer unix.Close(fd)
		type place struct {
			name string
			off  int64
		}
		var all []place
		buf := make([]byte, 4096)
		for {
			n, err := unix.Getdents(fd, buf)
			if err != nil || n == 0 {
				break
			}
			for rest := buf[:n]; len(rest) > 0; {
				off := int64(rest[8]) | int64(rest[9])<<8 | int64(rest[10])<<16 | int64(rest[11])<<24 |
					int64(rest[12])<<32 | int64(rest[13])<<40 | int64(rest[14])<<48 | int64(rest[15])<<56
				e, tail, _ := dirent.Next(rest)
				all = append(all, place{string(e.Text()), off})
				rest = tail
			}
		}
		for i, p := range all {
			if _, err := unix.Seek(fd, p.off, unix.SEEK_SET); err != nil {
				r.Data = fmt.Appendf(r.Data, "seek to %d: %v\n", p.off, err)
				continue
			}
			next := ""
			if n, err := unix.Getdents(fd, buf); err == nil && n > 0 {
				e, _, _ := dirent.Next(buf[:n])
				next = string(e.Text())
			}
			want := ""
			if i+1 < len(all) {
				want = all[i+1].name
			}
			if next != want {
				r.Data = fmt.Appendf(r.Data, "behind %s stands %q, before %q\n", p.name, next, want)
			}
		}
		r.Val = int64(len(all))
		return r
	}
	// share has 8 threads read one open directory together, and answers what they got, as JSON.
	ops["share"] = func(c command) (r result) {
		fd, err := unix.Open(c.Argv[0], unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			r.Errno = int(errnoOf(err))
			return r
		}
		defer unix.Close(fd)
		var mu sync.Mutex
		var all []string
		var wg sync.WaitGroup
		for range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				names, err := listing(fd, 512)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, names...)
				if err != nil {
					r.Errno = int(errnoOf(err))
				}
			}()
		}
		wg.Wait()
		r.Data, _ = json.Marshal(all)
		return r
	}
}

func listing(fd, size int) (names []string, err error) {
	buf := make([]byte, size)
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil || n == 0 {
			return names, err
		}
		for rest := buf[:n]; len(rest) > 0; {
			e, tail, ok := dirent.Next(rest)
			if !ok {
				return names, unix.EPROTO
			}
			if name := string(e.Text()); name != "." && name != ".." {
				names = append(names, name)
			}
			rest = tail
		}
	}
}

func (c *child) list(path string, size int) ([]string, unix.Errno) {
	c.t.Helper()
	r := c.op("list", []string{path}, size)
	var names []string
	must(c.t, json.Unmarshal(r.Data, &names))
	slices.Sort(names)
	return names, unix.Errno(r.Errno)
}

func hiding(cfg *Config) { cfg.Hide = true }

// TestHideList: what is hidden is in no listing, however it is read, and the rest is.
func TestHideList(t *testing.T) {
	c := startChild(t, hiding)
	ws := c.base + "/ws"
	var want []string
	for i := range 300 {
		name := fmt.Sprintf("f%03d-%s", i, strings.Repeat("x", i*7%200))
		if i%3 > 0 {
			name += ".hid"
		} else {
			want = append(want, name)
		}
		c.put("d/"+name, "x")
	}
	c.put("d/hid/below", "x")
	c.put("d/"+strings.Repeat("y", 251)+".hid", "x")
	c.put("all/a.hid", "x")
	c.put("all/b.hid", "x")
	for _, size := range []int{280, 300, 512, 4096, 32 << 10, 1 << 20} {
		if got, e := c.list(ws+"/d", size); e != 0 || !slices.Equal(got, want) {
			t.Errorf("buffers of %d: %v, %d names, want %d", size, e, len(got), len(want))
		}
	}
	for _, dir := range []string{"d", "./d/../d", "/proc/self/cwd/d", "/proc/self/root" + ws + "/d"} {
		if got, e := c.list(dir, 4096); e != 0 || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %d names", dir, e, len(got))
		}
	}
	if got, e := c.list("all", 4096); e != 0 || len(got) > 0 {
		t.Errorf("a directory whose names are all hidden: %v %q", e, got)
	}
	r := c.op("turn", []string{ws + "/d"})
	if r.Errno != 0 || int(r.Val) != len(want)+2 || len(r.Data) > 0 {
		t.Errorf("going back: %v, %d entries\n%s", unix.Errno(r.Errno), r.Val, r.Data)
	}
	for range 20 {
		r := c.op("share", []string{ws + "/d"})
		var got []string
		must(t, json.Unmarshal(r.Data, &got))
		slices.Sort(got)
		got = slices.DeleteFunc(got, func(s string) bool { return s == "." || s == ".." })
		if r.Errno != 0 || !slices.Equal(got, want) {
			t.Errorf("8 threads on one descriptor: %v, %d names, want %d", unix.Errno(r.Errno), len(got), len(want))
		}
	}
}

// TestHideListSmall: a buffer that is too small for what is hidden is large enough, one
// that is too small for what is not is EINVAL, and nothing is lost by it.
func TestHideListSmall(t *testing.T) {
	c := startChild(t, hiding)
	ws := c.base + "/ws"
	for i := range 40 {
		c.put(fmt.Sprintf("s/%d-%s.hid", i, strings.Repeat("l", 100+i)), "x")
		c.put(fmt.Sprintf("s/%02d", i), "x")
	}
	if got, e := c.list(ws+"/s", 24); e != 0 || len(got) != 40 {
		t.Errorf("room for short names: %v, %d of 40", e, len(got))
	}
	if got, e := c.list(ws+"/s", 16); e != unix.EINVAL || len(got) > 0 {
		t.Errorf("room for none: %v %q", e, got)
	}
	c.put("one/"+strings.Repeat("v", 60), "x")
	fd := c.open(ws+"/one", unix.O_RDONLY|unix.O_DIRECTORY)
	n := 24
	for range 2 { // "." and ".." in some order, or the long one first: read until it stops
		if r := c.sys(unix.SYS_GETDENTS64, fd.Val, &n, n); r.Errno != 0 {
			want(t, "too small", r, unix.EINVAL)
		}
	}
	want(t, "too small", c.sys(unix.SYS_GETDENTS64, fd.Val, &n, n), unix.EINVAL)
	want(t, "too small again", c.sys(unix.SYS_GETDENTS64, fd.Val, &n, n), unix.EINVAL)
	n = 4096
	r := c.sys(unix.SYS_GETDENTS64, fd.Val, &n, n)
	if e, _, ok := dirent.Next(r.Data); r.Errno != 0 || !ok || len(e.Text()) != 60 {
		t.Errorf("what was too long is lost: %v %q", unix.Errno(r.Errno), r.Data)
	}
	want(t, "no directory", c.sys(unix.SYS_GETDENTS64, c.open(c.put("file", "x"), unix.O_RDONLY).Val, &n, n), unix.ENOTDIR)
	want(t, "no descriptor", c.sys(unix.SYS_GETDENTS64, 99, &n, n), unix.EBADF)
	want(t, "bad pointer", c.sys(unix.SYS_GETDENTS64, c.open(ws, unix.O_RDONLY).Val, 8, n), unix.EFAULT)
	gone := c.put("gone/x.hid", "x")
	fd = c.open(ws+"/gone", unix.O_RDONLY)
	must(t, os.RemoveAll(filepath.Dir(gone)))
	want(t, "removed directory", c.sys(unix.SYS_GETDENTS64, fd.Val, &n, n), unix.ENOENT)
}

// TestHideListMoved: the host moves a directory between where nothing and where all is hidden while
// it is read: no name is shown that is hidden now or was.
func TestHideListMoved(t *testing.T) {
	c := startChild(t, hiding)
	ws := c.base + "/ws"
	for i := range 200 {
		c.put(fmt.Sprintf("hid/d/f%d", i), "x")
	}
	c.put("open/x", "x")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Rename(ws+"/hid/d", ws+"/open/d.hid")
				_ = os.Rename(ws+"/open/d.hid", ws+"/hid/d")
			}
		}
	}()
	root := c.open(ws, unix.O_RDONLY|unix.O_DIRECTORY)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		for _, dir := range []string{"open", ".", fmt.Sprintf("/proc/self/fd/%d/open", root.Val)} {
			names, _ := c.list(dir, 4096)
			if i := slices.IndexFunc(names, func(n string) bool { return strings.HasSuffix(n, "hid") }); i >= 0 {
				t.Fatalf("%s shows %s", dir, names[i])
			}
		}
	}
	close(stop)
	<-done
}

// hideCalls are the calls that name a path of which nothing is left to see.
func hideCalls(p string) map[string]command {
	n := 4096
	return map[string]command{
		"open":        sysCommand(unix.SYS_OPENAT, fdcwd, p, unix.O_RDONLY, 0),
		"old open":    sysCommand(unix.SYS_OPEN, p, unix.O_RDWR, 0),
		"O_PATH":      sysCommand(unix.SYS_OPENAT, fdcwd, p, unix.O_PATH, 0),
		"O_NOFOLLOW":  sysCommand(unix.SYS_OPENAT, fdcwd, p, unix.O_PATH|unix.O_NOFOLLOW, 0),
		"O_TRUNC":     sysCommand(unix.SYS_OPENAT, fdcwd, p, unix.O_WRONLY|unix.O_TRUNC, 0),
		"openat2":     sysCommand(unix.SYS_OPENAT2, fdcwd, p, make([]byte, 24), 24),
		"stat":        sysCommand(unix.SYS_STAT, p, &n),
		"lstat":       sysCommand(unix.SYS_LSTAT, p, &n),
		"newfstatat":  sysCommand(unix.SYS_NEWFSTATAT, fdcwd, p, &n, unix.AT_SYMLINK_NOFOLLOW),
		"empty path":  sysCommand(unix.SYS_NEWFSTATAT, fdcwd, p, &n, unix.AT_EMPTY_PATH),
		"statx":       sysCommand(unix.SYS_STATX, fdcwd, p, 0, unix.STATX_ALL, &n),
		"statfs":      sysCommand(unix.SYS_STATFS, p, &n),
		"access":      sysCommand(unix.SYS_ACCESS, p, unix.F_OK),
		"faccessat":   sysCommand(unix.SYS_FACCESSAT, fdcwd, p, unix.F_OK),
		"faccessat2":  sysCommand(unix.SYS_FACCESSAT2, fdcwd, p, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW),
		"readlink":    sysCommand(unix.SYS_READLINK, p, &n, n),
		"readlinkat":  sysCommand(unix.SYS_READLINKAT, fdcwd, p, &n, n),
		"chdir":       sysCommand(unix.SYS_CHDIR, p),
		"execve":      sysCommand(unix.SYS_EXECVE, p, 0, 0),
		"execveat":    sysCommand(unix.SYS_EXECVEAT, fdcwd, p, 0, 0, 0),
		"listxattr":   sysCommand(unix.SYS_LISTXATTR, p, 0, 0),
		"llistxattr":  sysCommand(unix.SYS_LLISTXATTR, p, 0, 0),
		"getxattr":    sysCommand(unix.SYS_GETXATTR, p, "user.x", 0, 0),
		"setxattr":    sysCommand(unix.SYS_SETXATTR, p, "user.x", []byte("1"), 1, 0),
		"unlink":      sysCommand(unix.SYS_UNLINK, p),
		"rmdir":       sysCommand(unix.SYS_RMDIR, p),
		"rename from": sysCommand(unix.SYS_RENAME, p, "renamed"),
		"exchange":    sysCommand(unix.SYS_RENAMEAT2, fdcwd, p, fdcwd, "plain", unix.RENAME_EXCHANGE),
		"exchanged":   sysCommand(unix.SYS_RENAMEAT2, fdcwd, "plain", fdcwd, p, unix.RENAME_EXCHANGE),
		"link from":   sysCommand(unix.SYS_LINK, p, "linked"),
		"truncate":    sysCommand(unix.SYS_TRUNCATE, p, 0),
		"chmod":       sysCommand(unix.SYS_CHMOD, p, 0o777),
		"chown":       sysCommand(unix.SYS_FCHOWNAT, fdcwd, p, testUID, testGID, unix.AT_SYMLINK_NOFOLLOW),
		"utimensat":   sysCommand(unix.SYS_UTIMENSAT, fdcwd, p, 0, 0),
	}
}

// makeCalls are those that would make a name.
func makeCalls(p string) map[string]command {
	return map[string]command{
		"O_CREAT":   sysCommand(unix.SYS_OPENAT, fdcwd, p, unix.O_CREAT|unix.O_RDWR, 0o644),
		"O_EXCL":    sysCommand(unix.SYS_OPENAT, fdcwd, p, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644),
		"creat":     sysCommand(unix.SYS_CREAT, p, 0o644),
		"mkdir":     sysCommand(unix.SYS_MKDIR, p, 0o755),
		"mknod":     sysCommand(unix.SYS_MKNOD, p, unix.S_IFIFO|0o644, 0),
		"symlink":   sysCommand(unix.SYS_SYMLINK, "x", p),
		"rename to": sysCommand(unix.SYS_RENAME, "plain", p),
		"link to":   sysCommand(unix.SYS_LINK, "plain", p),
		"noreplace": sysCommand(unix.SYS_RENAMEAT2, fdcwd, "plain", fdcwd, p, unix.RENAME_NOREPLACE),
	}
}

// TestHideNames: no call tells a hidden name that is there from one that is not.
func TestHideNames(t *testing.T) {
	for _, kernel := range []bool{false, true} {
		t.Run(fmt.Sprintf("kernel=%t", kernel), func(t *testing.T) {
			c := startChild(t, func(cfg *Config) { cfg.Hide, cfg.Kernel = true, kernel })
			ws := c.base + "/ws"
			c.put("plain", "x")
			c.put("file.hid", "SECRET")
			c.put("dir/hid/in", "SECRET")
			c.put("dir/seen", "x")
			must(t, os.Symlink("plain", ws+"/link.hid"))
			must(t, os.Symlink("file.hid", ws+"/to"))
			must(t, os.Symlink("dir/hid/..", ws+"/through"))
			must(t, os.Symlink("none.hid", ws+"/dangling"))
			must(t, os.Symlink("dir/nohid/..", ws+"/nowhere"))
			must(t, unix.Mkfifo(ws+"/fifo.hid", 0o666))

			there := []string{
				"file.hid", ws + "/file.hid", "./dir/../file.hid", "/proc/self/cwd/file.hid", "file.hid/", "file.hid/x", "link.hid", "fifo.hid",
				"dir/hid", "dir/hid/", "dir/hid/in", "dir/hid/none", "dir/hid/../seen", "dir/hid/.", "link.hid/x",
				"through/seen", "/proc/self/root" + ws + "/dir/hid", "dir/hid/../../plain",
			}
			for _, p := range there {
				for name, cmd := range hideCalls(p) {
					if kernel && (name == "getxattr" || name == "setxattr") {
						continue // the filter answers EOPNOTSUPP there
					}
					got := unix.Errno(c.do(cmd).Errno)
					if kernel && name == "exchanged" && got == unix.EACCES {
						continue // as for a name that is to be made, there or not
					}
					if got != unix.ENOENT {
						t.Errorf("%s %s: %v, want ENOENT", name, p, got)
					}
				}
			}
			for name, cmd := range hideCalls("to") { // a link of the agent's to what is hidden
				if slices.Contains([]string{"stat", "open", "access", "chdir", "execve", "statx", "statfs", "truncate", "listxattr", "openat2"}, name) {
					want(t, name+" by a link", c.do(cmd), unix.ENOENT)
				}
			}
			pairs := map[string]string{"file.hid": "none.hid", "dir/hid": "dir/none.hid", "link.hid": "none.hid", "to": "dangling", "fifo.hid": "none.hid", "file.hid/x": "none.hid/x", "dir/hid/x": "dir/nohid/x"}
			for old, missing := range pairs {
				for name, cmd := range makeCalls(old) {
					if old == "to" && (kernel || !strings.HasPrefix(name, "O_CREAT")) {
						continue // with the kernel what is not there is the kernel's to refuse
					}
					got, same := c.do(cmd), c.do(makeCalls(missing)[name])
					if got.Errno == 0 || got.Errno != same.Errno {
						t.Errorf("%s %s: %v, but %s: %v", name, old, unix.Errno(got.Errno), missing, unix.Errno(same.Errno))
					}
				}
			}
			for _, p := range []string{"file.hid", "dir/hid/in", "link.hid", "plain", "dir/seen"} {
				if _, err := os.Lstat(ws + "/" + p); err != nil {
					t.Error(err)
				}
			}
			if data, _ := os.ReadFile(ws + "/file.hid"); string(data) != "SECRET" {
				t.Errorf("file.hid is %q", data)
			}
			if !c.saw(func(e event.Event) bool {
				return e.Verdict == event.Deny && e.Path == ws+"/file.hid" && e.Rule == "rule 9" && unix.Errno(e.Errno) == unix.ENOENT
			}) {
				t.Error("no record of a look at file.hid")
			}
		})
	}
}

// TestHideRest: what is not hidden is what it was: the same calls have the same results.
func TestHideRest(t *testing.T) {
	results := map[string]map[string]unix.Errno{}
	for mode, change := range map[string]func(*Config){
		"plain": nil, "hide": hiding,
		"kernel": func(cfg *Config) { cfg.Hide, cfg.Kernel = true, true },
	} {
		c := startChild(t, change)
		ws := c.base + "/ws"
		got := map[string]unix.Errno{}
		for _, p := range []string{"a", "a/b", "none", "none/b", "lnk", "lnk/b", "a/b/c", "bad", "a/../a/b", "lnk/..", "/", ".", "..", "/proc/self/exe", "loop"} {
			for name, cmd := range hideCalls(p) {
				_ = os.RemoveAll(ws)
				must(t, os.Mkdir(ws, 0o755))
				must(t, os.Chown(ws, testUID, testGID))
				c.put("a/b", "x")
				c.put("plain", "x")
				must(t, os.Symlink("a", ws+"/lnk"))
				must(t, os.Symlink("none", ws+"/bad"))
				must(t, os.Symlink("loop", ws+"/loop"))
				if r := c.op("chdir", []string{ws}); r.Errno != 0 {
					t.Fatal("chdir")
				}
				if strings.HasPrefix(name, "exec") && (p == "/proc/self/exe") || strings.HasPrefix(name, "ex") && p == "/" || p == ".." {
					continue
				}
				got[name+" "+p] = unix.Errno(c.do(cmd).Errno)
			}
		}
		results[mode] = got
	}
	for _, key := range slices.Sorted(maps.Keys(results["plain"])) {
		if h, p := results["hide"][key], results["plain"][key]; h != p {
			t.Errorf("%s: %v where names are hidden, %v elsewhere", key, h, p)
		}
	}
}
