package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

var (
	// ErrNoName is a name that does not exist, or has no record of the type.
	ErrNoName = errors.New("no such name")
	// ErrServers is returned when no server gave an answer.
	ErrServers = errors.New("no name server answered")
)

const (
	maxKeep  = 5 * time.Minute
	keepNone = 5 * time.Second // an answer that there is nothing
	maxKept  = 4096            // names; then all are forgotten
	maxAddrs = 16              // of one name
)

// Resolver asks the host's resolvers. It may be used by many goroutines. Each
// jail has its own: what one has asked cannot be seen by the time that another's question takes.
type Resolver struct {
	mu   sync.Mutex
	kept map[string]kept
}

type kept struct {
	config *Config // an answer of other servers is none
	addrs  []netip.Addr
	until  time.Time
}

// Addresses returns the addresses of a normal name, in the order of the
// answers, IPv6 and IPv4 alternating. The error wraps [ErrNoName] or [ErrServers].
func (r *Resolver) Addresses(ctx context.Context, c *Config, n string) ([]netip.Addr, error) {
	if a := c.hosts[n]; len(a) > 0 {
		return a, nil
	}
	if a, ok := r.cached(c, n, time.Now()); ok {
		if len(a) == 0 {
			return nil, fmt.Errorf("%w: %s", ErrNoName, n)
		}
		return a, nil
	}
	type family struct {
		addrs []netip.Addr
		ttl   time.Duration
		err   error
	}
	six := make(chan family, 1)
	ask := func(t uint16) family {
		m, err := c.query(ctx, n, t)
		if err != nil {
			return family{err: err}
		}
		addrs, ttl := chain(m, t)
		return family{addrs, ttl, nil}
	}
	go func() { six <- ask(dns.TypeAAAA) }()
	v4 := ask(dns.TypeA)
	v6 := <-six
	addrs := alternate(v6.addrs, v4.addrs)
	switch {
	case len(addrs) > 0:
		ttl := maxKeep
		for _, f := range []family{v4, v6} {
			if len(f.addrs) > 0 {
				ttl = min(ttl, f.ttl)
			}
		}
		if v4.err == nil && v6.err == nil {
			r.keep(c, n, addrs, ttl)
		}
		return addrs, nil
	case v4.err != nil:
		return nil, v4.err
	case v6.err != nil:
		return nil, v6.err
	}
	r.keep(c, n, nil, keepNone)
	return nil, fmt.Errorf("%w: %s", ErrNoName, n)
}

func (r *Resolver) cached(c *Config, n string, now time.Time) ([]netip.Addr, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.kept[n]
	return k.addrs, ok && k.config == c && now.Before(k.until)
}

func (r *Resolver) keep(c *Config, n string, addrs []netip.Addr, ttl time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept == nil || len(r.kept) >= maxKept {
		r.kept = map[string]kept{}
	}
	r.kept[n] = kept{c, addrs, time.Now().Add(ttl)}
}

// Records returns the records of a type that answer for n, which has been checked, and the answer's code.
func (r *Resolver) Records(ctx context.Context, c *Config, n string, kind uint16) ([]dns.RR, int, error) {
	m, err := c.query(ctx, n, kind)
	if err != nil {
		return nil, 0, err
	}
	var out []dns.RR
	for _, rr := range m.Answer {
		if rr.Header().Rrtype == kind && strings.EqualFold(rr.Header().Name, dns.Fqdn(n)) && len(out) < 64 {
			out = append(out, rr)
		}
	}
	return out, m.Rcode, nil
}

// query asks the servers in turn until one answers that there is, or is not, such a name.
func (c *Config) query(ctx context.Context, n string, kind uint16) (*dns.Msg, error) {
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(n), kind)
	q.SetEdns0(1232, false)
	var last error
	for range c.tries {
		for _, s := range c.servers {
			m, err := c.exchange(ctx, q, s)
			if err == nil {
				return m, nil
			}
			last = err
			if ctx.Err() != nil {
				return nil, fmt.Errorf("%w: %w", ErrServers, ctx.Err())
			}
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrServers, last)
}

func (c *Config) exchange(ctx context.Context, q *dns.Msg, server string) (*dns.Msg, error) {
	q.Id = dns.Id()
	for _, network := range []string{"udp", "tcp"} {
		client := dns.Client{Net: network, Timeout: c.timeout, UDPSize: 1232, Dialer: &net.Dialer{Timeout: c.timeout}}
		m, _, err := client.ExchangeContext(ctx, q, server)
		switch {
		case err != nil:
			return nil, err
		case !m.Response || m.Id != q.Id || len(m.Question) != 1 || !strings.EqualFold(m.Question[0].Name, q.Question[0].Name) ||
			m.Question[0].Qtype != q.Question[0].Qtype || m.Question[0].Qclass != dns.ClassINET:
			return nil, fmt.Errorf("%s answered another question", server)
		case m.Truncated && network == "udp":
			continue
		case m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError:
			return nil, fmt.Errorf("%s: %s", server, dns.RcodeToString[m.Rcode])
		}
		return m, nil
	}
	return nil, fmt.Errorf("%s: truncated over TCP", server)
}

// chain returns the addresses of the question's name, at the end of its CNAMEs.
func chain(m *dns.Msg, kind uint16) ([]netip.Addr, time.Duration) {
	at, ttl := m.Question[0].Name, maxKeep
	for range 16 {
		next := ""
		var out []netip.Addr
		for _, rr := range m.Answer {
			h := rr.Header()
			if !strings.EqualFold(h.Name, at) || h.Class != dns.ClassINET {
				continue
			}
			var ip net.IP
			switch v := rr.(type) {
			case *dns.CNAME:
				next = v.Target
			case *dns.A:
				ip = v.A.To4()
			case *dns.AAAA:
				ip = v.AAAA.To16()
			}
			if h.Rrtype == kind || next != "" {
				ttl = min(ttl, time.Duration(h.Ttl)*time.Second)
			}
			if a, ok := netip.AddrFromSlice(ip); ok && h.Rrtype == kind && len(out) < maxAddrs {
				out = append(out, a.Unmap())
			}
		}
		if len(out) > 0 || next == "" {
			return out, ttl
		}
		at = next
	}
	return nil, 0
}

func alternate(a, b []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for i := range max(len(a), len(b)) {
		if i < len(a) {
			out = append(out, a[i])
		}
		if i < len(b) {
			out = append(out, b[i])
		}
	}
	return out
}
