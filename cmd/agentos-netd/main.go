// Command agentos-netd is the network daemon of all jails of one helper: it answers
// their DNS questions and makes their connections, by rules that the helper gives it.
//
// The helper starts it, unprivileged, with descriptor 3 connected to itself (package netpolicy says what is
// spoken there), a seccomp filter as descriptor 4, and nothing else open. It takes no arguments, reads no files and no environment. It
// confines itself before it reads its first request, and ends when the helper's end closes.
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/netpolicy/confine"
	"github.com/agentos/agentos/netpolicy/daemon"
)

const (
	control = 3
	filter  = 4
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "agentos-netd:", err)
		os.Exit(1)
	}
}

func run() error {
	if kind, err := unix.GetsockoptInt(control, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
		return fmt.Errorf("descriptor %d is not the helper's socket: agentos-helper starts this program", control)
	}
	unix.CloseOnExec(control)
	if err := confine.Check(); err != nil {
		return err
	}
	if err := confine.Confine(); err != nil {
		return err
	}
	program := os.NewFile(filter, "filter")
	err := confine.Filter(program)
	_ = program.Close()
	if err != nil {
		return err
	}
	conn, err := packet.New(control)
	if err != nil {
		return err
	}
	return daemon.Run(conn)
}
