package steer

import (
	"cmp"
	"slices"
	"sync"

	"github.com/agentos/agentos/netpolicy"
)

// maxDestinations are kept apart; what goes to more of them is counted together. Programs in
// the jail choose them.
const maxDestinations = 1024

// Traffic sums up what netd tells of one jail, and remembers whose each open connection is: netd
// knows no process, and forgets what has ended. The zero value is ready. It may be used by many goroutines.
type Traffic struct {
	mu     sync.Mutex
	starts int // of the netd that the connections are of
	owners map[uint64]Owner
	sums   map[Destination]*Sum
}

// Owner is the process that made a connection, as far as it is known.
type Owner struct {
	Pid       int // on the host; 0 for none
	Exe, Comm string
}

// Destination is what was asked for. The zero value stands for all beyond those that are kept apart.
type Destination struct {
	Host string // a name, or an address
	Port uint16
}

// Sum is what a jail has had to do with one destination.
type Sum struct {
	Opened, Denied, Failed, Sent, Received uint64
	Open                                   int // set by [Traffic.Sums]
}

// To is where a connection was to.
func To(c netpolicy.Connection) Destination {
	if c.Name != "" {
		return Destination{c.Name, c.Asked.Port()}
	}
	return Destination{c.Asked.Addr().String(), c.Asked.Port()}
}

// Note takes one event. starts counts the netds that were started before the one that told it; who is the process.
func (t *Traffic) Note(e netpolicy.Event, starts int, who Owner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.owners == nil {
		t.owners, t.sums = map[uint64]Owner{}, map[Destination]*Sum{}
	}
	if starts != t.starts { // the connections of another one have ended, and their numbers come again
		clear(t.owners)
		t.starts = starts
	}
	c := e.Connection
	switch e.Kind {
	case netpolicy.Opened:
		t.owners[c.ID] = who
		t.sum(To(c)).Opened++
	case netpolicy.Closed, netpolicy.Cut:
		delete(t.owners, c.ID)
		s := t.sum(To(c))
		s.Sent += c.Sent
		s.Received += c.Received
	case netpolicy.Denied:
		t.sum(To(c)).Denied++
	case netpolicy.Failed:
		t.sum(To(c)).Failed++
	}
}

func (t *Traffic) sum(d Destination) *Sum {
	s := t.sums[d]
	if s == nil && len(t.sums) >= maxDestinations {
		d = Destination{}
		s = t.sums[d]
	}
	if s == nil {
		s = &Sum{}
		t.sums[d] = s
	}
	return s
}

// Owner is the process of an open connection of the netd of now.
func (t *Traffic) Owner(id uint64) (Owner, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.owners[id]
	return o, ok
}

// Sums returns what each destination came to, with the open connections of now; most bytes first.
func (t *Traffic) Sums(open []netpolicy.Connection) ([]Destination, []Sum) {
	t.mu.Lock()
	all := make(map[Destination]Sum, len(t.sums))
	for d, s := range t.sums {
		all[d] = *s
	}
	t.mu.Unlock()
	for _, c := range open {
		if c.Asked.Port() == 53 {
			continue
		}
		d := To(c)
		s, known := all[d]
		if !known && len(all) >= maxDestinations {
			d = Destination{}
			s = all[d]
		}
		s.Open++
		s.Sent += c.Sent
		s.Received += c.Received
		all[d] = s
	}
	keys := make([]Destination, 0, len(all))
	for d := range all {
		keys = append(keys, d)
	}
	slices.SortFunc(keys, func(a, b Destination) int {
		x, y := all[a], all[b]
		return cmp.Or(cmp.Compare(y.Sent+y.Received, x.Sent+x.Received), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port))
	})
	sums := make([]Sum, len(keys))
	for i, d := range keys {
		sums[i] = all[d]
	}
	return keys, sums
}
