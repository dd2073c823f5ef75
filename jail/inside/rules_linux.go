package inside

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/broker"
	"github.com/agentos/agentos/jail/opens"
	"github.com/agentos/agentos/policy/glob"
)

// rulebook holds the rules that broker and judge decide by, and lets the helper put
// others in their place. The zero rulebook refuses everything.
//
//	judge: enter -> decide, act, remember -> leave
//	swap:  new rules in place -> wait until the last left the old ones -> forget
//
// So an act is decided by one set of rules, whatever happens meanwhile, and when swap
// returns, none is decided by the old ones, and no answer of theirs is remembered.
type rulebook struct {
	now atomic.Pointer[ruleset]

	swapping sync.Mutex
	changed  func() error // drops what was remembered; nil: nothing is
}

// ruleset is one generation of the rules. It does not change.
type ruleset struct {
	*glob.Automaton
	generation uint32
	users      atomic.Int64
}

// hold puts the first rules in place.
func (b *rulebook) hold(a *glob.Automaton) { b.now.Store(&ruleset{Automaton: a}) }

// enter answers the rules that hold now, for one act; nil if there are none.
func (b *rulebook) enter() *ruleset {
	for {
		r := b.now.Load()
		if r == nil {
			return nil
		}
		r.users.Add(1)
		if b.now.Load() == r {
			return r
		}
		r.users.Add(-1) // they went out of use; swap may not have seen us
	}
}

func (r *ruleset) leave() { r.users.Add(-1) }

// swapWait bounds the wait for acts that the old rules decide: one may hang on a file
// system that does not answer.
const swapWait = 2 * time.Second

// swap puts a in place of what holds. busy: the new rules hold, but the old ones still
// decide some act; when that ends, what was remembered is dropped once more.
func (b *rulebook) swap(a *glob.Automaton, generation uint32) (busy bool, err error) {
	b.swapping.Lock()
	defer b.swapping.Unlock()
	old := b.now.Load()
	if old == nil {
		return false, errors.New("no broker judges by rules here")
	}
	b.now.Store(&ruleset{Automaton: a, generation: generation})
	if !old.unused(swapWait) {
		busy = true
		go func() { // ends with the act, or with the process
			for !old.unused(swapWait) {
			}
			if err := b.forget(); err != nil {
				giveUp(err) // what the old rules allowed would go on being allowed
			}
		}()
	}
	return busy, b.forget()
}

func (b *rulebook) forget() error {
	if b.changed == nil {
		return nil
	}
	return b.changed()
}

// unused waits until nobody decides by r any more, for as long as that.
func (r *ruleset) unused(wait time.Duration) bool {
	for began, pause := time.Now(), 10*time.Microsecond; r.users.Load() > 0; pause = min(2*pause, time.Millisecond) {
		if time.Since(began) > wait {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// swapRules is the helper's request to swap. After an error the old rules hold.
func (s *state) swapRules(m jail.Message, fds []*os.File) {
	if len(fds) != 1 {
		s.answer(m, fmt.Errorf("swap rules: %d descriptors instead of 1", len(fds)))
		return
	}
	rules := loadRules(fds[0])
	if rules.err != nil {
		s.answer(m, rules.err)
		return
	}
	busy, err := s.book.swap(rules.Automaton, m.Gen)
	if err != nil {
		s.answer(m, err)
		return
	}
	out := jail.Message{Op: jail.OpRules, ID: m.ID, Gen: m.Gen}
	if busy {
		out.Text = "a call that the old rules judged still waits for its file system"
	}
	_ = s.control.Send(out) // a dead helper ends serve
}

// brokerBook gives the broker its rules.
type brokerBook struct{ *rulebook }

// Enter answers the rules that hold now.
func (b brokerBook) Enter() broker.Rules {
	if r := b.enter(); r != nil {
		return (*brokerRules)(r)
	}
	return nil
}

// Leave ends what Enter began.
func (brokerBook) Leave(r broker.Rules) { (*ruleset)(r.(*brokerRules)).leave() }

// brokerRules is a ruleset as the broker asks it.
type brokerRules ruleset

// Match decides one path.
func (r *brokerRules) Match(path string) broker.Answer { return broker.Answer(r.Automaton.Match(path)) }

// Shows reports whether a path and all above it may be seen.
func (r *brokerRules) Shows(path string) bool { return r.Along(path, glob.See) }

// NoGain reports whether a directory may move.
func (r *brokerRules) NoGain(from, to string) bool {
	return r.Automaton.NoGain(r.state(from), r.state(to))
}

func (r *brokerRules) state(path string) glob.State {
	s := r.Start()
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if name != "" {
			s = r.StepString(s, name)
		}
	}
	return s
}

// Text names a rule for the helper, which knows the texts.
func (r *brokerRules) Text(i uint16) string { return jail.RuleRef(r.generation, i) }

// judgeBook gives the judge of opens its rules.
type judgeBook struct{ *rulebook }

// Enter answers the rules that hold now.
func (b judgeBook) Enter() opens.Rules {
	if r := b.enter(); r != nil {
		return (*judgeRules)(r)
	}
	return nil
}

// Leave ends what Enter began.
func (judgeBook) Leave(r opens.Rules) { (*ruleset)(r.(*judgeRules)).leave() }

// judgeRules is a ruleset as the judge asks it.
type judgeRules ruleset

// Match decides one path.
func (r *judgeRules) Match(path string) glob.Accept { return r.Automaton.Match(path) }

// Text names a rule for the helper, which knows the texts.
func (r *judgeRules) Text(i uint16) string { return jail.RuleRef(r.generation, i) }
