package reach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/policy"
)

// ErrUnserved is an entry that means something and that netd does not carry.
var ErrUnserved = errors.New("not carried by this version")

// Wanted reports whether a jail under r reaches anything at all beyond its own
// loopback: the profile, and every other layer with such a list, has an entry.
// Without, a jail has no steering and needs no netd.
func Wanted(r *policy.Resolved) bool {
	any := false
	for i, l := range r.Layers {
		if !slices.Contains(l.Lists, policy.NetAllow) {
			continue
		}
		any = true
		if !slices.ContainsFunc(r.Net.Rules, func(rule policy.Rule) bool { return rule.Layer == i && rule.Kind == policy.NetAllow }) {
			return false
		}
	}
	return any || r.Net.Ask
}

// Rules is what r and grants allow, as netd reads it. Rules that say the same as an
// earlier one of their layer are kept: their positions are in events. The error
// is of an entry that does not parse (which [policy.Resolve] refuses), one that
// wraps [ErrUnserved], or [netpolicy.ErrRules].
func Rules(r *policy.Resolved, grants ...Grant) (netpolicy.Rules, error) {
	out := netpolicy.Rules{Ask: r.Net.Ask}
	layers := map[int]int{}
	for i, l := range r.Layers { // those that must allow come first
		if slices.Contains(l.Lists, policy.NetAllow) {
			layers[i] = out.Layers
			out.Layers++
		}
	}
	next := out.Layers
	for i := range r.Layers {
		if _, ok := layers[i]; !ok {
			layers[i] = next
			next++
		}
	}
	for i := range r.Net.Rules {
		from := &r.Net.Rules[i]
		if from.Kind != policy.NetAllow && from.Kind != policy.NetDeny {
			continue
		}
		to, err := rule(from)
		if err != nil {
			return netpolicy.Rules{}, fmt.Errorf("%s: %w", from.String(), err)
		}
		to.Layer = layers[from.Layer]
		out.Rules = append(out.Rules, to)
	}
	for i := range grants {
		if err := grants[i].add(&out, r, layers); err != nil {
			return netpolicy.Rules{}, err
		}
	}
	if err := out.Check(); err != nil {
		return netpolicy.Rules{}, err
	}
	return out, nil
}

func rule(from *policy.Rule) (netpolicy.Rule, error) {
	n, err := policy.ParseNetRule(from.Glob)
	if err != nil {
		return netpolicy.Rule{}, err
	}
	if n.UDP {
		return netpolicy.Rule{}, fmt.Errorf("datagrams: %w", ErrUnserved)
	}
	to := netpolicy.Rule{
		Deny: from.Kind == policy.NetDeny, Except: from.Except, Kind: kind(n.Dest), Prefix: n.Prefix, Private: n.Private,
		Records: n.Records, Methods: n.Methods, Paths: n.Paths, Budget: netpolicy.Budget{Bytes: uint64(n.Budget.Bytes), Period: n.Budget.Per},
		At: from.String(),
	}
	if to.Kind == netpolicy.Name || to.Kind == netpolicy.Below {
		to.Name = n.Name
	}
	if n.Opaque {
		to.TLS = netpolicy.Opaque
	}
	for _, p := range n.Ports {
		to.Ports = append(to.Ports, netpolicy.Ports{Low: p.Low, High: p.High})
	}
	return to, nil
}

func kind(d policy.Dest) netpolicy.Kind {
	switch {
	case d.Host:
		return netpolicy.Host
	case d.Prefix.IsValid():
		return netpolicy.Prefix
	case d.Name == "*":
		return netpolicy.Any
	case d.Wild:
		return netpolicy.Below
	}
	return netpolicy.Name
}
