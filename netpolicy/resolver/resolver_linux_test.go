package resolver

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/netpolicy/ledger"
	"github.com/agentos/agentos/netpolicy/upstream"
)

func jail(t testing.TB, r netpolicy.Rules, l netpolicy.Limits, emit func(netpolicy.Event)) *ledger.Jail {
	t.Helper()
	c, err := upstream.Parse(netpolicy.Configure{Resolv: "nameserver 127.0.0.1\n"})
	if err != nil {
		t.Fatal(err)
	}
	if emit == nil {
		emit = func(netpolicy.Event) {}
	}
	j, err := ledger.New(netpolicy.Add{Jail: "j", Generation: 1, Rules: r, Limits: l}, emit, func() *upstream.Config { return c })
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func web() netpolicy.Rules {
	return netpolicy.Rules{Layers: 1, Rules: []netpolicy.Rule{{Kind: netpolicy.Below, Name: "example", Ports: []netpolicy.Ports{{Low: 443, High: 443}}, At: "r"}}}
}

func ask(j *ledger.Jail, m *dns.Msg) *dns.Msg {
	q := &question{jail: j, msg: m, client: netip.MustParseAddrPort("127.0.0.1:1"), to: netip.MustParseAddrPort("8.8.8.8:53")}
	return q.answer(context.Background())
}

func TestOddQuestions(t *testing.T) {
	j := jail(t, web(), netpolicy.Limits{}, nil)
	q := func(f func(*dns.Msg)) *dns.Msg {
		m := new(dns.Msg)
		m.SetQuestion("a.example.", dns.TypeA)
		f(m)
		return m
	}
	for name, tt := range map[string]struct {
		m    *dns.Msg
		code int
	}{
		"update":        {q(func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), dns.RcodeNotImplemented},
		"notify":        {q(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), dns.RcodeNotImplemented},
		"no question":   {q(func(m *dns.Msg) { m.Question = nil }), dns.RcodeFormatError},
		"two questions": {q(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), dns.RcodeFormatError},
		"class CHAOS":   {q(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), dns.RcodeRefused},
		"EDNS 1":        {q(func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }), dns.RcodeBadVers},
		"transfer":      {q(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR }), dns.RcodeSuccess},
		"NUL in a name": {q(func(m *dns.Msg) { m.Question[0].Name = `evil\000.example.` }), dns.RcodeNameError},
		"dot in a name": {q(func(m *dns.Msg) { m.Question[0].Name = `evil\.example.` }), dns.RcodeNameError},
		"a root":        {q(func(m *dns.Msg) { m.Question[0].Name = `.` }), dns.RcodeNameError},
	} {
		got := ask(j, tt.m)
		if got == nil || got.Rcode != tt.code || len(got.Answer) > 0 || !got.Response {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := ask(j, q(func(m *dns.Msg) { m.Response = true })); got != nil {
		t.Errorf("an answer was answered: %v", got)
	}
}

// A name that nothing knows waits for the helper, and is decided by the rules that hold then.
func TestAsk(t *testing.T) {
	events := make(chan netpolicy.Event, 16)
	r := web()
	r.Ask = true
	j := jail(t, r, netpolicy.Limits{}, func(e netpolicy.Event) { events <- e })
	for i, allow := range []bool{true, false} {
		m := new(dns.Msg)
		n := []string{"one.test.", "two.test."}[i]
		m.SetQuestion(n, dns.TypeA)
		got := make(chan *dns.Msg, 1)
		go func() { got <- ask(j, m) }()
		var e netpolicy.Event
		for e.Kind != netpolicy.Ask {
			e = <-events
		}
		if allow {
			r.Rules = append(r.Rules, netpolicy.Rule{Kind: netpolicy.Name, Name: strings.TrimSuffix(n, "."), Ports: []netpolicy.Ports{{Low: 443, High: 443}}})
			if err := j.Set(2, r); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Decide(e.Ask); err != nil {
			t.Fatal(err)
		}
		if a := <-got; (len(a.Answer) == 1) != allow {
			t.Errorf("%s: %v", n, a)
		}
		if err := j.Decide(e.Ask); err == nil {
			t.Error("decided twice")
		}
	}
}

// serve answers on the loopback and returns the address.
func serve(t testing.TB, j *ledger.Jail) string {
	t.Helper()
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	f, err := pc.File()
	if err != nil {
		t.Fatal(err)
	}
	addr := pc.LocalAddr().String()
	pc.Close()
	d, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { d.Serve(context.Background(), j); close(done) }()
	t.Cleanup(func() { d.Close(); <-done })
	return addr
}

func TestRate(t *testing.T) {
	j := jail(t, web(), netpolicy.Limits{DNSPerSecond: 10}, nil)
	c, err := net.Dial("udp", serve(t, j))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := new(dns.Msg)
	m.SetQuestion("a.example.", dns.TypeA)
	b, _ := m.Pack()
	for range 100 {
		_, _ = c.Write(b)
	}
	for j.Counters().Asked+j.Counters().Dropped < 100 {
		time.Sleep(time.Millisecond)
	}
	if got := j.Counters(); got.Dropped < 50 || got.Asked < 10 {
		t.Errorf("%+v", got)
	}
}

func TestNotASocketForQuestions(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(f); err == nil {
		t.Error("a file was taken")
	}
}

// Whatever a jail sends, the answer is a response with the same id that can be packed, and says nothing about names that no rule allows.
func FuzzQuestion(f *testing.F) {
	for _, n := range []string{"a.example.", "evil.test.", "1.0.18.198.in-addr.arpa."} {
		for _, kind := range []uint16{dns.TypeA, dns.TypePTR, dns.TypeHTTPS} {
			m := new(dns.Msg)
			m.SetQuestion(n, kind)
			b, _ := m.Pack()
			f.Add(b)
		}
	}
	j := jail(f, web(), netpolicy.Limits{Names: 100}, nil)
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(dns.Msg)
		if m.Unpack(b) != nil || len(m.Question) == 1 && (m.Question[0].Qtype == dns.TypeTXT || m.Question[0].Qtype == dns.TypeSRV || m.Question[0].Qtype == dns.TypeMX) {
			return
		}
		a := ask(j, m)
		if a == nil {
			return
		}
		if a.Id != m.Id || !a.Response {
			t.Errorf("%v", a)
		}
		if _, err := a.Pack(); err != nil {
			t.Errorf("cannot be packed: %v", err)
		}
		for _, rr := range a.Answer {
			n := strings.ToLower(rr.Header().Name)
			if !strings.HasSuffix(n, ".example.") && !strings.HasSuffix(n, "localhost.") && !strings.HasSuffix(n, ".arpa.") {
				t.Errorf("answered %v", rr)
			}
		}
	})
}

