//go:build root && linux

package steer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/netpolicy"
)

// namespace is a process in a network namespace of its own.
func namespace(t *testing.T) (pid int) {
	t.Helper()
	c := exec.Command("/bin/sleep", "600")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c.Process.Pid
}

// inside runs f in the namespace of pid.
func inside(t *testing.T, pid int, f func() error) error {
	t.Helper()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	return inNamespace(ns, f)
}

// dial connects without Go's poller, whose goroutines run on other threads.
func dial(to netip.AddrPort, kind int) (fd int, err error) {
	domain := unix.AF_INET
	if to.Addr().Is6() {
		domain = unix.AF_INET6
	}
	if fd, err = unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// Every TCP connection arrives at the listener of its family, which knows where it was to; what
// is to the loopback does not.
func TestConnectionsAreSteered(t *testing.T) {
	pid := namespace(t)
	n, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, to := range []string{
		"198.18.7.7:443", "8.8.8.8:53", "10.0.0.1:1", "169.254.169.254:80", "198.18.0.53:80", "255.1.2.3:65535", "[fd5b:a70e:1c9d::7]:443", "[2001:4860:4860::8888]:53", "[fe80::1]:9", "[::ffff:8.8.8.8]:80",
	} {
		want := netip.MustParseAddrPort(to)
		var fd int
		err := inside(t, pid, func() (err error) { fd, err = dial(want, unix.SOCK_STREAM); return err })
		if to == "[fe80::1]:9" { // wants a device: refused by the kernel before anybody is asked
			if err == nil {
				t.Errorf("%s: connected", to)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", to, err)
			continue
		}
		listener := netpolicy.Listener6
		if want.Addr().Unmap().Is4() {
			listener = netpolicy.Listener4
		}
		arrives(t, n.Sockets()[listener])
		accepted, _, err := unix.Accept4(n.Sockets()[listener], unix.SOCK_CLOEXEC)
		if err != nil {
			t.Errorf("%s: accept: %v", to, err)
			continue
		}
		local, err := unix.Getsockname(accepted)
		if got := addrPort(local); err != nil || got != netip.AddrPortFrom(want.Addr().Unmap(), want.Port()) {
			t.Errorf("accepted for %s, want %s (%v)", got, want, err)
		}
		_ = errors.Join(unix.Close(accepted), unix.Close(fd))
	}
	for _, to := range []string{"127.0.0.1:9", "127.3.2.1:443", "[::1]:443", "[::ffff:127.0.0.1]:80"} {
		err := inside(t, pid, func() error { _, err := dial(netip.MustParseAddrPort(to), unix.SOCK_STREAM); return err })
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s, which is the jail's own: %v, want %v", to, err, unix.ECONNREFUSED)
		}
	}
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// A server of the jail on its loopback serves the jail, also on a port that netd's socket has.
func TestLoopbackStaysTheJails(t *testing.T) {
	pid := namespace(t)
	n, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	sa, err := unix.Getsockname(n.Sockets()[netpolicy.Listener4])
	if err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), addrPort(sa).Port())
	err = inside(t, pid, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := errors.Join(unix.Bind(fd, sockaddr(at)), unix.Listen(fd, 1)); err != nil {
			return err
		}
		c, err := dial(at, unix.SOCK_STREAM)
		if err != nil {
			return err
		}
		return unix.Close(c)
	})
	if err != nil {
		t.Error(err)
	}
}

