package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Dest is one parsed destination of [net]: whom and which ports.
// Exactly one of Name, Prefix and Host is set.
type Dest struct {
	Name      string       // DNS name, lower case, no final dot; "*" for any name
	Wild      bool         // "*.Name": every name below Name, not Name itself
	Prefix    netip.Prefix // address or CIDR
	Host      bool         // the loopback of the machine outside
	Low, High uint16       // ports, both included
}

var errDest = errors.New("want NAME:PORT, *.NAME:PORT, ADDRESS:PORT, CIDR:PORT or host:PORT; PORT may be 8000-8100 or *")

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
		d.Low, d.High = 1, 65535
		return nil
	}
	low, high, ranged := strings.Cut(s, "-")
	if !ranged {
		high = low
	}
	a, errA := strconv.ParseUint(low, 10, 16)
	b, errB := strconv.ParseUint(high, 10, 16)
	if errA != nil || errB != nil || a == 0 || b < a {
		return errDest
	}
	d.Low, d.High = uint16(a), uint16(b)
	return nil
}

// Matches says whether the destination covers host (a name in lower case, an
// address, or "host") and port. Names never match addresses or the reverse.
func (d Dest) Matches(host string, port uint16) bool {
	if port < d.Low || port > d.High {
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

// covers says whether every destination of e is one of d.
func (d Dest) covers(e Dest) bool {
	if e.Low < d.Low || e.High > d.High {
		return false
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
		return d.Matches(e.Name, e.Low)
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
	if err != nil || d.Low != d.High || d.Wild || d.Name == "*" {
		return "", 0, errors.New("want HOST:PORT or ADDRESS:PORT")
	}
	switch {
	case d.Host:
		return "host", d.Low, nil
	case d.Prefix.IsValid():
		if d.Prefix.Bits() != d.Prefix.Addr().BitLen() {
			return "", 0, errors.New("want one address, not a range")
		}
		return d.Prefix.Addr().String(), d.Low, nil
	default:
		return d.Name, d.Low, nil
	}
}
