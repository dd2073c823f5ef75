package helper

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/cgroup"
	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/glass"
	"github.com/agentos/agentos/jail/network"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

// phase is where a session is in its life; it only moves forward.
type phase int

const (
	draft phase = iota
	starting
	running
	ended
)

var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// session is one jail from draft to end.
type session struct {
	s      *Server
	id     string
	name   string
	owner  peer
	doc    rpc.Document
	res    *policy.Resolved
	policy *prepared   // what res comes to
	glass  glass.Grant // by which it does without files of the organisation; none if it names none
	made   time.Time
	spare  *spare // what becomes its jail, unless ahead does
	ahead  *build // a jail that stands and may be what it needs

	mu      sync.Mutex
	phase   phase
	given   []given
	trees   []ownTree      // that it writes to and the host does not have
	undo    []func() error // what is made, in order
	procs   map[int]*proc
	pending map[uint64]chan initAnswer
	nextReq uint64
	wake    chan struct{} // closed and replaced when something happened
	notices []string
	counts  cgroup.Counts // of limits hit, already told

	stop     context.CancelFunc // of a start that is under way; nil before
	number   uint32             // of the jail in the kernel's maps
	base     uint32             // first host id of the jail
	network  *network.Network   // nil: it has its loopback only; set before it runs
	jail     *jail.Jail
	group    *cgroup.Group
	opens    *os.File                 // fanotify group, nil where nothing is asked about
	record   atomic.Pointer[recorder] // nil until there is a log
	building sync.Mutex               // held while start makes things; close waits for it
	closing  sync.Once
	done     chan struct{} // closed when everything is undone
}

type given struct {
	path string
	file *os.File
}

// ownTree is a directory of the session's layer.
type ownTree struct {
	path    string // inside
	dir     string // on disk
	overlay bool
}

// proc is a process that was asked for: 1 is the agent.
type proc struct {
	exited       bool
	code, signal int
	stops        []int
}

func newID() (string, error) {
	var b [6]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	return hex.EncodeToString(b[:]), nil
}

// hostName is the jail's: the name that the user chose, or the agent's, which is
// the same for every session that runs it.
func (v *session) hostName() string {
	if v.doc.Name != "" {
		return v.doc.Name
	}
	return v.doc.Agent
}

// takeGiven hands over what was given. The files are the caller's.
func (v *session) takeGiven() []given {
	v.mu.Lock()
	defer v.mu.Unlock()
	given := v.given
	v.given = nil
	return given
}

// order is what the session's jail is made for.
func (v *session) order() order {
	return order{owner: v.owner, prepared: v.policy, res: v.res, host: v.hostName(), user: userName(v.doc.Env), given: v.takeGiven()}
}

// reserve takes what the session's jail will probably be made of, or has it made.
func (v *session) reserve() (err error) {
	if v.ahead = v.s.takeAhead(v); v.ahead == nil {
		v.spare, err = v.s.takeSpare()
	} else {
		v.ahead.askFresh() // it looks while the view is opened
	}
	v.push(func() error { // what start did not take
		if v.ahead != nil {
			v.ahead.abandon()
		}
		if v.spare != nil {
			v.spare.abandon(v.s)
		}
		return nil
	})
	return err
}

// takeSpare returns what becomes the session's jail; it is the caller's.
func (v *session) takeSpare() (*spare, error) {
	if sp := v.spare; sp != nil {
		v.spare = nil
		return sp, nil
	}
	return v.s.takeSpare()
}

// push adds an undo step.
func (v *session) push(f func() error) {
	v.mu.Lock()
	v.undo = append(v.undo, f)
	v.mu.Unlock()
}

// advance moves the session to p and reports whether that was forward.
func (v *session) advance(p phase) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p <= v.phase {
		return false
	}
	v.phase = p
	return true
}

func (v *session) now() phase {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.phase
}

// over reports whether the session ends: it was told to, or its agent has exited.
func (v *session) over() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	agent := v.procs[1]
	return v.phase == ended || agent != nil && agent.exited
}

// happened wakes everybody who waits for news of this session.
func (v *session) happened() {
	v.mu.Lock()
	close(v.wake)
	v.wake = make(chan struct{})
	v.mu.Unlock()
}