// A question to any resolver arrives, its answer comes from the address that was asked.
func TestQuestionsAreSteered(t *testing.T) {
	pid := namespace(t)
	n, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for i, to := range []string{"198.18.0.53:53", "8.8.8.8:53", "[2001:4860:4860::8888]:53"} {
		want := netip.MustParseAddrPort(to)
		var fd int
		if err := inside(t, pid, func() (err error) { fd, err = dial(want, unix.SOCK_DGRAM); return err }); err != nil {
			t.Fatal(to, err)
		}
		if _, err := unix.Write(fd, []byte{byte(i)}); err != nil {
			t.Fatal(to, err)
		}
		socket := n.Sockets()[netpolicy.Datagram4]
		if want.Addr().Is6() {
			socket = n.Sockets()[netpolicy.Datagram6]
		}
		arrives(t, socket)
		buf, oob := make([]byte, 10), make([]byte, 256)
		size, oobn, _, _, err := unix.Recvmsg(socket, buf, oob, 0)
		if err != nil || size != 1 || buf[0] != byte(i) {
			t.Errorf("%s: got %d bytes, %v", to, size, err)
		}
		cmsgs, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil || len(cmsgs) == 0 {
			t.Errorf("%s: no original destination: %v", to, err)
		}
		found := false
		for _, m := range cmsgs {
			if orig, err := unix.ParseOrigDstAddr(&m); err == nil {
				found = addrPort(orig) == want
			}
		}
		if !found {
			t.Errorf("%s: the datagram does not say so", to)
		}
		_ = unix.Close(fd)
	}
	// What is sent to another port does not arrive: the next question does.
	for _, datagram := range [][2]string{{"x", "8.8.8.8:443"}, {"y", "8.8.8.8:53"}} {
		text, to := datagram[0], datagram[1]
		fd := -1
		if err := inside(t, pid, func() (err error) { fd, err = dial(netip.MustParseAddrPort(to), unix.SOCK_DGRAM); return err }); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		_, _ = unix.Write(fd, []byte(text))
	}
	buf := make([]byte, 10)
	arrives(t, n.Sockets()[netpolicy.Datagram4])
	if size, _, err := unix.Recvfrom(n.Sockets()[netpolicy.Datagram4], buf, 0); err != nil || string(buf[:size]) != "y" {
		t.Errorf("got %q, %v; want the question", buf[:max(size, 0)], err)
	}
}

// arrives waits until there is something to read: the kernel may deliver later than the send returns.
func arrives(t *testing.T, socket int) {
	t.Helper()
	n, err := 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(socket), Events: unix.POLLIN}}, 60_000)
	}
	if n != 1 || err != nil {
		t.Fatalf("nothing arrives: %v", err)
	}
}

// Without its link nobody listens: refused, not lost and not passed.
func TestClosedNetRefuses(t *testing.T) {
	pid := namespace(t)
	n, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	err = inside(t, pid, func() error {
		_, err := dial(netip.MustParseAddrPort("8.8.8.8:443"), unix.SOCK_STREAM)
		return err
	})
	if !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("got %v, want %v", err, unix.ECONNREFUSED)
	}
}

// Programs that ask for the families the machine has get both.
func TestFamilies(t *testing.T) {
	pid := namespace(t)
	n, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var addrs []net.Addr
	if err := inside(t, pid, func() (err error) { addrs, err = net.InterfaceAddrs(); return err }); err != nil {
		t.Fatal(err)
	}
	four, six := false, false
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() {
			four, six = four || ip.IP.To4() != nil, six || ip.IP.To4() == nil
		}
	}
	if !four || !six {
		t.Errorf("addresses %v: want one of each family that is no loopback's", addrs)
	}
}

// How long a start waits for its network (opened) and an end for the kernel (closed).
func BenchmarkOpen(b *testing.B) {
	var opened, closed time.Duration
	n := 0
	for b.Loop() {
		c := exec.Command("/bin/sleep", "600")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		net, err := Open(c.Process.Pid)
		if err != nil {
			b.Fatal(err)
		}
		opened += time.Since(began)
		began = time.Now()
		if err := net.Close(); err != nil {
			b.Fatal(err)
		}
		closed += time.Since(began)
		n++
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	b.ReportMetric(float64(opened.Microseconds())/float64(n), "us-opened")
	b.ReportMetric(float64(closed.Microseconds())/float64(n), "us-closed")
}

// What doctor says of this machine is what happens on it.
func TestTry(t *testing.T) {
	if err := Try(); err != nil {
		t.Error(err)
	}
}
