//go:build linux && cgo && (amd64 || arm64)

package seccomp

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNetd: netd's filter allows what its table lists, threads and dialling, and nothing else.
func TestNetd(t *testing.T) {
	program, err := BuildNetd()
	if err != nil {
		t.Fatal(err)
	}
	prog := decode(program)
	var listed []string
	for _, g := range netd() {
		if g.class == Allow {
			listed = append(listed, strings.Fields(g.names)...)
		}
	}
	for _, name := range listed {
		if _, ok := number(name); !ok {
			t.Errorf("the table lists %s, which no machine has", name)
		}
	}
	threads := [6]uint64{unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD}
	for nr := range limit + 600 {
		name := numberName(nr)
		got := eval(t, prog, data{nr: uint32(nr), arch: auditArch(), args: threads}).ret
		if want := slices.Contains(listed, name) || name == "clone"; (got == allowed) != want && name != "socket" {
			t.Errorf("%s (%d): %#x, want allowed %t", name, nr, got, want)
		}
	}
	clone, _ := number("clone")
	for _, flags := range []uint64{0, uint64(unix.SIGCHLD), unix.CLONE_VM | unix.CLONE_VFORK, threads[0] | unix.CLONE_NEWUSER, threads[0] | unix.CLONE_NEWNET} {
		if got := eval(t, prog, data{nr: uint32(clone), arch: auditArch(), args: [6]uint64{flags}}).ret; got != errnoRet(eperm) {
			t.Errorf("clone %#x: %#x, want EPERM", flags, got)
		}
	}
	socket, _ := number("socket")
	for _, c := range []struct {
		args [3]uint64
		want bool
	}{
		{[3]uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, 0}, true},
		{[3]uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP}, true},
		{[3]uint64{unix.AF_INET6, unix.SOCK_DGRAM | unix.SOCK_NONBLOCK, 0}, true},
		{[3]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, true},
		{[3]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, false},
		{[3]uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, false},
		{[3]uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP}, false},
		{[3]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, false},
		{[3]uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, false},
		{[3]uint64{unix.AF_PACKET, unix.SOCK_RAW, 0}, false},
		{[3]uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, false},
	} {
		args := [6]uint64{c.args[0], c.args[1], c.args[2]}
		if got := eval(t, prog, data{nr: uint32(socket), arch: auditArch(), args: args}).ret; (got == allowed) != c.want {
			t.Errorf("socket %d: %#x, want allowed %t", c.args, got, c.want)
		}
	}
}
