package inside

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentos/agentos/jail/broker"
	"github.com/agentos/agentos/policy/glob"
)

func allow(t *testing.T, g string) *glob.Automaton {
	t.Helper()
	a, err := glob.Compile([]string{g}, func(m []uint16) glob.Accept {
		if len(m) == 0 {
			return glob.Accept{}
		}
		return glob.Accept{Bits: 1}
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestRulebookStorm: every call is judged by one generation from its beginning to
// its end, and none by the old one after swap has returned.
func TestRulebookStorm(t *testing.T) {
	var b rulebook
	if (brokerBook{&b}).Enter() != nil || (judgeBook{&b}).Enter() != nil {
		t.Fatal("no rules allow something")
	}
	if _, err := b.swap(allow(t, "/a/**"), 1); err == nil {
		t.Fatal("a jail without a broker took rules")
	}
	one, two := allow(t, "/a/**"), allow(t, "/b/**")
	b.hold(one)
	told := 0
	b.changed = func() error { told++; return nil }
	stop := make(chan struct{})
	var judges sync.WaitGroup
	for range 4 {
		judges.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r := b.enter()
				first, second := (*brokerRules)(r).Match("/a/x").Bits, (*judgeRules)(r).Match("/b/x").Bits
				even := r.generation%2 == 0
				if (first == 1) != even || (second == 1) == even {
					t.Errorf("generation %d: /a/x %b, /b/x %b", r.generation, first, second)
				}
				r.leave()
			}
		})
	}
	const swaps = 50
	for i := range uint32(swaps) {
		before := b.now.Load()
		next := two
		if i%2 == 1 {
			next = one
		}
		if busy, err := b.swap(next, i+1); busy || err != nil {
			t.Fatal(busy, err)
		}
		if n := before.users.Load(); n != 0 {
			t.Fatalf("%d calls are judged by rules that are out of use", n)
		}
	}
	close(stop)
	judges.Wait()
	if told != swaps {
		t.Errorf("told %d of %d swaps", told, swaps)
	}
}

// TestRulebookWaits: swap returns only after the call that the old rules judge.
func TestRulebookWaits(t *testing.T) {
	var b rulebook
	b.hold(allow(t, "/a/**"))
	var old broker.Rules = brokerBook{&b}.Enter()
	var dropped atomic.Bool
	b.changed = func() error { dropped.Store(true); return nil }
	done := make(chan bool)
	go func() {
		busy, _ := b.swap(allow(t, "/b/**"), 1)
		done <- busy
	}()
	for b.now.Load() == (*ruleset)(old.(*brokerRules)) {
		time.Sleep(time.Millisecond)
	}
	select {
	case <-done:
		t.Fatal("swap did not wait")
	default:
	}
	if r := (brokerBook{&b}).Enter(); r.Match("/b/x").Bits != 1 {
		t.Error("a call that began after the swap is judged by the old rules")
	}
	if old.Match("/a/x").Bits != 1 || old.Text(3) != "#0.3" {
		t.Error("the rules of a call changed under it")
	}
	if dropped.Load() {
		t.Error("answers were dropped while the old rules could still give some")
	}
	brokerBook{&b}.Leave(old)
	if <-done {
		t.Error("nobody was left, but swap says so")
	}
	if !dropped.Load() {
		t.Error("what the old rules had answered was not dropped")
	}
}