// close ends the session and undoes what was made, last first. It returns when
// that is done, also for the second caller.
func (v *session) close() {
	v.closing.Do(func() {
		defer close(v.done)
		v.advance(ended) // a start that is under way gives up at its next step
		v.mu.Lock()
		j, stop := v.jail, v.stop
		v.mu.Unlock()
		if stop != nil {
			stop()
		}
		if j != nil {
			j.Kill()
		}
		v.building.Lock()
		defer v.building.Unlock()
		v.unwind(0)
		v.mu.Lock()
		for _, g := range v.given {
			_ = g.file.Close()
		}
		v.given = nil
		v.mu.Unlock()
		v.s.mu.Lock()
		delete(v.s.sessions, v.id)
		v.s.mu.Unlock()
		v.happened()
	})
	<-v.done
}

// undos is how many undo steps there are.
func (v *session) undos() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.undo)
}

// unwind does the undo steps above the first n, last first. v.building is held.
func (v *session) unwind(n int) {
	for {
		v.mu.Lock()
		last := len(v.undo) - 1
		if last < n {
			v.mu.Unlock()
			return
		}
		f := v.undo[last]
		v.undo = v.undo[:last]
		v.mu.Unlock()
		if err := f(); err != nil {
			v.s.log.Error("undo", "session", v.id, "error", err)
		}
	}
}

// find returns the caller's session of that id or name. Others' sessions do not
// exist for the caller.
func (c *conversation) find(ref string) (*session, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if v := c.s.sessions[ref]; v != nil && c.peer.mayUse(v.owner.uid) {
		return v, nil
	}
	var best *session
	for _, v := range c.s.sessions {
		if v.name == ref && c.peer.mayUse(v.owner.uid) && (best == nil || v.made.After(best.made)) {
			best = v // a name can be taken again while its last session ends
		}
	}
	if best != nil {
		return best, nil
	}
	return nil, &rpc.Error{Code: rpc.NotFound, Text: fmt.Sprintf("no running session %q", ref), Hint: "agentos ps lists them"}
}

// live is find for verbs that need a running jail.
func (c *conversation) live(ref string) (*session, error) {
	v, err := c.find(ref)
	if err != nil {
		return nil, err
	}
	if v.now() != running {
		return nil, &rpc.Error{Code: rpc.NotFound, Text: fmt.Sprintf("session %q is not running", ref)}
	}
	return v, nil
}

// initAnswer is a message of init with its descriptors.
type initAnswer struct {
	jail.Message
	fds []*os.File
}

// ask sends a request to init and waits for its answer. The descriptors of the
// answer, if any, are the caller's.
func (v *session) ask(m jail.Message, fds ...int) (initAnswer, error) {
	ch := make(chan initAnswer, 1)
	v.mu.Lock()
	v.nextReq++
	m.ID = v.nextReq
	v.pending[m.ID] = ch
	j := v.jail
	v.mu.Unlock()
	if j == nil {
		return initAnswer{}, errors.New("the jail is gone")
	}
	if v.record.Load() != nil && v.record.Load().holds.Load()&logHeld != 0 { // init as well
		return initAnswer{}, &rpc.Error{Code: rpc.Busy, Text: fmt.Sprintf("session %s is held until its audit log can be written", v.name), Hint: "free disk space, or agentos kill " + v.name}
	}
	select {
	case <-j.Ended:
		return initAnswer{}, errGone
	default:
	}
	if err := j.Control.Send(m, fds...); err != nil {
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
			err = errors.Join(errGone, err)
		}
		return initAnswer{}, fmt.Errorf("tell init: %w", err)
	}
	select {
	case out := <-ch:
		if out.Op == jail.OpFailed {
			packet.CloseAll(out.fds)
			return initAnswer{}, initError(out.Message)
		}
		return out, nil
	case <-j.Ended:
		return initAnswer{}, errEnded
	}
}

// errEnded says that an init ended before it answered what it may have done.
var errEnded = errors.New("init has ended")

