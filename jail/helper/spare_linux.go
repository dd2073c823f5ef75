package helper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/cgroup"
	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/policy"
)

// spare is a jail before it is anybody's: ids, groups, a place in the kernel's
// maps and an init that has done what no policy decides. Making one takes most
// of the time of a start, so it is begun when a session is drafted, and one is
// made ahead after each start, for the next. See build for what becomes of it.
type spare struct {
	id     string
	number uint32 // in the kernel's maps
	base   uint32 // first host id

	done  chan struct{} // closed when it is made, or could not be
	err   error
	group *cgroup.Group
	jail  *jail.Jail

	pid   atomic.Int32 // of init, on the host
	mu    sync.Mutex
	undo  []func() error // in order; empty once it is somebody's
	v     *session       // whose it is; nil: nobody's yet
	early []event.Event  // of the kernel, before that
	lost  uint64         // of them, for want of room
}

// maxEarly bounds what is kept of events of a jail that is nobody's yet: those of
// its check, a handful.
const maxEarly = 256

// bind makes v the session of the jail, and what was seen of it so far part of the
// session's record.
func (sp *spare) bind(v *session) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for _, e := range sp.early {
		v.observed(e)
	}
	if sp.lost > 0 {
		v.record.Load().put(event.Event{Kind: event.Loss, Verdict: event.Deny, Count: sp.lost, Detail: "the jail check did more than is kept of a jail that waits"})
	}
	sp.early, sp.lost, sp.v = nil, 0, v
}

// ruleName is what a kernel record's number of a rule means. While the jail is nobody's
// there is one policy and no name: the recorder asks it by the path.
func (sp *spare) ruleName(number uint16) string {
	if v := sp.session(); v != nil {
		return v.record.Load().kernelRule(number)
	}
	return ""
}

// session is whose the jail is, nil while it is nobody's.
func (sp *spare) session() *session {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.v
}

// observed takes one event of the kernel.
func (sp *spare) observed(e event.Event) {
	if e.Pid != 0 && e.Pid == sp.pid.Load() {
		e.JailPid = 1
	}
	sp.mu.Lock()
	v := sp.v
	switch {
	case v != nil:
	case len(sp.early) < maxEarly:
		sp.early = append(sp.early, e)
	default:
		sp.lost++
	}
	sp.mu.Unlock()
	if v != nil {
		v.observed(e)
	}
}

// beginSpare starts the making. p.mu is held.
func (s *Server) beginSpare() (*spare, error) {
	if s.pool.closed {
		return nil, errEnding
	}
	id, err := newID()
	if err != nil {
		return nil, err
	}
	base, err := s.ranges.Take()
	if err != nil {
		return nil, err
	}
	sp := &spare{id: id, base: base, done: make(chan struct{})}
	s.enumerate(sp)
	sp.push(func() error { s.ranges.Put(base); s.forgetNumber(sp.number); return nil })
	s.pool.wg.Add(1)
	go func() {
		defer s.pool.wg.Done()
		sp.err = sp.make(s)
		close(sp.done)
	}()
	return sp, nil
}

func (sp *spare) push(f func() error) {
	sp.mu.Lock()
	sp.undo = append(sp.undo, f)
	sp.mu.Unlock()
}

func (sp *spare) make(s *Server) error {
	g, err := cgroup.Create(s.layout, sp.id)
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	sp.group = g
	sp.push(func() error { return errors.Join(g.Kill(), g.Delete(deleteTimeout)) })
	id, err := g.ID()
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	if err := s.kernel.reserve(sp.number, id); err != nil {
		return fmt.Errorf("kernel rules: %w", err)
	}
	sp.push(func() error { return s.kernel.remove(sp.number, s.observed) })
	if err := sp.begin(s); err != nil {
		return err
	}
	if _, err := s.ranges.System(sp.base); err != nil { // made once for each range
		return fmt.Errorf("id range: %w", err)
	}
	return nil
}

func (sp *spare) begin(s *Server) (err error) {
	sp.jail, err = jail.Start(jail.Birth{Init: s.init, Base: sp.base, Cgroup: sp.group.FD(), Enter: sp.group.Enter, Tmp: s.pool.tmp.Load()})
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	sp.pid.Store(int32(sp.jail.Pid))
	return nil
}

// revive gives a spare whose init was killed while it waited a new one.
func (sp *spare) revive(s *Server) error {
	if sp.usable() {
		return nil
	}
	if err := sp.jail.Close(); err != nil {
		return err
	}
	return sp.begin(s)
}

