package ruleset

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/agentos/agentos/netpolicy"
)

func all() []netpolicy.Ports          { return []netpolicy.Ports{{Low: 1, High: 65535}} }
func port(p uint16) []netpolicy.Ports { return []netpolicy.Ports{{Low: p, High: p}} }

func compile(t testing.TB, layers int, rules ...netpolicy.Rule) *Set {
	t.Helper()
	for i := range rules {
		if rules[i].At == "" {
			rules[i].At = fmt.Sprintf("rule %d", i)
		}
	}
	s, err := Compile(netpolicy.Rules{Layers: layers, Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConnect(t *testing.T) {
	s := compile(t, 2,
		netpolicy.Rule{Kind: netpolicy.Any, Ports: all()},                                                                // 0: the organisation allows names
		netpolicy.Rule{Kind: netpolicy.Prefix, Prefix: netip.MustParsePrefix("0.0.0.0/0"), Ports: all()},                 // 1
		netpolicy.Rule{Kind: netpolicy.Prefix, Prefix: netip.MustParsePrefix("10.0.0.0/8"), Ports: all()},                // 2
		netpolicy.Rule{Kind: netpolicy.Host, Ports: all()},                                                               // 3
		netpolicy.Rule{Deny: true, Kind: netpolicy.Below, Name: "evil.org", Ports: all()},                                // 4
		netpolicy.Rule{Deny: true, Except: true, Kind: netpolicy.Name, Name: "good.evil.org", Ports: all()},              // 5
		netpolicy.Rule{Deny: true, Kind: netpolicy.Prefix, Prefix: netip.MustParsePrefix("9.9.9.9/32"), Ports: all()},    // 6
		netpolicy.Rule{Layer: 1, Kind: netpolicy.Name, Name: "api.example", Ports: port(443)},                            // 7
		netpolicy.Rule{Layer: 1, Kind: netpolicy.Below, Name: "npmjs.org", Ports: port(443)},                             // 8
		netpolicy.Rule{Layer: 1, Kind: netpolicy.Below, Name: "evil.org", Ports: port(443)},                              // 9
		netpolicy.Rule{Layer: 1, Kind: netpolicy.Prefix, Prefix: netip.MustParsePrefix("10.0.0.0/8"), Ports: port(5432)}, // 10
		netpolicy.Rule{Layer: 1, Kind: netpolicy.Prefix, Prefix: netip.MustParsePrefix("8.0.0.0/6"), Ports: port(53)},    // 11
		netpolicy.Rule{Layer: 1, Kind: netpolicy.Host, Ports: port(5432)},                                                // 12
		netpolicy.Rule{Layer: 5, Deny: true, Kind: netpolicy.Name, Name: "bad.npmjs.org", Ports: port(443)},              // 13: from a layer that does not vote
	)
	for _, tt := range []struct {
		dest string
		port uint16
		rule string
		want bool
	}{
		{"api.example", 443, "rule 7", true},
		{"api.example", 80, "", false},
		{"x.api.example", 443, "", false},
		{"registry.npmjs.org", 443, "rule 8", true},
		{"npmjs.org", 443, "", false},
		{"bad.npmjs.org", 443, "rule 13", false},
		{"x.evil.org", 443, "rule 4", false},
		{"good.evil.org", 443, "rule 9", true},
		{"other.example", 443, "", false},
		{"host", 5432, "rule 12", true},
		{"host.agentos.internal", 5432, "rule 12", true},
		{"host", 22, "", false},
		{"10.1.2.3", 5432, "rule 10", true},
		{"::ffff:10.1.2.3", 5432, "rule 10", true},
		{"10.1.2.3", 22, "", false},
		{"8.8.8.8", 53, "rule 11", true},
		{"9.9.9.9", 53, "rule 6", false},
		{"64:ff9b::909:909", 53, "rule 6", false},
		{"192.168.0.1", 5432, "", false},
		{"169.254.169.254", 53, "", false},
	} {
		d := Dest{Name: tt.dest}
		if a, err := netip.ParseAddr(tt.dest); err == nil {
			d = Dest{Addr: a}
		}
		if got := s.Connect(d, tt.port); got.Allowed != tt.want || got.Rule != tt.rule {
			t.Errorf("%s:%d: got %v by %q, want %v by %q", tt.dest, tt.port, got.Allowed, got.Rule, tt.want, tt.rule)
		}
	}
	if !s.Name("api.example").Allowed || s.Name("other.example").Allowed || s.Name("x.evil.org").Allowed || !s.Name("bad.npmjs.org").Allowed {
		t.Error("names that may be resolved")
	}
	if got := s.Exact(); fmt.Sprint(got) != "[api.example host]" {
		t.Errorf("exact names: %v", got)
	}
}

func TestAddress(t *testing.T) {
	s := compile(t, 2,
		netpolicy.Rule{Kind: netpolicy.Any, Ports: all(), Private: true},
		netpolicy.Rule{Kind: netpolicy.Prefix, Prefix: netip.MustParsePrefix("100.64.0.0/10"), Ports: all()},
		netpolicy.Rule{Kind: netpolicy.Prefix, Prefix: netip.MustParsePrefix("192.168.0.7/32"), Ports: all()},
		netpolicy.Rule{Layer: 1, Kind: netpolicy.Name, Name: "db.internal", Ports: port(5432), Private: true},
		netpolicy.Rule{Layer: 1, Kind: netpolicy.Name, Name: "web.example", Ports: port(443)},
		netpolicy.Rule{Layer: 1, Kind: netpolicy.Prefix, Prefix: netip.MustParsePrefix("100.64.0.0/10"), Ports: port(443)},
		netpolicy.Rule{Layer: 1, Kind: netpolicy.Prefix, Prefix: netip.MustParsePrefix("192.168.0.7/32"), Ports: port(443)},
		netpolicy.Rule{Layer: 9, Deny: true, Kind: netpolicy.Prefix, Prefix: netip.MustParsePrefix("9.9.9.0/24"), Ports: all()},
	)
	for _, tt := range []struct {
		name, addr string
		port       uint16
		own, want  bool
	}{
		{"web.example", "8.8.8.8", 443, false, true},
		{"web.example", "8.8.8.8", 443, true, false},
		{"web.example", "9.9.9.9", 443, false, false},
		{"web.example", "64:ff9b::909:909", 443, false, false},
		{"web.example", "::ffff:9.9.9.9", 443, false, false},
		{"web.example", "10.0.0.1", 443, false, false},
		{"web.example", "127.0.0.1", 443, false, false},
		{"web.example", "::ffff:127.0.0.1", 443, true, false},
		{"web.example", "169.254.169.254", 443, false, false},
		{"web.example", "100.64.0.9", 443, false, true},
		{"web.example", "100.64.0.9", 443, true, false},
		{"web.example", "100.100.100.200", 443, false, false},
		{"web.example", "192.168.0.7", 443, true, true},
		{"db.internal", "10.0.0.1", 5432, false, true},
		{"db.internal", "fd00::1", 5432, false, true},
		{"db.internal", "10.0.0.1", 5432, true, false},
		{"db.internal", "127.0.0.1", 5432, true, false},
		{"db.internal", "169.254.169.254", 5432, false, false},
		{"db.internal", "fd00:ec2::254", 5432, false, false},
		{"db.internal", "0.0.0.0", 5432, false, false},
	} {
		d := Dest{Name: tt.name}
		dec := s.Connect(d, tt.port)
		if !dec.Allowed {
			t.Fatal(tt.name)
		}
		if err := s.Address(d, &dec, netip.MustParseAddr(tt.addr), tt.port, tt.own); (err == nil) != tt.want {
			t.Errorf("%s -> %s (own %v): %v", tt.name, tt.addr, tt.own, err)
		}
	}
}

func TestRequest(t *testing.T) {
	s := compile(t, 1,
		netpolicy.Rule{Kind: netpolicy.Name, Name: "a.example", Ports: port(80), Methods: []string{"GET", "HEAD"}, Paths: []string{"/pub/*", "/index"}},
		netpolicy.Rule{Kind: netpolicy.Name, Name: "a.example", Ports: port(80), Methods: []string{"POST"}, Paths: []string{"/form"}},
		netpolicy.Rule{Kind: netpolicy.Name, Name: "b.example", Ports: port(80)},
	)
	a, b := s.Connect(Dest{Name: "a.example"}, 80), s.Connect(Dest{Name: "b.example"}, 80)
	if !a.Limited() || b.Limited() || a.Opaque() || b.Opaque() {
		t.Error("limited or opaque")
	}
	if !b.Request("DELETE", "/%2e%2e/x") {
		t.Error("no rule names paths, yet one is refused")
	}
	for _, tt := range []struct {
		method, path string
		want         bool
	}{
		{"GET", "/pub/x", true},
		{"GET", "/pub/%78", true},
		{"GET", "/pub/", true},
		{"GET", "/index", true},
		{"GET", "/index/", false},
		{"GET", "/form", false},
		{"POST", "/form", true},
		{"POST", "/pub/x", false},
		{"GET", "/pub/../secret", false},
		{"GET", "/pub/%2e%2e/secret", false},
		{"GET", "/pub/..%2fsecret", false},
		{"GET", "/pub/..\\secret", false},
		{"GET", "/pub/..;/secret", false},
		{"GET", "/pub//x", false},
		{"GET", "/pub/%252e%252e/x", false},
		{"GET", "/pub/%00", false},
		{"GET", "/pub/%4", false},
		{"GET", "*", false},
		{"get", "/pub/x", false},
	} {
		if got := a.Request(tt.method, tt.path); got != tt.want {
			t.Errorf("%s %s: got %v", tt.method, tt.path, got)
		}
	}
}

func TestNothingIsAllowedByNothing(t *testing.T) {
	var none *Set
	zero := compile(t, 0, netpolicy.Rule{Kind: netpolicy.Any, Ports: all()})
	noPort := compile(t, 1, netpolicy.Rule{Kind: netpolicy.Any})
	for _, s := range []*Set{none, zero, noPort} {
		if s.Name("x.example").Allowed || s.Connect(Dest{Name: "x.example"}, 443).Allowed || s.Ask() {
			t.Errorf("%+v allows", s)
		}
	}
	var d Decision
	if d.Opaque() || d.Request("GET", "/") || d.Records("TXT") || !d.Limited() {
		t.Error("the zero decision permits")
	}
	if _, err := Compile(netpolicy.Rules{Layers: 1, Rules: []netpolicy.Rule{{Kind: netpolicy.Name, Name: "A.example", Ports: all()}}}); !errors.Is(err, netpolicy.ErrRules) {
		t.Errorf("a name in capitals: %v", err)
	}
}

func FuzzPath(f *testing.F) {
	f.Add("/pub/%2e%2e/x")
	s := compile(f, 1, netpolicy.Rule{Kind: netpolicy.Any, Ports: all(), Paths: []string{"/pub/*"}})
	d := s.Connect(Dest{Name: "x.example"}, 80)
	f.Fuzz(func(t *testing.T, p string) {
		if !d.Request("GET", p) {
			return
		}
		if plain, ok := decode(p); !ok || plain[:5] != "/pub/" {
			t.Errorf("%q passed as %q", p, plain)
		}
	})
}

func BenchmarkConnect(b *testing.B) {
	var rules []netpolicy.Rule
	for i := range 1000 {
		rules = append(rules, netpolicy.Rule{Kind: netpolicy.Below, Name: fmt.Sprintf("d%d.example", i), Ports: port(443)})
	}
	s := compile(b, 1, rules...)
	for b.Loop() {
		if !s.Connect(Dest{Name: "a.b.d500.example"}, 443).Allowed {
			b.Fatal("denied")
		}
	}
}
