//go:build root

package daemon_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/netpolicy"
)

// refused says whether err is how a refused connection looks: a reset, at once.
func refused(c net.Conn, err error, say string) error {
	if errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	start := time.Now()
	if _, err = io.WriteString(c, say); err == nil { // whichever comes first is told of the reset
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
		return fmt.Errorf("wanted a reset, got %v", err)
	}
	if d := time.Since(start); d > 2*time.Second {
		return fmt.Errorf("reset after %v", d)
	}
	return nil
}

func TestNames(t *testing.T) {
	w := newWorld(t)
	txt := named("txt.example", 443)
	txt.Records = []string{"TXT", "SRV"}
	w.add(t, netpolicy.Limits{}, named("web.example", 443), named("*.npmjs.org", 443), txt)
	w.record("txt.example TXT", `"hello"`)
	w.record("_db._tcp.txt.example SRV", "0 0 443 web.example.")
	w.record("web.example TXT", `"secret"`)
	w.seen()
	for _, tt := range []struct {
		name  string
		kind  uint16
		code  int
		count int
	}{
		{"web.example", dns.TypeA, dns.RcodeSuccess, 1},
		{"WEB.example", dns.TypeAAAA, dns.RcodeSuccess, 1},
		{"web.example", dns.TypeHTTPS, dns.RcodeSuccess, 0},
		{"web.example", dns.TypeSVCB, dns.RcodeSuccess, 0},
		{"web.example", dns.TypeTXT, dns.RcodeSuccess, 0},
		{"registry.npmjs.org", dns.TypeA, dns.RcodeSuccess, 1},
		{"npmjs.org", dns.TypeA, dns.RcodeSuccess, 0}, // exists: names below it do
		{"org", dns.TypeA, dns.RcodeSuccess, 0},
		{"evil.example", dns.TypeA, dns.RcodeNameError, 0},
		{"secret-data.evil.example", dns.TypeTXT, dns.RcodeNameError, 0},
		{"web.example.evil.example", dns.TypeA, dns.RcodeNameError, 0},
		{"localhost", dns.TypeA, dns.RcodeSuccess, 1},
		{"txt.example", dns.TypeTXT, dns.RcodeSuccess, 1},
		{"_db._tcp.txt.example", dns.TypeSRV, dns.RcodeSuccess, 1},
		{"53.0.18.198.in-addr.arpa", dns.TypePTR, dns.RcodeNameError, 0},
		{"8.8.8.8.in-addr.arpa", dns.TypePTR, dns.RcodeNameError, 0},
	} {
		for _, resolver := range []string{"8.8.8.8", "198.18.0.53", "fd5b:a70e:1c9d::53", "2001:4860:4860::8888"} {
			for _, network := range []string{"udp", "tcp"} {
				m := w.query(t, network, resolver, tt.name, tt.kind)
				if m.Rcode != tt.code || len(m.Answer) != tt.count {
					t.Errorf("%s %s from %s over %s: %s with %d answers", tt.name, dns.TypeToString[tt.kind], resolver, network, dns.RcodeToString[m.Rcode], len(m.Answer))
				}
			}
		}
	}
	a := w.address(t, "web.example")
	if !netpolicy.Synthetic4.Contains(mustAddr(a)) || a != w.address(t, "Web.Example.") {
		t.Errorf("web.example is %s", a)
	}
	back, _ := dns.ReverseAddr(a)
	if m := w.query(t, "udp", "9.9.9.9", back, dns.TypePTR); len(m.Answer) != 1 || m.Answer[0].(*dns.PTR).Ptr != "web.example." {
		t.Errorf("%s: %v", back, m)
	}
	_, queries := w.seen()
	for _, q := range queries {
		if !strings.Contains(q, "txt.example") {
			t.Errorf("asked outside: %s", q)
		}
	}
	e := w.event(t, "denied name", func(e netpolicy.Event) bool { return e.Kind == netpolicy.Asked && e.Connection.Name == "evil.example" })
	if e.Allowed || e.Type != "A" || e.Jail != "j" || e.Why == "" {
		t.Errorf("event %+v", e)
	}
}

