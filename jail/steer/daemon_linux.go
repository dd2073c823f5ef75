package steer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/netpolicy"
)

// Options say how netd is run.
type Options struct {
	Executable *os.File                           // agentos-netd, opened with O_PATH; stays the caller's
	UID, GID   int                                // what netd runs as; not root's
	Resolv     string                             // path of the host's resolv.conf; default /etc/resolv.conf
	Hosts      string                             // path of the host's hosts file; default /etc/hosts
	Upstream   func() (netpolicy.Upstream, error) // how connections leave this host; nil dials. Asked again every few seconds
	Logger     *slog.Logger
}

// ErrGone is netd ending while it was asked something. It is started again; what
// holds for jails that were added does not change.
var ErrGone = errors.New("agentos-netd has ended")

// errRefused is an answer of netd that says no.
var errRefused = errors.New("agentos-netd refused")

const (
	answerTimeout = 10 * time.Second // for one request; netd answers at once
	backoffLeast  = 20 * time.Millisecond
	backoffMost   = 5 * time.Second
	filesAge      = 5 * time.Second // how often the files that netd is configured by are looked at
)

// Daemon keeps one netd for all jails of a helper. It is started by the first
// jail that wants it and started again whenever it ends, until Close.
type Daemon struct {
	opt Options

	mu      sync.Mutex
	jails   map[string]*served
	conn    *packet.Conn // nil while there is no netd that has all jails
	up      chan struct{}
	next    uint64
	pending map[uint64]chan netpolicy.Answer
	files   files // that netd was configured with
	way     *way  // how connections leave this host, as it was last known
	starts  int
	pid     int
	stop    context.CancelFunc // nil: not started
	stopped chan struct{}
}

// served is one jail. Its fields but sink do not change without Daemon.mu.
type served struct {
	id         string
	sockets    []int
	generation uint64
	rules      netpolicy.Rules
	limits     netpolicy.Limits
	refused    error                           // by the netd of now: it has no network
	leaving    bool                            // it is being removed
	open       map[uint64]netpolicy.Connection // at the netd of now, as it told
	queue      *queue
}

