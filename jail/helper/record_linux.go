package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/cgroup"
	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/generation"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/jail/why"
)

// signer is the key of all logs of this machine.
type signer = segment.Key

func (s *Server) loadKey() (err error) {
	state, err := os.Open(s.opt.State)
	if err != nil {
		return err
	}
	defer state.Close()
	if s.key, err = segment.LoadOrCreateKey(state); err != nil {
		return err
	}
	s.audit, err = os.Open(s.auditDir())
	return err
}

// about is what session.json beside the segments says of a session; it is for
// listing, the signed truth is the log itself.
type about struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Agent     string    `json:"agent"`
	Policy    string    `json:"policy"`
	Swaps     uint32    `json:"swaps,omitempty"`
	Workspace string    `json:"workspace"`
	UID       int       `json:"uid"`
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended,omitzero"`
	Records   uint64    `json:"records"`
	Denied    uint64    `json:"denied"`
	Glass     time.Time `json:"break_glass,omitzero"` // until when it does without files of the organisation
}

// recorder appends the events of one session to its log.
type recorder struct {
	w       *segment.Writer
	dir     string
	about   about                        // describing is held
	group   atomic.Pointer[cgroup.Group] // frozen while the log cannot be written; nil before there is one
	tell    func(string)                 // a sentence for the user
	holding sync.Mutex                   // one at a time changes holds and the group
	holds   atomic.Uint32                // reasons why the jail is held
	live    atomic.Uint64                // when the jail check was over, CLOCK_BOOTTIME ns; 0 = not yet

	rules  *generation.Book // names rules; set before the jail starts
	memory why.Memory       // of what was denied

	records, denied atomic.Uint64
	once            sync.Once
	describing      sync.Mutex

	events   sync.Mutex // held by whoever deals with what init sent
	tallying sync.Mutex
	tally    event.Tally // without what init did in the jail check
}

// totals is what the user is told when the agent has ended.
func (r *recorder) totals() *rpc.Totals {
	r.tallying.Lock()
	defer r.tallying.Unlock()
	t := r.tally
	return &rpc.Totals{Records: t.Records, Denied: t.Denied, Lost: t.Lost, Escapes: t.Escapes, Altered: t.Altered, Limits: slices.Clone(t.Limits)}
}

func (s *Server) newRecorder(v *session) (*recorder, error) {
	dir := filepath.Join(s.auditDir(), v.id)
	r := &recorder{dir: dir, tell: v.notice, about: about{
		ID: v.id, Name: v.name, Agent: v.doc.Agent, Policy: v.res.Name, Workspace: v.res.Vars.Workspace, UID: v.owner.uid, Started: v.made.UTC(), Glass: v.glass.Until,
	}}
	log, err := segment.MakeDir(s.audit, v.id)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	w, err := segment.Create(log, s.key, segment.Header{Session: v.id, Policy: v.policy.hash, Kernel: kernelRelease()}, segment.Options{OnState: r.held, Compressor: &s.compressor})
	if err != nil {
		return nil, err
	}
	r.w = w
	return r, r.save()
}

// recordAlone writes a log of one record that is of no session, for [glass.Desk].
func (s *Server) recordAlone(id string, uid int, hash string, e event.Event) error {
	log, err := segment.MakeDir(s.audit, id)
	if err != nil {
		return err
	}
	defer log.Close()
	w, err := segment.Create(log, s.key, segment.Header{Session: id, Policy: hash, Kernel: kernelRelease()}, segment.Options{Compressor: &s.compressor})
	if err != nil {
		return err
	}
	e.Time, e.Mono = time.Now(), bootClock()
	r := &recorder{w: w, dir: filepath.Join(s.auditDir(), id), about: about{ID: id, Name: e.Name, Agent: "-", Policy: "-", Workspace: "-", UID: uid, Started: e.Time.UTC()}}
	err = w.Append(e)
	r.records.Add(1)
	return errors.Join(err, r.Close())
}

// notice queues a sentence that wait delivers to the user.
func (v *session) notice(text string) {
	v.mu.Lock()
	v.notices = append(v.notices, text)
	v.mu.Unlock()
	v.happened()
}

// renamed says under which policy the session goes on.
func (r *recorder) renamed(policy string, swaps uint32) error {
	r.describing.Lock()
	defer r.describing.Unlock()
	r.about.Policy, r.about.Swaps = policy, swaps
	return r.save()
}

// described is what is known of the session now.
func (r *recorder) described() about {
	r.describing.Lock()
	defer r.describing.Unlock()
	return r.about
}