// usable reports whether what was made can still become a jail.
func (sp *spare) usable() bool {
	select {
	case <-sp.done:
	default:
		return true // whoever takes it waits
	}
	if sp.err != nil {
		return false
	}
	select {
	case <-sp.jail.Ended:
		return false
	default:
		return true
	}
}

// wait returns when the spare is made.
func (sp *spare) wait(ctx context.Context) error {
	select {
	case <-sp.done:
		return sp.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// claim hands over what is to be undone, in order, except the end of init.
func (sp *spare) claim() []func() error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	undo := sp.undo
	sp.undo = nil
	return undo
}

// abandon undoes a spare that nobody claimed.
func (sp *spare) abandon(s *Server) {
	<-sp.done
	undo := sp.claim()
	if undo == nil {
		return
	}
	var failed []error
	if sp.jail != nil {
		failed = append(failed, sp.jail.Close())
	}
	for i := len(undo) - 1; i >= 0; i-- {
		failed = append(failed, undo[i]())
	}
	if err := errors.Join(failed...); err != nil {
		s.log.Error("undo a jail made ahead", "id", sp.id, "error", err)
	}
}

// enumerate gives sp its number in the kernel's maps.
func (s *Server) enumerate(sp *spare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.number++; s.number == 0 || s.byNumber[s.number] != nil; s.number++ {
	}
	sp.number = s.number
	s.byNumber[sp.number] = sp
}

func (s *Server) forgetNumber(number uint32) {
	s.mu.Lock()
	delete(s.byNumber, number)
	s.mu.Unlock()
}

// pool is the jails made ahead of need: one spare, which is for anybody, and jails
// that stand, each for whoever starts once more exactly what was started last.
//
// The package's doc says what a jail that stands is compared with before it is used:
// takeAhead and build.stands do that. One that does not fit is ended, never changed.
type pool struct {
	mu      sync.Mutex
	next    *spare
	expire  *time.Timer
	ahead   []*standing              // oldest first
	wanted  []order                  // to be built ahead, oldest first; the pool's
	recent  latest[string, struct{}] // identities of starts
	soon    *time.Timer              // until refill; nil before the first
	closed  bool
	end     context.Context // of everything made ahead; nil before the first
	cancel  context.CancelFunc
	filling sync.Mutex     // held by refill
	wg      sync.WaitGroup // of making, and of giving up
	tmp     atomic.Uint64  // what the latest policy gave a private tmpfs, in bytes
}

// standing is a jail that was built ahead.
type standing struct {
	*build
	expire *time.Timer
}

// How many jails stand and wait: of all users, and of one.
const (
	maxAhead = 8
	maxOwn   = 4
)

// lull is how long work that nobody waits for is put off, so that it does not
// take a processor from an agent that is starting or a caller that is ending.
const lull = 20 * time.Millisecond

// errEnding refuses what is asked of a helper that ends.
var errEnding = errors.New("the helper is ending")

// takeSpare returns the jail that waits, or one whose making has begun.
func (s *Server) takeSpare() (*spare, error) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.takeSpareLocked()
}

func (s *Server) takeSpareLocked() (*spare, error) {
	p := &s.pool
	if sp := p.next; sp != nil {
		p.next = nil
		p.expire.Stop()
		if sp.usable() {
			return sp, nil
		}
		p.wg.Go(func() { sp.abandon(s) })
	}
	return s.beginSpare()
}

// takeAhead returns the jail that stands for v's user, if it was made for the same
// words. Whether it shows the same objects is known when v starts.
func (s *Server) takeAhead(v *session) *build {
	p := &s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	host, user := v.hostName(), userName(v.doc.Env)
	i := slices.IndexFunc(p.ahead, func(a *standing) bool {
		return a.owner.uid == v.owner.uid && a.owner.gid == v.owner.gid && a.res == v.res && a.host == host && a.user == user
	})
	if i < 0 {
		return nil
	}
	a := s.takeAt(i)
	if !a.sp.usable() {
		p.wg.Go(a.abandon)
		return nil
	}
	return a.build
}

// takeAt takes a standing jail out of the pool. p.mu is held.
func (s *Server) takeAt(i int) *standing {
	p := &s.pool
	a := p.ahead[i]
	p.ahead = slices.Delete(p.ahead, i, i+1)
	a.expire.Stop()
	return a
}

// giveUp ends a jail that nobody wants, without waiting for that.
func (s *Server) giveUp(b *build) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.pool.wg.Go(b.abandon) // the helper's end waits for it
}

