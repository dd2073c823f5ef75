package helper

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/generation"
	"github.com/agentos/agentos/jail/glass"
	"github.com/agentos/agentos/jail/opens"
	"github.com/agentos/agentos/jail/organisation"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/glob"
)

// setPolicy swaps the file rules of a running jail of the caller:
//
//	resolve with the organisation's files of this moment, under the jail's variables
//	refuse what a running jail cannot take
//	compile; init and the kernel put the new rules in place, each at one moment
//	read what was recorded under the old ones; record the swap
//
// An act is judged by the old rules or by the new ones. When it answers, none is
// judged by the old ones any more.
func (c *conversation) setPolicy(m rpc.SetPolicy, document *os.File) (any, []*os.File, error) {
	v, err := c.live(m.Session)
	if err != nil {
		return nil, nil, err
	}
	res, err := c.resolveFor(v, m, document)
	if err != nil {
		return nil, nil, err
	}
	v.building.Lock() // an end waits for us, as for a start
	defer v.building.Unlock()
	if v.now() != running {
		return nil, nil, &rpc.Error{Code: rpc.NotFound, Text: fmt.Sprintf("session %q is not running", v.name)}
	}
	w := &swap{v: v, by: c.peer, old: v.record.Load().rules.Now(), res: res}
	if res.Hash() == w.old.Policy.Hash() {
		return rpc.PolicySet{Session: v.name, Policy: res.Name, Generation: w.old.Number}, nil, nil
	}
	if err = w.possible(); err == nil {
		err = w.do()
	}
	if err != nil {
		w.record(event.Deny, err.Error())
		return nil, nil, err
	}
	out := rpc.PolicySet{Session: v.name, Policy: res.Name, Generation: w.number, Changed: true, Took: w.took.Microseconds(), Remaining: w.remaining}
	for _, r := range res.Refused {
		out.Refused = append(out.Refused, r.String())
	}
	return out, nil, nil
}

// resolveFor resolves a document for a jail that runs: for its workspace, its home and
// its agent, whatever the document says about those.
func (c *conversation) resolveFor(v *session, m rpc.SetPolicy, document *os.File) (*policy.Resolved, error) {
	data, err := readSealed(document)
	if err != nil {
		return nil, err
	}
	var stack policy.PolicyDocument
	if err := packet.UnmarshalDocument(data, &stack); err != nil {
		return nil, err
	}
	stack.Vars = v.res.Vars
	if m.Profile {
		var first policy.PolicyDocument
		if err := packet.UnmarshalDocument(v.doc.Policy, &first); err != nil {
			return nil, err
		}
		stack.Layers = append(others(first.Layers), profiles(stack.Layers)...)
	}
	if data, err = json.Marshal(stack); err != nil {
		return nil, err
	}
	grant := v.glass
	return c.s.under(data, &grant)
}

// backend is what this helper's jails are called in an organisation's rules.
const backend = "native"

// under resolves a document under the organisation's files of this moment, without those
// that the grant does without. What the grant names and cannot be done without any more
// is taken out of it.
func (s *Server) under(document []byte, g *glass.Grant) (*policy.Resolved, error) {
	org, err := s.org.Read()
	if err != nil {
		return nil, glass.Refused(err)
	}
	if g.Files = org.Lifted(g.Files); g.Files == nil {
		*g = glass.Grant{}
	}
	layers, err := org.Layers(time.Now(), g.Files)
	if err != nil {
		return nil, glass.Refused(err)
	}
	res, err := s.resolved.get(layers, org.Sum(g.Files), document)
	if err != nil {
		return nil, err
	}
	if err := organisation.Unmet(res, backend); err != nil {
		return nil, glass.Refused(err)
	}
	return res, nil
}

// bound says what of the organisation's files of this moment refuses a grant of entry, one
// of [net] allow, to the session.
func (v *session) bound(entry string) (by string, err error) {
	org, err := v.s.org.Read()
	if err == nil {
		by, err = org.CheckGrant(time.Now(), v.glass.Files, v.res.Vars, entry)
	}
	if err != nil {
		return "", glass.Refused(err)
	}
	return by, nil
}

// breakGlass begins or ends a grant of the caller.
func (c *conversation) breakGlass(m rpc.BreakGlassAsk) (any, []*os.File, error) {
	s := c.s
	desk := glass.Desk{Rules: s.org, Book: s.glass, Record: s.recordAlone}
	groups := func() ([]int, error) {
		list, err := c.conn.PeerGroups()
		return append(list, c.peer.gid), err
	}
	out, err := desk.Break(glass.Caller{UID: c.peer.uid, PID: c.peer.pid, Groups: groups}, m)
	if err == nil && !m.Show {
		s.log.Warn("break-glass", "uid", c.peer.uid, "end", m.End, "reason", m.Reason, "files", out.Files, "until", out.Until)
	}
	return out, nil, err
}

