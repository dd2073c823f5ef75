package rpc

import "time"

// Network answers network, in a sealed memfd beside it: what a running session has to do with the
// network at one moment. The lists are complete.
type Network struct {
	Session      string        `json:"session"` // id
	Name         string        `json:"name"`
	Served       bool          `json:"served"` // false: it has its own loopback only, and nothing below is there
	Counters     NetCounters   `json:"counters"`
	Connections  []Connection  `json:"connections"`  // in the order of their opening
	Destinations []Destination `json:"destinations"` // most bytes first
	Budgets      []NetBudget   `json:"budgets"`      // of rules that were used; one that was not is whole
	Grants       []Grant       `json:"grants"`       // in the order of their ids
}

// NetCounters are the totals of the agentos-netd that serves the session now: one that was killed took its own along.
type NetCounters struct {
	Questions uint64 `json:"questions"` // DNS questions answered
	Unknown   uint64 `json:"unknown"`   // of them, names that no rule allows
	Dropped   uint64 `json:"dropped"`   // over the limit
	Sent      uint64 `json:"sent"`      // bytes out of the jail
	Received  uint64 `json:"received"`  // bytes into the jail
}

// Connection is one open connection of a session.
type Connection struct {
	ID       uint64    `json:"id"`
	Pid      int       `json:"pid,omitzero"`  // of the process on the host; 0: not known any more
	Exe      string    `json:"exe,omitzero"`  // its program, as the jail sees it
	Comm     string    `json:"comm,omitzero"` // its name; chosen by the agent, proves nothing
	Host     string    `json:"host"`          // what was asked for: a name, or an address
	Port     uint16    `json:"port"`
	Address  string    `json:"address,omitzero"` // what was dialled, ADDRESS:PORT; "" before that
	Sent     uint64    `json:"sent"`             // bytes out of the jail
	Received uint64    `json:"received"`         // bytes into the jail
	Rule     string    `json:"rule,omitzero"`    // position and text of the rule that allows it
	Opened   time.Time `json:"opened"`
	State    string    `json:"state"` // "opening", "open", or "dns": questions over TCP
}

// Destination is what a session has had to do with one host and port since its start.
type Destination struct {
	Host     string `json:"host"` // a name or an address; "" for all beyond those that are kept apart
	Port     uint16 `json:"port"`
	Open     int    `json:"open"`
	Opened   uint64 `json:"opened"`   // connections that were dialled
	Denied   uint64 `json:"denied"`   // refused by rules or checks, as far as they were told one by one
	Failed   uint64 `json:"failed"`   // allowed, and nobody answered
	Sent     uint64 `json:"sent"`     // bytes out of the jail
	Received uint64 `json:"received"` // bytes into the jail
}

// NetBudget is what a rule with a budget has used in its present period.
type NetBudget struct {
	Rule  string `json:"rule"`
	Used  uint64 `json:"used"`  // bytes
	Bytes uint64 `json:"bytes"` // of the budget
}

// Grant is what a user let a running session reach besides its policy, or forbade it.
type Grant struct {
	ID    int       `json:"id"` // counts from 1 in its session
	Deny  bool      `json:"deny,omitzero"`
	Entry string    `json:"entry"` // as an entry of [net] allow or deny
	UID   int       `json:"uid"`   // of whoever said it
	Made  time.Time `json:"made"`
	Until time.Time `json:"until,omitzero"` // zero: the end of the session
}

// What is "allow" or "deny".
func (g *Grant) What() string {
	if g.Deny {
		return "deny"
	}
	return "allow"
}

// NetRule is one line of [net] that holds for a session.
type NetRule struct {
	Kind  string `json:"kind"`  // "allow" or "deny"
	Entry string `json:"entry"` // as written, with variables replaced; '!' in front of an exception to a denial
	Layer string `json:"layer"` // "org", "user", "project", "profile" or "grant"
	From  string `json:"from"`  // file:line:col, or "grant N of uid U"
	Until string `json:"until,omitzero"`
}

// NetRules answers rules, in a sealed memfd beside it. What is reached has an allow entry in each layer of Votes, or a
// grant in the place of all but the organisation's, and no denial in any.
type NetRules struct {
	Session string    `json:"session"` // id
	Name    string    `json:"name"`
	Served  bool      `json:"served"`
	Ask     bool      `json:"ask,omitzero"` // unknown names are questions
	Votes   []string  `json:"votes"`        // layers that have an allow list
	Rules   []NetRule `json:"rules"`
}

// SetGrant asks for a grant or a denial, or to take some back. Exactly one of Entry and Revoke is set.
type SetGrant struct {
	Session string `json:"session"`
	Entry   string `json:"entry,omitzero"`
	Deny    bool   `json:"deny,omitzero"`
	Seconds int64  `json:"seconds,omitzero"` // how long it holds; 0: as long as the session
	Revoke  string `json:"revoke,omitzero"`  // the id of a grant, its entry, or "all"
}

// GrantSet answers grant.
type GrantSet struct {
	Session string  `json:"session"` // name
	Grants  []Grant `json:"grants"`  // that were made or taken back
	Took    int64   `json:"took"`    // microseconds, until the kernel and netd had it
}
