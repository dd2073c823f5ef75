package ledger

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/netpolicy/ruleset"
)

func rules(names ...string) netpolicy.Rules {
	r := netpolicy.Rules{Layers: 1}
	for _, n := range names {
		r.Rules = append(r.Rules, netpolicy.Rule{Kind: netpolicy.Name, Name: n, Ports: []netpolicy.Ports{{Low: 443, High: 443}}, At: n})
	}
	return r
}

func TestBudgetPeriods(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	b := &budget{rule: "r", from: start, limit: netpolicy.Budget{Bytes: 100, Period: time.Hour}}
	for _, tt := range []struct {
		after time.Duration
		n     uint64
		want  bool
		used  uint64
	}{
		{0, 60, true, 60},
		{time.Minute, 40, true, 100},
		{time.Minute, 1, false, 100},
		{59 * time.Minute, 1, false, 100},
		{time.Hour, 100, true, 100},
		{time.Hour + time.Minute, 1, false, 100},
		{5*time.Hour + time.Minute, 101, false, 100}, // more than all of it spends it
		{6 * time.Hour, 1, true, 1},
		{6 * time.Hour, 1<<64 - 1, false, 100},
	} {
		if got := b.spend(tt.n, start.Add(tt.after)); got != tt.want || b.used != tt.used {
			t.Errorf("%d bytes after %v: %v with %d used", tt.n, tt.after, got, b.used)
		}
	}
	life := &budget{limit: netpolicy.Budget{Bytes: 10}, from: start}
	if !life.spend(10, start) || life.spend(1, start.Add(1000*time.Hour)) {
		t.Error("a budget without a period is for the jail's life")
	}
}

func TestRate(t *testing.T) {
	r := NewRate(10)
	now := time.Unix(1, 0)
	take := func(n int) (got int) {
		for range n {
			if r.Take(now) {
				got++
			}
		}
		return got
	}
	if got := take(100); got != 10 {
		t.Errorf("at first %d", got)
	}
	now = now.Add(500 * time.Millisecond)
	if got := take(100); got != 5 {
		t.Errorf("after half a second %d", got)
	}
	now = now.Add(time.Hour)
	if got := take(100); got != 10 {
		t.Errorf("after an hour %d", got)
	}
}

// What is dropped is counted and told, before the next event that is not. The rate is one of the
// clock: some are let through again while the test runs, each after the count of those before it.
func TestLostEvents(t *testing.T) {
	var got []netpolicy.Event
	began := time.Now()
	j, err := New(netpolicy.Add{Jail: "j", Generation: 1}, func(e netpolicy.Event) { got = append(got, e) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	const mentioned = 1000
	for range mentioned {
		j.Mention(netpolicy.Event{Kind: netpolicy.Denied})
	}
	j.Tell(netpolicy.Event{Kind: netpolicy.Opened})
	let := int(eventsPerSecond * (time.Since(began).Seconds() + 1))
	var denied, lost int
	for i, e := range got {
		switch e.Kind {
		case netpolicy.Denied:
			denied++
		case netpolicy.Lost:
			lost += int(e.Count)
			if got[i+1].Kind == netpolicy.Lost {
				t.Errorf("event %d: two counts of what was lost at once", i)
			}
		case netpolicy.Opened:
			if i != len(got)-1 {
				t.Errorf("event %d of %d is the last that was told", i, len(got))
			}
		}
	}
	if denied+lost != mentioned || denied < min(eventsPerSecond, mentioned) || denied > let || lost == 0 && let < mentioned {
		t.Errorf("of %d: %d told, %d lost; the rate lets %d through", mentioned, denied, lost, let)
	}
}

func TestPagesAndGenerations(t *testing.T) {
	j, err := New(netpolicy.Add{Jail: "j", Generation: 5, Rules: rules("a.example", "b.example"), Limits: netpolicy.Limits{Connections: 400}}, func(netpolicy.Event) {}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 401 {
		n := []string{"a.example", "b.example"}[i%2]
		e := j.Open(netpolicy.Connection{Name: n, Asked: netip.MustParseAddrPort("198.18.0.1:443")}, ruleset.Dest{Name: n}, new(net.TCPConn))
		if (e == nil) != (i == 400) {
			t.Fatalf("connection %d: %v", i, e)
		}
	}
	seen, after := 0, uint64(0)
	for more := true; more; {
		p := j.Connections(after)
		for _, c := range p.Connections {
			if c.ID <= after {
				t.Fatal("out of order")
			}
			after = c.ID
			seen++
		}
		more = p.More
	}
	if seen != 400 {
		t.Errorf("%d connections in pages", seen)
	}
	if err := j.Set(5, rules()); !errors.Is(err, ErrGeneration) {
		t.Errorf("the same generation: %v", err)
	}
	if err := j.Set(6, rules("a.example")); err != nil {
		t.Fatal(err)
	}
	cut := 0
	for _, e := range j.open {
		if e.Why() != "" {
			if cut++; e.dest.Name != "b.example" {
				t.Errorf("%s was cut", e.dest.Name)
			}
		}
	}
	if cut != 200 {
		t.Errorf("%d connections were cut", cut)
	}
	if _, err := New(netpolicy.Add{Limits: netpolicy.Limits{Names: -1}}, nil, nil); err == nil {
		t.Error("a negative limit was taken")
	}
}