func TestWeb(t *testing.T) {
	w := newWorld(t)
	for _, n := range []string{"web.example", "other.example", "api.example"} {
		w.record(n+" A", webAddr)
	}
	limited := named("api.example", 80)
	limited.Methods, limited.Paths = []string{"GET"}, []string{"/v1/*"}
	w.add(t, netpolicy.Limits{}, named("web.example", 80, 443), limited, named("filed.example", 443))
	go w.web(w.net.listen(t, webAddr+":443"), true)
	go w.web(w.net.listen(t, webAddr+":80"), false)

	get := func(n, sni string) (string, error) {
		c, err := w.jail.dial(net.JoinHostPort(w.address(t, n), "443"))
		if err != nil {
			return "", err
		}
		defer c.Close()
		s := tls.Client(c, &tls.Config{ServerName: sni, InsecureSkipVerify: true})
		if _, err := fmt.Fprintf(s, "GET /x HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", sni); err != nil {
			return "", err
		}
		b, err := io.ReadAll(s)
		return string(b), err
	}
	if got, err := get("web.example", "web.example"); err != nil || !strings.HasSuffix(got, "hello from web.example") {
		t.Errorf("TLS to an allowed name: %q, %v", got, err)
	}
	e := w.event(t, "opened", func(e netpolicy.Event) bool { return e.Kind == netpolicy.Opened })
	if c := e.Connection; c.Name != "web.example" || c.Dialled.String() != webAddr+":443" || c.Rule != "rule 0" || c.Asked.Port() != 443 {
		t.Errorf("event %+v", e)
	}
	e = w.event(t, "closed", func(e netpolicy.Event) bool { return e.Kind == netpolicy.Closed })
	if c := e.Connection; c.Sent == 0 || c.Received == 0 {
		t.Errorf("event %+v", e)
	}
	if got, err := get("filed.example", "filed.example"); err != nil || !strings.HasSuffix(got, "filed.example") { // from the host's hosts file
		t.Errorf("TLS to a name in hosts: %q, %v", got, err)
	}
	w.seen()
	for _, sni := range []string{"other.example", "", "WEB.example.evil.example"} {
		if got, err := get("web.example", sni); err == nil {
			t.Errorf("a ClientHello for %q passed: %q", sni, got)
		}
	}
	if hits, _ := w.seen(); len(hits) > 0 {
		t.Errorf("reached the server: %q", hits)
	}
	w.event(t, "denied", func(e netpolicy.Event) bool {
		return e.Kind == netpolicy.Denied && strings.Contains(e.Why, "other.example")
	})

	for _, tt := range []struct {
		name, send string
		hits       string
	}{
		{"web.example", "GET /a HTTP/1.1\r\nHost: web.example\r\n\r\nGET /b HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n", "GET web.example /a, GET web.example /b"},
		{"web.example", "POST /a HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /b HTTP/1.0\r\nHost: web.example\r\n\r\n", "POST web.example /a, GET web.example /b"},
		{"web.example", "GET /a HTTP/1.1\r\nHost: other.example\r\n\r\n", ""},
		{"web.example", "GET /a HTTP/1.1\r\nHost: web.example:443\r\n\r\n", ""},
		{"web.example", "POST /a HTTP/1.1\r\nHost: web.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ""},
		{"web.example", "SSH-2.0-x\r\n", ""},
		{"web.example", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""},
		{"api.example", "GET /v1/x HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n", "GET api.example /v1/x"},
		{"api.example", "GET /v2/x HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n", ""},
		{"api.example", "POST /v1/x HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", ""},
		{"api.example", "GET /v1/../v2 HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n", ""},
	} {
		c, err := w.jail.dial(net.JoinHostPort(w.address(t, tt.name), "80"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, tt.send)
		got, err := io.ReadAll(c)
		c.Close()
		hits, _ := w.seen()
		if strings.Join(hits, ", ") != tt.hits || (err == nil) != (tt.hits != "") {
			t.Errorf("%q: reached the server: %q (%q, %v)", tt.send, hits, got, err)
		}
	}
	// A request for another host after an allowed one: it must not arrive, whatever came before.
	for _, second := range []string{"GET /evil HTTP/1.1\r\nHost: other.example\r\n\r\n", "GET /evil HTTP/1.1\r\nHost: web.example\r\nHost: other.example\r\n\r\n", "garbage\r\n\r\n"} {
		c, err := w.jail.dial(net.JoinHostPort(w.address(t, "web.example"), "80"))
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(c)
		_, _ = io.WriteString(c, "GET /first HTTP/1.1\r\nHost: web.example\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_, _ = io.WriteString(c, second)
		if _, err := r.ReadByte(); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("after %q: %v", second, err)
		}
		c.Close()
		if hits, _ := w.seen(); strings.Join(hits, ", ") != "GET web.example /first" {
			t.Errorf("after %q reached the server: %q", second, hits)
		}
	}
}

func TestOtherProtocols(t *testing.T) {
	w := newWorld(t)
	w.record("git.example A", webAddr)
	w.record("git.example AAAA", web6Addr)
	w.record("db.example A", lanAddr)
	opaque := named("git.example", 8443)
	opaque.TLS = netpolicy.Opaque
	w.add(t, netpolicy.Limits{}, named("git.example", 22, 443, 6379), opaque, prefixed("192.168.77.0/24", 5432), named("db.example", 5432),
		netpolicy.Rule{Kind: netpolicy.Host, Ports: []netpolicy.Ports{{Low: 5432, High: 5432}}}, prefixed("93.184.216.0/24", 8080))
	serve := func(l net.Listener, first, answer string) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.WriteString(c, first)
				b := make([]byte, 100)
				n, _ := c.Read(b)
				_, _ = io.WriteString(c, answer+string(b[:n]))
			}()
		}
	}
	go serve(w.net.listen(t, webAddr+":22"), "SSH-2.0-server\r\n", "bye ")
	go serve(w.net.listen(t, "["+web6Addr+"]:22"), "SSH-2.0-server\r\n", "bye ")
	go serve(w.net.listen(t, webAddr+":443"), "220 hello\r\n", "bye ")
	go serve(w.net.listen(t, webAddr+":6379"), "", "+")
	go serve(w.net.listen(t, webAddr+":8443"), "", "opaque ")
	go serve(w.net.listen(t, webAddr+":8080"), "", "direct ")
	go serve(w.net.listen(t, lanAddr+":5432"), "", "lan ")
	go serve(w.host.listen(t, "127.0.0.1:5432"), "", "host ")
	go serve(w.host.listen(t, hostAddr+":8080"), "", "own ")

	talk := func(addr, say string, serverFirst string) (string, error) {
		c, err := w.jail.dial(addr)
		if err != nil {
			return "", err
		}
		defer c.Close()
		first := make([]byte, len(serverFirst))
		if _, err := io.ReadFull(c, first); err != nil {
			return "", err
		}
		if _, err := io.WriteString(c, say); err != nil {
			return "", err
		}
		b, err := io.ReadAll(c)
		return string(first) + string(b), err
	}
	git := w.address(t, "git.example")
	for _, tt := range []struct{ addr, say, first, want string }{
		{git + ":22", "SSH-2.0-client\r\n", "SSH-2.0-server\r\n", "SSH-2.0-server\r\nbye SSH-2.0-client\r\n"},
		{git + ":6379", "*1\r\n$4\r\nPING\r\n", "", "+*1\r\n$4\r\nPING\r\n"},
		{git + ":8443", "anything", "", "opaque anything"},
		{w.address(t, "db.example") + ":5432", "x", "", "lan x"}, // a rule of addresses names its private address
		{lanAddr + ":5432", "x", "", "lan x"},
		{w.address(t, "host") + ":5432", "x", "", "host x"},
		{webAddr + ":8080", "x", "", "direct x"},
	} {
		if got, err := talk(tt.addr, tt.say, tt.first); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.addr, got, err, tt.want)
		}
	}
	for addr, why := range map[string]string{
		git + ":443":                                  "server first on a port of TLS",
		git + ":25":                                   "port of no rule",
		lanAddr + ":22":                               "port of no rule",
		hostAddr + ":8080":                            "the host's own address",
		metaAddr + ":80":                              "metadata",
		"198.18.77.77:443":                            "an address that stands for no name",
		"[fd5b:a70e:1c9d::c612:4d4d]:443":             "an address that stands for no name",
		"[::ffff:93.184.216.34]:22":                   "mapped, port of no rule",
		"[2606:4700::1111]:443":                       "IPv6 of no rule",
		"[64:ff9b::c0a8:4d02]:5432":                   "NAT64 form of an allowed address",
		w.address(t, "host.agentos.internal") + ":22": "port of the host of no rule",
	} {
		c, err := w.jail.dial(addr)
		if err := refused(c, err, "220"); err != nil {
			t.Errorf("%s (%s): %v", addr, why, err)
		}
	}
}

