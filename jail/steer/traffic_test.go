package steer

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/agentos/agentos/netpolicy"
)

func told(kind netpolicy.EventKind, id uint64, name string, sent uint64) netpolicy.Event {
	return netpolicy.Event{Kind: kind, Connection: netpolicy.Connection{ID: id, Name: name, Asked: netip.MustParseAddrPort("198.18.0.9:443"), Sent: sent}}
}

// What ended and what is open add up, whose a connection is is known while it lasts, and numbers that a new
// netd gives again are not those of the one before.
func TestTraffic(t *testing.T) {
	var tr Traffic
	tr.Note(told(netpolicy.Opened, 1, "a.example", 0), 1, Owner{Pid: 7, Exe: "/bin/a"})
	tr.Note(told(netpolicy.Opened, 2, "b.example", 0), 1, Owner{Pid: 8})
	tr.Note(told(netpolicy.Denied, 0, "c.example", 0), 1, Owner{})
	tr.Note(told(netpolicy.Closed, 1, "a.example", 10), 1, Owner{})
	if _, ok := tr.Owner(1); ok {
		t.Error("a connection that has ended has a process")
	}
	if o, _ := tr.Owner(2); o.Pid != 8 {
		t.Errorf("owner %+v", o)
	}
	open := []netpolicy.Connection{told("", 2, "b.example", 300).Connection, told("", 3, "a.example", 5).Connection}
	keys, sums := tr.Sums(open)
	want := "[{b.example 443} {a.example 443} {c.example 443}] [{1 0 0 300 0 1} {1 0 0 15 0 1} {0 1 0 0 0 0}]"
	if got := fmt.Sprint(keys, sums); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	tr.Note(told(netpolicy.Opened, 1, "a.example", 0), 2, Owner{Pid: 9})
	if _, ok := tr.Owner(2); ok {
		t.Error("a connection of a netd that has ended has a process")
	}
	for i := range 3 * maxDestinations {
		tr.Note(told(netpolicy.Denied, 0, fmt.Sprint("x", i), 0), 2, Owner{})
	}
	keys, sums = tr.Sums(nil)
	rest := uint64(0)
	for i, k := range keys {
		if k == (Destination{}) {
			rest = sums[i].Denied
		}
	}
	if len(keys) > maxDestinations+1 || rest != uint64(3*maxDestinations-(maxDestinations-3)) {
		t.Errorf("%d destinations, %d denied to the rest", len(keys), rest)
	}
}
