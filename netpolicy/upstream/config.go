package upstream

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/netpolicy/name"
)

// Config is how this host resolves and dials. It does not change after [Parse].
type Config struct {
	servers []string // address:port
	timeout time.Duration
	tries   int
	hosts   map[string][]netip.Addr
	proxy   *proxy
	direct  []string // names, or suffixes with a leading dot
	nets    []netip.Prefix
}

// proxy is the host's proxy.
type proxy struct {
	socks      bool
	host       string // normal name, or an address
	port       uint16
	user, pass string
	auth       bool
}

// Parse reads what the helper sent. What resolv.conf(5) and hosts(5) ignore is
// ignored; a proxy that is not understood is an error.
func Parse(c netpolicy.Configure) (*Config, error) {
	out := &Config{hosts: hosts(c.Hosts)}
	r, err := dns.ClientConfigFromReader(strings.NewReader(c.Resolv))
	if err != nil {
		return nil, fmt.Errorf("read resolv.conf: %w", err)
	}
	for _, s := range r.Servers {
		if a, err := netip.ParseAddr(s); err == nil {
			out.servers = append(out.servers, net.JoinHostPort(a.String(), r.Port))
		}
	}
	if len(out.servers) == 0 { // resolv.conf(5): the name server on the local machine
		out.servers = []string{"127.0.0.1:53"}
	}
	out.timeout = time.Duration(min(max(r.Timeout, 1), 30)) * time.Second
	out.tries = min(max(r.Attempts, 1), 5)
	if c.Upstream.Proxy != "" {
		if out.proxy, err = parseProxy(c.Upstream.Proxy); err != nil {
			return nil, err
		}
	}
	for _, d := range c.Upstream.Direct {
		d = strings.TrimPrefix(strings.ToLower(d), "*")
		if p, err := netip.ParsePrefix(d); err == nil {
			out.nets = append(out.nets, p.Masked())
		} else if a, err := netip.ParseAddr(d); err == nil {
			out.nets = append(out.nets, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
		} else if n, err := name.Normal(strings.TrimPrefix(d, ".")); err == nil {
			out.direct = append(out.direct, d[:len(d)-len(strings.TrimPrefix(d, "."))]+n)
		} else {
			return nil, fmt.Errorf("direct %q: want a name, .NAME, an address or a CIDR", d)
		}
	}
	return out, nil
}

func parseProxy(s string) (*proxy, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("proxy: want http://HOST:PORT or socks5://HOST:PORT") // without the text: it may hold a password
	}
	p := &proxy{port: 8080}
	switch u.Scheme {
	case "http":
	case "socks5", "socks5h":
		p.socks, p.port = true, 1080
	default:
		return nil, fmt.Errorf("proxy: scheme %q is not http or socks5", u.Scheme)
	}
	p.host = u.Hostname()
	if _, err := netip.ParseAddr(p.host); err != nil {
		if p.host, err = name.Normal(p.host); err != nil {
			return nil, fmt.Errorf("proxy: host %q: %w", u.Hostname(), err)
		}
	}
	if u.Port() != "" {
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("proxy: port %q", u.Port())
		}
		p.port = uint16(n)
	}
	if u.User != nil {
		p.user, p.auth = u.User.Username(), true
		p.pass, _ = u.User.Password()
		if len(p.user) > 255 || len(p.pass) > 255 {
			return nil, fmt.Errorf("proxy: user or password longer than 255 bytes")
		}
	}
	return p, nil
}

// hosts reads hosts(5). Addresses of a name add up.
func hosts(text string) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		a, err := netip.ParseAddr(fields[0])
		if err != nil {
			continue
		}
		for _, f := range fields[1:] {
			if n, err := name.Normal(f); err == nil {
				out[n] = append(out[n], a.Unmap().WithZone(""))
			}
		}
	}
	return out
}

// Proxied says whether connections to the destination go to the proxy; n is
// "" for a destination that was asked for by address.
func (c *Config) Proxied(n string, a netip.Addr) bool {
	if c.proxy == nil {
		return false
	}
	for _, d := range c.direct {
		if n != "" && (n == d || strings.HasPrefix(d, ".") && name.Below(n, d[1:])) {
			return false
		}
	}
	for _, p := range c.nets {
		if a.IsValid() && p.Contains(a.Unmap()) {
			return false
		}
	}
	return true
}
