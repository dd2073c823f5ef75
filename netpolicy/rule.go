package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Kind says whom a rule is about.
type Kind string

// Kinds of rules.
const (
	Name   Kind = "name"   // exactly the name Rule.Name
	Below  Kind = "below"  // every name below Rule.Name, not Rule.Name itself ("*.x")
	Any    Kind = "any"    // every name, no address ("*")
	Prefix Kind = "prefix" // the addresses of Rule.Prefix
	Host   Kind = "host"   // the loopback of the machine outside, by the name [HostName]
)

// TLS says what is done with the first bytes of a connection.
type TLS string

// What is done with the first bytes. The zero value is Inspect.
const (
	Inspect TLS = "inspect" // TLS has to ask for the name that was connected to, HTTP/1 has to name it in each request
	Opaque  TLS = "opaque"  // nothing is looked at
)

// Ports is a range of ports, both ends included.
type Ports struct {
	Low  uint16 `json:"low"`
	High uint16 `json:"high"`
}

// Budget bounds the bytes of a rule, both directions together, in a period. The
// zero value is no budget.
type Budget struct {
	Bytes  uint64        `json:"bytes,omitzero"`
	Period time.Duration `json:"period,omitzero"` // nanoseconds; 0 is the jail's life
}

// Rule is one line of a policy's [net] section.
type Rule struct {
	Layer   int          `json:"layer,omitzero"`  // the layer that says it; those from Rules.Layers on can only deny
	Deny    bool         `json:"deny,omitzero"`   // never reached, whatever is allowed
	Except  bool         `json:"except,omitzero"` // with Deny: an exception to the denials before it in its layer
	Kind    Kind         `json:"kind"`
	Name    string       `json:"name,omitzero"` // of Name and Below; as package name normalises it
	Prefix  netip.Prefix `json:"prefix,omitzero"`
	Ports   []Ports      `json:"ports,omitempty"`   // none is no port at all
	TLS     TLS          `json:"tls,omitzero"`      // "" is Inspect
	Methods []string     `json:"methods,omitempty"` // HTTP methods, upper case; none is all
	Paths   []string     `json:"paths,omitempty"`   // HTTP paths; a final '*' is any rest; none is all
	Budget  Budget       `json:"budget,omitzero"`
	UDP     bool         `json:"udp,omitzero"`     // datagrams too, not TCP alone
	Private bool         `json:"private,omitzero"` // the name may stand for a private address (a Prefix rule inside that range says the same)
	Records []string     `json:"records,omitempty"`
	At      string       `json:"at"` // position and text, for events: "file:line:col: net-allow x:443"
}

// Rules are all rules of a jail. A destination is allowed when no layer denies
// it and each of the layers from 0 to Layers-1 has a rule that allows it.
type Rules struct {
	Layers int    `json:"layers"` // 0 allows nothing
	Rules  []Rule `json:"rules,omitempty"`
	Ask    bool   `json:"ask,omitzero"` // a name that no rule knows is a question, not a denial
}

// Limits bound what one jail may cost. Zero fields mean the default of netd.
type Limits struct {
	Connections  int           `json:"connections,omitzero"`    // at a time
	DNSPerSecond int           `json:"dns_per_second,omitzero"` // questions that are answered; more are dropped
	Lookups      int           `json:"lookups,omitzero"`        // questions asked outside at a time
	Names        int           `json:"names,omitzero"`          // names that have an address at a time
	Idle         time.Duration `json:"idle,omitzero"`           // nanoseconds without a byte after which a connection ends
}

// Bounds of what is accepted.
const (
	MaxRules    = 20_000
	MaxLayers   = 16
	MaxText     = 4 << 10 // bytes of each text in a rule
	MaxDocument = 8 << 20 // bytes of a request in a memfd
)

// Names and addresses that mean something inside every jail.
const HostName = "host" // what Host rules are reached by; also [HostAlias]

// HostAlias is [HostName] for programs that want a dot.
const HostAlias = "host.agentos.internal"

