package steer

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/netpolicy"
)

// TestRecord: what a rule refused is denied, and nothing else is; every kind of event is known.
func TestRecord(t *testing.T) {
	c := netpolicy.Connection{Name: "x.example.org", Asked: netip.MustParseAddrPort("198.18.0.7:443"), Rule: "p:1:1"}
	for _, test := range []struct {
		e       netpolicy.Event
		kind    event.Kind
		verdict event.Verdict
		errno   unix.Errno
		detail  string
	}{
		{netpolicy.Event{Kind: netpolicy.Asked, Type: "A", Allowed: true}, event.Resolve, event.Allow, 0, "A"},
		{netpolicy.Event{Kind: netpolicy.Asked, Type: "A", Why: "no rule allows it"}, event.Resolve, event.Deny, unix.ENOENT, "A: no rule allows it"},
		{netpolicy.Event{Kind: netpolicy.Opened}, event.Connect, event.Allow, 0, "for 198.18.0.7:443"},
		{netpolicy.Event{Kind: netpolicy.Failed, Why: "no such name"}, event.Connect, event.Allow, unix.ECONNRESET, "for 198.18.0.7:443: no such name"},
		{netpolicy.Event{Kind: netpolicy.Cut, Why: "10 MB"}, event.Limit, event.Deny, 0, "x.example.org: 10 MB"},
		{netpolicy.Event{Kind: netpolicy.Ask}, event.Resolve, event.Deny, unix.ENOENT, "nobody was there to be asked"},
		{netpolicy.Event{Kind: netpolicy.Lost, Count: 7}, event.Loss, 0, 0, "of the network"},
		{netpolicy.Event{Kind: "newer"}, event.Connect, event.Deny, 0, "unknown event newer"},
	} {
		test.e.Time, test.e.Connection = time.Unix(1, 0), c
		got := Record(test.e)
		if got.Kind != test.kind || got.Verdict != test.verdict || got.Errno != int(test.errno) || got.Detail != test.detail {
			t.Errorf("%s: %v %v %d %q, want %v %v %d %q", test.e.Kind, got.Kind, got.Verdict, got.Errno, got.Detail, test.kind, test.verdict, test.errno, test.detail)
		}
	}
}
