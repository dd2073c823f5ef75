package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agentos/agentos/netpolicy"
)

// server answers on the loopback with what f makes of each question, over UDP and TCP.
func server(t *testing.T, f func(m *dns.Msg, tcp bool)) string {
	t.Helper()
	pc, l := onePort(t)
	for _, s := range []*dns.Server{{PacketConn: pc}, {Listener: l}} {
		s.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg)
			m.SetReply(q)
			f(m, s.Listener != nil)
			_ = w.WriteMsg(m)
		})
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { _ = s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return pc.LocalAddr().String()
}

// onePort listens for UDP and TCP on one port. The kernel chooses one that is free for TCP;
// for UDP it can be somebody's, and then another is asked for.
func onePort(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		pc, err := net.ListenPacket("udp", l.Addr().String())
		if err == nil {
			return pc, l
		}
		_ = l.Close()
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
	t.Fatal("no port is free for UDP and TCP")
	return nil, nil
}

func rr(t *testing.T, s string) dns.RR {
	t.Helper()
	r, err := dns.NewRR(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAddresses(t *testing.T) {
	var asked atomic.Int64
	addr := server(t, func(m *dns.Msg, tcp bool) {
		asked.Add(1)
		q := m.Question[0]
		a := q.Qtype == dns.TypeA
		switch q.Name {
		case "www.example.":
			m.Answer = append(m.Answer, rr(t, "www.example. 60 IN CNAME edge.example."), rr(t, "other.example. 60 IN A 6.6.6.6"))
			if a {
				m.Answer = append(m.Answer, rr(t, "edge.example. 60 IN A 1.2.3.4"), rr(t, "edge.example. 60 IN A 1.2.3.5"))
			} else {
				m.Answer = append(m.Answer, rr(t, "edge.example. 60 IN AAAA 2001:4860::1"))
			}
		case "big.example.":
			if m.Truncated = !tcp; tcp && a {
				m.Answer = append(m.Answer, rr(t, "big.example. 0 IN A 1.1.1.1"))
			}
		case "loop.example.":
			m.Answer = append(m.Answer, rr(t, "loop.example. 60 IN CNAME loop.example."))
		case "wrong.example.":
			m.Question[0].Name = "else.example."
			m.Answer = append(m.Answer, rr(t, "else.example. 60 IN A 1.1.1.1"))
		case "fails.example.":
			m.Rcode = dns.RcodeServerFailure
		default:
			m.Rcode = dns.RcodeNameError
		}
	})
	c := &Config{servers: []string{addr}, timeout: time.Second, tries: 1, hosts: hosts("10.0.0.1 filed.example short # x\nbad line\n::1 filed.example\n")}
	var r Resolver
	for n, want := range map[string]string{
		"www.example":   "[2001:4860::1 1.2.3.4 1.2.3.5]",
		"big.example":   "[1.1.1.1]",
		"filed.example": "[10.0.0.1 ::1]",
		"short":         "[10.0.0.1]",
	} {
		if got, err := r.Addresses(context.Background(), c, n); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v; want %s", n, got, err, want)
		}
	}
	for n, want := range map[string]error{"none.example": ErrNoName, "loop.example": ErrNoName, "wrong.example": ErrServers, "fails.example": ErrServers} {
		if got, err := r.Addresses(context.Background(), c, n); !errors.Is(err, want) {
			t.Errorf("%s: %v, %v; want %v", n, got, err, want)
		}
	}
	before := asked.Load()
	if _, err := r.Addresses(context.Background(), c, "www.example"); err != nil || asked.Load() != before {
		t.Error("an answer that holds for a minute was not kept")
	}
	if _, err := r.Addresses(context.Background(), c, "big.example"); err != nil || asked.Load() == before {
		t.Error("an answer that holds for no time was kept")
	}
	dead := &Config{servers: []string{"127.0.0.1:1", addr}, timeout: time.Second, tries: 1}
	if got, err := r.Addresses(context.Background(), dead, "www.example"); err != nil || len(got) != 3 {
		t.Errorf("with the first server dead: %v, %v", got, err)
	}
}

func TestParse(t *testing.T) {
	c, err := Parse(netpolicy.Configure{
		Resolv: "search x.example\nnameserver 9.9.9.9\nnameserver fe80::1%eth0\noptions attempts:3\n", Hosts: "127.0.0.1 localhost",
		Upstream: netpolicy.Upstream{Proxy: "http://me:secret@proxy.example:3128", Direct: []string{"*.corp.example", "one.example", "10.0.0.0/8", "192.168.0.1"}},
	})
	if err != nil || c.servers[0] != "9.9.9.9:53" || len(c.servers) != 2 || c.tries != 3 || c.proxy.port != 3128 {
		t.Fatalf("%+v, %v", c, err)
	}
	for n, want := range map[string]bool{"a.corp.example": false, "corp.example": true, "one.example": false, "two.one.example": true, "x.example": true} {
		if got := c.Proxied(n, netip.Addr{}); got != want {
			t.Errorf("%s through the proxy: %v", n, got)
		}
	}
	if c.Proxied("", netip.MustParseAddr("10.1.1.1")) || !c.Proxied("", netip.MustParseAddr("8.8.8.8")) {
		t.Error("addresses through the proxy")
	}
	for _, p := range []string{"https://proxy:443", "proxy:3128", "http://", "http://ho st", "socks5://1.2.3.4:0", "http://127.1:1"} {
		if _, err := Parse(netpolicy.Configure{Upstream: netpolicy.Upstream{Proxy: p}}); err == nil {
			t.Errorf("proxy %q was taken", p)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%v tells a password", err)
		}
	}
}

// speak serves one connection on the loopback.
func speak(t *testing.T, f func(net.Conn) error) (port string, done chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done = make(chan error, 1)
	go func() {
		defer l.Close()
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			err = f(c)
		}
		done <- err
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, done
}

func expect(c net.Conn, want, answer string) error {
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		return fmt.Errorf("got %q, %v; want %q", b, err, want)
	}
	_, err := io.WriteString(c, answer)
	return err
}

