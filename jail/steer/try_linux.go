package steer

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/netpolicy"
)

// Try makes the network of a jail in a namespace of its own and connects in it: that
// programs load and attach proves nothing. The error says what this machine lacks.
//
// Precondition: root.
func Try() error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread and its namespace end together
		done <- try()
	}()
	return <-done
}

func try() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make network namespace: %w", err)
	}
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer ns.Close()
	n := empty()
	defer n.Close()
	if err := configure(); err != nil {
		return err
	}
	if err := n.listen(); err != nil {
		return err
	}
	if err := n.steer(ns); err != nil {
		return err
	}
	for listener, to := range map[int]netip.Addr{netpolicy.Listener4: netpolicy.Resolver4.Next(), netpolicy.Listener6: netpolicy.Resolver6.Next()} {
		fd, err := unix.Socket(kinds[listener].domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = unix.Connect(fd, sockaddr(netip.AddrPortFrom(to, 1)))
		if err == nil {
			err = accept(n.sockets[listener])
		}
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			return fmt.Errorf("a connection to %s was not steered: %w", to, err)
		}
	}
	return nil
}

// patience is how long a steered connection may take to its listener, in ms: connect(2) returns with the
// SYN-ACK, and on a busy machine the ACK is taken later.
const patience = 5000

// accept takes and closes one connection of a listener that does not block.
func accept(listener int) error {
	for range 3 { // EINTR
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}, patience); err == nil {
			break
		}
	}
	fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
