package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Dest is one parsed destination of [net]: whom and which ports.
// Exactly one of Name, Prefix and Host is set.
type Dest struct {
	Name   string       // DNS name, lower case, no final dot; "*" for any name
	Wild   bool         // "*.Name": every name below Name, not Name itself
	Prefix netip.Prefix // address or CIDR
	Host   bool         // the loopback of the machine outside
	Ports  []Ports      // at least one, as written
}

// Ports is a range of ports, both ends included.
type Ports struct{ Low, High uint16 }

// maxPorts bounds the ranges of one destination.
const maxPorts = 16

var errDest = errors.New("want NAME:PORTS, *.NAME:PORTS, ADDRESS:PORTS, CIDR:PORTS or host:PORTS; PORTS is 443, 22,443, 8000-8100 or *")

// ParseDest reads one destination. IPv6 stands in brackets: [2001:db8::]/32:443
// is written [2001:db8::/32]:443.
func ParseDest(s string) (Dest, error) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 || strings.HasSuffix(s, "]") {
		return Dest{}, errDest
	}
	d := Dest{}
	if err := d.ports(s[i+1:]); err != nil {
		return Dest{}, err
	}
	host := s[:i]
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
		if !strings.Contains(host, ":") {
			return Dest{}, errDest
		}
	} else if strings.Contains(host, ":") {
		return Dest{}, fmt.Errorf("put the IPv6 address in brackets: %w", errDest)
	}
	if host == "host" {
		d.Host = true
		return d, nil
	}
	if p, err := netip.ParsePrefix(host); err == nil {
		if p != p.Masked() {
			return Dest{}, fmt.Errorf("%s has bits beyond its mask; want %s", p, p.Masked())
		}
		d.Prefix = p
		return d, nil
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" {
		d.Prefix = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
		return d, nil
	}
	if host == "*" {
		d.Name = "*"
		return d, nil
	}
	d.Name, d.Wild = strings.CutPrefix(host, "*.")
	if !validName(d.Name) {
		return Dest{}, fmt.Errorf("%q is not a DNS name in lower case: %w", host, errDest)
	}
	return d, nil
}

func (d *Dest) ports(s string) error {
	if s == "*" {
		d.Ports = []Ports{{1, 65535}}
		return nil
	}
	for part := range strings.SplitSeq(s, ",") {
		p, err := parsePorts(part)
		if err != nil {
			return err
		}
		d.Ports = append(d.Ports, p)
	}
	if len(d.Ports) > maxPorts {
		return fmt.Errorf("over %d ranges of ports", maxPorts)
	}
	return nil
}

// parsePorts reads "443" or "8000-8100".
func parsePorts(s string) (Ports, error) {
	low, high, ranged := strings.Cut(s, "-")
	if !ranged {
		high = low
	}
	a, errA := strconv.ParseUint(low, 10, 16)
	b, errB := strconv.ParseUint(high, 10, 16)
	if errA != nil || errB != nil || a == 0 || b < a {
		return Ports{}, errDest
	}
	return Ports{uint16(a), uint16(b)}, nil
}

// port says whether the destination has that port.
func (d Dest) port(port uint16) bool {
	return slices.ContainsFunc(d.Ports, func(p Ports) bool { return p.Low <= port && port <= p.High })
}

// Matches says whether the destination covers host (a name in lower case, an
// address, or "host") and port. Names never match addresses or the reverse.
func (d Dest) Matches(host string, port uint16) bool {
	if !d.port(port) {
		return false
	}
	if host == "host" {
		return d.Host
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return d.Prefix.IsValid() && d.Prefix.Contains(a.Unmap())
	}
	switch {
	case d.Name == "":
		return false
	case d.Name == "*":
		return true
	case d.Wild:
		return strings.HasSuffix(host, "."+d.Name) && len(host) > len(d.Name)+1
	default:
		return host == d.Name
	}
}

// Covers says whether every destination of e is one of d.
func (d Dest) Covers(e Dest) bool {
	for _, r := range e.Ports {
		if !slices.ContainsFunc(d.Ports, func(p Ports) bool { return p.Low <= r.Low && r.High <= p.High }) {
			return false
		}
	}
	switch {
	case e.Host:
		return d.Host
	case e.Prefix.IsValid():
		return d.Prefix.IsValid() && d.Prefix.Bits() <= e.Prefix.Bits() && d.Prefix.Contains(e.Prefix.Addr())
	case d.Name == "*":
		return true
	case e.Name == "*" || d.Name == "":
		return false
	case e.Wild:
		return d.Wild && (e.Name == d.Name || strings.HasSuffix(e.Name, "."+d.Name))
	default:
		return d.Matches(e.Name, e.Ports[0].Low)
	}
}