// Prefixes of the addresses that stand for names, the same in every jail: RFC 2544's benchmarking
// range and a unique local prefix (RFC 4193) that was drawn once.
var (
	Synthetic4 = netip.MustParsePrefix("198.18.0.0/15")
	Synthetic6 = netip.MustParsePrefix("fd5b:a70e:1c9d::/48")
)

// Resolver4 and Resolver6 stand for no name: they are what a jail's resolv.conf names.
var (
	Resolver4 = netip.MustParseAddr("198.18.0.53")
	Resolver6 = netip.MustParseAddr("fd5b:a70e:1c9d::53")
)

// ErrRules is a set of rules that does not hold together.
var ErrRules = errors.New("network rules")

// Check says whether the rules are well formed; it does not look whether a name is
// in normal form. Its errors wrap [ErrRules].
func (r *Rules) Check() error {
	switch {
	case r.Layers < 0 || r.Layers > MaxLayers:
		return fmt.Errorf("%w: %d layers, at most %d", ErrRules, r.Layers, MaxLayers)
	case len(r.Rules) > MaxRules:
		return fmt.Errorf("%w: %d rules, at most %d", ErrRules, len(r.Rules), MaxRules)
	}
	for i := range r.Rules {
		if err := r.Rules[i].check(); err != nil {
			return fmt.Errorf("%w: rule %d (%.200s): %w", ErrRules, i, r.Rules[i].At, err)
		}
	}
	return nil
}

func (r *Rule) check() error {
	if r.Layer < 0 || r.Layer >= MaxLayers {
		return fmt.Errorf("layer %d", r.Layer)
	}
	named := r.Kind == Name || r.Kind == Below
	switch {
	case r.Kind != Name && r.Kind != Below && r.Kind != Any && r.Kind != Prefix && r.Kind != Host:
		return fmt.Errorf("kind %q", r.Kind)
	case named != (r.Name != ""):
		return fmt.Errorf("kind %s with name %q", r.Kind, r.Name)
	case (r.Kind == Prefix) != r.Prefix.IsValid():
		return fmt.Errorf("kind %s with prefix %s", r.Kind, r.Prefix)
	case r.Prefix.IsValid() && (r.Prefix != r.Prefix.Masked() || r.Prefix.Addr().Is4In6()):
		return fmt.Errorf("prefix %s is not in its normal form", r.Prefix)
	case r.Except && !r.Deny:
		return errors.New("an exception to nothing")
	case r.TLS != "" && r.TLS != Inspect && r.TLS != Opaque:
		return fmt.Errorf("tls %q", r.TLS)
	case r.TLS == Opaque && (len(r.Methods) > 0 || len(r.Paths) > 0):
		return errors.New("methods and paths of what is not looked at")
	case r.Deny && (len(r.Methods) > 0 || len(r.Paths) > 0 || r.TLS != "" || r.Budget != Budget{} || len(r.Records) > 0 || r.Private || r.UDP):
		return errors.New("a denial is of all")
	case r.Budget.Period < 0 || r.Budget.Bytes == 0 && r.Budget.Period != 0:
		return errors.New("budget without bytes")
	}
	for _, p := range r.Ports {
		if p.Low == 0 || p.High < p.Low {
			return fmt.Errorf("ports %d-%d", p.Low, p.High)
		}
	}
	for _, list := range [][]string{{r.Name, r.At}, r.Methods, r.Paths, r.Records} {
		for _, s := range list {
			if len(s) > MaxText {
				return fmt.Errorf("text of %d bytes", len(s))
			}
		}
	}
	for _, s := range r.Paths {
		if s == "" || s[0] != '/' {
			return fmt.Errorf("path %.100q does not start with '/'", s)
		}
	}
	for _, s := range r.Records {
		if s != "SRV" && s != "TXT" && s != "MX" {
			return fmt.Errorf("record %.20q is not SRV, TXT or MX", s)
		}
	}
	return nil
}