func profiles(list []policy.Layer) (out []policy.Layer) {
	for _, l := range list {
		if l.Kind == policy.Profile {
			out = append(out, l)
		}
	}
	return out
}

func others(list []policy.Layer) (out []policy.Layer) {
	for _, l := range list {
		if l.Kind != policy.Profile {
			out = append(out, l)
		}
	}
	return out
}

// swap is one change of the file rules of a running jail.
type swap struct {
	v   *session
	by  peer
	old generation.Rules
	res *policy.Resolved

	number    uint32
	took      time.Duration
	remaining string
}

// possible refuses what the policies forbid and what a running jail cannot take.
func (w *swap) possible() error {
	refuse := func(text, hint string) error { return &rpc.Error{Code: rpc.Refused, Text: text, Hint: hint} }
	for _, r := range []*policy.Resolved{w.old.Policy, w.res} {
		if r.Fixed {
			return refuse(fmt.Sprintf("%s forbids it: the rules of a running session stay as they are", r.Where["files.live"]), "start a new session")
		}
	}
	start := w.v.res
	if diff := generation.Changes(w.old.Policy, w.res, w.v.network != nil); len(diff) > 0 {
		return refuse(fmt.Sprintf("policy %s differs from %s in what a running session cannot change: %s", w.res.Name, w.old.Policy.Name, strings.Join(diff, ", ")),
			"only the read, write, exec, deny and protect lists of [files] can change, and [net] of a session that has a network; start a new session for the rest")
	}
	if beyond := generation.Beyond(start.View(), w.res); len(beyond) > 0 {
		return refuse(fmt.Sprintf("policy %s grants more than this session was given at its start: %s", w.res.Name, strings.Join(beyond, "; ")), "start a new session")
	}
	if w.res.Hides() && !start.Hides() {
		return refuse(fmt.Sprintf("policy %s hides names, and this session was not made to look at each", w.res.Name), "start a new session")
	}
	if !start.NeedsEngine() {
		return refuse(fmt.Sprintf("policy %s, which the session was started with, has no rule about single files: nothing in it could hold others", start.Name), "start a new session")
	}
	return nil
}

// do puts the new rules in place, in init and in the kernel at once.
func (w *swap) do() error {
	v, s := w.v, w.v.s
	now := s.policies.get(w.res)
	prepared := make(chan struct{})
	go func() {
		defer close(prepared)
		if s.kernel.h != nil {
			_ = s.kernel.h.PrepareRules(v.number) // what fails now fails again, and is told
		}
	}()
	err := now.compiled(s)
	<-prepared
	if err != nil {
		return err
	}
	if err := w.ask(now); err != nil {
		return err
	}
	began := time.Now()
	w.number = w.old.Number + 1
	book := v.record.Load().rules
	book.Add(generation.Rules{Number: w.number, From: bootClock(), Policy: w.res, Explain: now.explain, Answers: &now.answers})
	told := make(chan error, 1)
	go func() { told <- w.tellInit(now, w.number) }()
	inKernel := w.tellKernel(now, w.number)
	inInit := <-told
	if err = errors.Join(inKernel, inInit); err == nil && v.network != nil {
		err = v.network.Set(w.res)
	}
	if err != nil {
		if undone := w.undo(inInit == nil, inKernel == nil); undone != nil {
			v.jail.Kill() // two halves of two policies: nobody knows what holds
			return fmt.Errorf("%w; the session was ended: %w", err, undone)
		}
		book.Drop()
		return err
	}
	v.settle(v.jail) // what the old rules judged comes before the record of the swap
	w.took = time.Since(began)
	w.cover(now)
	w.record(event.Allow, "")
	return v.record.Load().renamed(w.res.Name, w.number)
}

