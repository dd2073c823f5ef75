//go:build root

package daemon_test

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/packet"
)

// steer makes the four sockets in the jail and steers to them what is not to the jail's own loopback.
func (w *world) steer(t testing.TB) []int {
	t.Helper()
	if w.sockets == nil {
		w.jail.in(func() {
			for _, s := range []struct {
				domain, kind int
				to           unix.Sockaddr
			}{
				{unix.AF_INET, unix.SOCK_STREAM, &unix.SockaddrInet4{}},
				{unix.AF_INET6, unix.SOCK_STREAM, &unix.SockaddrInet6{}},
				{unix.AF_INET, unix.SOCK_DGRAM, &unix.SockaddrInet4{Port: 53}},
				{unix.AF_INET6, unix.SOCK_DGRAM, &unix.SockaddrInet6{Port: 53}},
			} {
				fd, err := unix.Socket(s.domain, s.kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
				if err == nil && s.domain == unix.AF_INET6 {
					err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
				}
				if err == nil {
					err = unix.Bind(fd, s.to)
				}
				if err == nil && s.kind == unix.SOCK_STREAM {
					err = unix.Listen(fd, 4096)
				}
				if err != nil {
					t.Errorf("socket: %v", err)
				}
				w.sockets = append(w.sockets, os.NewFile(uintptr(fd), "jail"))
			}
		})
		w.attach(t)
		t.Cleanup(func() { packet.CloseAll(w.sockets) })
	}
	var fds []int
	for _, f := range w.sockets {
		fds = append(fds, int(f.Fd()))
	}
	return fds
}

// attach is a program like bpf/steer.c.
func (w *world) attach(t testing.TB) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.SockMap, KeySize: 4, ValueSize: 8, MaxEntries: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	for i, f := range w.sockets {
		if err := m.Put(uint32(i), uint64(f.Fd())); err != nil {
			t.Fatal(err)
		}
	}
	const family, protocol, local4, local6, port = 8, 12, 40, 44, 60 // struct bpf_sk_lookup
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SkLookup, AttachType: ebpf.AttachSkLookup, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Imm(asm.R7, 0),
		asm.LoadMem(asm.R2, asm.R6, family, asm.Word),
		asm.JEq.Imm(asm.R2, unix.AF_INET6, "six"),
		asm.LoadMem(asm.R3, asm.R6, local4, asm.Word),
		asm.And.Imm(asm.R3, 0xff),
		asm.JEq.Imm(asm.R3, 127, "pass"),
		asm.Ja.Label("kind"),
		asm.Mov.Imm(asm.R7, 1).WithSymbol("six"),
		asm.LoadMem(asm.R3, asm.R6, local6, asm.Word),
		asm.JNE.Imm(asm.R3, 0, "kind"),
		asm.LoadMem(asm.R3, asm.R6, local6+12, asm.Word),
		asm.JEq.Imm(asm.R3, 1<<24, "pass"),
		asm.LoadMem(asm.R2, asm.R6, protocol, asm.Word).WithSymbol("kind"),
		asm.JNE.Imm(asm.R2, unix.IPPROTO_UDP, "find"),
		asm.LoadMem(asm.R2, asm.R6, port, asm.Word),
		asm.JNE.Imm(asm.R2, 53, "pass"),
		asm.Add.Imm(asm.R7, 2),
		asm.StoreMem(asm.RFP, -4, asm.R7, asm.Word).WithSymbol("find"),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnSkAssign.Call(),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.FnSkRelease.Call(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("pass"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatalf("load steering: %v", err)
	}
	defer p.Close()
	l, err := link.AttachNetNs(int(w.jail.fd.Fd()), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}
