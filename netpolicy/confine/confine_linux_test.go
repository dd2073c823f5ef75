package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/seccomp"
)

// Confining cannot be undone, so it happens in a process of its own, which says what it still can.
func TestMain(m *testing.M) {
	if os.Getenv("CONFINE_ME") == "" {
		os.Exit(m.Run())
	}
	if err := errors.Join(Check(), Confine(), Filter(os.NewFile(4, "filter"))); err != nil {
		fmt.Println("confine:", err)
		os.Exit(1)
	}
	for name, try := range map[string]func() error{
		"read a file":     func() error { _, err := os.ReadFile("/etc/passwd"); return err },
		"list a place":    func() error { _, err := os.ReadDir("/"); return err },
		"write a file":    func() error { return os.WriteFile("/tmp/netd-confine-test", nil, 0o600) },
		"open a device":   func() error { f, err := os.Open("/dev/zero"); _ = f; return err },
		"run a program":   func() error { return exec.Command("/bin/true").Run() },
		"bind a TCP port": bind,
		"listen":          func() error { return unix.Listen(int(os.Stdin.Fd()), 1) },
		"make a unix socket": func() error {
			_, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			return refusal(err, unix.EAFNOSUPPORT)
		},
		"make a raw socket": func() error {
			_, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP)
			return refusal(err, unix.EPROTONOSUPPORT)
		},
		"signal others": func() error { return unix.Kill(os.Getppid(), 0) },
		"trace others":  func() error { return unix.PtraceAttach(os.Getppid()) },
		"get privileges": func() error {
			n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
			if err == nil && n == 1 {
				return fs.ErrPermission
			}
			return err
		},
	} {
		if err := try(); !errors.Is(err, fs.ErrPermission) {
			fmt.Printf("can %s: %v\n", name, err)
			os.Exit(1)
		}
	}
	c, err := net.Dial("tcp", os.Getenv("CONFINE_ME"))
	if err != nil {
		fmt.Println("cannot connect:", err)
		os.Exit(1)
	}
	c.Close()
	fmt.Println("confined")
}

// bind is not net.Listen, which makes an MPTCP socket, and those Landlock does not restrict.
func bind() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Bind(fd, &unix.SockaddrInet4{})
}

// refusal is a permission that was not given where err is how the filter says so.
func refusal(err, want error) error {
	if errors.Is(err, want) {
		return fs.ErrPermission
	}
	return err
}

func TestConfine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	code, err := seccomp.BuildNetd()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("wanted libseccomp, got a build without cgo")
	}
	if err != nil {
		t.Fatal(err)
	}
	filter, err := seccomp.Memfd(code)
	if err != nil {
		t.Fatal(err)
	}
	defer filter.Close()
	run := func(uid uint32) string {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{"CONFINE_ME=" + l.Addr().String()}
		cmd.Dir = "/"
		f, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{f, filter}
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		}
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	if out := run(65534); out != "confined\n" {
		t.Errorf("got %q", out)
	}
	if os.Getuid() == 0 {
		if out := run(0); !strings.Contains(out, ErrPrivileged.Error()) {
			t.Errorf("as root: %q", out)
		}
	}
}
