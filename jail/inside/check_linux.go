package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
)

// x32Bit marks the system call numbers of the x32 ABI, which filters on x86-64
// numbers alone do not see.
const x32Bit = 0x40000000

// check tries acts that must fail, on the launch thread: exactly the posture
// the agent gets. The results are the receipt; one that succeeds is an error.
func (s *state) check() error {
	if s.spec.Canaries.Child {
		if err := s.checkInChild(); err != nil {
			return err
		}
	} else {
		s.launch.do(func() { s.checks = append(s.checks, canaries(s.spec.Canaries)...) })
	}
	for _, c := range s.checks {
		if !c.Good {
			return fmt.Errorf("%s was possible: %s", c.Name, c.Text)
		}
	}
	return s.proveOpens()
}

// checkInChild runs this program once more, as [CanaryName], from the launch
// thread: where rules live in the kernel they trust the process of init. It is
// run from the view, because the kernel's rules refuse programs without a path.
func (s *state) checkInChild() error {
	in, err := json.Marshal(s.spec.Canaries)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close()
	var pid int
	s.launch.do(func() {
		pid, err = syscall.ForkExec(jail.ToolPath, []string{CanaryName, string(in)}, &syscall.ProcAttr{Dir: "/", Files: []uintptr{w.Fd(), w.Fd(), w.Fd()}})
	})
	if err != nil {
		return fmt.Errorf("start canary: %w", err)
	}
	_ = w.Close()
	out, err := io.ReadAll(io.LimitReader(r, 64<<10))
	if err != nil {
		return fmt.Errorf("read canary: %w", err)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil {
		return fmt.Errorf("wait for canary: %w", err)
	}
	if err := json.Unmarshal(out, &s.checks); err != nil || len(s.checks) == 0 {
		return fmt.Errorf("the canary said %q and ended with %#x", out, ws)
	}
	return nil
}

// CanaryName is argv[0] of this program when it is the canary.
const CanaryName = "agentos-canary"

// Canary is the whole program when it runs as [CanaryName].
func Canary(args []string) int {
	var c jail.Canaries
	if len(args) != 2 || json.Unmarshal([]byte(args[1]), &c) != nil {
		return 125
	}
	if err := json.NewEncoder(os.Stdout).Encode(canaries(c)); err != nil {
		return 125
	}
	return 0
}

func canaries(c jail.Canaries) []jail.Check {
	var out []jail.Check
	try := func(name string, act func() error) {
		err := act()
		check := jail.Check{Name: name, Good: err != nil, Text: "no error"}
		if err != nil {
			check.Text = err.Error()
		}
		out = append(out, check)
	}
	if !c.Known {
		try("write outside", func() error { return create("/.agentos-canary") })
		if p := c.DeniedWrite; p != "" {
			try("write "+p, func() error { return create(p) })
		}
		try("memory of init", func() error { return open("/proc/1/mem") })
		try("raw socket", func() error { return socket(unix.AF_INET, unix.SOCK_RAW) })
		try("packet socket", func() error { return socket(unix.AF_PACKET, unix.SOCK_DGRAM) })
		if a := c.Connect; a != "" {
			try("connect "+a, func() error { return connect(a) })
		}
	}
	if p := c.DeniedRead; p != "" { // also of a policy that was checked: that its rules reached this jail
		try("touch denied "+p, func() error { return refusedByRule(create(p)) })
	}
	try("mount", func() error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") })
	if !c.Userns {
		try("new user namespace", func() error { return call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER) })
	}
	try("load bpf", func() error { return call(unix.SYS_BPF, 0) })
	try("become root", func() error { return call(unix.SYS_SETUID, 0) })
	try("x32 system call", func() error { return call(x32Bit|unix.SYS_GETPID, 0) })
	return out
}

// refusedByRule turns errors that do not come from a rule into success of the
// act: a canary that fails for another reason proves nothing.
func refusedByRule(err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return err
	}
	return nil
}

func create(path string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err == nil {
		_ = unix.Close(fd)
		_ = unix.Unlink(path)
	}
	return err
}

func open(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func socket(domain, kind int) error {
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func connect(addr string) error {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil // not a canary: counts as possible, which ends the start
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	if errors.Is(err, unix.EINPROGRESS) {
		return nil
	}
	return err
}

func call(nr, arg uintptr) error {
	if _, _, e := syscall.Syscall(nr, arg, 0, 0); e != 0 {
		return e
	}
	return nil
}