// ask sees to it that opens for reading and running which the new rules may refuse are
// asked about, where that is how they are decided. What is asked about more than the
// rules need does no harm.
func (w *swap) ask(now *prepared) error {
	v, start := w.v, w.v.policy
	if !start.reads {
		return nil
	}
	refuse := func(what string) error {
		return &rpc.Error{Code: rpc.Refused, Text: fmt.Sprintf("policy %s refuses %s, about which this session was not made to ask", w.res.Name, what), Hint: "start a new session"}
	}
	if !opens.Covered(now.rules, jail.ProcMasks) {
		return refuse("to read in /proc")
	}
	more := func(target string) uint64 { return now.marked(target) &^ start.marked(target) }
	if v.opens == nil {
		if now.asks() || now.marked("/") != 0 {
			return refuse("to read or run files")
		}
		return nil
	}
	if err := opens.MarkMore(v.opens, v.jail.Pid, more); err != nil {
		return fmt.Errorf("ask about more files: %w", err)
	}
	return nil
}

// coverTime bounds the walk for FIFOs of a swap.
const coverTime = time.Second

// cover covers the FIFOs that the new rules deny, about which nobody asks. They hold already: who
// opens one that is not covered is killed.
func (w *swap) cover(now *prepared) {
	v := w.v
	if v.opens == nil || v.policy.hides { // then no open goes unasked
		return
	}
	v.mu.Lock()
	trees := slices.Clone(v.trees)
	v.mu.Unlock()
	var targets []string
	for path := range v.policy.view {
		targets = append(targets, path)
	}
	for _, t := range trees {
		targets = append(targets, t.path)
	}
	slices.Sort(targets)
	targets = slices.DeleteFunc(slices.Compact(targets), func(t string) bool { return now.marked(t)&unix.FAN_OPEN_PERM == 0 })
	allows := func(path string) bool { return now.rules.Match(path).Allows(glob.Read) }
	f, err := opens.CoverMore(v.jail.Pid, targets, time.Now().Add(coverTime), allows)
	if err == nil && f.Covered > 0 {
		err = opens.Mark(v.opens, v.jail.Pid, now.marked) // those that are marked stay so; a cover that the agent moves away meanwhile is an empty file
	}
	const rest = "FIFOs that are denied now are not all covered; who opens one is killed"
	switch {
	case err != nil:
		v.s.log.Error("cover FIFOs", "session", v.id, "error", err)
		w.remain(rest)
	case f.Partial:
		w.remain(rest)
	}
}

// remain adds a sentence to what is said of the swap.
func (w *swap) remain(text string) {
	if w.remaining != "" {
		w.remaining += "; "
	}
	w.remaining += text
}

// undo gives those that have the new rules the old ones again.
func (w *swap) undo(init, kernel bool) (err error) {
	old := w.v.s.policies.get(w.old.Policy)
	if err := old.compiled(w.v.s); err != nil {
		return err
	}
	if init {
		err = w.tellInit(old, w.old.Number)
	}
	if kernel {
		err = errors.Join(err, w.tellKernel(old, w.old.Number))
	}
	return err
}

// tellInit gives the broker its rules, if there is one.
func (w *swap) tellInit(p *prepared, number uint32) error {
	if !w.v.policy.broker {
		return nil
	}
	a, err := w.v.ask(jail.Message{Op: jail.OpRules, Gen: number}, int(p.blob.Fd()))
	if err != nil {
		return fmt.Errorf("change the broker's rules: %w", err)
	}
	packet.CloseAll(a.fds)
	w.remaining = a.Text
	return nil
}

// tellKernel gives the kernel its rules, under numbers that are this generation's.
func (w *swap) tellKernel(p *prepared, number uint32) error {
	k := w.v.s.kernel
	if k.h == nil {
		return nil
	}
	blob := p.rules.Renumber(generation.Renumber(number)).Bytes()
	return k.h.SetRules(w.v.number, blob, w.v.record.Load().kernelRule)
}

// record writes down who changed what into what, or what was refused.
func (w *swap) record(verdict event.Verdict, why string) {
	type named struct {
		Name   string `json:"name"`
		SHA256 string `json:"sha256"`
	}
	detail, err := json.Marshal(struct {
		UID        int                `json:"uid"`
		PID        int                `json:"pid"`
		Generation uint32             `json:"generation"` // that holds now
		From       named              `json:"from"`
		To         named              `json:"to"`
		Layers     []policy.LayerInfo `json:"layers,omitempty"`
		Refused    string             `json:"refused,omitempty"`
	}{
		w.by.uid, w.by.pid, w.v.record.Load().rules.Now().Number,
		named{w.old.Policy.Name, w.old.Policy.Hash()},
		named{w.res.Name, w.res.Hash()},
		w.res.Layers, why,
	})
	if err != nil {
		detail = []byte(err.Error()) // cannot happen
	}
	w.v.record.Load().put(event.Event{Kind: event.Policy, Verdict: verdict, Name: w.res.Name, Detail: string(detail)})
}
