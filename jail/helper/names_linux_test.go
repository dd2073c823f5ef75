package helper

import (
	"errors"
	"testing"
	"time"

	"github.com/agentos/agentos/jail/rpc"
)

// TestNameOfAnEndingSession: a name is free again from the moment the agent has exited, and means the newest session that has it.
func TestNameOfAnEndingSession(t *testing.T) {
	s := bare(t)
	c := &conversation{s: s, peer: peer{uid: 1000}}
	draft := func(id string) (*session, error) {
		v := &session{s: s, id: id, owner: c.peer, doc: rpc.Document{Name: "same"}, made: time.Now(), procs: map[int]*proc{}}
		v.record.Store(&recorder{})
		return v, s.enter(v)
	}
	state := func(v *session, want string) {
		t.Helper()
		if got := v.row().State; got != want {
			t.Errorf("session %s is %q, want %q", v.id, got, want)
		}
	}
	busy := func() {
		t.Helper()
		var e *rpc.Error
		if _, err := draft("other"); !errors.As(err, &e) || e.Code != rpc.Busy {
			t.Errorf("a second session of one name: %v, want busy", err)
		}
	}
	first, err := draft("first")
	if err != nil {
		t.Fatal(err)
	}
	state(first, "starting")
	busy()
	first.advance(running)
	first.procs[1] = &proc{}
	state(first, "running")
	busy()
	first.procs[1].exited = true
	state(first, "ending")

	second, err := draft("second")
	if err != nil {
		t.Fatalf("the name of a session whose agent has exited: %v", err)
	}
	for range 20 { // the order of a map is random
		if v, err := c.find("same"); err != nil || v != second {
			t.Fatalf("the name means %v, %v; want the newest session", v, err)
		}
		if _, v, err := c.lookup("same"); err != nil || v != second {
			t.Fatalf("the name's log is that of %v, %v; want the newest session", v, err)
		}
	}
	busy()
	second.advance(ended) // killed
	state(second, "ending")
	if _, err := draft("third"); err != nil {
		t.Errorf("the name of a session that was killed: %v", err)
	}
}
