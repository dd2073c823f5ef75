package helper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentos/agentos/cgroup"
	"github.com/agentos/agentos/jail"
)

// spare is a jail before it is anybody's: ids, groups, a place in the kernel's
// maps and an init that has done what no policy decides. Making one takes most
// of the time of a start, so it is begun when a session is drafted, and one is
// made ahead after each start, for the next.
type spare struct {
	id     string
	number uint32 // in the kernel's maps
	base   uint32 // first host id

	done  chan struct{} // closed when it is made, or could not be
	err   error
	group *cgroup.Group
	jail  *jail.Jail

	mu   sync.Mutex
	undo []func() error // in order; empty once it is somebody's
}

// pool is the jails made ahead of need: none, or one.
type pool struct {
	mu     sync.Mutex
	next   *spare
	soon   *time.Timer // until refill; nil before the first
	expire *time.Timer // of next
	closed bool
	wg     sync.WaitGroup // of making, and of giving up
	tmp    atomic.Uint64  // what the latest policy gave a private tmpfs, in bytes
}

// takeSpare returns the jail that waits, or one whose making has begun.
func (s *Server) takeSpare() (*spare, error) {
	p := &s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
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

// lull is how long work that nobody waits for is put off, so that it does not
// take a processor from an agent that is starting or a caller that is ending.
const lull = 20 * time.Millisecond

// refillSoon has a jail made ahead after a lull, unless one is then.
func (s *Server) refillSoon() {
	p := &s.pool
	if s.opt.Spare <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.soon == nil {
		p.soon = time.AfterFunc(lull, s.refill)
	}
	p.soon.Reset(lull)
}

func (s *Server) refill() {
	p := &s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
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
		mine := p.next == sp
		if mine {
			p.next = nil
			p.wg.Go(func() { sp.abandon(s) }) // the helper's end waits for it
		}
		p.mu.Unlock()
	})
}

// beginSpare starts the making. p.mu is held.
func (s *Server) beginSpare() (*spare, error) {
	if s.pool.closed {
		return nil, errors.New("the helper is ending")
	}
	id, err := newID()
	if err != nil {
		return nil, err
	}
	base, err := s.ranges.Take()
	if err != nil {
		return nil, err
	}
	sp := &spare{id: id, base: base, number: s.nextNumber(), done: make(chan struct{})}
	sp.push(func() error { s.ranges.Put(base); return nil })
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

// closePool ends the making of jails ahead.
func (s *Server) closePool() {
	p := &s.pool
	p.mu.Lock()
	p.closed = true
	if p.soon != nil {
		p.soon.Stop()
	}
	sp := p.next
	p.next = nil
	if sp != nil {
		p.expire.Stop()
	}
	p.mu.Unlock()
	if sp != nil {
		sp.abandon(s)
	}
	p.wg.Wait()
}

// nextNumber is the number of the next jail in the kernel's maps.
func (s *Server) nextNumber() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		s.number++
		if s.number != 0 && s.byNumber[s.number] == nil {
			return s.number
		}
	}
}
