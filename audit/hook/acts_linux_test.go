package hook

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/policy/glob"
)

// rules allow everything but: **/.env, **/*.pem and <dir>/secrets/** not at all,
// <dir>/ro/** not to be written, **/denied* not to be executed.
func rules(t *testing.T, dir string) []byte {
	t.Helper()
	globs := []string{"/**", "**/.env", "**/*.pem", dir + "/secrets/**", dir + "/ro/**", "**/denied*"}
	a, err := glob.Compile(globs, func(matched []uint16) glob.Accept {
		acc := glob.Accept{Bits: 1<<glob.Read | 1<<glob.Write | 1<<glob.Exec}
		for i := range acc.Rule {
			acc.Rule[i] = 0
		}
		deny := func(rule uint16, ops ...glob.Op) {
			for _, op := range ops {
				acc.Bits &^= 1 << op
				acc.Rule[op] = rule
			}
		}
		for _, m := range matched {
			switch m {
			case 1, 2, 3:
				deny(m, glob.Read, glob.Write, glob.Exec)
			case 4:
				deny(m, glob.Write)
			case 5:
				deny(m, glob.Exec)
			}
		}
		return acc
	})
	if err != nil {
		t.Fatal(err)
	}
	return a.Bytes()
}

// do runs many acts in one process of the jail: [name, args...] each, a result each.
func (j *testJail) do(acts ...[]string) []string {
	j.x.t.Helper()
	in, err := json.Marshal(acts)
	if err != nil {
		j.x.t.Fatal(err)
	}
	cmd := j.command(self(j.x.t))
	cmd.Env = append(os.Environ(), "AGENTOS_ACT=acts")
	cmd.Stdin = strings.NewReader(string(in))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		j.x.t.Fatalf("acts: %v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(acts) {
		j.x.t.Fatalf("%d results for %d acts: %q", len(lines), len(acts), lines)
	}
	return lines
}

func batch() int {
	var acts [][]string
	if err := json.NewDecoder(bufio.NewReader(os.Stdin)).Decode(&acts); err != nil {
		fmt.Println(err)
		return 1
	}
	for _, a := range acts {
		fmt.Println(strings.ReplaceAll(result(runFileAct(a[0], a[1:])), "\n", " "))
	}
	return 0
}