// refillSoon has jails made ahead after a lull: a spare, and one that stands for
// whoever has started the same before, not long ago. The order becomes the pool's.
func (s *Server) refillSoon(o order, identity string) {
	p := &s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.opt.Spare <= 0 || p.closed {
		o.close()
		return
	}
	p.tmp.Store(uint64(o.res.Resources.Tmp))
	if p.end == nil {
		p.end, p.cancel = context.WithCancel(context.Background())
		p.soon = time.AfterFunc(lull, s.refill)
	}
	if _, again := p.recent.find(identity); again && o.mayWait() {
		p.wanted = append(p.wanted, o)
		if len(p.wanted) > maxAhead {
			p.wanted[0].close()
			p.wanted = slices.Delete(p.wanted, 0, 1)
		}
	} else {
		o.close()
	}
	if _, again := p.recent.find(identity); !again {
		p.recent.add(identity, struct{}{})
	}
	p.soon.Reset(lull)
}

// mayWait reports whether a jail can be built for o before it is wanted. Directories that
// sessions share are in use for as long as somebody has them, and what is below an
// overlay must not change while it is mounted (overlayfs.rst, "Changes to underlying
// filesystems").
func (o *order) mayWait() bool {
	for _, m := range o.view {
		if m.Access == policy.Layered {
			return false
		}
	}
	return len(o.res.Home.Persist) == 0
}

func (s *Server) refill() {
	p := &s.pool
	p.filling.Lock()
	defer p.filling.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.wanted) > 0 && !p.closed {
		o := p.wanted[0]
		p.wanted = slices.Delete(p.wanted, 0, 1)
		sp, err := s.takeSpareLocked()
		if err != nil {
			o.close()
			continue
		}
		p.wg.Add(1)
		p.mu.Unlock()
		s.buildAhead(o, sp)
		p.wg.Done()
		p.mu.Lock()
	}
	if p.next != nil || p.closed {
		return
	}
	sp, err := s.beginSpare()
	if err != nil {
		return // whoever needs one will hear of it
	}
	p.next = sp
	p.expire = time.AfterFunc(s.opt.Spare, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.next == sp {
			p.next = nil
			p.wg.Go(func() { sp.abandon(s) }) // the helper's end waits for it
		}
	})
}

// buildAhead makes a jail of sp that stands for the next who orders the same.
func (s *Server) buildAhead(o order, sp *spare) {
	p := &s.pool
	b := s.newBuild(p.end, o, p.end.Err)
	b.sp, b.ahead = sp, true
	err := b.look()
	if err == nil {
		err = b.make()
	} else {
		b.release()
		b.abandon()
	}
	b.order.close()
	if err != nil {
		s.log.Warn("build a jail ahead", "uid", o.owner.uid, "error", err)
		return
	}
	a := &standing{build: b}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.wg.Go(b.abandon)
		return
	}
	if i := p.surplus(b); i >= 0 {
		p.wg.Go(s.takeAt(i).abandon)
	}
	a.expire = time.AfterFunc(s.opt.Spare, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if i := slices.Index(p.ahead, a); i >= 0 {
			p.wg.Go(s.takeAt(i).abandon)
		}
	})
	p.ahead = append(p.ahead, a)
}

// surplus is which jail goes when b comes, -1 for none: one like it, else the user's oldest,
// else the oldest. p.mu is held.
func (p *pool) surplus(b *build) int {
	own := func(a *standing) bool { return a.owner.uid == b.owner.uid }
	if i := slices.IndexFunc(p.ahead, func(a *standing) bool { return a.identity == b.identity }); i >= 0 {
		return i
	}
	n := 0
	for _, a := range p.ahead {
		if own(a) {
			n++
		}
	}
	switch {
	case n >= maxOwn:
		return slices.IndexFunc(p.ahead, own)
	case len(p.ahead) >= maxAhead:
		return 0
	}
	return -1
}

// closePool ends the making of jails ahead, and those that wait.
func (s *Server) closePool() {
	p := &s.pool
	p.mu.Lock()
	p.closed = true
	if p.soon != nil {
		p.soon.Stop()
		p.cancel()
	}
	for _, o := range p.wanted {
		o.close()
	}
	p.wanted = nil
	for len(p.ahead) > 0 {
		p.wg.Go(s.takeAt(0).abandon)
	}
	if sp := p.next; sp != nil {
		p.next = nil
		p.expire.Stop()
		p.wg.Go(func() { sp.abandon(s) })
	}
	p.mu.Unlock()
	p.wg.Wait()
}
