package address

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// Routes asks the kernel where an address would go (rtnetlink(7), RTM_GETROUTE), in
// the network namespace in which it was opened. It may be used by many goroutines.
type Routes struct {
	mu  sync.Mutex
	fd  int
	seq uint32
}

// OpenRoutes opens a routing socket. It needs no privilege.
func OpenRoutes() (*Routes, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open routing socket: %w", err)
	}
	tv := unix.Timeval{Sec: 1}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("set timeout of routing socket: %w", err)
	}
	return &Routes{fd: fd}, nil
}

// Close closes the socket.
func (r *Routes) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	fd := r.fd
	r.fd = -1
	if fd < 0 {
		return nil
	}
	return unix.Close(fd)
}

// Own says whether a connection to a ends on this host: whether its route is of
// type local, whatever interface or table makes it so. Broadcast and anycast
// routes count as own. An address without a route is not own, and cannot be dialled.
func (r *Routes) Own(a netip.Addr) (bool, error) {
	a = a.WithZone("").Unmap()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	if err := unix.Sendto(r.fd, question(a, r.seq), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, fmt.Errorf("ask for the route to %s: %w", a, err)
	}
	buf := make([]byte, 4096)
	for {
		n, from, err := unix.Recvfrom(r.fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("read the route to %s: %w", a, err)
		}
		if nl, ok := from.(*unix.SockaddrNetlink); !ok || nl.Pid != 0 {
			continue // not the kernel
		}
		if own, mine, err := answer(buf[:n], r.seq); mine {
			return own, err
		}
	}
}

func question(a netip.Addr, seq uint32) []byte {
	family, bits := byte(unix.AF_INET), a.BitLen()
	if a.Is6() {
		family = unix.AF_INET6
	}
	ip := a.AsSlice()
	total := unix.SizeofNlMsghdr + unix.SizeofRtMsg + unix.SizeofRtAttr + len(ip)
	b := make([]byte, total)
	n := binary.NativeEndian
	n.PutUint32(b[0:], uint32(total))
	n.PutUint16(b[4:], unix.RTM_GETROUTE)
	n.PutUint16(b[6:], unix.NLM_F_REQUEST)
	n.PutUint32(b[8:], seq)
	b[16], b[17] = family, byte(bits) // rtmsg: family, dst_len
	at := unix.SizeofNlMsghdr + unix.SizeofRtMsg
	n.PutUint16(b[at:], uint16(unix.SizeofRtAttr+len(ip)))
	n.PutUint16(b[at+2:], unix.RTA_DST)
	copy(b[at+4:], ip)
	return b
}

// answer reads one datagram; mine says whether it answers the question seq.
func answer(b []byte, seq uint32) (own, mine bool, err error) {
	n := binary.NativeEndian
	if len(b) < unix.SizeofNlMsghdr || n.Uint32(b[8:]) != seq {
		return false, false, nil
	}
	body := b[unix.SizeofNlMsghdr:]
	switch kind := n.Uint16(b[4:]); {
	case kind == unix.NLMSG_ERROR && len(body) >= 4:
		errno := unix.Errno(-int32(n.Uint32(body)))
		if errno == unix.ENETUNREACH || errno == unix.EHOSTUNREACH || errno == unix.EACCES || errno == unix.EINVAL {
			return false, true, nil
		}
		return false, true, fmt.Errorf("route: %w", errno)
	case kind == unix.RTM_NEWROUTE && len(body) >= unix.SizeofRtMsg:
		t := body[7] // rtm_type
		return t == unix.RTN_LOCAL || t == unix.RTN_BROADCAST || t == unix.RTN_ANYCAST, true, nil
	}
	return false, true, errors.New("route: an answer that is none")
}