func closing(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// through opens a file for reading and acts on the descriptor.
func through(name string, act func(fd int) error) error {
	fd, err := unix.Open(name, unix.O_RDONLY, 0)
	if err != nil {
		return errors.New("the open itself: " + err.Error())
	}
	defer unix.Close(fd)
	return act(fd)
}

func errnoOf(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// fileActs are what the jailed process tries. Arguments are absolute paths.
var fileActs = map[string]func(a []string) error{
	"read":   func(a []string) error { return closing(unix.Open(a[0], unix.O_RDONLY, 0)) },
	"write":  func(a []string) error { return closing(unix.Open(a[0], unix.O_WRONLY, 0)) },
	"trunc":  func(a []string) error { return closing(unix.Open(a[0], unix.O_RDONLY|unix.O_TRUNC, 0)) },
	"create": func(a []string) error { return closing(unix.Open(a[0], unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644)) },
	"mode3":  func(a []string) error { return closing(unix.Open(a[0], 3, 0)) },
	"relative": func(a []string) error {
		dir, err := unix.Open(filepath.Dir(a[0]), unix.O_PATH, 0)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		return closing(unix.Openat(dir, filepath.Base(a[0]), unix.O_RDONLY, 0))
	},
	"dotdot": func(a []string) error {
		return closing(unix.Open(filepath.Dir(a[0])+"/../"+filepath.Base(filepath.Dir(a[0]))+"/"+filepath.Base(a[0]), unix.O_RDONLY, 0))
	},
	"procroot": func(a []string) error { return closing(unix.Open("/proc/self/root"+a[0], unix.O_RDONLY, 0)) },
	"opath": func(a []string) error {
		fd, err := unix.Open(a[0], unix.O_PATH, 0)
		if err != nil {
			return errors.New("O_PATH itself: " + err.Error())
		}
		defer unix.Close(fd)
		return closing(unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY, 0))
	},
	"handle": func(a []string) error {
		h, mount, err := unix.NameToHandleAt(unix.AT_FDCWD, a[0], 0)
		if err != nil {
			return err
		}
		_ = mount
		dir, err := unix.Open(filepath.Dir(a[0]), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		return closing(unix.OpenByHandleAt(dir, h, unix.O_RDONLY))
	},
	"unlink":      func(a []string) error { return unix.Unlink(a[0]) },
	"rmdir":       func(a []string) error { return unix.Rmdir(a[0]) },
	"mkdir":       func(a []string) error { return unix.Mkdir(a[0], 0o755) },
	"mkfifo":      func(a []string) error { return unix.Mkfifo(a[0], 0o644) },
	"symlink":     func(a []string) error { return unix.Symlink(a[0], a[1]) },
	"link":        func(a []string) error { return unix.Link(a[0], a[1]) },
	"rename":      func(a []string) error { return unix.Rename(a[0], a[1]) },
	"exchange":    func(a []string) error { return unix.Renameat2(-100, a[0], -100, a[1], unix.RENAME_EXCHANGE) },
	"truncate":    func(a []string) error { return unix.Truncate(a[0], 0) },
	"chmod":       func(a []string) error { return unix.Chmod(a[0], 0o600) },
	"chmod-suid":  func(a []string) error { return unix.Chmod(a[0], 0o4755) },
	"chmod-sgid":  func(a []string) error { return unix.Chmod(a[0], 0o2755) },
	"create-suid": func(a []string) error { return closing(unix.Open(a[0], unix.O_CREAT|unix.O_WRONLY, 0o4755)) },
	"tmpfile-suid": func(a []string) error {
		return closing(unix.Open(a[0], unix.O_TMPFILE|unix.O_RDWR, 0o4755))
	},
	"chown": func(a []string) error { return unix.Chown(a[0], 1, 1) },
	"watch": func(a []string) error {
		in, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			return errors.New("inotify itself: " + err.Error())
		}
		defer unix.Close(in)
		_, err = unix.InotifyAddWatch(in, a[0], unix.IN_ACCESS|unix.IN_MODIFY)
		return err
	},
	"xattr":       func(a []string) error { return unix.Setxattr(a[0], "user.x", []byte("x"), 0) },
	"removexattr": func(a []string) error { return unix.Removexattr(a[0], "user.kept") },
	"getxattr": func(a []string) error {
		_, err := unix.Getxattr(a[0], "user.kept", make([]byte, 100))
		return err
	},
	"utimes": func(a []string) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, a[0], []unix.Timespec{{Sec: 1}, {Sec: 1}}, 0)
	},
	"futimens": func(a []string) error { // by a descriptor that is open for reading
		return through(a[0], func(fd int) error {
			_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, 0, 0, 0, 0)
			return errnoOf(errno)
		})
	},
	"fsetxattr": func(a []string) error {
		return through(a[0], func(fd int) error { return unix.Fsetxattr(fd, "user.x", []byte("x"), 0) })
	},
	"setflags": func(a []string) error {
		return through(a[0], func(fd int) error { return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, 0x40) })
	},
	"getflags": func(a []string) error {
		return through(a[0], func(fd int) error {
			_, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
			return err
		})
	},
	"tmpfile": func(a []string) error {
		fd, err := unix.Open(filepath.Dir(a[0]), unix.O_TMPFILE|unix.O_RDWR, 0o644)
		if err != nil {
			return errors.New("O_TMPFILE itself: " + err.Error())
		}
		defer unix.Close(fd)
		return unix.Linkat(-100, fmt.Sprintf("/proc/self/fd/%d", fd), -100, a[0], unix.AT_SYMLINK_FOLLOW)
	},
	"tree": func(a []string) error {
		tree, err := unix.OpenTree(unix.AT_FDCWD, filepath.Dir(a[0]), unix.OPEN_TREE_CLONE)
		if err != nil {
			return errors.New("open_tree itself: " + err.Error())
		}
		defer unix.Close(tree)
		return closing(unix.Openat(tree, filepath.Base(a[0]), unix.O_RDONLY, 0))
	},
	"chroot": func(a []string) error { // in a child: there is no way back
		c := exec.Command("/proc/self/exe", a...)
		c.Env = append(os.Environ(), "AGENTOS_ACT=chrooted")
		out, err := c.Output()
		if err != nil {
			return err
		}
		return errors.New(strings.TrimSpace(string(out)))
	},
	"deep": func(a []string) error { // below a[0], a[1] levels of names of a[2] bytes, then a[3]
		var levels, size int
		fmt.Sscan(a[1]+" "+a[2], &levels, &size)
		name := strings.Repeat("d", size)
		dir, err := unix.Open(a[0], unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer func() { unix.Close(dir) }()
		for i := range levels {
			if err := unix.Mkdirat(dir, name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("level %d: %w", i, err)
			}
			next, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				return fmt.Errorf("level %d: %w", i, err)
			}
			unix.Close(dir)
			dir = next
		}
		return closing(unix.Openat(dir, a[3], unix.O_RDONLY|unix.O_CREAT, 0o644))
	},
	"exec": func(a []string) error {
		err := exec.Command(a[0]).Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() >= 0 {
			return nil
		}
		return err
	},
	"memfd": func(a []string) error {
		fd, err := unix.MemfdCreate("x", 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		b, err := os.ReadFile(a[0])
		if err != nil {
			return err
		}
		if _, err := unix.Write(fd, b); err != nil {
			return err
		}
		if err := closing(unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY, 0)); err != nil {
			return errors.New("reopen memfd: " + err.Error())
		}
		c := exec.Command(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
		return c.Run()
	},
	"socket": func(a []string) error {
		var family, kind, protocol int
		fmt.Sscan(strings.Join(a, " "), &family, &kind, &protocol)
		return closing(unix.Socket(family, kind, protocol))
	},
	"unix": func(a []string) error {
		c, err := net.Dial(a[0], a[1])
		if err == nil {
			defer c.Close()
			_, err = c.Write([]byte("x"))
		}
		return err
	},
	"mount":  func(a []string) error { return unix.Mount("none", a[0], "tmpfs", 0, "") },
	"umount": func(a []string) error { return unix.Unmount(a[0], 0) },
	"bind":   func(a []string) error { return unix.Mount(a[0], a[1], "", unix.MS_BIND, "") },
	"bpf": func([]string) error {
		_, _, errno := unix.Syscall(unix.SYS_BPF, 5, 0, 0)
		return errno
	},
	"ptrace": func(a []string) error {
		var pid int
		fmt.Sscan(a[0], &pid)
		return unix.PtraceAttach(pid)
	},
	"uring":              func(a []string) error { return uring(uringOpenat, 0, a[0], unix.O_RDONLY) },
	"uring-async":        func(a []string) error { return uring(uringOpenat, uringAsync, a[0], unix.O_RDONLY) },
	"uring-unlink":       func(a []string) error { return uring(uringUnlinkat, 0, a[0], 0) },
	"uring-async-unlink": func(a []string) error { return uring(uringUnlinkat, uringAsync, a[0], 0) },
	"mem":                func(a []string) error { return closing(unix.Open("/proc/"+a[0]+"/mem", unix.O_RDONLY, 0)) },
}

func runFileAct(act string, args []string) error {
	f := fileActs[act]
	if f == nil {
		return fmt.Errorf("no act %q", act)
	}
	return f(args)
}

// raceRules deny <dir>/secrets/** and **/*.pem/**.
func raceRules(t *testing.T, dir string) []byte {
	t.Helper()
	a, err := glob.Compile([]string{"/**", dir + "/secrets/**", "**/*.pem/**"}, func(matched []uint16) glob.Accept {
		if len(matched) > 1 || len(matched) == 0 {
			return glob.Accept{}
		}
		return glob.Accept{Bits: 1<<glob.Read | 1<<glob.Write | 1<<glob.Exec}
	})
	if err != nil {
		t.Fatal(err)
	}
	return a.Bytes()
}
