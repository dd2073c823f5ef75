package helper

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/generation"
	"github.com/agentos/agentos/jail/network"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/reach"
	"github.com/agentos/agentos/jail/rpc"
)

// step is one phase of something that is made. The name is what the user sees
// when it fails.
type step[T any] struct {
	name string
	do   func(T) error
}

// through does the steps in order, as long as going permits, and notes how long
// each took.
func through[T any](x T, list []step[T], going func() error, took *[]jail.Step) error {
	for _, st := range list {
		if err := going(); err != nil {
			return err
		}
		began := time.Now()
		err := st.do(x)
		*took = append(*took, jail.Step{Name: st.name, Micros: time.Since(began).Microseconds()})
		if err == nil {
			continue
		}
		if over := going(); over != nil { // that is why
			return over
		}
		var e *rpc.Error
		if errors.As(err, &e) {
			return err
		}
		return errors.Join(&rpc.Error{Code: rpc.Failed, Step: st.name, Text: err.Error()}, err)
	}
	return nil
}

// launch is what the steps of a start fill: a session gets a jail.
type launch struct {
	ctx  context.Context // ends with the conversation, and when the session is ended
	v    *session
	b    *build // its jail
	took []jail.Step
	log  chan recording

	receipt json.RawMessage
}

// launchSteps bind a jail to its session, in order. Each pushes its undo.
var launchSteps = []step[*launch]{
	{"policy", (*launch).compilePolicy},
	{"begin audit log", (*launch).beginLog},
	{"view", func(l *launch) error { return l.b.look() }},
	{"jail", (*launch).takeJail},
	{"audit log", (*launch).openLog},
}

// adoptSteps make a jail that stands the session's. The receipt is the first record:
// what was seen of the jail before comes after it.
var adoptSteps = []step[*launch]{
	{"adopt", (*launch).adopt},
	{"kernel programs", (*launch).follow},
	{"disk meter", (*launch).meterDisk},
	{"break-glass", (*launch).watchGlass},
	{"receipt", (*launch).writeReceipt},
	{"listen", (*launch).listen},
	{"network", (*launch).serve},
}

// errGone says that an init ended before it took the order to start anything: nothing
// of the user's has run in its jail.
var errGone = errors.New("init has ended")

// start makes the drafted session's jail and starts the agent in it.
func (c *conversation) start(ctx context.Context, m rpc.StartJail, fds []*os.File) (any, []*os.File, error) {
	v, err := c.find(m.Session)
	if err != nil {
		return nil, nil, err
	}
	if err := checkStdio(m.Terminal, fds); err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	v.mu.Lock()
	v.stop = stop
	v.mu.Unlock()
	if !v.advance(starting) {
		return nil, nil, invalid("session %s was started before", v.name)
	}
	l := &launch{ctx: ctx, v: v}
	v.building.Lock()
	err = l.prepare()
	v.building.Unlock()
	var out []*os.File
	if err == nil {
		out, err = l.run(m.Terminal, fds)
		// Whoever killed an init that waited for its first order has not ended the session.
		// The record then has the receipt of both jails.
		if errors.Is(err, errGone) && l.going() == nil {
			if err = l.replace(); err == nil {
				out, err = l.run(m.Terminal, fds)
			}
		}
	}
	if err != nil {
		l.b.order.close()
		v.close()
		return nil, nil, err
	}
	if !v.advance(running) {
		l.b.order.close()
		packet.CloseAll(out)
		return nil, nil, &rpc.Error{Code: rpc.Failed, Text: "the session was ended while it started"}
	}
	v.happened()
	c.s.refillSoon(l.b.order, l.b.identity)
	return rpc.Started{Session: v.id, Proc: 1, Report: l.b.report, Receipt: l.receipt}, out, nil
}

// going says why to give up, nil while there is no reason.
func (l *launch) going() error {
	if l.v.now() != starting {
		return &rpc.Error{Code: rpc.Failed, Text: "the session was ended while it started"}
	}
	return l.ctx.Err()
}

// prepare does everything before the session has its jail.
func (l *launch) prepare() error {
	l.b = l.v.s.newBuild(l.ctx, l.v.order(), l.going)
	err := through(l, launchSteps, l.going, &l.took)
	l.b.release()
	if l.log != nil { // a step between the two failed
		if log := <-l.log; log.err == nil {
			_ = log.Close()
		}
	}
	return err
}

