package network

import (
	"context"
	"errors"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail/reach"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/jail/steer"
	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/policy"
)

// State tells what the jail of a session has to do with the network now; n is nil where it has none. A netd that
// is being started anew has no connections yet, and no totals.
func (n *Network) State(ctx context.Context, session, name string) (rpc.Network, error) {
	out := rpc.Network{
		Session: session, Name: name, Served: n != nil,
		Connections: []rpc.Connection{}, Destinations: []rpc.Destination{}, Budgets: []rpc.NetBudget{}, Grants: []rpc.Grant{},
	}
	if n == nil {
		return out, nil
	}
	counters, err := n.o.Netd.Counters(ctx, n.o.ID)
	var open []netpolicy.Connection
	if err == nil {
		open, err = n.o.Netd.Connections(ctx, n.o.ID)
	}
	if err != nil && !errors.Is(err, steer.ErrGone) {
		return out, err
	}
	out.Counters = rpc.NetCounters{
		Questions: counters.Asked, Unknown: counters.Refused, Dropped: counters.Dropped, Sent: counters.Sent, Received: counters.Received,
	}
	for _, s := range counters.Spent {
		out.Budgets = append(out.Budgets, rpc.NetBudget{Rule: s.Rule, Used: s.Used, Bytes: s.Bytes})
	}
	for _, o := range open {
		out.Connections = append(out.Connections, n.connection(o))
	}
	keys, sums := n.traffic.Sums(open)
	for i, d := range keys {
		s := sums[i]
		out.Destinations = append(out.Destinations, rpc.Destination{
			Host: d.Host, Port: d.Port, Open: s.Open, Opened: s.Opened, Denied: s.Denied, Failed: s.Failed, Sent: s.Sent, Received: s.Received,
		})
	}
	_, grants := n.now()
	for _, g := range grants {
		out.Grants = append(out.Grants, told(g))
	}
	return out, nil
}

func told(g reach.Grant) rpc.Grant {
	return rpc.Grant{ID: g.ID, Deny: g.Deny, Entry: g.Entry, UID: g.UID, Made: g.Made, Until: g.Until}
}

func (n *Network) connection(o netpolicy.Connection) rpc.Connection {
	to := steer.To(o)
	out := rpc.Connection{ID: o.ID, Host: to.Host, Port: to.Port, Sent: o.Sent, Received: o.Received, Rule: o.Rule, Opened: o.Opened, State: "opening"}
	switch {
	case o.Dialled.IsValid():
		out.State, out.Address = "open", o.Dialled.String()
	case to.Port == 53:
		out.State = "dns"
	}
	who, known := n.traffic.Owner(o.ID)
	if !known { // it was not told yet that this one was opened
		var e event.Event
		n.o.Kernel.Owner(n.o.Number, o.Client, o.Asked, &e)
		who = steer.Owner{Pid: int(e.Pid), Exe: e.Exe, Comm: e.Comm}
	}
	out.Pid, out.Exe, out.Comm = who.Pid, who.Exe, who.Comm
	return out
}

// Rules tells the rules of [net] that hold for a session under res, with its grants; n is nil where it has no network.
func (n *Network) Rules(session, name string, res *policy.Resolved) rpc.NetRules {
	var grants []reach.Grant
	if n != nil {
		res, grants = n.now()
	}
	out := rpc.NetRules{Session: session, Name: name, Served: n != nil, Ask: res.Net.Ask, Votes: []string{}, Rules: []rpc.NetRule{}}
	for _, l := range res.Layers {
		for _, k := range l.Lists {
			if k == policy.NetAllow {
				out.Votes = append(out.Votes, l.Kind.String())
			}
		}
	}
	kinds := map[policy.Kind]string{policy.NetAllow: "allow", policy.NetDeny: "deny"}
	for _, r := range res.Net.Rules {
		if kinds[r.Kind] == "" {
			continue
		}
		line := rpc.NetRule{Kind: kinds[r.Kind], Entry: r.Glob, Layer: res.Layers[r.Layer].Kind.String(), From: r.Pos}
		if r.Except {
			line.Entry = "!" + line.Entry
		}
		out.Rules = append(out.Rules, line)
	}
	for _, g := range grants {
		line := rpc.NetRule{Kind: "allow", Entry: g.Entry, Layer: "grant", From: g.At()}
		if g.Deny {
			line.Kind = "deny"
		}
		if !g.Until.IsZero() {
			line.Until = g.Until.Format(time.RFC3339)
		}
		out.Rules = append(out.Rules, line)
	}
	return out
}
