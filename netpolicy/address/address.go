// Package address says what an IP address is before anything is dialled:
// whether it is on the public network or one of those that a name in somebody's
// zone must never lead to.
//
// Addresses that carry an IPv4 address (v4-mapped, IPv4-compatible, NAT64, 6to4, Teredo, ISATAP) are what
// they carry: the worst class of all forms counts, because some router on
// the way may unwrap them. A network's own NAT64 prefix (RFC 6052 with a prefix
// of the operator) cannot be known from an address and is not decoded; denials of
// IPv4 addresses do not reach through it.
//
// Classes come from the IANA registries of special-purpose addresses (RFC 6890) and
// from what clouds document for their metadata services; this host's own
// addresses come from the kernel's routing table at the moment of asking.
package address

import "net/netip"

// Class is what an address is.
type Class string

// Classes. The zero value is none of them and is not permitted.
const (
	Public    Class = "public"
	Private   Class = "private"    // RFC 1918, RFC 4193, site-local
	Shared    Class = "shared"     // carrier-grade NAT, RFC 6598
	LinkLocal Class = "link-local" // RFC 3927, RFC 4291
	Metadata  Class = "metadata"   // credentials and start-up data of a cloud
	Own       Class = "own"        // of this host
	Loopback  Class = "loopback"
	Multicast Class = "multicast"
	Reserved  Class = "reserved" // unspecified, broadcast, documentation, benchmarking, translation, unassigned
)

type block struct {
	prefix netip.Prefix
	class  Class
}

// blocks: the first one that has an address counts, so single addresses come first.
var blocks = func() (out []block) {
	for _, b := range []struct {
		class    Class
		prefixes []string
	}{
		{Metadata, []string{
			"169.254.169.254/32",  // AWS, Google, Azure, OpenStack, DigitalOcean, Oracle, ...
			"169.254.170.2/32",    // AWS ECS task credentials
			"169.254.170.23/32",   // AWS EKS pod identity
			"169.254.0.23/32",     // Tencent
			"169.254.42.42/32",    // Scaleway
			"100.100.100.200/32",  // Alibaba
			"168.63.129.16/32",    // Azure's wire server
			"192.0.0.192/32",      // Oracle, classic
			"fd00:ec2::254/128",   // AWS
			"fd00:ec2::23/128",    // AWS EKS pod identity
			"fd20:ce::254/128",    // Google
			"fd00:42::42/128",     // Scaleway
			"fe80::a9fe:a9fe/128", // OpenStack
		}},
		{Loopback, []string{"127.0.0.0/8", "::1/128"}},
		{LinkLocal, []string{"169.254.0.0/16", "fe80::/10"}},
		{Private, []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"}},
		{Shared, []string{"100.64.0.0/10"}},
		{Multicast, []string{"224.0.0.0/4", "ff00::/8"}},
		{Reserved, []string{
			"0.0.0.0/8", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24",
			"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
			"::/128", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001:db8::/32", "3fff::/20", "5f00::/16",
			"2001:2::/48", "2001:10::/28", "2001:20::/28",
		}},
	} {
		for _, p := range b.prefixes {
			out = append(out, block{netip.MustParsePrefix(p), b.class})
		}
	}
	return out
}()

// Forms returns a without a zone, and every IPv4 address that it carries.
func Forms(a netip.Addr) []netip.Addr {
	a = a.WithZone("")
	out := []netip.Addr{a}
	if !a.Is6() {
		return out
	}
	b := a.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case a.Is4In6(): // ::ffff:a.b.c.d is a.b.c.d to every socket
		return []netip.Addr{a.Unmap()}
	case zero(b[:12]) && a != netip.IPv6Unspecified() && a != netip.IPv6Loopback(): // IPv4-compatible, RFC 4291 2.5.5.1
		out = append(out, at(12))
	case prefix(b, 0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0): // NAT64, RFC 6052
		out = append(out, at(12))
	case prefix(b, 0x20, 0x02): // 6to4, RFC 3056
		out = append(out, at(2))
	case prefix(b, 0x20, 0x01, 0, 0): // Teredo, RFC 4380: the server, and the client with its bits turned
		out = append(out, at(4), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
	case zero(b[:8]) && b[8] == 0xff && b[9] == 0xff && b[10] == 0 && b[11] == 0: // SIIT, RFC 2765
		out = append(out, at(12))
	}
	if (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe { // ISATAP, RFC 5214
		out = append(out, at(12))
	}
	return out
}

func prefix(b [16]byte, want ...byte) bool { return string(b[:len(want)]) == string(want) }

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// Of returns the class of a: the first that is not [Public] of all its forms.
// IPv6 outside of 2000::/3 and NAT64 is [Reserved] where no block says more.
func Of(a netip.Addr) Class {
	c, _ := find(a)
	return c
}

func find(a netip.Addr) (Class, netip.Prefix) {
	if !a.IsValid() {
		return Reserved, netip.Prefix{}
	}
	for _, f := range Forms(a) {
		if c, p := one(f); c != Public {
			return c, p
		}
	}
	return Public, netip.Prefix{}
}

var (
	global = netip.MustParsePrefix("2000::/3")
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
)

func one(a netip.Addr) (Class, netip.Prefix) {
	for _, b := range blocks {
		if b.prefix.Contains(a) {
			return b.class, b.prefix
		}
	}
	if a.Is6() && !global.Contains(a) && !nat64.Contains(a) {
		return Reserved, netip.Prefix{}
	}
	return Public, netip.Prefix{}
}

// Named says whether a rule about the addresses of p means a. A rule means
// addresses that are not public only when it lies in their block: 10.0.0.0/8 and
// 10.1.2.3/32 mean 10.1.2.3, 0.0.0.0/0 does not. Loopback, multicast and reserved addresses are
// never meant, nor is one that only carries a special address. own: a is this
// host's (see [Routes.Own]), which only a rule of this one address means.
func Named(p netip.Prefix, a netip.Addr, own bool) bool {
	a = a.WithZone("").Unmap()
	if !p.IsValid() || !p.Contains(a) {
		return false
	}
	c, b := find(a)
	switch c {
	case Public:
		return !own || p.IsSingleIP()
	case Private, Shared, LinkLocal, Metadata:
		return b.Contains(a) && b.Bits() <= p.Bits() && (!own || p.IsSingleIP())
	}
	return false
}
