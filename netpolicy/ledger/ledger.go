// Package ledger is what netd knows of one jail at a moment: its rules, the names that have
// addresses in it, its open connections, what they have moved, what its budgets have left,
// and what was told of all this to the helper.
//
// Events of connections that were opened or closed are never dropped: who opens one
// waits until the helper has taken it. A jail can ask and be refused faster than anybody
// reads; such events are bounded by a rate, and those beyond are counted and
// told as one number.
package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/netpolicy/ruleset"
	"github.com/agentos/agentos/netpolicy/synthetic"
	"github.com/agentos/agentos/netpolicy/upstream"
)

// What a jail may cost where its limits say nothing.
var defaults = netpolicy.Limits{Connections: 4096, DNSPerSecond: 5000, Lookups: 64, Names: 8192, Idle: time.Hour}

const (
	eventsPerSecond = 200 // of the kinds that may be dropped
	maxAsks         = 64  // questions that wait at a time
	page            = 150 // connections in one reply
)

// ErrGeneration is a set of rules that is not newer than those that hold.
var ErrGeneration = errors.New("generation of rules")

// Jail is the ledger of one jail. It may be used by many goroutines.
type Jail struct {
	ID     string
	Limits netpolicy.Limits
	Names  *synthetic.Table
	Lookup upstream.Resolver
	Count  Counts

	Questions *Rate                   // DNS
	Lookups   chan struct{}           // one token for each question that is asked outside
	emit      func(netpolicy.Event)   // waits for the helper
	config    func() *upstream.Config // of this host
	rules     atomic.Pointer[generation]
	events    *Rate
	lost      atomic.Uint64

	mu      sync.Mutex
	last    uint64 // number of the latest connection
	open    map[uint64]*Entry
	budgets map[string]*budget
	asks    map[uint64]chan struct{}
	asked   uint64
}

// Counts are totals. They only grow.
type Counts struct {
	Opened, Denied, Failed, Sent, Received, Asked, Refused, Dropped atomic.Uint64
}

type generation struct {
	number uint64
	set    *ruleset.Set
}

// New returns the ledger of a jail. emit takes events and may wait; config
// returns how this host resolves and dials.
func New(a netpolicy.Add, emit func(netpolicy.Event), config func() *upstream.Config) (*Jail, error) {
	l := a.Limits
	l.Connections, l.DNSPerSecond = cmp.Or(l.Connections, defaults.Connections), cmp.Or(l.DNSPerSecond, defaults.DNSPerSecond)
	l.Lookups, l.Names, l.Idle = cmp.Or(l.Lookups, defaults.Lookups), cmp.Or(l.Names, defaults.Names), cmp.Or(l.Idle, defaults.Idle)
	if l.Connections < 0 || l.DNSPerSecond < 0 || l.Lookups < 0 || l.Lookups > 4096 || l.Names < 0 || l.Idle < 0 {
		return nil, errors.New("a limit is out of bounds")
	}
	j := &Jail{
		ID: a.Jail, Limits: l, Names: synthetic.New(l.Names), Lookups: make(chan struct{}, l.Lookups), emit: emit, config: config,
		Questions: NewRate(l.DNSPerSecond), events: NewRate(eventsPerSecond),
		open: map[uint64]*Entry{}, budgets: map[string]*budget{}, asks: map[uint64]chan struct{}{},
	}
	return j, j.Set(a.Generation, a.Rules)
}

// Rules returns the rules that hold and their generation.
func (j *Jail) Rules() (*ruleset.Set, uint64) {
	g := j.rules.Load()
	if g == nil {
		return nil, 0
	}
	return g.set, g.number
}

// Config returns how this host resolves and dials at this moment.
func (j *Jail) Config() *upstream.Config { return j.config() }

// Set replaces the rules. Connections that they do not allow are cut before
// it returns. On an error the rules stay as they are.
func (j *Jail) Set(number uint64, r netpolicy.Rules) error {
	set, err := ruleset.Compile(r)
	if err != nil {
		return err
	}
	j.mu.Lock()
	if g := j.rules.Load(); g != nil && number <= g.number {
		j.mu.Unlock()
		return ErrGeneration
	}
	j.rules.Store(&generation{number, set})
	var cut []*Entry
	for _, e := range j.open {
		if !e.allowed(set) {
			cut = append(cut, e)
		}
	}
	j.mu.Unlock()
	for _, e := range cut {
		e.Cut("the rules no longer allow it")
	}
	now := time.Now()
	for i, n := range set.Exact() { // so that the same name has the same address whatever is asked first
		if i >= j.Limits.Names/2 {
			break
		}
		j.Names.Address(n, now)
	}
	return nil
}

// Counters returns the totals.
func (j *Jail) Counters() netpolicy.Counters {
	c := &j.Count
	out := netpolicy.Counters{
		Opened: c.Opened.Load(), Denied: c.Denied.Load(), Failed: c.Failed.Load(), Sent: c.Sent.Load(), Received: c.Received.Load(),
		Asked: c.Asked.Load(), Refused: c.Refused.Load(), Dropped: c.Dropped.Load(),
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	out.Open = len(j.open)
	for rule, b := range j.budgets {
		out.Spent = append(out.Spent, b.spending(rule, time.Now()))
	}
	slices.SortFunc(out.Spent, func(a, b netpolicy.Spending) int { return cmp.Compare(a.Rule, b.Rule) })
	return out
}

// Connections returns a page of the connections with a number above after.
func (j *Jail) Connections(after uint64) netpolicy.Connections {
	j.mu.Lock()
	defer j.mu.Unlock()
	var ids []uint64
	for id := range j.open {
		if id > after {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	out := netpolicy.Connections{More: len(ids) > page}
	for _, id := range ids[:min(len(ids), page)] {
		out.Connections = append(out.Connections, j.open[id].snapshot())
	}
	return out
}

// Tell emits an event that is never dropped.
func (j *Jail) Tell(e netpolicy.Event) {
	e.Jail = j.ID
	e.Time = time.Now().UTC() // the zone would be read from a file
	if n := j.lost.Swap(0); n > 0 {
		j.emit(netpolicy.Event{Kind: netpolicy.Lost, Jail: j.ID, Time: e.Time, Count: n})
	}
	j.emit(e)
}

// Mention emits an event that a jail can cause faster than it can be read.
func (j *Jail) Mention(e netpolicy.Event) {
	if !j.events.Take(time.Now()) {
		j.lost.Add(1)
		return
	}
	j.Tell(e)
}

// Await asks the helper about the connection or name of c and waits for [Jail.Decide] or the end of ctx. The
// rules are to be looked at again then.
func (j *Jail) Await(ctx context.Context, c netpolicy.Connection) {
	j.mu.Lock()
	if len(j.asks) >= maxAsks {
		j.mu.Unlock()
		return
	}
	j.asked++
	id, done := j.asked, make(chan struct{})
	j.asks[id] = done
	j.mu.Unlock()
	j.Tell(netpolicy.Event{Kind: netpolicy.Ask, Ask: id, Connection: c})
	select {
	case <-done:
	case <-ctx.Done():
	}
	j.mu.Lock()
	delete(j.asks, id)
	j.mu.Unlock()
}

// Decide ends the wait of a question.
func (j *Jail) Decide(id uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	done := j.asks[id]
	if done == nil {
		return errors.New("nothing waits under this number")
	}
	delete(j.asks, id)
	close(done)
	return nil
}