// run makes the jail the session's and starts the agent.
func (l *launch) run(t *rpc.Terminal, fds []*os.File) ([]*os.File, error) {
	v := l.v
	v.building.Lock()
	err := through(l, adoptSteps, l.going, &l.took)
	v.building.Unlock()
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	v.procs[1] = &proc{}
	v.mu.Unlock()
	const session = "AGENTOS_SESSION="
	env := slices.DeleteFunc(slices.Clone(v.doc.Env), func(e string) bool { return strings.HasPrefix(e, session) })
	env = append(env, session+v.name)
	_, out, err := v.startProc(jail.Process{Argv: v.doc.Argv, Env: env, Cwd: v.doc.Cwd}, t, fds)
	return out, err
}

// replace gives a session whose jail is gone, before anything ran in it, another.
func (l *launch) replace() error {
	v := l.v
	v.building.Lock()
	defer v.building.Unlock()
	if err := l.going(); err != nil {
		return err
	}
	v.unwind(l.b.mark)
	v.mu.Lock()
	v.procs = map[int]*proc{}
	v.mu.Unlock()
	err := l.buildNow()
	l.b.release()
	return err
}

// checkStdio: with a terminal none, without exactly three pipes. Nothing else of
// the caller's enters a jail: no file, no directory, no socket.
func checkStdio(t *rpc.Terminal, fds []*os.File) error {
	if t != nil {
		if len(fds) != 0 {
			return invalid("a terminal and descriptors exclude each other")
		}
		return nil
	}
	if len(fds) != 3 {
		return invalid("want three pipes for stdin, stdout and stderr, not %d descriptors", len(fds))
	}
	for i, f := range fds {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return err
		}
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
		want := unix.O_WRONLY
		if i == 0 {
			want = unix.O_RDONLY
		}
		if err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO || flags&unix.O_ACCMODE != want {
			return invalid("descriptor %d is not the right end of a pipe", i)
		}
	}
	return nil
}

func (l *launch) compilePolicy() error { return l.b.compiled(l.v.s) }

// recording is a recorder, or why there is none.
type recording struct {
	*recorder
	err error
}

// beginLog makes the log while the jail is made: both wait for the kernel.
func (l *launch) beginLog() error {
	l.log = make(chan recording, 1)
	go func() {
		r, err := l.v.s.newRecorder(l.v)
		l.log <- recording{r, err}
	}()
	return nil
}

// takeJail takes the jail that was built ahead, if it is exactly what would be
// built now, or builds one.
func (l *launch) takeJail() error {
	v := l.v
	if ahead := v.ahead; ahead != nil {
		v.ahead = nil
		if ahead.stands(l.ctx, l.b) {
			l.b.release()
			ahead.order = l.b.order
			l.take(ahead)
			return nil
		}
		v.s.giveUp(ahead)
	}
	return l.buildNow()
}

// buildNow builds a jail; when its init was killed meanwhile, another one.
func (l *launch) buildNow() error {
	err := l.buildOnce()
	if errors.Is(err, errGone) && l.going() == nil {
		err = l.buildOnce()
	}
	return err
}

func (l *launch) buildOnce() error {
	if l.b.sp != nil { // of another jail
		b := l.v.s.newBuild(l.ctx, l.b.order, l.going)
		b.mark = l.b.mark
		l.b = b
		if err := b.look(); err != nil {
			return err
		}
	}
	sp, err := l.v.takeSpare()
	if err != nil {
		return err
	}
	l.b.sp = sp
	if err := l.b.make(); err != nil {
		return err
	}
	l.take(l.b)
	return nil
}

// take makes b the jail of this start; it goes when the session does.
func (l *launch) take(b *build) {
	l.b = b
	l.v.push(func() error { b.abandon(); return nil })
}

func (l *launch) openLog() error {
	v := l.v
	log := <-l.log
	l.log = nil
	if log.err != nil {
		return log.err
	}
	log.rules = generation.New(generation.Rules{Policy: v.res, Explain: l.b.explain, Answers: &l.b.answers})
	v.record.Store(log.recorder)
	v.push(log.Close)
	l.b.mark = v.undos()
	return nil
}

