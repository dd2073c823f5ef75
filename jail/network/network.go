package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail/reach"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/jail/steer"
	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/policy"
)

// Kernel is what is needed of [hook.Hook].
type Kernel interface {
	// Reach says where connections of a jail get as far as netd.
	Reach(jail uint32, prefixes []netip.Prefix) error
	// Owner names in e the process whose end of a connection client is.
	Owner(jail uint32, client, to netip.AddrPort, e *event.Event)
}

// Options are what a jail's network is made of.
type Options struct {
	ID      string // of the session
	Name    string
	Number  uint32 // of the jail in the kernel's maps
	Pid     int    // of its init
	Netd    *steer.Daemon
	Kernel  Kernel
	CatchUp func()            // reads what the kernel has told of the jail so far, so that Owner knows it
	Record  func(event.Event) // may wait
	// Bound says what of the organisation's policy, as it is now, refuses to let entry be granted; "" for nothing.
	Bound  func(entry string) (by string, err error)
	Logger *slog.Logger
}

// Network is the network of one jail. It may be used by many goroutines.
type Network struct {
	o       Options
	net     *steer.Net
	traffic steer.Traffic
	ended   chan struct{}
	work    sync.WaitGroup

	changing sync.Mutex // held while rules change; never while an event is taken
	closed   bool       // changing is held
	last     int        // id of the last grant; changing is held
	expiring bool       // somebody sees to the end of grants; changing is held

	mu     sync.Mutex
	res    *policy.Resolved // that netd has, with grants
	grants []reach.Grant    // replaced as a whole
}

// Open gives a jail its network. Until it returns the kernel refuses what is not to its loopback.
//
// Preconditions: root; nothing but init runs in the jail; [reach.Wanted].
func Open(ctx context.Context, res *policy.Resolved, o Options) (*Network, error) {
	rules, err := reach.Rules(res)
	if err != nil {
		return nil, unserved(err)
	}
	n := &Network{o: o, res: res, ended: make(chan struct{})}
	if n.net, err = steer.Open(o.Pid); err != nil {
		return nil, err
	}
	if err = o.Netd.Add(ctx, o.ID, n.net, rules, netpolicy.Limits{}, n.told); err != nil {
		return nil, errors.Join(err, n.net.Close())
	}
	if err = o.Kernel.Reach(o.Number, steer.Prefixes(rules)); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Close cuts all connections. When it returns, the last event has been taken. Idempotent.
func (n *Network) Close() error {
	n.changing.Lock()
	if n.closed {
		n.changing.Unlock()
		return nil
	}
	n.closed = true
	close(n.ended)
	n.changing.Unlock()
	n.work.Wait()
	return errors.Join(n.o.Netd.Remove(n.o.ID), n.net.Close())
}

// unserved says what to do about an entry that netd does not carry.
func unserved(err error) error {
	if errors.Is(err, reach.ErrUnserved) {
		return &rpc.Error{Code: rpc.Unsupported, Text: err.Error(), Hint: "take it out of [net]"}
	}
	return err
}

// now are the policy and the grants that hold.
func (n *Network) now() (*policy.Resolved, []reach.Grant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.res, n.grants
}

// Set puts the rules of another policy in the place of those that hold; grants stay. What it does not allow is
// cut when it returns. An error leaves what was.
func (n *Network) Set(res *policy.Resolved) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	_, grants := n.now()
	return n.set(res, grants)
}

// set changes both. What either of both lets be reached gets as far as netd meanwhile, which judges it; rules that netd
// refuses change nothing, there or in the kernel. n.changing is held.
func (n *Network) set(res *policy.Resolved, grants []reach.Grant) error {
	if n.closed {
		return n.gone()
	}
	before, had := n.now()
	old, err := reach.Rules(before, had...)
	if err != nil {
		return err
	}
	rules, err := reach.Rules(res, grants...)
	if err != nil {
		return unserved(err)
	}
	k := n.o.Kernel
	if err := k.Reach(n.o.Number, append(steer.Prefixes(old), steer.Prefixes(rules)...)); err != nil {
		return err
	}
	if err := n.o.Netd.Set(context.Background(), n.o.ID, rules); err != nil {
		return errors.Join(err, k.Reach(n.o.Number, steer.Prefixes(old)))
	}
	n.mu.Lock()
	n.res, n.grants = res, grants
	n.mu.Unlock()
	return k.Reach(n.o.Number, steer.Prefixes(rules))
}

func (n *Network) gone() error {
	return &rpc.Error{Code: rpc.NotFound, Text: fmt.Sprintf("session %q is not running", n.o.Name)}
}

// told takes one event of netd into the record, with the process that it is about.
func (n *Network) told(e netpolicy.Event) {
	out := steer.Record(e)
	client, to, ok := steer.Client(e)
	if ok {
		n.o.CatchUp()
		n.o.Kernel.Owner(n.o.Number, client, to, &out)
	}
	_, starts := n.o.Netd.Pid()
	n.traffic.Note(e, starts, steer.Owner{Pid: int(out.Pid), Exe: out.Exe, Comm: out.Comm})
	n.o.Record(out)
	if e.Kind == netpolicy.Ask { // nobody is there to be asked: it is denied
		n.o.Netd.Deny(n.o.ID, e.Ask)
	}
}
