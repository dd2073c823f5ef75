package steer

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/netpolicy"
)

// Record is an event of netd as the log keeps it. The process, which netd does
// not know, is the caller's to add: see [Client].
func Record(e netpolicy.Event) event.Event {
	c := e.Connection
	out := event.Event{Time: e.Time, Kind: event.Connect, Verdict: event.Allow, Name: c.Name, Rule: c.Rule, Addr: text(c.Asked), Detail: e.Why}
	switch e.Kind {
	case netpolicy.Asked:
		out.Kind, out.Addr = event.Resolve, ""
		out.Detail = joined(e.Type, e.Why)
		if !e.Allowed {
			out.Verdict, out.Errno = event.Deny, int(unix.ENOENT)
		}
	case netpolicy.Opened:
		out.Addr = text(c.Dialled)
		out.Detail = joined(fmt.Sprintf("for %s", c.Asked), e.Why)
	case netpolicy.Closed:
		out.Kind, out.Addr = event.Disconnect, text(c.Dialled)
		out.Detail = joined(fmt.Sprintf("sent %d bytes, received %d, open for %s", c.Sent, c.Received, e.Time.Sub(c.Opened).Round(time.Millisecond)), e.Why)
	case netpolicy.Broken:
		out.Kind, out.Addr = event.Disconnect, text(c.Dialled)
		out.Detail = joined(fmt.Sprintf("open for %s", e.Time.Sub(c.Opened).Round(time.Millisecond)), e.Why)
	case netpolicy.Denied:
		out.Verdict, out.Errno = event.Deny, int(unix.ECONNRESET) // what the program's first read or write says
	case netpolicy.Failed: // no rule refused it: the client gave up, the name has no address, nobody listens there
		out.Errno = int(unix.ECONNRESET)
		out.Detail = joined(fmt.Sprintf("for %s", c.Asked), e.Why)
		if c.Dialled.IsValid() {
			out.Addr = text(c.Dialled)
		}
	case netpolicy.Cut:
		out.Kind, out.Verdict, out.Addr = event.Limit, event.Deny, text(c.Dialled)
		out.Name = "budget"
		out.Detail = joined(c.Name, e.Why)
	case netpolicy.Ask:
		out.Kind, out.Verdict, out.Addr, out.Errno = event.Resolve, event.Deny, "", int(unix.ENOENT)
		out.Detail = joined("nobody was there to be asked", e.Why)
	case netpolicy.Lost:
		return event.Event{Time: e.Time, Kind: event.Loss, Count: e.Count, Detail: joined("of the network", e.Why)}
	default: // of a netd that knows more than we do
		out.Verdict, out.Detail = event.Deny, joined("unknown event "+string(e.Kind), e.Why)
	}
	return out
}

// Prefixes are where a jail's connections may go at all: the addresses that stand
// for names, and those that a rule names. Names, ports and denials are netd's to judge.
func Prefixes(r netpolicy.Rules) []netip.Prefix {
	out := []netip.Prefix{netpolicy.Synthetic4, netpolicy.Synthetic6}
	for _, rule := range r.Rules {
		if rule.Kind == netpolicy.Prefix && !rule.Deny {
			out = append(out, rule.Prefix)
		}
	}
	return out
}

// Client says which socket of the jail an event is about: its own end, and where
// it went. Questions of DNS are port 53's. ok is false for events about none.
func Client(e netpolicy.Event) (client, to netip.AddrPort, ok bool) {
	c := e.Connection
	if e.Kind == netpolicy.Asked || e.Kind == netpolicy.Ask {
		c.Asked = netip.AddrPortFrom(netip.IPv4Unspecified(), 53)
	}
	return c.Client, c.Asked, c.Client.IsValid() && c.Asked.IsValid()
}

func text(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}

// queueLength is how many events of a jail wait for its log. More are counted.
const queueLength = 4096

// queue carries the events of one jail to its log, which may be slow: the others
// do not wait for it.
type queue struct {
	jail   string
	events chan netpolicy.Event
	done   chan struct{}

	mu     sync.Mutex
	lost   uint64
	closed bool
}

func newQueue(jail string, sink func(netpolicy.Event)) *queue {
	q := &queue{jail: jail, events: make(chan netpolicy.Event, queueLength), done: make(chan struct{})}
	go func() { // ends with close
		defer close(q.done)
		for e := range q.events {
			sink(e)
			q.sayLost(sink)
		}
		q.sayLost(sink)
	}()
	return q
}

// sayLost reports what found no room.
func (q *queue) sayLost(sink func(netpolicy.Event)) {
	q.mu.Lock()
	n := q.lost
	q.lost = 0
	q.mu.Unlock()
	if n > 0 {
		sink(netpolicy.Event{Kind: netpolicy.Lost, Time: time.Now(), Jail: q.jail, Count: n})
	}
}

func (q *queue) put(e netpolicy.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	select {
	case q.events <- e:
	default:
		q.lost++
	}
}

// close returns when everything that was put has been told.
func (q *queue) close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.events)
	}
	q.mu.Unlock()
	<-q.done
}
