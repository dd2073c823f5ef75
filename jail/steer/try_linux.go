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
			var got int
			if got, _, err = unix.Accept4(n.sockets[listener], unix.SOCK_CLOEXEC); err == nil {
				err = unix.Close(got)
			}
		}
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			return fmt.Errorf("a connection to %s was not steered: %w", to, err)
		}
	}
	return nil
}
