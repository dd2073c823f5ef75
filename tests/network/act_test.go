//go:build root && linux

package network

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// each is what this program does inside a jail: the attempts that it reads, one a line.
func each() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		act(strings.Fields(lines.Text()))
	}
}

// act is one attempt, and one line about it. The test believes the servers outside first and this
// line second.
func act(args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	began := time.Now()
	out, err := acts[args[0]](ctx, args[1:])
	word := "ok"
	if err != nil {
		word = "failed"
		var errno unix.Errno
		var dns *net.DNSError
		switch {
		case errors.As(err, &errno):
			word = unix.ErrnoName(errno)
		case errors.As(err, &dns) && dns.IsNotFound:
			word = "NXDOMAIN"
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			word = "EOF"
		case errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err):
			word = "TIMEOUT"
		}
	}
	said := fmt.Sprintf("%s in %s: %s %v", word, time.Since(began).Round(time.Millisecond), out, err)
	fmt.Println(strings.Join(strings.Fields(said), " "))
}

var acts = map[string]func(context.Context, []string) (string, error){
	"get":     get,
	"tls":     handshake,
	"dial":    dial,
	"send":    send,
	"resolve": resolve,
	"txt":     txt,
	"raw":     raw,
	"drip":    drip,
}

// get URL [HOST]: HTTP, the name checked against the test's own authority.
func get(ctx context.Context, args []string) (string, error) {
	roots, err := authority()
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
	if err != nil {
		return "", err
	}
	if len(args) > 1 {
		r.Host = args[1]
	}
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	answer, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	return fmt.Sprintf("%d, %d bytes", answer.StatusCode, n), err
}

func authority() (*x509.CertPool, error) {
	pem, err := os.ReadFile("cert.pem")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return roots, nil
}

// handshake ADDRESS NAME: TLS that asks for another name than the one connected to.
func handshake(ctx context.Context, args []string) (string, error) {
	c, err := (&tls.Dialer{Config: &tls.Config{ServerName: args[1], InsecureSkipVerify: true}}).DialContext(ctx, "tcp", args[0])
	if err != nil {
		return "", err
	}
	defer c.Close()
	return "shaken", nil
}

// dial ADDRESS TOKEN: says something and waits for an answer.
func dial(ctx context.Context, args []string) (string, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", args[0])
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := fmt.Fprintf(c, "%s\n", args[1]); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

// send ADDRESS TOKEN: a datagram from a socket that is not connected.
func send(_ context.Context, args []string) (string, error) {
	to, err := net.ResolveUDPAddr("udp", args[0])
	if err != nil {
		return "", err
	}
	c, err := net.ListenUDP("udp", nil)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, err = c.WriteTo([]byte(args[1]), to)
	return "", err
}

// resolve NAME [SERVER [tcp]].
func resolve(ctx context.Context, args []string) (string, error) {
	addrs, err := resolver(args[1:]).LookupHost(ctx, args[0])
	return strings.Join(addrs, " "), err
}

func resolver(args []string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if len(args) > 0 {
			address = args[0]
		}
		if len(args) > 1 {
			network = args[1]
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
}

func txt(ctx context.Context, args []string) (string, error) {
	all, err := resolver(args[1:]).LookupTXT(ctx, args[0])
	return strings.Join(all, " "), err
}

// raw tries sockets that pass everything by.
func raw(context.Context, []string) (string, error) {
	for _, s := range []struct{ family, kind, protocol int }{
		{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
		{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP},
		{unix.AF_PACKET, unix.SOCK_RAW, 0},
		{unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		{unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM},
	} {
		if fd, err := unix.Socket(s.family, s.kind, s.protocol); err == nil {
			_ = unix.Close(fd)
			return fmt.Sprint(s), nil
		}
	}
	return "", unix.EPERM
}

// drip ADDRESS: one connection that is held, a line now and then, until it breaks.
func drip(_ context.Context, args []string) (string, error) {
	c, err := net.Dial("tcp", args[0])
	if err != nil {
		return "", err
	}
	lines := bufio.NewReader(c)
	for n := 0; ; n++ {
		if _, err := fmt.Fprintf(c, "drip %d\n", n); err != nil {
			return fmt.Sprint(n), err
		}
		if _, err := lines.ReadString('\n'); err != nil {
			return fmt.Sprint(n), err
		}
		_ = os.WriteFile("dripping", nil, 0o644)
		time.Sleep(20 * time.Millisecond)
	}
}
