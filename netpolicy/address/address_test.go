package address

import (
	"net/netip"
	"testing"
)

func TestOf(t *testing.T) {
	for a, want := range map[string]Class{
		"8.8.8.8":                   Public,
		"2606:4700::1111":           Public,
		"64:ff9b::808:808":          Public, // DNS64 of a public address
		"127.0.0.1":                 Loopback,
		"127.255.0.3":               Loopback,
		"::1":                       Loopback,
		"::ffff:127.0.0.1":          Loopback,
		"::127.0.0.1":               Reserved, // IPv4-compatible: nothing is there any more
		"::ffff:0:127.0.0.1":        Reserved, // SIIT
		"64:ff9b::7f00:1":           Loopback,
		"2002:7f00:1::1":            Loopback,
		"2002:a9fe:a9fe::":          Metadata,
		"64:ff9b::a9fe:a9fe":        Metadata,
		"::ffff:169.254.169.254":    Metadata,
		"169.254.169.254":           Metadata,
		"169.254.170.2":             Metadata,
		"100.100.100.200":           Metadata,
		"168.63.129.16":             Metadata,
		"fd00:ec2::254":             Metadata,
		"fd20:ce::254":              Metadata,
		"fe80::a9fe:a9fe":           Metadata,
		"169.254.1.1":               LinkLocal,
		"fe80::1":                   LinkLocal,
		"10.0.0.1":                  Private,
		"172.31.255.255":            Private,
		"172.32.0.1":                Public,
		"192.168.1.1":               Private,
		"64:ff9b::a00:1":            Private,
		"2002:c0a8:101::":           Private,
		"fd12::1":                   Private,
		"fec0::1":                   Private,
		"100.64.0.1":                Shared,
		"100.128.0.1":               Public,
		"224.0.0.1":                 Multicast,
		"ff02::1":                   Multicast,
		"0.0.0.0":                   Reserved,
		"0.1.2.3":                   Reserved,
		"::":                        Reserved,
		"255.255.255.255":           Reserved,
		"198.18.0.1":                Reserved,
		"198.51.100.7":              Reserved,
		"64:ff9b:1::1":              Reserved,
		"2001:db8::1":               Reserved,
		"4000::1":                   Reserved,
		"2001:0:808:808::f5ff:fffe": Private, // Teredo of client 10.0.0.1
		"2001:0:a00:1::f7f7:f7f7":   Private, // Teredo by server 10.0.0.1
		"2606:4700::200:5efe:a00:1": Private, // ISATAP
		"fd5b:a70e:1c9d::c612:1":    Private, // our own
	} {
		if got := Of(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s: got %s, want %s", a, got, want)
		}
	}
}

func TestOddAddresses(t *testing.T) {
	if got := Of(netip.MustParseAddr("fe80::1%eth0")); got != LinkLocal {
		t.Errorf("zone: %s", got)
	}
	if Of(netip.Addr{}) == Public {
		t.Error("no address is public")
	}
}

func TestNamed(t *testing.T) {
	for _, tt := range []struct {
		rule, addr string
		own, want  bool
	}{
		{"0.0.0.0/0", "8.8.8.8", false, true},
		{"::/0", "2606:4700::1", false, true},
		{"0.0.0.0/0", "10.0.0.1", false, false},
		{"10.0.0.0/8", "10.0.0.1", false, true},
		{"10.1.0.0/16", "10.1.2.3", false, true},
		{"10.1.0.0/16", "::ffff:10.1.2.3", false, true},
		{"10.1.0.0/16", "10.2.2.3", false, false},
		{"8.0.0.0/5", "10.0.0.1", false, false},
		{"10.0.0.0/8", "64:ff9b::a00:1", false, false},
		{"64:ff9b::/96", "64:ff9b::a00:1", false, false},
		{"64:ff9b::/96", "64:ff9b::808:808", false, true},
		{"169.254.0.0/16", "169.254.169.254", false, false},
		{"169.254.0.0/16", "169.254.7.7", false, true},
		{"169.254.169.254/32", "169.254.169.254", false, true},
		{"127.0.0.0/8", "127.0.0.1", false, false},
		{"127.0.0.1/32", "127.0.0.1", false, false},
		{"0.0.0.0/32", "0.0.0.0", false, false},
		{"::/0", "::ffff:8.8.8.8", false, false},
		{"100.64.0.0/10", "100.64.0.1", false, true},
		{"100.64.0.0/10", "100.100.100.200", false, false},
		{"10.0.0.0/8", "10.0.0.1", true, false},
		{"10.0.0.1/32", "10.0.0.1", true, true},
		{"0.0.0.0/0", "8.8.8.8", true, false},
		{"8.8.8.8/32", "8.8.8.8", true, true},
	} {
		if got := Named(netip.MustParsePrefix(tt.rule), netip.MustParseAddr(tt.addr), tt.own); got != tt.want {
			t.Errorf("%s means %s (own %v): got %v", tt.rule, tt.addr, tt.own, got)
		}
	}
	if Named(netip.Prefix{}, netip.MustParseAddr("8.8.8.8"), false) {
		t.Error("no rule means an address")
	}
}

// However an IPv4 address is wrapped, it stays at least as bad as it is.
func FuzzWrapped(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1}, uint8(0))
	f.Add([]byte{169, 254, 169, 254}, uint8(3))
	f.Fuzz(func(t *testing.T, v4 []byte, how uint8) {
		if len(v4) != 4 {
			return
		}
		plain := netip.AddrFrom4([4]byte(v4))
		var b [16]byte
		switch how % 5 {
		case 0:
			b[10], b[11] = 0xff, 0xff
			copy(b[12:], v4)
		case 1:
			copy(b[12:], v4)
		case 2:
			copy(b[:], []byte{0, 0x64, 0xff, 0x9b})
			copy(b[12:], v4)
		case 3:
			b[0], b[1] = 0x20, 0x02
			copy(b[2:], v4)
		case 4:
			b[0], b[1] = 0x20, 0x01
			copy(b[4:8], []byte{8, 8, 8, 8})
			for i := range 4 {
				b[12+i] = ^v4[i]
			}
		}
		wrapped := netip.AddrFrom16(b)
		if Of(plain) != Public && Of(wrapped) == Public {
			t.Errorf("%s is %s, but %s is public", plain, Of(plain), wrapped)
		}
		if how%5 != 0 && Of(plain) != Public && Named(netip.PrefixFrom(wrapped, 128), wrapped, false) {
			t.Errorf("a rule means %s, which carries %s", wrapped, plain)
		}
	})
}

func FuzzAddress(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		c := Of(a)
		if c != Public && (Named(netip.MustParsePrefix("0.0.0.0/0"), a, false) || Named(netip.MustParsePrefix("::/0"), a, false)) {
			t.Errorf("%s is %s and a rule of everything means it", a, c)
		}
		if c == Public && !a.IsGlobalUnicast() {
			t.Errorf("%s is public but not unicast", a)
		}
	})
}