// What a name resolves to outside is checked, and what was checked is dialled.
func TestResolvedAddresses(t *testing.T) {
	w := newWorld(t)
	w.add(t, netpolicy.Limits{}, named("*.example", 8080))
	for _, a := range []string{webAddr, lanAddr, metaAddr} {
		l := w.net.listen(t, a+":8080")
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				w.hit(a)
				c.Close()
			}
		}()
	}
	for _, a := range []string{"127.0.0.1", hostAddr} {
		l := w.host.listen(t, a+":8080")
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				w.hit("host " + a)
				c.Close()
			}
		}()
	}
	for i, bad := range [][2]string{
		{"A", "127.0.0.1"},
		{"A", "127.1.2.3"},
		{"A", "0.0.0.0"},
		{"A", hostAddr},
		{"A", lanAddr},
		{"A", metaAddr},
		{"A", "100.100.100.200"},
		{"A", "198.18.0.1"},
		{"AAAA", "::1"},
		{"AAAA", "::ffff:127.0.0.1"},
		{"AAAA", "::ffff:169.254.169.254"},
		{"AAAA", "fd00:ec2::254"},
		{"AAAA", "64:ff9b::a9fe:a9fe"},
		{"AAAA", "2002:7f00:1::"},
		{"AAAA", host6Addr},
		{"AAAA", "fe80::1"},
		{"AAAA", "::"},
	} {
		n := fmt.Sprintf("n%d.example", i)
		w.record(n+" "+bad[0], bad[1])
		c, err := w.jail.dial(w.address(t, n) + ":8080")
		if err := refused(c, err, "x"); err != nil {
			t.Errorf("%s at %s: %v", n, bad[1], err)
		}
		e := w.event(t, bad[1], func(e netpolicy.Event) bool {
			return (e.Kind == netpolicy.Denied || e.Kind == netpolicy.Failed) && e.Connection.Name == n
		})
		if e.Kind != netpolicy.Denied {
			t.Errorf("%s at %s: %+v", n, bad[1], e)
		}
	}
	// Rebinding: each question gets another answer. Only checked addresses are dialled.
	w.record("turn.example A", webAddr, metaAddr, "127.0.0.1", lanAddr)
	for range 20 {
		c, err := w.jail.dial(w.address(t, "turn.example") + ":8080")
		if err == nil {
			_, _ = io.ReadAll(c)
			c.Close()
		}
	}
	hits, _ := w.seen()
	for _, h := range hits {
		if h != webAddr {
			t.Errorf("reached %s", h)
		}
	}
	if !slices.Contains(hits, webAddr) {
		t.Error("the public address was not reached")
	}
}