func TestProxies(t *testing.T) {
	for name, tt := range map[string]struct {
		scheme string
		steps  [][2]string
		ok     bool
	}{
		"connect":           {"http://", [][2]string{{"CONNECT web.example:443 HTTP/1.1\r\nHost: web.example:443\r\n\r\n", "HTTP/1.1 200 OK\r\nX: y\r\n\r\nserver first"}}, true},
		"connect, password": {"http://me:pw@", [][2]string{{"CONNECT web.example:443 HTTP/1.1\r\nHost: web.example:443\r\nProxy-Authorization: Basic bWU6cHc=\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nserver first"}}, true},
		"connect refused":   {"http://", [][2]string{{"CONNECT ", "HTTP/1.1 403 Forbidden\r\n\r\n"}}, false},
		"connect nonsense":  {"http://", [][2]string{{"CONNECT ", "SSH-2.0-x\r\n\r\n\r\n"}}, false},
		"socks":             {"socks5://", [][2]string{{"\x05\x01\x00", "\x05\x00"}, {"\x05\x01\x00\x03\x0bweb.example\x01\xbb", "\x05\x00\x00\x01\x01\x02\x03\x04\x00\x50server first"}}, true},
		"socks, password":   {"socks5://me:pw@", [][2]string{{"\x05\x02\x00\x02", "\x05\x02"}, {"\x01\x02me\x02pw", "\x01\x00"}, {"\x05\x01\x00\x03\x0bweb.example\x01\xbb", "\x05\x00\x00\x03\x01x\x00\x50server first"}}, true},
		"socks refused":     {"socks5://", [][2]string{{"\x05\x01\x00", "\x05\x00"}, {"\x05\x01\x00\x03\x0bweb.example\x01\xbb", "\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00"}}, false},
		"socks wants more":  {"socks5://", [][2]string{{"\x05\x01\x00", "\x05\xff"}}, false},
	} {
		port, done := speak(t, func(c net.Conn) error {
			for _, s := range tt.steps {
				if err := expect(c, s[0], s[1]); err != nil {
					return err
				}
			}
			return nil
		})
		c, err := Parse(netpolicy.Configure{Upstream: netpolicy.Upstream{Proxy: tt.scheme + "127.0.0.1:" + port}})
		if err != nil {
			t.Fatal(err)
		}
		var r Resolver
		conn, to, err := r.DialProxy(context.Background(), c, "web.example", 443)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrProxy) {
			t.Errorf("%s: %v", name, err)
		}
		if err := <-done; err != nil {
			t.Errorf("%s: the proxy %v", name, err)
		}
		if conn == nil {
			continue
		}
		if b, err := io.ReadAll(conn); err != nil || string(b) != "server first" || to.Addr().String() != "127.0.0.1" {
			t.Errorf("%s: %q, %v from %s", name, b, err, to)
		}
		conn.Close()
	}
}

func TestDialTriesOneAfterTheOther(t *testing.T) {
	port, _ := speak(t, func(c net.Conn) error { return nil })
	var p uint16
	if _, err := fmt.Sscan(port, &p); err != nil {
		t.Fatal(err)
	}
	addrs := []netip.Addr{netip.MustParseAddr("127.0.0.9"), netip.IPv6Loopback(), netip.MustParseAddr("127.0.0.1")} // nobody listens on the first two
	c, to, err := Dial(context.Background(), addrs, p)
	if err != nil || to.Addr() != addrs[2] || c.RemoteAddr().String() != to.String() {
		t.Fatalf("%v, %v", to, err)
	}
	c.Close()
	if _, _, err := Dial(context.Background(), nil, p); err == nil {
		t.Error("dialled nothing")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("nameserver 1.1.1.1\n", "127.0.0.1 localhost\n", "socks5://u:p@h:1")
	f.Fuzz(func(t *testing.T, resolv, hosts, proxy string) {
		c, err := Parse(netpolicy.Configure{Resolv: resolv, Hosts: hosts, Upstream: netpolicy.Upstream{Proxy: proxy}})
		if err == nil && len(c.servers) == 0 {
			t.Error("no server")
		}
	})
}
