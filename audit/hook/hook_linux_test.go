package hook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

// TestMain also is the process inside the jail: AGENTOS_ACT names what it does.
func TestMain(m *testing.M) {
	if code := Attempt(); code >= 0 {
		os.Exit(code)
	}
	if act := os.Getenv("AGENTOS_ACT"); act != "" {
		os.Exit(runAct(act, os.Args[1:]))
	}
	code := m.Run()
	for _, x := range installed {
		if err := x.close(); err != nil {
			fmt.Fprintln(os.Stderr, "clean up:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// fixture is one installation in its own pin directory and parent group. Loading takes
// seconds under emulation, so tests share one for each tier that they ask for.
type fixture struct {
	t      *testing.T
	h      *Hook
	opts   Options
	f      Features
	mu     sync.Mutex
	events []event.Event
	stop   func()
}

var (
	installed = map[Tier]*fixture{}
	broken    = map[Tier]bool{}
	lastJail  uint32
)

func rootOnly(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("wanted root, got uid", os.Getuid())
	}
}

// newFixture answers the shared installation of at most a tier (0: the best here).
func newFixture(t *testing.T, tier Tier) *fixture {
	t.Helper()
	rootOnly(t)
	x := installed[tier]
	if broken[tier] {
		t.Fatal("the programs do not load, see above")
	}
	if x == nil {
		mount, err := cgroup2Mount()
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("agentos-test-%d-%s", os.Getpid(), tier)
		x = &fixture{opts: Options{
			PinDir: filepath.Join("/sys/fs/bpf", name), Group: filepath.Join(mount, name), Tier: tier,
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Executable: "/proc/self/exe",
		}}
		if x.h, x.f, err = Load(x.opts); err != nil {
			broken[tier] = true
			Unpin(x.opts)
			t.Fatal(err)
		}
		x.h.opts.Logger = slog.New(slog.DiscardHandler)
		installed[tier] = x
	}
	x.t, x.events = t, nil
	x.read()
	t.Cleanup(func() { x.stop() })
	return x
}

func (x *fixture) read() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	h := x.h
	go func() {
		defer close(done)
		h.Read(ctx, func(_ uint32, e event.Event) {
			x.mu.Lock()
			x.events = append(x.events, e)
			x.mu.Unlock()
		})
	}()
	x.stop = func() { cancel(); <-done }
}

func (x *fixture) close() error {
	err := errors.Join(x.h.Close(), Unpin(x.opts), os.Remove(x.opts.Group))
	if _, statErr := os.Stat(x.opts.PinDir); !errors.Is(statErr, os.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("pins left in %s", x.opts.PinDir))
	}
	return err
}

// jail makes a group and registers it.
func (x *fixture) jail(spec Jail) *testJail {
	x.t.Helper()
	lastJail++
	spec.ID = lastJail
	dir := filepath.Join(x.opts.Group, fmt.Sprintf("jail-%d", spec.ID))
	if err := os.Mkdir(dir, 0o755); err != nil {
		x.t.Fatal(err)
	}
	fi, err := os.Stat(dir)
	if err != nil {
		x.t.Fatal(err)
	}
	spec.CgroupID = fi.Sys().(*syscall.Stat_t).Ino
	if err := x.h.AddJail(spec); err != nil {
		x.t.Fatal(err)
	}
	j := &testJail{x: x, dir: dir, id: spec.ID}
	x.t.Cleanup(func() {
		if _, ok := x.h.Jails()[j.id]; ok {
			if err := x.h.RemoveJail(j.id); err != nil {
				x.t.Error(err)
			}
		}
		for range 100 {
			if err := os.Remove(dir); err == nil || os.IsNotExist(err) {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		x.t.Errorf("group %s does not go away", dir)
	})
	return j
}

type testJail struct {
	x   *fixture
	dir string
	id  uint32
}

// command prepares a command inside the jail's group.
func (j *testJail) command(name string, args ...string) *exec.Cmd {
	j.x.t.Helper()
	fd, err := unix.Open(j.dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		j.x.t.Fatal(err)
	}
	j.x.t.Cleanup(func() { unix.Close(fd) })
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	return cmd
}

// act runs one of the acts (this binary) inside the jail and answers what it printed.
func (j *testJail) act(act string, args ...string) string {
	j.x.t.Helper()
	cmd := j.command(self(j.x.t), args...)
	cmd.Env = append(os.Environ(), "AGENTOS_ACT="+act)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return strings.TrimSpace(string(out)) + " " + err.Error()
	}
	return strings.TrimSpace(string(out))
}

func self(t *testing.T) string {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// wait waits until an event matches.
func (x *fixture) wait(what string, match func(event.Event) bool) event.Event {
	x.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		x.mu.Lock()
		for _, e := range x.events {
			if match(e) {
				x.mu.Unlock()
				return e
			}
		}
		x.mu.Unlock()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.events[max(0, len(x.events)-15):] {
		x.t.Logf("have %+v", e)
	}
	x.t.Fatalf("no event: %s", what)
	return event.Event{}
}

func runAct(act string, args []string) int {
	var err error
	switch act {
	case "true":
	case "dial":
		var c net.Conn
		if c, err = (&net.Dialer{Timeout: 2 * time.Second}).Dial(args[0], args[1]); err == nil {
			_, err = c.Write([]byte("x"))
			c.Close()
		}
	case "raw":
		_, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	case "chrooted":
		if err = unix.Chroot(args[0]); err == nil {
			err = closing(unix.Open(args[1], unix.O_RDONLY, 0))
		}
	case "receive":
		return receive()
	case "turns":
		return turns(args)
	case "race":
		return race(args)
	case "acts":
		return batch()
	case "sendto":
		var fd int
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0); err == nil {
			err = unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{10, 0, 0, 1}})
		}
	default:
		err = runFileAct(act, args)
	}
	fmt.Println(result(err))
	return 0
}

func result(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}