// adopt makes the jail this session's: from here on it ends with the session, and
// what is seen of it is in the session's record.
func (l *launch) adopt() error {
	v, b := l.v, l.b
	undo := b.sp.claim()
	if undo == nil {
		return errors.New("the jail was given up")
	}
	for _, f := range undo {
		v.push(f)
	}
	g, j := b.sp.group, b.sp.jail
	v.record.Load().group.Store(g)
	v.mu.Lock()
	v.jail, v.group, v.number, v.base, v.opens = j, g, b.sp.number, b.sp.base, b.asked
	v.trees = b.trees
	v.mu.Unlock()
	v.push(func() error { return errors.Join(g.Kill(), j.Close()) })
	return nil
}

// follow has seen from here on what a jail that waits does without.
func (l *launch) follow() error {
	if !l.b.ahead {
		return nil
	}
	return l.v.s.kernel.follow(l.b.sp.number, l.b.prepared)
}

// listen takes into the record what was and will be seen of the jail.
func (l *launch) listen() error {
	v, g, j := l.v, l.b.sp.group, l.b.sp.jail
	l.b.sp.bind(v)
	pumps := v.attach(j)
	v.push(func() error {
		killed := g.Kill() // everything at once, also what init could not reach
		err := j.Stop()
		if err == nil {
			<-pumps // every event that was sent is in the log
		}
		return errors.Join(killed, err)
	})
	return nil
}

// serve gives the jail its network, if its policy lets it reach anything.
func (l *launch) serve() (err error) {
	v, s := l.v, l.v.s
	if s.netd == nil || !reach.Wanted(v.res) {
		return nil
	}
	v.network, err = network.Open(l.ctx, v.res, network.Options{
		ID: v.id, Name: v.name, Number: v.number, Pid: l.b.sp.jail.Pid,
		Netd: s.netd, Kernel: s.kernel.h, CatchUp: v.catchUp, Record: v.record.Load().put, Logger: s.log,
		Bound: v.bound,
	})
	if err != nil {
		return err
	}
	v.push(v.network.Close)
	return nil
}

// writeReceipt writes the first record: what was checked, on what, with which result,
// and when.
func (l *launch) writeReceipt() (err error) {
	v, b := l.v, l.b
	b.report.Tier = v.s.kernel.tier()
	for _, r := range v.res.Refused {
		b.report.Refused = append(b.report.Refused, r.String())
	}
	fields := map[string]any{
		"session": v.id, "name": v.name, "agent": v.doc.Agent, "uid": v.owner.uid, "workspace": v.res.Vars.Workspace, "jail": b.sp.id,
		"policy": v.res.Name, "policy_sha256": b.hash, "filter_sha256": b.sum, "kernel": kernelRelease(),
		"tier": b.report.Tier, "landlock_abi": b.answer.ABI, "enforced": b.report.Enforced, "missing": b.report.Missing,
		"refused": b.report.Refused, "layers": v.res.Layers, "start_steps": l.took, "build_steps": b.took, "steps": b.answer.Steps, "checks": b.answer.Checks, "build": v.s.build,
	}
	if g := v.brokenGlass(); g != nil {
		b.report.Glass, fields["break_glass"] = g, g
	}
	if b.ahead {
		fields["checked_at"] = b.stood.UTC() // before there was this session
	}
	if b.checkedIn != "" {
		fields["checked_in"] = b.checkedIn // the session whose receipt has the checks that were not made again
	} else {
		v.s.checked.add(b.checkKey(), v.id)
	}
	if l.receipt, err = json.Marshal(fields); err != nil {
		return err
	}
	v.record.Load().put(event.Event{Kind: event.Receipt, Verdict: event.Allow, Path: v.res.Vars.Workspace, Detail: string(l.receipt)})
	v.record.Load().put(event.Event{Kind: event.Start, Verdict: event.Allow, Argv: v.doc.Argv, Path: v.doc.Argv[0], Detail: v.doc.Cwd})
	return nil
}

// startProc asks init for a process and returns the terminal's master.
func (v *session) startProc(p jail.Process, t *rpc.Terminal, fds []*os.File) (int, []*os.File, error) {
	doc, err := p.Memfd()
	if err != nil {
		return 0, nil, err
	}
	defer doc.Close()
	m := jail.Message{Op: jail.OpRun}
	if t != nil {
		m.TTY, m.Rows, m.Cols = true, t.Rows, t.Cols
	}
	nums := []int{int(doc.Fd())}
	for _, f := range fds {
		nums = append(nums, int(f.Fd()))
	}
	a, err := v.ask(m, nums...)
	if err != nil {
		if errors.Is(err, errEnded) && !jail.Taken(doc) {
			err = errGone
		}
		return 0, nil, err
	}
	return a.Proc, a.fds, nil
}