func TestLiveRules(t *testing.T) {
	w := newWorld(t)
	w.record("a.example A", webAddr)
	w.record("b.example A", webAddr)
	budget := named("b.example", 7000)
	budget.Budget = netpolicy.Budget{Bytes: 1 << 20}
	w.add(t, netpolicy.Limits{Connections: 3}, named("a.example", 7000), budget)
	l := w.net.listen(t, webAddr+":7000")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { n, _ := io.Copy(c, c); w.hit(fmt.Sprint(n)); c.Close() }()
		}
	}()
	echo := func(c net.Conn, s string) error {
		if _, err := io.WriteString(c, s); err != nil {
			return err
		}
		b := make([]byte, len(s))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != s {
			return fmt.Errorf("%q, %v", b, err)
		}
		return nil
	}
	a, b := w.address(t, "a.example")+":7000", w.address(t, "b.example")+":7000"
	one, err := w.jail.dial(a)
	if err == nil {
		err = echo(one, "hello")
	}
	two, err2 := w.jail.dial(b)
	if err2 == nil {
		err2 = echo(two, "hello")
	}
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	var list netpolicy.Connections
	if err := netpolicy.Decode(w.ask(t, netpolicy.VerbConnections, netpolicy.Of{Jail: "j"}).Body, &list); err != nil || len(list.Connections) != 2 {
		t.Fatalf("connections: %+v, %v", list, err)
	}
	if c := list.Connections[0]; c.Name != "a.example" || c.Sent != 5 || c.Received != 5 || c.Dialled.String() != webAddr+":7000" {
		t.Errorf("connection %+v", c)
	}
	// The budget: what is over it does not arrive.
	_, _ = two.Write(bytes.Repeat([]byte("x"), 2<<20))
	if _, err := io.Copy(io.Discard, two); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("over the budget: %v", err)
	}
	two.Close()
	w.event(t, "cut", func(e netpolicy.Event) bool { return e.Kind == netpolicy.Cut && strings.Contains(e.Why, "rule 1") })
	if three, err := w.jail.dial(b); err == nil {
		if err := echo(three, "x"); err == nil {
			t.Error("a spent budget lets bytes pass")
		}
		three.Close()
	}
	// Rules that do not hold together leave those that hold; so does an old generation.
	bad := numbered([]netpolicy.Rule{{Kind: netpolicy.Name, Name: "UPPER", Ports: []netpolicy.Ports{{Low: 1, High: 2}}}})
	if _, err := w.try(netpolicy.VerbSet, netpolicy.Set{Jail: "j", Generation: 2, Rules: bad}); err == nil {
		t.Error("bad rules were taken")
	}
	if _, err := w.try(netpolicy.VerbSet, netpolicy.Set{Jail: "j", Generation: 1, Rules: netpolicy.Rules{}}); err == nil {
		t.Error("an old generation was taken")
	}
	if err := echo(one, "still"); err != nil {
		t.Errorf("after refused rules: %v", err)
	}
	w.ask(t, netpolicy.VerbSet, netpolicy.Set{Jail: "j", Generation: 2, Rules: numbered([]netpolicy.Rule{named("b.example", 7000)})})
	if err := echo(one, "x"); err == nil {
		t.Error("a connection outlives its rule")
	}
	if c, err := w.jail.dial(a); refused(c, err, "x") != nil {
		t.Error("a removed rule lets a connection pass")
	}
	// Limits: the connections of a jail.
	var open []net.Conn
	for range 3 {
		c, err := w.jail.dial(b)
		if err == nil {
			err = echo(c, "y")
		}
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if c, err := w.jail.dial(b); refused(c, err, "y") != nil {
		t.Error("more connections than the limit")
	}
	// The end: connections are cut, and the last event comes before the reply.
	w.ask(t, netpolicy.VerbRemove, netpolicy.Remove{Jail: "j"})
	closed := 0
	w.mu.Lock()
	for _, e := range w.events {
		if e.Kind == netpolicy.Closed && e.Why == "the jail has ended" {
			closed++
		}
	}
	w.mu.Unlock()
	if closed != 3 {
		t.Errorf("%d connections were told as closed", closed)
	}
	for _, c := range open {
		if err := echo(c, "z"); err == nil {
			t.Error("a connection outlives its jail")
		}
		c.Close()
	}
}

