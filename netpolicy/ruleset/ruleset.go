// Package ruleset decides by the rules of one jail: which names may be asked for,
// which destinations may be connected to, and which resolved addresses may be
// dialled for them. It is pure; a [Set] never changes.
//
// Layers only tighten: a destination is allowed when no layer denies it and each
// voting layer allows it. Within a layer the last denial or exception that matches
// counts, and of the rules that allow the first one is named, but whatever
// any of them permits (methods, opaque TLS) is permitted by the layer.
//
// Names and addresses never stand in for each other: a rule of a name does not
// allow its address, a rule of addresses does not make a name resolvable. Denied
// addresses are denied to names as well, in every form that carries them.
package ruleset

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/netpolicy/address"
	"github.com/agentos/agentos/netpolicy/name"
)

// Set is the compiled rules of a jail. The nil Set allows nothing.
type Set struct {
	layers int
	ask    bool
	rules  []netpolicy.Rule
	exact  map[string][]int // index of rules, by Name.Name
	below  map[string][]int
	above  map[string]bool // names that have allowed names below them
	any    []int
	prefix []int
	host   []int
}

// Compile checks and indexes rules. Its errors wrap [netpolicy.ErrRules].
func Compile(r netpolicy.Rules) (*Set, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	s := &Set{layers: r.Layers, ask: r.Ask, rules: slices.Clone(r.Rules), exact: map[string][]int{}, below: map[string][]int{}, above: map[string]bool{}}
	for i := range s.rules {
		rule := &s.rules[i]
		if rule.Name != "" {
			if n, err := name.Normal(rule.Name); err != nil || n != rule.Name {
				return nil, fmt.Errorf("%w: rule %d (%s): name %q is not in its normal form", netpolicy.ErrRules, i, rule.At, rule.Name)
			}
		}
		if rule.Kind == netpolicy.Below && !rule.Deny {
			s.above[rule.Name] = true
		}
		for p := name.Parent(rule.Name); p != "" && !rule.Deny; p = name.Parent(p) {
			s.above[p] = true
		}
		switch rule.Kind {
		case netpolicy.Name:
			s.exact[rule.Name] = append(s.exact[rule.Name], i)
		case netpolicy.Below:
			s.below[rule.Name] = append(s.below[rule.Name], i)
		case netpolicy.Any:
			s.any = append(s.any, i)
		case netpolicy.Prefix:
			s.prefix = append(s.prefix, i)
		case netpolicy.Host:
			s.host = append(s.host, i)
		}
	}
	return s, nil
}

// Dest is what is asked for: a normal name or an address. Exactly one is set.
type Dest struct {
	Name string
	Addr netip.Addr
}

// IsHost says whether d is the machine outside.
func (d Dest) IsHost() bool { return d.Name == netpolicy.HostName || d.Name == netpolicy.HostAlias }

// Ask says whether names that nothing knows are questions.
func (s *Set) Ask() bool { return s != nil && s.ask }

// Exact returns the names that rules allow by themselves, sorted.
func (s *Set) Exact() []string {
	if s == nil {
		return nil
	}
	var out []string
	for n, rules := range s.exact {
		if slices.ContainsFunc(rules, func(i int) bool { return !s.rules[i].Deny }) && s.Name(n).Allowed {
			out = append(out, n)
		}
	}
	if s.Name(netpolicy.HostName).Allowed {
		out = append(out, netpolicy.HostName)
	}
	slices.Sort(out)
	return out
}

// Above says whether names below n may be allowed: then n exists, if without
// records, because a name that does not exist has none below it (RFC 8020).
func (s *Set) Above(n string) bool { return s != nil && s.above[n] }

// about returns the indexes of the rules about d, ascending. A rule that denies
// addresses is about every form of d's.
func (s *Set) about(d Dest) []int {
	var out []int
	switch {
	case d.IsHost():
		return s.host
	case d.Addr.IsValid():
		for _, i := range s.prefix {
			if rule := &s.rules[i]; rule.Deny && covers(rule.Prefix, d.Addr) || !rule.Deny && address.Named(rule.Prefix, d.Addr, false) {
				out = append(out, i)
			}
		}
		return out
	}
	out = append(out, s.exact[d.Name]...)
	for p := name.Parent(d.Name); p != ""; p = name.Parent(p) {
		out = append(out, s.below[p]...)
	}
	out = append(out, s.any...)
	slices.Sort(out)
	return out
}

