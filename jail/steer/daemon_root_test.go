//go:build root && linux

package steer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/netpolicy"
)

// TestMain is also the other end of the protocol: a program that can be told to refuse and to
// die, which the real netd cannot. The tests of whole sessions (tests/script) have the real one.
func TestMain(m *testing.M) {
	if os.Args[0] == "agentos-netd" {
		if err := peer(); err != nil && !errors.Is(err, io.EOF) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// peer serves: who connects is told the uid, the address, and the rules' number.
func peer() error {
	c, err := packet.New(3)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	generation := map[string]uint64{}
	for {
		q, fds, err := netpolicy.Receive(c)
		if err != nil {
			return err
		}
		var a netpolicy.Answer
		a.ID = q.ID
		apply := func(jail string, g uint64, r netpolicy.Rules) {
			for _, rule := range r.Rules {
				switch rule.At {
				case "die":
					os.Exit(1)
				case "refuse":
					a.Error = "refused"
					return
				}
			}
			mu.Lock()
			generation[jail] = g
			mu.Unlock()
		}
		switch q.Verb {
		case netpolicy.VerbHello:
			a.Body = q.Body
		case netpolicy.VerbAdd:
			var m netpolicy.Add
			if err := netpolicy.Decode(q.Body, &m); err != nil {
				return err
			}
			apply(m.Jail, m.Generation, m.Rules)
			listener := int(fds[netpolicy.Listener4].Fd())
			if err := unix.SetNonblock(listener, false); err != nil {
				return err
			}
			go func() {
				defer packet.CloseAll(fds) // held until then
				for {
					fd, from, err := unix.Accept(listener)
					if err != nil {
						return
					}
					local, _ := unix.Getsockname(fd)
					mu.Lock()
					_ = c.Send(netpolicy.Answer{Event: &netpolicy.Event{Kind: netpolicy.Opened, Time: time.Now(), Jail: m.Jail, Connection: netpolicy.Connection{Client: addrPort(from), Asked: addrPort(local)}}})
					_, _ = unix.Write(fd, fmt.Appendf(nil, "%d %s %d\n", os.Getuid(), addrPort(local), generation[m.Jail]))
					mu.Unlock()
					_ = unix.Close(fd)
				}
			}()
		case netpolicy.VerbSet:
			var m netpolicy.Set
			if err := netpolicy.Decode(q.Body, &m); err != nil {
				return err
			}
			apply(m.Jail, m.Generation, m.Rules)
		}
		mu.Lock()
		err = c.Send(a)
		mu.Unlock()
		if err != nil {
			return err
		}
	}
}

const testUID = 65522

func daemon(t *testing.T, program string) *Daemon {
	t.Helper()
	fd, err := unix.Open(program, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), program)
	d := NewDaemon(Options{Executable: f, UID: testUID, GID: testUID, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		f.Close()
	})
	return d
}

func open(t *testing.T) (pid int, n *Net) {
	t.Helper()
	pid = namespace(t)
	n, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return pid, n
}

// ask connects and reads what the other end says.
func ask(t *testing.T, pid int) string {
	t.Helper()
	var fd int
	err := inside(t, pid, func() (err error) {
		fd, err = dial(netip.MustParseAddrPort("198.18.1.1:443"), unix.SOCK_STREAM)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20})
	b := make([]byte, 100)
	got, err := unix.Read(fd, b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:got])
}

// kill ends netd and returns when it is gone: what it accepts while it dies is dropped with it.
func kill(t *testing.T, d *Daemon) {
	t.Helper()
	pid, _ := d.Pid()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range 60_000 {
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("netd %d does not die", pid)
}

func named(at string) netpolicy.Rules {
	return netpolicy.Rules{Layers: 1, Rules: []netpolicy.Rule{{Kind: netpolicy.Any, Ports: []netpolicy.Ports{{Low: 443, High: 443}}, At: at}}}
}

// Jails are served by a process without privilege, and by the next one when it dies: what
// connects meanwhile waits.
func TestNetdIsReplaced(t *testing.T) {
	d := daemon(t, "/proc/self/exe")
	pid, n := open(t)
	other, m := open(t)
	events := make(chan netpolicy.Event, 100)
	for id, n := range map[string]*Net{"one": n, "two": m} {
		if err := d.Add(t.Context(), id, n, named(id), netpolicy.Limits{}, func(e netpolicy.Event) { events <- e }); err != nil {
			t.Fatal(err)
		}
	}
	want := fmt.Sprintf("%d 198.18.1.1:443 1\n", testUID)
	for range 3 {
		for _, p := range []int{pid, other} {
			if got := ask(t, p); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		kill(t, d)
	}
	if got := ask(t, pid); got != want {
		t.Errorf("after three deaths: %q, want %q", got, want)
	}
	if err := d.Set(t.Context(), "one", named("other")); err != nil {
		t.Fatal(err)
	}
	if got, want := ask(t, pid), fmt.Sprintf("%d 198.18.1.1:443 2\n", testUID); got != want {
		t.Errorf("after a change: %q, want %q", got, want)
	}
	if err := errors.Join(d.Remove("one"), d.Remove("two"), d.Remove("two")); err != nil {
		t.Error(err)
	}
	close(events)
	count := map[netpolicy.EventKind]int{}
	for e := range events {
		count[e.Kind]++
	}
	// This netd never says that a connection was closed: the six of those that died are told as broken.
	if count[netpolicy.Opened] != 8 || count[netpolicy.Broken] != 6 || len(count) != 2 {
		t.Errorf("events %v, want 8 opened, 6 broken", count)
	}
	if _, starts := d.Pid(); starts != 4 {
		t.Errorf("started %d times, want 4", starts)
	}
}

// What netd refuses leaves what held before; a jail whose rules kill it does not take the others along.
func TestRefusedRules(t *testing.T) {
	d := daemon(t, "/proc/self/exe")
	pid, n := open(t)
	none := func(netpolicy.Event) {}
	if err := d.Add(t.Context(), "one", n, named("good"), netpolicy.Limits{}, none); err != nil {
		t.Fatal(err)
	}
	if err := d.Set(t.Context(), "one", named("refuse")); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("refused rules: %v", err)
	}
	kill(t, d)
	if got, want := ask(t, pid), "198.18.1.1:443 2\n"; !strings.HasSuffix(got, want) {
		t.Errorf("after refused rules and a new netd: %q, want %q", got, want)
	}
	_, m := open(t)
	if err := d.Add(t.Context(), "two", m, named("refuse"), netpolicy.Limits{}, none); err == nil {
		t.Error("a jail with refused rules was added")
	}
	if err := d.Add(t.Context(), "one", m, named("good"), netpolicy.Limits{}, none); err == nil {
		t.Error("a jail was added twice")
	}
	if err := d.Set(t.Context(), "three", named("good")); err == nil {
		t.Error("rules of a jail that is not there were set")
	}
}

// Without a netd nothing passes and nobody waits for ever.
func TestNoNetd(t *testing.T) {
	d := daemon(t, "/dev/null")
	pid, n := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := d.Add(ctx, "one", n, named("good"), netpolicy.Limits{}, func(netpolicy.Event) {})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	var fd int
	err = inside(t, pid, func() (err error) {
		fd, err = dial(netip.MustParseAddrPort("8.8.8.8:443"), unix.SOCK_STREAM)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000})
	if _, err := unix.Read(fd, make([]byte, 1)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("read from nobody: %v, want %v", err, unix.EAGAIN)
	}
}
