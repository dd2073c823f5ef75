package ledger

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/netpolicy/relay"
	"github.com/agentos/agentos/netpolicy/ruleset"
)

// Entry is one connection of a jail, from its acceptance to its end.
type Entry struct {
	jail *Jail
	dest ruleset.Dest
	port uint16
	sent atomic.Uint64
	rcvd atomic.Uint64
	seen atomic.Int64 // time of the latest byte, in nanoseconds of Unix time

	mu      sync.Mutex
	conn    netpolicy.Connection
	ends    []*net.TCPConn // what is reset when the connection is cut
	budgets []*budget
	check   Check
	why     string // it was cut
	spent   bool   // by a budget
}

// Open enters a connection; nil when the jail has as many as it may have.
func (j *Jail) Open(c netpolicy.Connection, dest ruleset.Dest, client *net.TCPConn) *Entry {
	e := &Entry{jail: j, dest: dest, port: c.Asked.Port(), conn: c, ends: []*net.TCPConn{client}}
	e.conn.Opened = time.Now().UTC()
	e.seen.Store(e.conn.Opened.UnixNano())
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.open) >= j.Limits.Connections {
		return nil
	}
	j.last++
	e.conn.ID = j.last
	j.open[j.last] = e
	return e
}

// Check says whether rules allow the address that was dialled, after what they decided about the destination.
type Check func(*ruleset.Set, *ruleset.Decision) bool

// Dialled notes what the connection goes to, and by which rule; conn is
// reset when it is cut. check is asked when the rules change. It is false when the
// connection has been cut already, or is no longer allowed.
func (e *Entry) Dialled(conn *net.TCPConn, c netpolicy.Connection, dec *ruleset.Decision, check Check) bool {
	e.mu.Lock()
	e.check = check
	e.conn.Dialled, e.conn.Rule = c.Dialled, c.Rule
	e.ends = append(e.ends, conn)
	for _, r := range dec.Budgets() {
		e.budgets = append(e.budgets, e.jail.budget(r))
	}
	cut := e.why != ""
	e.mu.Unlock()
	// New rules may have come between the decision and the entry into e.ends.
	set, _ := e.jail.Rules()
	return !cut && e.allowed(set)
}

// Connection returns the connection as it is now.
func (e *Entry) Connection() netpolicy.Connection { return e.snapshot() }

func (e *Entry) snapshot() netpolicy.Connection {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.conn
	c.Sent, c.Received = e.sent.Load(), e.rcvd.Load()
	return c
}

func (e *Entry) allowed(set *ruleset.Set) bool {
	d := set.Connect(e.dest, e.port)
	e.mu.Lock()
	check := e.check
	e.mu.Unlock()
	return d.Allowed && (check == nil || check(set, &d))
}

// Cut ends the connection with a reset.
func (e *Entry) Cut(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.why == "" {
		e.why = why
	}
	for _, c := range e.ends {
		relay.Reset(c)
	}
}

// Why says why the connection was cut, "" when it was not.
func (e *Entry) Why() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.why
}

// Spent says whether a budget cut the connection.
func (e *Entry) Spent() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.spent
}

// Close takes the connection out of the jail's.
func (e *Entry) Close() {
	e.jail.mu.Lock()
	defer e.jail.mu.Unlock()
	delete(e.jail.open, e.conn.ID)
}

// Sent counts n bytes on their way out of the jail; false when a budget has no
// room for them.
func (e *Entry) Sent(n int) bool { return e.count(n, &e.sent, &e.jail.Count.Sent) }

// Received counts n bytes on their way into the jail.
func (e *Entry) Received(n int) bool { return e.count(n, &e.rcvd, &e.jail.Count.Received) }

func (e *Entry) count(n int, of, total *atomic.Uint64) bool {
	now := time.Now()
	e.seen.Store(now.UnixNano())
	for _, b := range e.budgets { // not written after Dialled, which comes before any byte
		if !b.spend(uint64(n), now) {
			e.mu.Lock()
			e.spent, e.why = true, "the budget of "+b.rule+" is spent"
			e.mu.Unlock()
			return false
		}
	}
	of.Add(uint64(n))
	total.Add(uint64(n))
	return true
}

// CutIdle cuts the connections on which no byte has moved since before.
func (j *Jail) CutIdle(before time.Time) {
	j.mu.Lock()
	var cut []*Entry
	for _, e := range j.open {
		if e.seen.Load() < before.UnixNano() {
			cut = append(cut, e)
		}
	}
	j.mu.Unlock()
	for _, e := range cut {
		e.Cut("nothing was sent for longer than allowed")
	}
}

// CutAll cuts all connections.
func (j *Jail) CutAll(why string) {
	j.mu.Lock()
	var cut []*Entry
	for _, e := range j.open {
		cut = append(cut, e)
	}
	j.mu.Unlock()
	for _, e := range cut {
		e.Cut(why)
	}
}

// budget is what a rule has used. It outlives the rules: a rule that comes again goes on with it.
type budget struct {
	rule  string
	mu    sync.Mutex
	limit netpolicy.Budget
	from  time.Time // start of the period
	used  uint64
}

func (j *Jail) budget(r *netpolicy.Rule) *budget {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := j.budgets[r.At]
	if b == nil {
		b = &budget{rule: r.At, from: time.Now()}
		j.budgets[r.At] = b
	}
	b.mu.Lock()
	b.limit = r.Budget
	b.mu.Unlock()
	return b
}

func (b *budget) spend(n uint64, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(now)
	if n > b.limit.Bytes-min(b.used, b.limit.Bytes) {
		b.used = b.limit.Bytes
		return false
	}
	b.used += n
	return true
}

func (b *budget) turn(now time.Time) {
	if p := b.limit.Period; p > 0 && now.Sub(b.from) >= p {
		b.from, b.used = b.from.Add(now.Sub(b.from)/p*p), 0
	}
}

func (b *budget) spending(rule string, now time.Time) netpolicy.Spending {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(now)
	return netpolicy.Spending{Rule: rule, Used: b.used, Bytes: b.limit.Bytes}
}

// Rate is a token bucket of one second's tokens.
type Rate struct {
	mu     sync.Mutex
	per    float64
	tokens float64
	last   time.Time
}

// NewRate returns a full bucket of perSecond tokens.
func NewRate(perSecond int) *Rate {
	return &Rate{per: float64(perSecond), tokens: float64(perSecond)}
}

// Take takes one token, if there is one.
func (r *Rate) Take(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last.IsZero() {
		r.tokens = min(r.per, r.tokens+r.per*now.Sub(r.last).Seconds())
	}
	r.last = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	return true
}
