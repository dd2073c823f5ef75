package netpolicy

import (
	"encoding/json"
	"net/netip"
	"time"
)

// Protocol is the version of this package's messages: both sides refuse another.
const Protocol = 1

// Verb names a request.
type Verb string

// The verbs, each with the type of its body and of its reply.
const (
	VerbHello       Verb = "hello"       // Hello -> Hello
	VerbConfigure   Verb = "configure"   // Configure -> nothing
	VerbAdd         Verb = "add"         // Add + 4 descriptors -> nothing
	VerbSet         Verb = "set"         // Set -> nothing
	VerbRemove      Verb = "remove"      // Remove -> nothing
	VerbCounters    Verb = "counters"    // Of -> Counters
	VerbConnections Verb = "connections" // Of -> Connections
	VerbDecide      Verb = "decide"      // Decide -> nothing
)

// Descriptors beside [VerbAdd], in this order: listening stream sockets and
// datagram sockets bound to port 53, all made in the jail's network namespace.
const (
	Listener4 = iota
	Listener6
	Datagram4
	Datagram6
	Sockets // how many
)

// Request is the envelope of what the helper says.
type Request struct {
	Verb  Verb            `json:"verb"`
	ID    uint64          `json:"id"`
	Body  json.RawMessage `json:"body,omitempty"`
	Large bool            `json:"large,omitzero"` // the body is in the last descriptor
}

// Answer is the envelope of what netd says: a reply when ID is not 0, else an
// event.
type Answer struct {
	ID    uint64          `json:"id,omitzero"` // of the request
	Error string          `json:"error,omitzero"`
	Body  json.RawMessage `json:"body,omitempty"`
	Event *Event          `json:"event,omitempty"`
}

// Hello is the first message of each side.
type Hello struct {
	Protocol int    `json:"protocol"`
	Build    string `json:"build"`
}

// Configure is what netd cannot read for itself. The files are as on disk.
type Configure struct {
	Resolv   string   `json:"resolv"` // /etc/resolv.conf
	Hosts    string   `json:"hosts"`  // /etc/hosts
	Upstream Upstream `json:"upstream,omitzero"`
}

// Upstream is how netd reaches the network. The zero value dials.
type Upstream struct {
	Proxy  string   `json:"proxy,omitzero"`   // http://[USER:PASSWORD@]HOST:PORT (CONNECT) or socks5://...; "" dials
	Direct []string `json:"direct,omitempty"` // what is dialled all the same: a name, .NAME for those below it, an address, a CIDR
}

// Add starts to serve a jail.
type Add struct {
	Jail       string `json:"jail"` // the helper's id of it: 1 to 64 bytes
	Generation uint64 `json:"generation"`
	Rules      Rules  `json:"rules"`
	Limits     Limits `json:"limits,omitzero"`
}

// Set replaces the rules of a jail. Generations only grow.
type Set struct {
	Jail       string `json:"jail"`
	Generation uint64 `json:"generation"`
	Rules      Rules  `json:"rules"`
}

// Remove ends a jail's network.
type Remove struct {
	Jail string `json:"jail"`
}

// Of asks about a jail.
type Of struct {
	Jail  string `json:"jail"`
	After uint64 `json:"after,omitzero"` // connections with larger numbers only
}

// Decide makes netd decide again what it held for an ask event: the helper has
// set new rules before, or has not, and then it is denied.
type Decide struct {
	Jail string `json:"jail"`
	Ask  uint64 `json:"ask"`
}

// Counters are the totals of a jail since [Add].
type Counters struct {
	Opened   uint64     `json:"opened"`   // connections that were dialled
	Denied   uint64     `json:"denied"`   // connections refused by rules, checks or limits
	Failed   uint64     `json:"failed"`   // allowed, and nobody answered
	Open     int        `json:"open"`     // now
	Sent     uint64     `json:"sent"`     // bytes out of the jail
	Received uint64     `json:"received"` // bytes into the jail
	Asked    uint64     `json:"asked"`    // DNS questions answered
	Refused  uint64     `json:"refused"`  // of them, names that no rule allows
	Dropped  uint64     `json:"dropped"`  // DNS questions over the limit
	Spent    []Spending `json:"spent,omitempty"`
}

// Spending is what a rule with a budget has used in the present period.
type Spending struct {
	Rule  string `json:"rule"` // Rule.At
	Used  uint64 `json:"used"` // bytes
	Bytes uint64 `json:"bytes"`
}

// Connections is one page of a jail's open connections, in the order of ID.
type Connections struct {
	Connections []Connection `json:"connections,omitempty"`
	More        bool         `json:"more,omitzero"` // ask again, after the last ID
}

// Connection is one connection of a jail.
type Connection struct {
	ID       uint64         `json:"id"`     // of the jail, in the order of opening, from 1
	Client   netip.AddrPort `json:"client"` // the jail's end
	Asked    netip.AddrPort `json:"asked"`  // what was connected to
	Name     string         `json:"name,omitzero"`
	Dialled  netip.AddrPort `json:"dialled,omitzero"`
	Opened   time.Time      `json:"opened"`
	Sent     uint64         `json:"sent"`          // bytes out of the jail
	Received uint64         `json:"received"`      // bytes into the jail
	Rule     string         `json:"rule,omitzero"` // Rule.At
}

// EventKind says what happened.
type EventKind string

// Kinds of events.
const (
	Asked  EventKind = "asked"  // a name was asked for; Verdict and, if denied, Why
	Opened EventKind = "opened" // a connection was dialled
	Closed EventKind = "closed" // it ended; Sent, Received and, where not by its ends, Why
	Denied EventKind = "denied" // a connection was refused; Why
	Failed EventKind = "failed" // a connection was allowed, and nobody answered; Why
	Cut    EventKind = "cut"    // a budget ended a connection
	Broken EventKind = "broken" // netd ended, and the connection with it; the helper's own, who does not know the bytes; Why
	Ask    EventKind = "ask"    // a name waits for [VerbDecide]
	Lost   EventKind = "lost"   // Count events of the jail were not sent, because too many came
)

// Event is one thing that happened on a jail's network.
type Event struct {
	Kind       EventKind  `json:"kind"`
	Time       time.Time  `json:"time"`
	Jail       string     `json:"jail"`
	Generation uint64     `json:"generation,omitzero"` // of the rules that decided
	Allowed    bool       `json:"allowed,omitzero"`    // of Asked
	Type       string     `json:"type,omitzero"`       // of Asked: "A", "AAAA", ...
	Connection Connection `json:"connection,omitzero"` // Asked has Client, Name and Rule only
	Why        string     `json:"why,omitzero"`        // one sentence
	Ask        uint64     `json:"ask,omitzero"`
	Count      uint64     `json:"count,omitzero"`
}
