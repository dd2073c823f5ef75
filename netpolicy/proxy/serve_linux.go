package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/netpolicy/address"
	"github.com/agentos/agentos/netpolicy/ledger"
	"github.com/agentos/agentos/netpolicy/relay"
	"github.com/agentos/agentos/netpolicy/ruleset"
	"github.com/agentos/agentos/netpolicy/synthetic"
	"github.com/agentos/agentos/netpolicy/upstream"
)

const (
	dialTime  = 30 * time.Second // resolving and dialling together
	firstTime = 15 * time.Second // from a client's first byte to the end of its ClientHello or head
	dnsPort   = 53
)

// errDenied is a refusal by rules or checks, not by the network.
var errDenied = errors.New("denied")

// Proxy is what the connections of all jails share.
type Proxy struct {
	Routes *address.Routes
	DNS    func(context.Context, *ledger.Jail, *net.TCPConn) // takes connections to port 53
}

// Listen takes over f, a listening stream socket made in a jail's network namespace; f is closed.
func Listen(f *os.File) (*net.TCPListener, error) {
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("use listener: %w", err)
	}
	t, ok := l.(*net.TCPListener)
	if !ok {
		_ = l.Close()
		return nil, errors.New("not a TCP listener")
	}
	return t, nil
}

// Serve serves j's connections from l until l is closed, and returns when the last one
// has ended: cancel ctx and cut them to make it soon.
func (p *Proxy) Serve(ctx context.Context, j *ledger.Jail, l *net.TCPListener) {
	var open sync.WaitGroup
	defer open.Wait()
	for {
		c, err := l.AcceptTCP()
		switch {
		case err == nil:
			open.Go(func() { p.serve(ctx, j, c) })
		case errors.Is(err, net.ErrClosed) || ctx.Err() != nil:
			return
		default: // out of descriptors or memory: others end
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// visit is one connection on its way.
type visit struct {
	*Proxy
	jail   *ledger.Jail
	client *net.TCPConn
	conn   netpolicy.Connection
	dest   ruleset.Dest
	dec    ruleset.Decision
	gen    uint64
	entry  *ledger.Entry
}

func (p *Proxy) serve(ctx context.Context, j *ledger.Jail, c *net.TCPConn) {
	v := &visit{Proxy: p, jail: j, client: c}
	v.conn.Client = addrPort(c.RemoteAddr())
	v.conn.Asked = addrPort(c.LocalAddr())
	if v.conn.Asked.Port() == dnsPort {
		if v.entry = j.Open(v.conn, v.dest, c); v.entry == nil {
			relay.Reset(c)
			return
		}
		defer v.entry.Close()
		p.DNS(ctx, j, c)
		return
	}
	if err := v.admit(ctx); err != nil {
		v.deny(err)
		return
	}
	defer v.entry.Close()
	if err := v.pass(ctx); err != nil {
		v.deny(err)
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}

// admit decides by what was connected to.
func (v *visit) admit(ctx context.Context) error {
	a := v.conn.Asked.Addr()
	if synthetic.Is(a) {
		v.conn.Name = v.jail.Names.Name(a, time.Now())
		if v.conn.Name == "" {
			return fmt.Errorf("%w: %s stands for no name: it has to be asked for again", errDenied, a)
		}
		v.dest = ruleset.Dest{Name: v.conn.Name}
	} else {
		v.dest = ruleset.Dest{Addr: a}
	}
	v.decide()
	if set, _ := v.jail.Rules(); !v.dec.Allowed && v.dec.Rule == "" && set.Ask() {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		v.jail.Await(ctx, v.conn)
		cancel()
		v.decide()
	}
	if !v.dec.Allowed {
		return fmt.Errorf("%w: %s", errDenied, v.dec.Why)
	}
	if v.entry = v.jail.Open(v.conn, v.dest, v.client); v.entry == nil {
		return fmt.Errorf("%w: the jail has %d connections already", errDenied, v.jail.Limits.Connections)
	}
	return nil
}

func (v *visit) decide() {
	set, generation := v.jail.Rules()
	v.dec, v.gen = set.Connect(v.dest, v.conn.Asked.Port()), generation
	v.conn.Rule = v.dec.Rule
}

// deny resets the client's connection and says why.
func (v *visit) deny(err error) {
	relay.Reset(v.client)
	e := netpolicy.Event{Kind: netpolicy.Failed, Generation: v.gen, Connection: v.conn, Why: err.Error()}
	if errors.Is(err, errDenied) {
		e.Kind = netpolicy.Denied
		v.jail.Count.Denied.Add(1)
	} else {
		v.jail.Count.Failed.Add(1)
	}
	v.jail.Mention(e)
}

// dialled is what became of dialling.
type dialled struct {
	conn  *net.TCPConn
	to    netip.AddrPort
	check ledger.Check // nil where no address was checked: the machine outside, and what the host's proxy dials
	err   error
}

// pass dials, looks at what is said first, and relays until the end. An error
// means that nothing of the client's went out.
func (v *visit) pass(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	dial := make(chan dialled, 1)
	go func() {
		dial <- v.dial(ctx)
	}()
	f := newFirst(v.client, v.looks())
	d, err := f.meet(ctx, dial, v)
	if err != nil {
		if d.conn != nil {
			relay.Reset(d.conn)
		}
		return err
	}
	defer d.conn.Close()
	v.conn.Dialled = d.to
	if !v.entry.Dialled(d.conn, v.conn, &v.dec, d.check) {
		relay.Reset(d.conn)
		return fmt.Errorf("%w: the rules changed meanwhile", errDenied)
	}
	cancel()
	v.jail.Count.Opened.Add(1)
	v.jail.Tell(netpolicy.Event{Kind: netpolicy.Opened, Generation: v.gen, Connection: v.entry.Connection()})
	if err := v.relay(f, d.conn); err != nil {
		relay.Reset(v.client)
		relay.Reset(d.conn)
	} else {
		_ = v.client.Close()
	}
	e := netpolicy.Event{Kind: netpolicy.Closed, Generation: v.gen, Connection: v.entry.Connection(), Why: v.entry.Why()}
	if v.entry.Spent() {
		e.Kind = netpolicy.Cut
	}
	v.jail.Tell(e)
	return nil
}

// looks says whether the first bytes are looked at.
func (v *visit) looks() bool {
	named := v.dest.Name != "" && !v.dest.IsHost()
	return !v.dec.Opaque() && (named || v.dec.Limited())
}

// dial resolves, checks and dials; what it dials is what it checked.
func (v *visit) dial(ctx context.Context) (d dialled) {
	port := v.conn.Asked.Port()
	if v.dest.IsHost() {
		d.conn, d.to, d.err = upstream.Dial(ctx, []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, port)
		return d
	}
	c := v.jail.Config()
	if c.Proxied(v.dest.Name, v.dest.Addr) && (v.dest.Name != "" || address.Of(v.dest.Addr) == address.Public) {
		host := v.dest.Name
		if host == "" {
			host = v.dest.Addr.String()
		}
		d.conn, d.to, d.err = v.jail.Lookup.DialProxy(ctx, c, host, port)
		return d
	}
	addrs := []netip.Addr{v.dest.Addr}
	if v.dest.Name != "" {
		if addrs, d.err = v.jail.Lookup.Addresses(ctx, c, v.dest.Name); d.err != nil {
			return d
		}
	}
	if addrs, d.err = v.check(addrs, port); d.err != nil {
		return d
	}
	if d.conn, d.to, d.err = upstream.Dial(ctx, addrs, port); d.err == nil {
		d.check = func(set *ruleset.Set, dec *ruleset.Decision) bool { return v.may(set, dec, d.to.Addr(), port) == nil }
	}
	return d
}

// may says whether rules permit a as what the destination is.
func (v *visit) may(set *ruleset.Set, dec *ruleset.Decision, a netip.Addr, port uint16) error {
	own, err := v.Routes.Own(a)
	if err != nil {
		return err
	}
	return set.Address(v.dest, dec, a, port, own)
}

// check returns the addresses that may be dialled, or why there is none.
func (v *visit) check(addrs []netip.Addr, port uint16) ([]netip.Addr, error) {
	set, _ := v.jail.Rules()
	var good []netip.Addr
	var bad error
	for _, a := range addrs {
		if err := v.may(set, &v.dec, a, port); err != nil {
			bad = err
			continue
		}
		good = append(good, a)
	}
	if len(good) == 0 {
		return nil, fmt.Errorf("%w: %w", errDenied, bad)
	}
	return good, nil
}
