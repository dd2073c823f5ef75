package resolver

import (
	"context"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/netpolicy/ledger"
	"github.com/agentos/agentos/netpolicy/name"
	"github.com/agentos/agentos/netpolicy/ruleset"
)

const (
	ttl       = 60               // seconds; synthetic.Keep is longer
	maxUDP    = 4096             // bytes of an answer, whatever the client offers
	lookTime  = 10 * time.Second // for a question that is asked outside
	askTime   = 60 * time.Second // for a question that a person answers
	localhost = "localhost"
)

// question is one message from a jail.
type question struct {
	jail   *ledger.Jail
	client netip.AddrPort
	to     netip.AddrPort
	msg    *dns.Msg
}

// slow says whether the answer has to wait for somebody.
func (q *question) slow() bool {
	if len(q.msg.Question) != 1 {
		return false
	}
	switch q.msg.Question[0].Qtype {
	case dns.TypeSRV, dns.TypeTXT, dns.TypeMX:
		return true
	}
	set, _ := q.jail.Rules()
	return set.Ask()
}

// answer answers q. It returns nil for what is not a question.
func (q *question) answer(ctx context.Context) *dns.Msg {
	m := new(dns.Msg)
	if q.msg.Response {
		return nil
	}
	m.SetReply(q.msg)
	m.RecursionAvailable = true
	edns := q.msg.IsEdns0()
	if edns != nil {
		m.SetEdns0(maxUDP, false)
	}
	switch {
	case q.msg.Opcode != dns.OpcodeQuery:
		m.Rcode = dns.RcodeNotImplemented
		return m
	case len(q.msg.Question) != 1 || len(q.msg.Answer) > 0:
		m.Rcode = dns.RcodeFormatError
		return m
	case edns != nil && edns.Version() != 0:
		m.Rcode = dns.RcodeBadVers
		return m
	case q.msg.Question[0].Qclass != dns.ClassINET:
		m.Rcode = dns.RcodeRefused
		return m
	}
	q.jail.Count.Asked.Add(1)
	asked := m.Question[0]
	n, err := name.Normal(asked.Name)
	switch {
	case asked.Qtype == dns.TypePTR && strings.HasSuffix(strings.ToLower(asked.Name), ".arpa."):
		q.pointer(m)
	case err != nil:
		q.denied(m, asked.Name, "not a host name that everybody reads alike", "")
	case n == localhost || name.Below(n, localhost):
		q.addresses(m, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	default:
		q.named(ctx, m, n)
	}
	return m
}

func (q *question) named(ctx context.Context, m *dns.Msg, n string) {
	kind := m.Question[0].Qtype
	about := n
	if kind == dns.TypeSRV || kind == dns.TypeTXT {
		about = name.Service(n)
	}
	set, _ := q.jail.Rules()
	d := set.Name(about)
	if !d.Allowed && d.Rule == "" && set.Ask() && !set.Above(n) {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		q.jail.Await(ctx, netpolicy.Connection{Client: q.client, Asked: q.to, Name: n})
		cancel()
		set, _ = q.jail.Rules()
		d = set.Name(about)
	}
	switch {
	case !d.Allowed && set.Above(n):
		return // it exists, without records
	case !d.Allowed:
		q.denied(m, n, d.Why, d.Rule)
		return
	}
	q.tell(n, kind, true, "", d.Rule)
	switch kind {
	case dns.TypeA, dns.TypeAAAA, dns.TypeANY:
		if v4, v6, ok := q.jail.Names.Address(n, time.Now()); ok {
			q.addresses(m, v4, v6)
		} else {
			m.Rcode = dns.RcodeServerFailure // the table is full
		}
	case dns.TypeSRV, dns.TypeTXT, dns.TypeMX:
		q.records(ctx, m, n, &d)
	}
}

func (q *question) addresses(m *dns.Msg, v4, v6 netip.Addr) {
	asked := m.Question[0]
	head := dns.RR_Header{Name: asked.Name, Class: dns.ClassINET, Ttl: ttl}
	if asked.Qtype == dns.TypeA || asked.Qtype == dns.TypeANY {
		head.Rrtype = dns.TypeA
		m.Answer = append(m.Answer, &dns.A{Hdr: head, A: net.IP(v4.AsSlice())})
	}
	if asked.Qtype == dns.TypeAAAA || asked.Qtype == dns.TypeANY {
		head.Rrtype = dns.TypeAAAA
		m.Answer = append(m.Answer, &dns.AAAA{Hdr: head, AAAA: net.IP(v6.AsSlice())})
	}
}

// records asks outside. What a name in an answer leads to is decided when that name is asked for.
func (q *question) records(ctx context.Context, m *dns.Msg, n string, d *ruleset.Decision) {
	kind := m.Question[0].Qtype
	if !d.Records(dns.TypeToString[kind]) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	rrs, code, err := q.jail.Lookup.Records(ctx, q.jail.Config(), n, kind)
	if err != nil {
		m.Rcode = dns.RcodeServerFailure
		return
	}
	m.Rcode = code
	for _, rr := range rrs {
		rr.Header().Name = m.Question[0].Name
		rr.Header().Ttl = min(rr.Header().Ttl, 300)
		m.Answer = append(m.Answer, rr)
	}
}

// pointer answers for addresses that stand for names, and for the loopback.
func (q *question) pointer(m *dns.Msg) {
	asked := m.Question[0]
	a := reverse(strings.ToLower(asked.Name))
	n := ""
	switch {
	case a.IsLoopback():
		n = localhost
	case a.IsValid():
		n = q.jail.Names.Name(a, time.Now())
	}
	if n == "" {
		m.Rcode = dns.RcodeNameError
		return
	}
	m.Answer = append(m.Answer, &dns.PTR{Hdr: dns.RR_Header{Name: asked.Name, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: ttl}, Ptr: dns.Fqdn(n)})
}

// reverse is the address of a name in in-addr.arpa or ip6.arpa, the zero Addr for others.
func reverse(n string) netip.Addr {
	if rest, ok := strings.CutSuffix(n, ".in-addr.arpa."); ok {
		labels := strings.Split(rest, ".")
		if len(labels) != 4 {
			return netip.Addr{}
		}
		a, err := netip.ParseAddr(labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0])
		if err != nil {
			return netip.Addr{}
		}
		return a
	}
	rest, ok := strings.CutSuffix(n, ".ip6.arpa.")
	if !ok || len(rest) != 63 {
		return netip.Addr{}
	}
	digits := make([]byte, 0, 32)
	for i := 62; i >= 0; i -= 2 {
		if i > 0 && rest[i-1] != '.' {
			return netip.Addr{}
		}
		digits = append(digits, rest[i])
	}
	b, err := hex.DecodeString(string(digits))
	if err != nil {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte(b))
}

func (q *question) denied(m *dns.Msg, n, why, rule string) {
	m.Rcode = dns.RcodeNameError
	q.jail.Count.Refused.Add(1)
	q.tell(n, m.Question[0].Qtype, false, why, rule)
}

func (q *question) tell(n string, kind uint16, allowed bool, why, rule string) {
	_, generation := q.jail.Rules()
	t := dns.TypeToString[kind]
	if t == "" {
		t = "TYPE"
	}
	q.jail.Mention(netpolicy.Event{
		Kind: netpolicy.Asked, Generation: generation, Allowed: allowed, Type: t, Why: why,
		Connection: netpolicy.Connection{Client: q.client, Asked: q.to, Name: n, Rule: rule},
	})
}