func FuzzReverse(f *testing.F) {
	f.Add("1.0.18.198.in-addr.arpa.")
	f.Add("8.b.d.0.1.0.0.2.ip6.arpa.")
	f.Fuzz(func(t *testing.T, n string) {
		if a := reverse(n); a.IsValid() {
			back, err := dns.ReverseAddr(a.String())
			if err != nil || !strings.EqualFold(back, n) && !a.Is4In6() {
				t.Errorf("%q is %s is %q, %v", n, a, back, err)
			}
		}
	})
}

func question1(b *testing.B, c net.Conn, q, buf []byte) {
	if _, err := c.Write(q); err != nil {
		b.Fatal(err)
	}
	if _, err := c.Read(buf); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkAnswer is one question and its answer over a socket (latency), and as many as eight clients get.
func BenchmarkAnswer(b *testing.B) {
	j := jail(b, web(), netpolicy.Limits{DNSPerSecond: 1 << 30}, nil)
	addr := serve(b, j)
	m := new(dns.Msg)
	m.SetQuestion("registry.example.", dns.TypeA)
	q, _ := m.Pack()
	b.Run("one", func(b *testing.B) {
		c, err := net.Dial("udp", addr)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		buf := make([]byte, 512)
		for b.Loop() {
			question1(b, c, q, buf)
		}
	})
	b.Run("eight", func(b *testing.B) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				c, err := net.Dial("udp", addr)
				if err != nil {
					b.Error(err)
					return
				}
				defer c.Close()
				buf := make([]byte, 512)
				for range b.N/8 + 1 {
					question1(b, c, q, buf)
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "q/s")
	})
}
