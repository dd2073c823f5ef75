package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/netpolicy/address"
	"github.com/agentos/agentos/netpolicy/proxy"
	"github.com/agentos/agentos/netpolicy/resolver"
	"github.com/agentos/agentos/netpolicy/upstream"
)

// queued is how many answers and events wait for the helper; then their makers wait.
const queued = 1024

// daemon is one conversation. Its jails belong to the goroutine of Run.
type daemon struct {
	conn   *packet.Conn
	proxy  *proxy.Proxy
	config atomic.Pointer[upstream.Config]
	out    chan netpolicy.Answer
	gone   context.Context // done when nothing can be sent any more
	jails  map[string]*jail
	hello  bool
}

// Run serves until the helper closes conn, which is nil, or breaks the protocol. It
// closes conn. Everything that was opened is closed when it returns.
func Run(conn *packet.Conn) error {
	routes, err := address.OpenRoutes()
	if err != nil {
		_ = conn.Close()
		return err
	}
	defer routes.Close()
	gone, cancel := context.WithCancel(context.Background())
	d := &daemon{
		conn: conn, proxy: &proxy.Proxy{Routes: routes, DNS: resolver.ServeTCP},
		out: make(chan netpolicy.Answer, queued), gone: gone, jails: map[string]*jail{},
	}
	var writer sync.WaitGroup
	writer.Go(func() { d.write(cancel) })
	err = d.read()
	cancel() // events have nobody to go to: whoever waits with one goes on
	for _, j := range d.jails {
		j.close()
	}
	_ = conn.Close()
	close(d.out)
	writer.Wait()
	return err
}

// write sends what comes, until the end of out or of the helper.
func (d *daemon) write(gone context.CancelFunc) {
	failed := false
	for a := range d.out {
		if failed {
			continue // makers must not wait
		}
		err := d.conn.Send(a)
		if errors.Is(err, packet.ErrTooLarge) && a.ID != 0 {
			err = d.conn.Send(netpolicy.Answer{ID: a.ID, Error: "the answer is too large"})
		}
		if err != nil {
			failed = true
			gone()
			_ = d.conn.Close() // ends read
		}
	}
}

// emit sends an event; it waits while too many wait.
func (d *daemon) emit(e netpolicy.Event) {
	select {
	case d.out <- netpolicy.Answer{Event: &e}:
	case <-d.gone.Done():
	}
}

func (d *daemon) read() error {
	for {
		q, fds, err := netpolicy.Receive(d.conn)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return err
		}
		if q.ID == 0 || (q.Verb == netpolicy.VerbHello) == d.hello {
			packet.CloseAll(fds)
			return fmt.Errorf("%w: %s with id %d", netpolicy.ErrProtocol, q.Verb, q.ID)
		}
		a := netpolicy.Answer{ID: q.ID}
		body, err := d.do(q, fds)
		if err == nil && body != nil {
			a.Body, err = json.Marshal(body)
		}
		if err != nil {
			a.Error = err.Error()
		}
		select {
		case d.out <- a:
		case <-d.gone.Done():
			return nil
		}
		if !d.hello {
			return err // the greeting was refused
		}
	}
}

// do carries out one request. It owns fds.
func (d *daemon) do(q netpolicy.Request, fds []*os.File) (any, error) {
	if q.Verb != netpolicy.VerbAdd && len(fds) > 0 {
		packet.CloseAll(fds)
		return nil, fmt.Errorf("%w: %s with descriptors", netpolicy.ErrProtocol, q.Verb)
	}
	switch q.Verb {
	case netpolicy.VerbHello:
		return with(q, d.greet)
	case netpolicy.VerbConfigure:
		return with(q, d.configure)
	case netpolicy.VerbAdd:
		body, err := with(q, func(a netpolicy.Add) (any, error) { return nil, d.add(a, fds) })
		packet.CloseAll(fds) // those that were taken over are closed already
		return body, err
	case netpolicy.VerbSet:
		return with(q, func(s netpolicy.Set) (any, error) {
			return nil, d.about(s.Jail, func(j *jail) error { return j.Set(s.Generation, s.Rules) })
		})
	case netpolicy.VerbRemove:
		return with(q, func(r netpolicy.Remove) (any, error) {
			return nil, d.about(r.Jail, func(j *jail) error { j.close(); delete(d.jails, r.Jail); return nil })
		})
	case netpolicy.VerbCounters:
		return with(q, func(o netpolicy.Of) (out any, err error) {
			err = d.about(o.Jail, func(j *jail) error { out = j.Counters(); return nil })
			return out, err
		})
	case netpolicy.VerbConnections:
		return with(q, func(o netpolicy.Of) (out any, err error) {
			err = d.about(o.Jail, func(j *jail) error { out = j.Connections(o.After); return nil })
			return out, err
		})
	case netpolicy.VerbDecide:
		return with(q, func(a netpolicy.Decide) (any, error) {
			return nil, d.about(a.Jail, func(j *jail) error { return j.Decide(a.Ask) })
		})
	}
	return nil, fmt.Errorf("%w: verb %.40q", netpolicy.ErrProtocol, q.Verb)
}

// with decodes the body of q for do.
func with[T any](q netpolicy.Request, do func(T) (any, error)) (any, error) {
	var body T
	if err := netpolicy.Decode(q.Body, &body); err != nil {
		return nil, err
	}
	return do(body)
}

func (d *daemon) about(id string, do func(*jail) error) error {
	j := d.jails[id]
	if j == nil {
		return fmt.Errorf("jail %.64q is not served", id)
	}
	return do(j)
}

func (d *daemon) greet(h netpolicy.Hello) (any, error) {
	ours := netpolicy.Hello{Protocol: netpolicy.Protocol, Build: packet.Build()}
	if h != ours {
		return nil, fmt.Errorf("%w: this is protocol %d of build %s", netpolicy.ErrProtocol, ours.Protocol, ours.Build)
	}
	d.hello = true
	return ours, nil
}

func (d *daemon) configure(c netpolicy.Configure) (any, error) {
	parsed, err := upstream.Parse(c)
	if err != nil {
		return nil, err
	}
	d.config.Store(parsed)
	return nil, nil
}