func (r *recorder) save() error {
	data, err := json.MarshalIndent(r.about, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(r.dir, "session.json.new")
	if err := os.WriteFile(tmp, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("describe session: %w", err)
	}
	return os.Rename(tmp, filepath.Join(r.dir, "session.json"))
}

// put appends one event. It blocks while the log has no room left in memory,
// and whoever did the act with it: the record is never what gives way.
func (r *recorder) put(e event.Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if e.Mono == 0 {
		e.Mono = bootClock()
	}
	if e.Kind == event.Receipt {
		r.live.Store(e.Mono)
	}
	r.name(&e)
	for {
		err := r.w.Append(e)
		if err == nil || errors.Is(err, segment.ErrHeld) {
			break // taken
		}
		if !errors.Is(err, segment.ErrFull) || r.w.Wait(context.Background()) != nil {
			return // the log is closed: only after the jail has ended
		}
	}
	r.records.Add(1)
	// What the jail check was refused is in the record, but nobody's doing.
	checked := r.checking(&e)
	r.tallying.Lock()
	if checked {
		r.tally.Records++
	} else {
		r.tally.Add(&e)
	}
	r.tallying.Unlock()
	if e.Denied() && !checked {
		r.denied.Add(1)
		if !r.hidden(&e) {
			r.memory.Add(&e)
		}
	}
}

// hidden reports whether an event tells of a name that the rules hide: what the agent can ask
// about would else say whether it is there, because looks at what is not are no denials.
func (r *recorder) hidden(e *event.Event) bool {
	if r.rules == nil {
		return false // nobody is there to ask
	}
	now := r.rules.Now()
	for _, p := range []string{e.Path, e.Path2} {
		if strings.HasPrefix(p, "/") && now.Policy.Hides() && !now.Explain.Shows(p) {
			return true
		}
	}
	return false
}

// checking reports whether e is a refusal of the jail check: one from before the
// receipt, when there was no agent. Kernel events can arrive after that moment,
// and on tiers A and B the check runs in a child of init.
func (r *recorder) checking(e *event.Event) bool {
	live := r.live.Load()
	return e.Denied() && e.Kind != event.Escape && (live == 0 || e.Mono < live)
}

// bootClock is the clock of [event.Event.Mono].
func bootClock() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0 // never
	}
	return uint64(ts.Nano())
}

// name puts the rule that decided into e. Init and the kernel name it by generation
// and number, or could not; who made e for another reason has said it.
func (r *recorder) name(e *event.Event) {
	generation, i, ref := jail.ParseRuleRef(e.Rule)
	switch {
	case r.rules == nil:
	case ref:
		e.Rule = r.rules.Text(generation, i, e)
	case e.Rule == "" && e.Verdict == event.Deny:
		e.Rule = r.rules.At(e)
	}
}

// why answers a question that somebody in the jail has asked init. What it says is
// theirs to know: their rules, and what they tried.
func (v *session) why(j *jail.Jail, m jail.Message) {
	r := v.record.Load()
	if r == nil || r.rules == nil || len(m.Text) > jail.MaxQuestion {
		return // nobody is in the jail yet, or init does not do its work
	}
	answer := func(text string) {
		_ = j.Control.Send(jail.Message{Op: jail.OpWhy, ID: m.ID, Text: text}) // init has ended
	}
	if !r.memory.May(time.Now()) {
		answer(why.Busy)
		return
	}
	v.settle(j) // what was denied just now, too
	now := r.rules.Now()
	vars := now.Policy.Vars
	g := why.Ground{Session: v.name, Workspace: vars.Workspace, Home: vars.Home, Layers: now.Policy.Layers}
	answer(r.memory.Answer(m.Text, jail.MaxAnswer, g, now.Explain, time.Now()))
}

// kernelRule is what a kernel record's number of a rule means.
func (r *recorder) kernelRule(number uint16) string {
	if generation, i, ok := r.rules.Kernel(number); ok {
		return jail.RuleRef(generation, i)
	}
	return ""
}

// held freezes the jail while the disk refuses the log, and lets it go on after.
func (r *recorder) held(st segment.State) {
	if r.group.Load() == nil {
		return
	}
	r.hold(logHeld, st.Held != nil)
	if st.Held != nil {
		r.tell(fmt.Sprintf("the audit log cannot be written (%v): the agent is held until it can", st.Held))
		return
	}
	r.tell("the audit log is written again: the agent goes on")
}

// Reasons to hold a jail.
const (
	logHeld  = 1 << iota // the disk refuses the log
	ringFull             // the kernel's events come faster than they are read
)

// hold stops the jail while there is any reason to. The broker in init stops as
// well, so that a process that waits for it never becomes frozen: nothing waits
// for that here.
func (r *recorder) hold(reason uint32, on bool) {
	g := r.group.Load()
	if g == nil {
		return
	}
	r.holding.Lock()
	defer r.holding.Unlock()
	before := r.holds.Load()
	now := before &^ reason
	if on {
		now |= reason
	}
	r.holds.Store(now)
	switch {
	case before == 0 && now != 0:
		if err := g.Hold(); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) { // gone: nothing to hold
			r.tell(fmt.Sprintf("the agent could not be held (%v): what it does waits once the record has no room in memory", err))
		}
	case before != 0 && now == 0:
		_ = g.Thaw()
	}
}

// Close writes what is left and the closing head.
func (r *recorder) Close() error {
	var err error
	r.once.Do(func() {
		r.describing.Lock()
		defer r.describing.Unlock()
		r.about.Ended = time.Now().UTC()
		r.about.Records, r.about.Denied = r.records.Load(), r.denied.Load()
		err = errors.Join(r.w.Close(), r.save())
	})
	return err
}
