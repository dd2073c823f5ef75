package upstream

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// ErrProxy is a proxy that did not connect.
var ErrProxy = errors.New("upstream proxy")

const (
	stagger     = 250 * time.Millisecond // RFC 8305 5, "Connection Attempt Delay"
	dialTimeout = 15 * time.Second       // of one address
	maxReply    = 8 << 10                // bytes of a proxy's answer
)

// Dial connects to the first of addrs that answers, in their order, the next one
// starting when one has failed or has been silent for a quarter of a second. The address that it
// returns is the one it dialled.
func Dial(ctx context.Context, addrs []netip.Addr, port uint16) (*net.TCPConn, netip.AddrPort, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn *net.TCPConn
		to   netip.AddrPort
		err  error
	}
	results := make(chan result)
	try := func(to netip.AddrPort) {
		c, err := dialOne(ctx, to)
		select {
		case results <- result{c, to, err}:
		case <-ctx.Done():
			if c != nil {
				_ = c.Close()
			}
		}
	}
	var last error = errors.New("no address")
	next, running := 0, 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next < len(addrs) || running > 0 {
		var due <-chan time.Time
		if next < len(addrs) {
			due = timer.C
		}
		select {
		case <-due:
			go try(netip.AddrPortFrom(addrs[next], port)) // ends with ctx
			next++
			running++
			timer.Reset(stagger)
		case r := <-results:
			running--
			if r.err == nil {
				return r.conn, r.to, nil
			}
			last = r.err
			timer.Reset(0)
		case <-ctx.Done():
			return nil, netip.AddrPort{}, ctx.Err()
		}
	}
	return nil, netip.AddrPort{}, last
}

func dialOne(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: time.Minute}
	d.SetMultipathTCP(false) // splice(2) does not work on it
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// DialProxy has the host's proxy connect to host, a normal name or an address. The
// address that it returns is the proxy's. The error wraps [ErrProxy] when the proxy refused.
func (r *Resolver) DialProxy(ctx context.Context, c *Config, host string, port uint16) (*net.TCPConn, netip.AddrPort, error) {
	p := c.proxy
	addrs := []netip.Addr{}
	if a, err := netip.ParseAddr(p.host); err == nil {
		addrs = append(addrs, a)
	} else if addrs, err = r.Addresses(ctx, c, p.host); err != nil {
		return nil, netip.AddrPort{}, fmt.Errorf("%w: %w", ErrProxy, err)
	}
	conn, to, err := Dial(ctx, addrs, p.port)
	if err != nil {
		return nil, netip.AddrPort{}, fmt.Errorf("%w: %w", ErrProxy, err)
	}
	deadline := time.Now().Add(dialTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	err = conn.SetDeadline(deadline)
	if err == nil {
		if p.socks {
			err = p.socks5(conn, host, port)
		} else {
			err = p.connect(conn, net.JoinHostPort(host, strconv.Itoa(int(port))))
		}
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close()
		return nil, netip.AddrPort{}, fmt.Errorf("%w: %w", ErrProxy, err)
	}
	return conn, to, nil
}

// connect speaks RFC 9110 9.3.6.
func (p *proxy) connect(conn io.ReadWriter, to string) error {
	head := "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n"
	if p.auth {
		head += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(p.user+":"+p.pass)) + "\r\n"
	}
	if _, err := io.WriteString(conn, head+"\r\n"); err != nil {
		return err
	}
	answer, err := readHead(conn)
	if err != nil {
		return err
	}
	status, _, _ := strings.Cut(answer, "\r\n")
	f := strings.SplitN(status, " ", 3)
	if len(f) < 2 || !strings.HasPrefix(f[0], "HTTP/1.") || len(f[1]) != 3 || f[1][0] != '2' {
		return fmt.Errorf("it answered %.80q", status)
	}
	return nil
}

// readHead reads byte by byte: what comes after the head is the destination's.
func readHead(r io.Reader) (string, error) {
	var b []byte
	one := make([]byte, 1)
	for len(b) < maxReply {
		if _, err := io.ReadFull(r, one); err != nil {
			return "", err
		}
		b = append(b, one[0])
		if n := len(b); n >= 4 && string(b[n-4:]) == "\r\n\r\n" {
			return string(b), nil
		}
	}
	return "", errors.New("its answer is too long")
}

// socks5 speaks RFC 1928 and RFC 1929. Names are resolved by the proxy.
func (p *proxy) socks5(conn io.ReadWriter, host string, port uint16) error {
	methods := []byte{5, 1, 0}
	if p.auth {
		methods = []byte{5, 2, 0, 2}
	}
	if _, err := conn.Write(methods); err != nil {
		return err
	}
	var b [2]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return err
	}
	switch {
	case b[0] != 5:
		return errors.New("it does not speak SOCKS 5")
	case b[1] == 2 && p.auth:
		m := append([]byte{1, byte(len(p.user))}, p.user...)
		m = append(append(m, byte(len(p.pass))), p.pass...)
		if _, err := conn.Write(m); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return err
		}
		if b[1] != 0 {
			return errors.New("it refused the user or password")
		}
	case b[1] != 0:
		return errors.New("it offers no way to log in that is known here")
	}
	m := []byte{5, 1, 0}
	if a, err := netip.ParseAddr(host); err == nil {
		m = append(m, map[bool]byte{true: 1, false: 4}[a.Is4()])
		m = append(m, a.AsSlice()...)
	} else {
		m = append(append(m, 3, byte(len(host))), host...)
	}
	if _, err := conn.Write(binary.BigEndian.AppendUint16(m, port)); err != nil {
		return err
	}
	return socksReply(conn)
}

func socksReply(conn io.Reader) error {
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		return err
	}
	if head[0] != 5 || head[1] != 0 {
		return fmt.Errorf("it answered %d", head[1])
	}
	n := 0
	switch head[3] {
	case 1:
		n = 4
	case 4:
		n = 16
	case 3:
		one := make([]byte, 1)
		if _, err := io.ReadFull(conn, one); err != nil {
			return err
		}
		n = int(one[0])
	default:
		return errors.New("it answered with an unknown kind of address")
	}
	_, err := io.ReadFull(conn, make([]byte, n+2))
	return err
}
