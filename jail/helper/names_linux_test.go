package helper

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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

// TestNewestSession: a session that still ends is not the newest one when another has begun after it, and ended.
func TestNewestSession(t *testing.T) {
	s := bare(t)
	c := &conversation{s: s, peer: peer{uid: 1000}}
	log := func(id string, made time.Time) *recorder {
		t.Helper()
		r := &recorder{dir: filepath.Join(s.auditDir(), id), about: about{ID: id, Name: "same", UID: c.peer.uid, Started: made.UTC()}}
		if err := errors.Join(os.Mkdir(r.dir, 0o700), r.save()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	want := func(id string, live *session) {
		t.Helper()
		for _, ref := range []string{"", "same"} {
			if a, v, err := c.lookup(ref); err != nil || a.ID != id || v != live {
				t.Errorf("%q means %q, %v, %v; want %q", ref, a.ID, v, err, id)
			}
		}
	}
	now := time.Now()
	log("oldest", now.Add(-time.Hour))
	want("oldest", nil)

	ending := &session{s: s, id: "ending", name: "same", owner: c.peer, made: now, procs: map[int]*proc{1: {exited: true}}}
	ending.record.Store(log("ending", now))
	s.sessions[ending.id] = ending
	want("ending", ending)

	log("newest", now.Add(time.Millisecond))
	want("newest", nil)
	if a, v, err := c.lookup("ending"); err != nil || a.ID != "ending" || v != ending {
		t.Errorf("its id means %q, %v, %v", a.ID, v, err)
	}
	delete(s.sessions, "ending")
	want("newest", nil)
}

// TestNameOfNoName: sessions without a name never have each other's.
func TestNameOfNoName(t *testing.T) {
	s := bare(t)
	for _, id := range []string{"aaaa00000000", "aaaa11111111"} {
		v := &session{s: s, id: id, owner: peer{uid: 1000}, doc: rpc.Document{Agent: "sh"}, procs: map[int]*proc{}}
		if err := s.enter(v); err != nil || !strings.HasPrefix(v.name, "sh-aaaa") {
			t.Errorf("session %s is %q, %v", id, v.name, err)
		}
	}
}