// initError makes of a failure that init reports one with a code: what could
// not be executed is "not found" or "refused" as a shell would say.
func initError(m jail.Message) error {
	e := &rpc.Error{Code: rpc.Failed, Step: m.Step, Text: m.Text}
	switch unix.Errno(m.Errno) {
	case unix.ENOENT, unix.ENOTDIR:
		e.Code = rpc.NotFound
	case unix.EACCES, unix.EPERM:
		e.Code = rpc.Refused
	}
	if m.Step != "" {
		e.Code = rpc.Failed
	}
	return e
}

// wait answers when the process exited or stopped, or when there is a notice; of a
// session that starts, once it runs.
func (c *conversation) wait(ctx context.Context, m rpc.ProcRef) (any, []*os.File, error) {
	v, err := c.find(m.Session)
	if err != nil {
		return nil, nil, err
	}
	for {
		v.mu.Lock()
		p, wake := v.procs[m.Proc], v.wake
		switch {
		case v.phase < running: // asked with the start
		case p == nil && v.phase == running:
			v.mu.Unlock()
			return nil, nil, &rpc.Error{Code: rpc.NotFound, Text: fmt.Sprintf("session %s has no process %d", v.name, m.Proc)}
		case len(v.notices) > 0 && m.Proc == 1:
			text := v.notices[0]
			v.notices = v.notices[1:]
			v.mu.Unlock()
			return rpc.Happened{What: "notice", Text: text}, nil, nil
		case p != nil && len(p.stops) > 0 && !p.exited:
			sig := p.stops[0]
			p.stops = p.stops[1:]
			v.mu.Unlock()
			return rpc.Happened{What: "stopped", Signal: sig}, nil, nil
		case p != nil && p.exited:
			out := rpc.Happened{What: "exited", Code: p.code, Signal: p.signal}
			v.mu.Unlock()
			return out, nil, nil
		case v.phase == ended:
			v.mu.Unlock()
			return rpc.Happened{What: "exited", Code: 128 + int(unix.SIGKILL), Signal: int(unix.SIGKILL)}, nil, nil
		}
		v.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

func (c *conversation) signal(m rpc.SignalProc) (any, []*os.File, error) {
	v, err := c.live(m.Session)
	if err != nil {
		return nil, nil, err
	}
	if m.Signal < 1 || m.Signal > 64 {
		return nil, nil, &rpc.Error{Code: rpc.Invalid, Text: fmt.Sprintf("no signal has number %d", m.Signal)}
	}
	_, err = v.ask(jail.Message{Op: jail.OpSignal, Proc: m.Proc, Signal: m.Signal})
	return struct{}{}, nil, err
}

func (c *conversation) resize(m rpc.ResizeProc) (any, []*os.File, error) {
	v, err := c.live(m.Session)
	if err != nil {
		return nil, nil, err
	}
	_, err = v.ask(jail.Message{Op: jail.OpResize, Proc: m.Proc, Rows: m.Rows, Cols: m.Cols})
	return struct{}{}, nil, err
}

func (c *conversation) kill(m rpc.SessionRef) (any, []*os.File, error) {
	v, err := c.find(m.Session)
	if err != nil {
		return nil, nil, err
	}
	v.close()
	return struct{}{}, nil, nil
}

// spawn starts a further process in a running jail.
func (c *conversation) spawn(m rpc.SpawnProc, fds []*os.File) (any, []*os.File, error) {
	v, err := c.live(m.Session)
	if err != nil {
		return nil, nil, err
	}
	if err := checkStdio(m.Terminal, fds); err != nil {
		return nil, nil, err
	}
	if err := checkCommand(m.Argv, m.Env); err != nil {
		return nil, nil, err
	}
	v.record.Load().put(event.Event{Kind: event.Spawn, Verdict: event.Allow, Argv: m.Argv, Path: m.Argv[0], Detail: fmt.Sprintf("uid %d pid %d", c.peer.uid, c.peer.pid)})
	n, out, err := v.startProc(jail.Process{Argv: m.Argv, Env: m.Env, Cwd: m.Cwd}, m.Terminal, fds)
	if err != nil {
		return nil, nil, err
	}
	return rpc.Spawned{Proc: n}, out, nil
}
