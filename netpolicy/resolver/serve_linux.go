package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/netpolicy/ledger"
)

const (
	tcpIdle = 15 * time.Second
	tcpMost = 1000 // questions of one connection
)

// Datagrams is a datagram socket of a jail, bound to port 53.
type Datagrams struct {
	conn *net.UDPConn
	v6   bool
}

// Open takes over f, a datagram socket that was bound in the jail's network namespace; f is
// closed. It asks the kernel to say which address each datagram was sent to
// (IP_RECVORIGDSTADDR) and to let answers leave from it (IP_FREEBIND; ip(7), ipv6(7)).
func Open(f *os.File) (*Datagrams, error) {
	defer f.Close()
	pc, err := net.FilePacketConn(f)
	if err != nil {
		return nil, fmt.Errorf("use datagram socket: %w", err)
	}
	c, ok := pc.(*net.UDPConn)
	if !ok {
		_ = pc.Close()
		return nil, errors.New("not a UDP socket")
	}
	d := &Datagrams{conn: c}
	raw, err := c.SyscallConn()
	if err == nil {
		var serr error
		err = raw.Control(func(fd uintptr) { d.v6, serr = prepare(int(fd)) })
		err = errors.Join(err, serr)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return d, nil
}

func prepare(fd int) (v6 bool, err error) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return false, fmt.Errorf("read domain: %w", err)
	}
	// A v6 socket may get IPv4 datagrams as well.
	errs := []error{unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVORIGDSTADDR, 1), unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_FREEBIND, 1)}
	if domain == unix.AF_INET6 {
		v6 = true
		errs = []error{unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVORIGDSTADDR, 1), unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)}
	}
	if err := errors.Join(errs...); err != nil {
		return false, fmt.Errorf("prepare datagram socket: %w", err)
	}
	return v6, nil
}

// Close closes the socket; Serve returns.
func (d *Datagrams) Close() error { return d.conn.Close() }

// Serve answers j's questions until the socket is closed, and returns when the last
// of them has been answered.
func (d *Datagrams) Serve(ctx context.Context, j *ledger.Jail) {
	var slow sync.WaitGroup
	defer slow.Wait()
	buf, oob := make([]byte, 4096), make([]byte, 256)
	for {
		n, oobn, _, client, err := d.conn.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
				return
			}
			continue // an ICMP error of an earlier answer
		}
		if !j.Questions.Take(time.Now()) {
			j.Count.Dropped.Add(1)
			continue
		}
		q := &question{jail: j, client: client, to: destination(oob[:oobn]), msg: new(dns.Msg)}
		if !q.to.IsValid() || q.msg.Unpack(buf[:n]) != nil {
			continue
		}
		if !q.slow() {
			d.reply(q, q.answer(ctx))
			continue
		}
		select {
		case j.Lookups <- struct{}{}:
			slow.Go(func() {
				defer func() { <-j.Lookups }()
				d.reply(q, q.answer(ctx))
			})
		default:
			j.Count.Dropped.Add(1)
		}
	}
}

func (d *Datagrams) reply(q *question, m *dns.Msg) {
	if m == nil {
		return
	}
	size := dns.MinMsgSize
	if e := q.msg.IsEdns0(); e != nil {
		size = min(max(size, int(e.UDPSize())), maxUDP)
	}
	m.Truncate(size)
	b, err := m.Pack()
	if err != nil {
		return
	}
	_, _, _ = d.conn.WriteMsgUDPAddrPort(b, from(q.to.Addr(), d.v6), q.client) // a client that went away is no error
}

// destination reads the address that a datagram was sent to.
func destination(oob []byte) netip.AddrPort {
	for len(oob) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			break
		}
		oob = rest
		switch {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_ORIGDSTADDR && len(data) >= 8:
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte(data[4:8])), binary.BigEndian.Uint16(data[2:]))
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_ORIGDSTADDR && len(data) >= 24:
			return netip.AddrPortFrom(netip.AddrFrom16([16]byte(data[8:24])), binary.BigEndian.Uint16(data[2:]))
		}
	}
	return netip.AddrPort{}
}

// from is the control message that makes a datagram leave from a.
func from(a netip.Addr, v6 bool) []byte {
	if !v6 {
		info := unix.Inet4Pktinfo{Spec_dst: a.Unmap().As4()}
		return unix.PktInfo4(&info)
	}
	return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: a.As16()})
}

// ServeTCP answers the questions of one connection (RFC 7766) and closes it.
func ServeTCP(ctx context.Context, j *ledger.Jail, c *net.TCPConn) {
	defer c.Close()
	client, _ := netip.ParseAddrPort(c.RemoteAddr().String())
	to, _ := netip.ParseAddrPort(c.LocalAddr().String())
	var length [2]byte
	for range tcpMost {
		if c.SetDeadline(time.Now().Add(tcpIdle)) != nil {
			return
		}
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		if !j.Questions.Take(time.Now()) {
			j.Count.Dropped.Add(1)
			return
		}
		q := &question{jail: j, client: client, to: to, msg: new(dns.Msg)}
		if q.msg.Unpack(b) != nil || !answerTCP(ctx, q, c) {
			return
		}
	}
}

func answerTCP(ctx context.Context, q *question, c *net.TCPConn) bool {
	if q.slow() {
		select {
		case q.jail.Lookups <- struct{}{}:
			defer func() { <-q.jail.Lookups }()
		default:
			q.jail.Count.Dropped.Add(1)
			return false
		}
	}
	m := q.answer(ctx)
	if m == nil {
		return false
	}
	m.Truncate(dns.MaxMsgSize)
	b, err := m.Pack()
	if err != nil || c.SetDeadline(time.Now().Add(tcpIdle)) != nil {
		return false
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
	return err == nil
}