// validName accepts host names of lower-case letters, digits, '-' and '_',
// with at most 253 bytes and labels of at most 63. The last label must have a
// letter, so that no odd spelling of an IPv4 address passes as a name.
func validName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
			return false
		}
		if strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	last := labels[len(labels)-1]
	return strings.ContainsAny(last, "abcdefghijklmnopqrstuvwxyz") && !strings.HasPrefix(last, "0x")
}

// splitHostPort reads the argument of an explained connect.
func splitHostPort(s string) (host string, port uint16, err error) {
	d, err := ParseDest(s)
	if err != nil || len(d.Ports) != 1 || d.Ports[0].Low != d.Ports[0].High || d.Wild || d.Name == "*" {
		return "", 0, errors.New("want HOST:PORT or ADDRESS:PORT")
	}
	switch {
	case d.Host:
		return "host", d.Ports[0].Low, nil
	case d.Prefix.IsValid():
		if d.Prefix.Bits() != d.Prefix.Addr().BitLen() {
			return "", 0, errors.New("want one address, not a range")
		}
		return d.Prefix.Addr().String(), d.Ports[0].Low, nil
	default:
		return d.Name, d.Ports[0].Low, nil
	}
}

// NetRule is one parsed entry of [net] allow or deny: a destination, and what
// holds for connections to it. As text it is the destination and, after spaces,
// options; a table of a policy file becomes that text:
//
//	api.example.com:443
//	{to = "api.example.com:80", methods = ["GET"], budget = "50MB/day"}
//	api.example.com:80 methods=GET budget=50MB/day
type NetRule struct {
	Dest
	UDP     bool     // datagrams too, not TCP alone
	Opaque  bool     // what is sent is not looked into: no check of the name in TLS or HTTP
	Private bool     // the name may stand for a private address
	Records []string // DNS records besides addresses that may be asked for: TXT, SRV, MX
	Methods []string // of HTTP that is not encrypted; nil = any
	Paths   []string // of HTTP that is not encrypted; a final '*' is any rest; nil = any
	Budget  Budget   // zero = no limit
}

// Budget is how many bytes may go through a rule, both directions together.
type Budget struct {
	Bytes Bytes         // 0 = no limit
	Per   time.Duration // 0 = over the whole session
}

// netTable is an entry of [net] allow as a table.
type netTable struct {
	To      string `json:"to" doc:"the destination, as in a plain entry"`
	UDP     *bool  `json:"udp,omitzero" doc:"datagrams too, not TCP alone"`
	TLS     string `json:"tls,omitzero" doc:"opaque: what is sent is not looked into" enum:"opaque"`
	Private *bool  `json:"private,omitzero" doc:"the name may stand for a private address"`
	Records []Item `json:"records,omitzero" doc:"DNS records besides addresses: TXT, SRV, MX"`
	Methods []Item `json:"methods,omitzero" doc:"methods of plain HTTP"`
	Paths   []Item `json:"paths,omitzero" doc:"paths of plain HTTP; a final * is any rest"`
	Budget  string `json:"budget,omitzero" doc:"bytes in both directions: 50MB, 50MB/hour or 50MB/day"`
}

// text is the entry in one line, which is what the rest of the program and the
// root helper read.
func (t netTable) text() (string, error) {
	words := []string{t.To}
	flag := func(word string, on *bool) {
		if on != nil && *on {
			words = append(words, word)
		}
	}
	flag("udp", t.UDP)
	flag("private", t.Private)
	if t.TLS != "" {
		words = append(words, "tls="+t.TLS)
	}
	for _, l := range []struct {
		key  string
		list []Item
	}{{"records", t.Records}, {"methods", t.Methods}, {"paths", t.Paths}} {
		if l.list == nil {
			continue
		}
		var all []string
		for _, it := range l.list {
			if strings.ContainsAny(it.Text, ", ") {
				return "", fmt.Errorf("%s: %q has a space or comma; write it percent-encoded", l.key, it.Text)
			}
			all = append(all, it.Text)
		}
		words = append(words, l.key+"="+strings.Join(all, ","))
	}
	if t.Budget != "" {
		words = append(words, "budget="+t.Budget)
	}
	return strings.Join(words, " "), nil
}

