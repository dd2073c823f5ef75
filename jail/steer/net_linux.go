package steer

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/bpf"
	"github.com/agentos/agentos/netpolicy"
)

// Net is the network of one jail: its namespace is steered to four sockets.
type Net struct {
	sockets [netpolicy.Sockets]int // descriptors, -1 for none; not files, whose Fd would change how netd's copies block
	program *ebpf.Collection
	link    link.Link
	closed  sync.Once
}

// Open makes the network of the jail whose init is pid: addresses, routes,
// sockets, and the program that picks them. Nothing but init may run in the jail
// yet: what connects before it returns is refused.
//
// Preconditions: root; pid is a child of the caller that was not reaped.
func Open(pid int) (*Net, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	defer ns.Close()
	n := empty()
	err = inNamespace(ns, func() error {
		if err := configure(); err != nil {
			return err
		}
		return n.listen()
	})
	if err == nil {
		err = n.steer(ns)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func empty() *Net { return &Net{sockets: [netpolicy.Sockets]int{-1, -1, -1, -1}} }

// Sockets are the descriptors of netpolicy's four, in its order; they stay n's.
func (n *Net) Sockets() []int { return n.sockets[:] }

// Close detaches the program and closes the sockets. Idempotent.
func (n *Net) Close() error {
	var err error
	n.closed.Do(func() {
		if n.link != nil {
			err = n.link.Close()
		}
		if n.program != nil {
			n.program.Close()
		}
		for _, s := range n.sockets {
			if s >= 0 {
				err = errors.Join(err, unix.Close(s))
			}
		}
	})
	return err
}

// option is one socket option that is an integer.
type option struct{ level, name, value int }

// kinds are the four sockets. The listeners say by getsockname(2) whom a
// connection was to, the others by a control message. They are bound to the
// resolver's address, not to all: what a jail's own servers may bind to stays free.
var kinds = [netpolicy.Sockets]struct {
	domain, kind int
	addr         netip.AddrPort
	options      []option
}{
	netpolicy.Listener4: {unix.AF_INET, unix.SOCK_STREAM, netip.AddrPortFrom(netpolicy.Resolver4, 0), nil},
	netpolicy.Listener6: {unix.AF_INET6, unix.SOCK_STREAM, netip.AddrPortFrom(netpolicy.Resolver6, 0), []option{{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1}}},
	netpolicy.Datagram4: {unix.AF_INET, unix.SOCK_DGRAM, netip.AddrPortFrom(netpolicy.Resolver4, 53), []option{
		{unix.IPPROTO_IP, unix.IP_PKTINFO, 1}, {unix.IPPROTO_IP, unix.IP_RECVORIGDSTADDR, 1},
	}},
	netpolicy.Datagram6: {unix.AF_INET6, unix.SOCK_DGRAM, netip.AddrPortFrom(netpolicy.Resolver6, 53), []option{
		{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1}, {unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1}, {unix.IPPROTO_IPV6, unix.IPV6_RECVORIGDSTADDR, 1},
	}},
}

// backlog is how many connections wait while netd is busy or is being replaced.
const backlog = 1024

// listen makes the four sockets; it runs in the namespace.
func (n *Net) listen() error {
	for i, k := range kinds {
		fd, err := unix.Socket(k.domain, k.kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("make socket for %s: %w", k.addr, err)
		}
		n.sockets[i] = fd
		for _, o := range k.options {
			if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
				return fmt.Errorf("set option %d of the socket for %s: %w", o.name, k.addr, err)
			}
		}
		if err := unix.Bind(fd, sockaddr(k.addr)); err != nil {
			return fmt.Errorf("bind %s: %w", k.addr, err)
		}
		if k.kind != unix.SOCK_STREAM {
			continue
		}
		if err := unix.Listen(fd, backlog); err != nil {
			return fmt.Errorf("listen at %s: %w", k.addr, err)
		}
	}
	return nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// program is read once: only loading it is needed for each jail.
var program = sync.OnceValues(bpf.LoadSteer)

// steer loads a copy of the program with a map of its own and attaches it.
func (n *Net) steer(ns *os.File) error {
	spec, err := program()
	if err != nil {
		return fmt.Errorf("read steering program: %w", err)
	}
	if n.program, err = ebpf.NewCollection(spec.Copy()); err != nil {
		return fmt.Errorf("load steering program: %w", err)
	}
	for i, s := range n.sockets {
		if err := n.program.Maps["sockets"].Put(uint32(i), uint64(s)); err != nil {
			return fmt.Errorf("steer to socket %d: %w", i, err)
		}
	}
	if n.link, err = link.AttachNetNs(int(ns.Fd()), n.program.Programs["steer"]); err != nil {
		return fmt.Errorf("attach steering program: %w", err)
	}
	return nil
}