func covers(p netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(address.Forms(a), p.Contains)
}

func on(r *netpolicy.Rule, port uint16) bool {
	return slices.ContainsFunc(r.Ports, func(p netpolicy.Ports) bool { return p.Low <= port && port <= p.High })
}

// Name says whether n may be resolved: whether some port of it may be connected to.
func (s *Set) Name(n string) Decision {
	return s.decide(Dest{Name: n}, func(r *netpolicy.Rule) bool {
		if r.Deny && !r.Except {
			return slices.Contains(r.Ports, netpolicy.Ports{Low: 1, High: 65535})
		}
		return len(r.Ports) > 0
	})
}

// Connect says whether d may be connected to on port. For an address this is before
// [Set.Address], which knows whether it is this host's own.
func (s *Set) Connect(d Dest, port uint16) Decision {
	return s.decide(d, func(r *netpolicy.Rule) bool { return on(r, port) })
}

// Datagram says whether datagrams may go to d on port.
func (s *Set) Datagram(d Dest, port uint16) Decision {
	return s.decide(d, func(r *netpolicy.Rule) bool { return on(r, port) && (r.Deny || r.UDP) })
}

func (s *Set) decide(d Dest, match func(*netpolicy.Rule) bool) Decision {
	if s == nil || s.layers == 0 {
		return Decision{Why: "no rule allows anything"}
	}
	var rules []*netpolicy.Rule
	for _, i := range s.about(d) {
		if match(&s.rules[i]) {
			rules = append(rules, &s.rules[i])
		}
	}
	if r := denial(rules); r != nil {
		return Decision{Rule: r.At, Why: "a rule denies it"}
	}
	out := Decision{Allowed: true, layers: make([][]*netpolicy.Rule, s.layers)}
	for _, r := range rules {
		if !r.Deny && r.Layer < s.layers {
			out.layers[r.Layer] = append(out.layers[r.Layer], r)
		}
	}
	for _, l := range out.layers {
		if len(l) == 0 {
			return Decision{Why: "no rule allows it"}
		}
		out.Rule = l[0].At
	}
	return out
}

// denial returns the rule by which some layer denies. rules are in their order.
func denial(rules []*netpolicy.Rule) *netpolicy.Rule {
	last := map[int]*netpolicy.Rule{}
	for _, r := range rules {
		if r.Deny {
			last[r.Layer] = r
		}
	}
	for _, r := range rules { // in order, so that the answer does not depend on the map's
		if last[r.Layer] == r && !r.Except {
			return r
		}
	}
	return nil
}

// Address says whether a, which d's name resolved to or which d is, may be dialled
// on port, after dec, the decision about d: nil, or why not. own: a is this
// host's own (see [address.Routes]).
func (s *Set) Address(d Dest, dec *Decision, a netip.Addr, port uint16, own bool) error {
	a = a.WithZone("").Unmap()
	var denials []*netpolicy.Rule
	for _, i := range s.prefix {
		if r := &s.rules[i]; r.Deny && on(r, port) && covers(r.Prefix, a) {
			denials = append(denials, r)
		}
	}
	if r := denial(denials); r != nil {
		return fmt.Errorf("address %s is denied by %s", a, r.At)
	}
	class := address.Of(a)
	if own {
		class = address.Own
	}
	if class == address.Public && !d.Addr.IsValid() {
		return nil
	}
	for l := range s.layers {
		if !s.means(l, dec, a, port, class) {
			return fmt.Errorf("address %s is %s, and no rule of this name or of its range permits that", a, class)
		}
	}
	return nil
}

// means says whether layer l permits a, which is of class.
func (s *Set) means(l int, dec *Decision, a netip.Addr, port uint16, class address.Class) bool {
	if class == address.Private && l < len(dec.layers) && slices.ContainsFunc(dec.layers[l], func(r *netpolicy.Rule) bool { return r.Private }) {
		return true
	}
	return slices.ContainsFunc(s.prefix, func(i int) bool {
		r := &s.rules[i]
		return !r.Deny && r.Layer == l && on(r, port) && address.Named(r.Prefix, a, class == address.Own)
	})
}