var errOption = errors.New("want udp, private, tls=opaque, records=..., methods=..., paths=... or budget=SIZE[/hour|/day]")

// ParseNetRule reads one entry of [net] allow or deny. Errors name what is wrong
// in one sentence.
func ParseNetRule(s string) (NetRule, error) {
	to, options, more := strings.Cut(s, " ")
	d, err := ParseDest(to)
	if err != nil {
		return NetRule{}, err
	}
	r := NetRule{Dest: d}
	if !more {
		return r, nil
	}
	seen := map[string]bool{}
	for word := range strings.SplitSeq(options, " ") {
		key, value, _ := strings.Cut(word, "=")
		if seen[key] {
			return NetRule{}, fmt.Errorf("option %s is there twice", key)
		}
		seen[key] = true
		if err := r.option(key, value, word); err != nil {
			return NetRule{}, err
		}
	}
	if r.Opaque && (r.Methods != nil || r.Paths != nil) {
		return NetRule{}, errors.New("tls=opaque is not looked into, so it has no methods or paths")
	}
	return r, nil
}

func (r *NetRule) option(key, value, word string) (err error) {
	switch {
	case word == "udp":
		r.UDP = true
	case word == "private":
		r.Private = true
	case word == "tls=opaque":
		r.Opaque = true
	case key == "records":
		r.Records, err = parseList(value, func(s string) bool { return s == "TXT" || s == "SRV" || s == "MX" }, "is not TXT, SRV or MX")
	case key == "methods":
		r.Methods, err = parseList(value, func(s string) bool {
			return s != "" && len(s) <= 32 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
		}, "is not an HTTP method in capitals")
	case key == "paths":
		r.Paths, err = parseList(value, func(s string) bool {
			return strings.HasPrefix(s, "/") && !strings.Contains(strings.TrimSuffix(s, "*"), "*")
		}, "is not a path that begins with / and has no * but at its end")
	case key == "budget":
		r.Budget, err = parseBudget(value)
	default:
		return fmt.Errorf("option %q: %w", word, errOption)
	}
	return err
}

func parseList(value string, ok func(string) bool, why string) ([]string, error) {
	list := strings.Split(value, ",")
	for _, s := range list {
		if !ok(s) {
			return nil, fmt.Errorf("%q %s", s, why)
		}
	}
	return list, nil
}

// periods are the times a budget can be for.
var periods = map[string]time.Duration{"hour": time.Hour, "day": 24 * time.Hour}

func parseBudget(s string) (Budget, error) {
	size, per, timed := strings.Cut(s, "/")
	n, err := ParseBytes(size)
	if err != nil {
		return Budget{}, fmt.Errorf("budget: %w", err)
	}
	b := Budget{Bytes: n, Per: periods[per]}
	if timed && b.Per == 0 {
		return Budget{}, fmt.Errorf("budget: want SIZE/hour or SIZE/day, not %q", s)
	}
	return b, nil
}

// covers says whether r grants all that o asks for. What an entry leaves open is
// wider than anything another one names.
func (r NetRule) covers(o NetRule) bool {
	flags := (r.UDP || !o.UDP) && (r.Opaque || !o.Opaque) && (r.Private || !o.Private)
	return flags && r.Dest.Covers(o.Dest) && r.Budget.covers(o.Budget) && subset(o.Records, r.Records) &&
		(r.Methods == nil || o.Methods != nil && subset(o.Methods, r.Methods)) && r.coversPaths(o.Paths)
}

func subset(narrow, wide []string) bool {
	return !slices.ContainsFunc(narrow, func(s string) bool { return !slices.Contains(wide, s) })
}

func (r NetRule) coversPaths(narrow []string) bool {
	if r.Paths == nil {
		return true
	}
	return narrow != nil && !slices.ContainsFunc(narrow, func(n string) bool {
		return !slices.ContainsFunc(r.Paths, func(w string) bool {
			prefix, open := strings.CutSuffix(w, "*")
			return w == n || open && strings.HasPrefix(n, prefix)
		})
	})
}

func (b Budget) covers(o Budget) bool {
	switch {
	case b.Bytes == 0:
		return true
	case o.Bytes == 0 || o.Per != b.Per:
		return false
	}
	return o.Bytes <= b.Bytes
}
