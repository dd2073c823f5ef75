package steer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/netpolicy"
)

// loopback is the index of lo, the first device of every namespace.
const loopback = 1

// inNamespace runs f on a thread of its own in a network namespace. The thread
// ends with f: one that could not come back must serve nobody else.
func inNamespace(ns *os.File, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// configure makes every address the namespace's own. It runs inside.
//
// One address of each family is on lo, so that sources are chosen and programs
// that ask which families there are (AI_ADDRCONFIG, getaddrinfo(3)) get both; it
// is the resolver's, which stands for no name. The routes are "local": packets
// to any address are delivered here (ip-route(8)).
func configure() error {
	if err := linkUp("lo"); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("make netlink socket: %w", err)
	}
	defer unix.Close(fd)
	for _, a := range []netip.Addr{netpolicy.Resolver4, netpolicy.Resolver6} {
		if err := request(fd, unix.RTM_NEWADDR, address(a)); err != nil {
			return fmt.Errorf("add address %s: %w", a, err)
		}
		if err := request(fd, unix.RTM_NEWROUTE, localDefault(a)); err != nil {
			return fmt.Errorf("add local default route from %s: %w", a, err)
		}
	}
	return nil
}

func linkUp(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// address is struct ifaddrmsg with its attributes (rtnetlink(7)): all bits of the
// prefix, no duplicate address detection.
func address(a netip.Addr) []byte {
	b := []byte{family(a), byte(a.BitLen()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	b = binary.NativeEndian.AppendUint32(b, loopback)
	b = attribute(b, unix.IFA_LOCAL, a.AsSlice())
	return attribute(b, unix.IFA_ADDRESS, a.AsSlice())
}

// localDefault is struct rtmsg of "local default dev lo src A table local".
func localDefault(a netip.Addr) []byte {
	scope := byte(unix.RT_SCOPE_HOST)
	if a.Is6() {
		scope = unix.RT_SCOPE_UNIVERSE
	}
	b := []byte{family(a), 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, scope, unix.RTN_LOCAL, 0, 0, 0, 0}
	b = attribute(b, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, loopback))
	return attribute(b, unix.RTA_PREFSRC, a.AsSlice())
}

// attribute appends one struct rtattr, padded to four bytes.
func attribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, -len(value)&3)...)
}

// request sends one message and waits for its acknowledgement. What is there
// already is no error: a namespace is configured once more after a failed start.
func request(fd int, kind uint16, body []byte) error {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b = append(b, 1, 0, 0, 0, 0, 0, 0, 0) // sequence and port
	if err := unix.Sendto(fd, append(b, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("netlink answered something else")
	}
	if errno := -int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); errno != 0 && unix.Errno(errno) != unix.EEXIST {
		return unix.Errno(errno)
	}
	return nil
}
