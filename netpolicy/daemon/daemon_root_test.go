//go:build root

package daemon_test

import (
	"errors"
	"fmt"
	"io"
	"net"
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
	if d := time.Since(start); d > 10*time.Second { // not when its patience with a silent client ends
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