// NewDaemon touches nothing; netd starts with the first jail.
func NewDaemon(o Options) *Daemon {
	if o.Resolv == "" {
		o.Resolv = "/etc/resolv.conf"
	}
	if o.Hosts == "" {
		o.Hosts = "/etc/hosts"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Daemon{opt: o, jails: map[string]*served{}, up: make(chan struct{}), pending: map[uint64]chan netpolicy.Answer{}}
}

// Add has netd serve a jail at the sockets of n, which must stay open until
// [Daemon.Remove]. sink gets the jail's events, one at a time, from a goroutine
// that ends with Remove; it may block. The error is netd's refusal, or that
// there is none.
func (d *Daemon) Add(ctx context.Context, jail string, n *Net, rules netpolicy.Rules, limits netpolicy.Limits, sink func(netpolicy.Event)) error {
	v := &served{id: jail, sockets: n.Sockets(), generation: 1, rules: rules, limits: limits, open: map[uint64]netpolicy.Connection{}, queue: newQueue(jail, sink)}
	d.start()
	err := d.waitUp(ctx)
	var conn *packet.Conn
	if err == nil {
		d.mu.Lock()
		if d.jails[jail] != nil {
			err = errors.New("it is served already")
		} else {
			d.jails[jail] = v // from here on a new netd is given it, too
			conn = d.conn     // and the netd of now by us
		}
		d.mu.Unlock()
	}
	if err == nil {
		if err = d.tell(ctx, conn, netpolicy.VerbAdd, v.add(), nil, v.sockets...); errors.Is(err, ErrGone) {
			err = d.taken(ctx, v)
		}
		if err != nil {
			d.mu.Lock()
			v.leaving = true
			delete(d.jails, jail)
			d.mu.Unlock()
			_ = d.call(ctx, netpolicy.VerbRemove, netpolicy.Remove{Jail: jail}, nil) // if it was taken after all
		}
	}
	if err != nil {
		v.queue.close()
		return fmt.Errorf("serve network of %s: %w", jail, err)
	}
	return nil
}

// taken waits for the next netd and says whether it serves the jail.
func (d *Daemon) taken(ctx context.Context, v *served) error {
	if err := d.waitUp(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return v.refused
}

func (v *served) add() netpolicy.Add {
	return netpolicy.Add{Jail: v.id, Generation: v.generation, Rules: v.rules, Limits: v.limits}
}

func (v *served) set() netpolicy.Set {
	return netpolicy.Set{Jail: v.id, Generation: v.generation, Rules: v.rules}
}

// Set replaces the rules of a jail; what they no longer allow is cut. When it
// fails the rules that were there hold, also for the next netd.
func (d *Daemon) Set(ctx context.Context, jail string, rules netpolicy.Rules) error {
	if err := d.waitUp(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	v := d.jails[jail]
	if v == nil {
		d.mu.Unlock()
		return fmt.Errorf("change network of %s: it has none", jail)
	}
	old := v.rules
	v.rules = rules
	v.generation++
	set, conn := v.set(), d.conn
	d.mu.Unlock()
	err := d.tell(ctx, conn, netpolicy.VerbSet, set, nil)
	if errors.Is(err, ErrGone) { // the next one is started with them
		err = d.taken(ctx, v)
	}
	if err != nil {
		d.mu.Lock()
		v.rules = old // the number stays used: they only grow
		d.mu.Unlock()
		return fmt.Errorf("change network of %s: %w", jail, err)
	}
	return nil
}

// Remove cuts the jail's connections. When it returns sink has got its last
// event. A jail that is not served is no error.
func (d *Daemon) Remove(jail string) error {
	d.mu.Lock()
	v := d.jails[jail]
	if v == nil || v.leaving {
		d.mu.Unlock()
		return nil
	}
	v.leaving = true // no other netd is given it, or keeps it; its last events come before the answer
	conn := d.conn
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	err := d.tell(ctx, conn, netpolicy.VerbRemove, netpolicy.Remove{Jail: jail}, nil)
	d.mu.Lock()
	delete(d.jails, jail)
	d.mu.Unlock()
	v.queue.close()
	if err != nil && !errors.Is(err, ErrGone) { // gone with all connections
		return fmt.Errorf("end network of %s: %w", jail, err)
	}
	return nil
}

// Deny answers the question of an ask event: nobody allows it. It does not wait.
func (d *Daemon) Deny(jail string, ask uint64) {
	go func() { // ends within answerTimeout
		err := d.call(context.Background(), netpolicy.VerbDecide, netpolicy.Decide{Jail: jail, Ask: ask}, nil)
		if err != nil && !errors.Is(err, ErrGone) {
			d.opt.Logger.Warn("answer a question of agentos-netd", "jail", jail, "error", err)
		}
	}()
}

// Counters are the totals of a jail since the netd of now has it.
func (d *Daemon) Counters(ctx context.Context, jail string) (out netpolicy.Counters, err error) {
	err = d.call(ctx, netpolicy.VerbCounters, netpolicy.Of{Jail: jail}, &out)
	return out, err
}

// Connections lists the open connections of a jail.
func (d *Daemon) Connections(ctx context.Context, jail string) (all []netpolicy.Connection, err error) {
	for after := uint64(0); ; {
		var page netpolicy.Connections
		if err := d.call(ctx, netpolicy.VerbConnections, netpolicy.Of{Jail: jail, After: after}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Connections...)
		if !page.More || len(page.Connections) == 0 {
			return all, nil
		}
		after = page.Connections[len(page.Connections)-1].ID
	}
}

// Pid is that of the netd of now on this machine, 0 for none, and how often one
// was started.
func (d *Daemon) Pid() (pid, starts int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pid, d.starts
}

// Close ends netd. Jails that were not removed have no network any more.
func (d *Daemon) Close() error {
	d.mu.Lock()
	stop, stopped := d.stop, d.stopped
	d.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop()
	<-stopped
	return nil
}

// start begins to keep a netd, once.
func (d *Daemon) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stop, d.stopped = cancel, make(chan struct{})
	go d.keep(ctx)
}

// waitUp waits for a netd that has all jails.
func (d *Daemon) waitUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	d.mu.Lock()
	up := d.up
	d.mu.Unlock()
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for agentos-netd: %w", ctx.Err())
	}
}

// call asks the netd of now. body nil: the reply has none.
func (d *Daemon) call(ctx context.Context, verb netpolicy.Verb, ask, body any, fds ...int) error {
	d.mu.Lock()
	conn := d.conn
	d.mu.Unlock()
	return d.tell(ctx, conn, verb, ask, body, fds...)
}

// tell asks the netd at conn, nil if there was none. After [ErrGone] it is not the netd of
// now any more: who waits then waits for the next.
func (d *Daemon) tell(ctx context.Context, conn *packet.Conn, verb netpolicy.Verb, ask, body any, fds ...int) error {
	if conn == nil {
		return ErrGone
	}
	err := d.ask(ctx, conn, verb, ask, body, fds...)
	if errors.Is(err, ErrGone) {
		d.down(conn)
	}
	return err
}

func (d *Daemon) ask(ctx context.Context, conn *packet.Conn, verb netpolicy.Verb, ask, body any, fds ...int) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	got := make(chan netpolicy.Answer, 1)
	d.mu.Lock()
	d.next++
	id := d.next
	d.pending[id] = got
	err := netpolicy.Send(conn, verb, id, ask, fds...) // locked: requests arrive in the order of their numbers
	d.mu.Unlock()
	if err != nil {
		d.mu.Lock()
		delete(d.pending, id)
		d.mu.Unlock()
		if errors.Is(err, packet.ErrTooLarge) || errors.Is(err, netpolicy.ErrProtocol) {
			return err // it was not sent
		}
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	select {
	case a, ok := <-got:
		switch {
		case !ok:
			return ErrGone
		case a.Error != "":
			return fmt.Errorf("%w: %s", errRefused, a.Error)
		case body != nil:
			return netpolicy.Decode(a.Body, body)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("agentos-netd does not answer %s: %w", verb, ctx.Err())
	}
}