// A netd that is killed opens nothing; the next one takes over the sockets.
func TestTakeover(t *testing.T) {
	w := newWorld(t)
	w.record("a.example A", webAddr)
	w.add(t, netpolicy.Limits{}, named("a.example", 7000))
	l := w.net.listen(t, webAddr+":7000")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	before := w.address(t, "a.example")
	c, err := w.jail.dial(before + ":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := w.netd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives netd")
	}
	queued := make(chan error, 1)
	go func() { // waits in the kernel's queue for the next netd
		q, err := w.jail.dial(before + ":7000")
		if err == nil {
			defer q.Close()
			_, _ = io.WriteString(q, "y")
			_, err = io.ReadFull(q, make([]byte, 1))
		}
		queued <- err
	}()
	w.replies = make(chan netpolicy.Answer, 16)
	w.start(t)
	w.ask(t, netpolicy.VerbAdd, netpolicy.Add{Jail: "j", Generation: 7, Rules: numbered([]netpolicy.Rule{named("a.example", 7000)})}, w.steer(t)...)
	if err := <-queued; err != nil {
		t.Errorf("the next netd: %v", err)
	}
	if after := w.address(t, "a.example"); after != before {
		t.Errorf("the name was %s and is %s", before, after)
	}
}

// The program is confined: what /proc says of it, and what it refuses.
func TestConfined(t *testing.T) {
	w := newWorld(t)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.netd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "Uid:\t65534"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("%q is not in its status", want)
		}
	}
	for name, q := range map[string]netpolicy.Verb{"hello again": netpolicy.VerbHello} {
		if _, err := w.try(q, netpolicy.Hello{Protocol: netpolicy.Protocol}); err == nil {
			t.Errorf("%s was answered", name)
		}
	}
	state, err := w.netd.Process.Wait()
	if err != nil || state.Success() {
		t.Errorf("after a broken protocol: %v, %v", state, err)
	}
}

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }
