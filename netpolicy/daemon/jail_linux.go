package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/netpolicy/ledger"
	"github.com/agentos/agentos/netpolicy/proxy"
	"github.com/agentos/agentos/netpolicy/resolver"
)

// jail is a jail that is served.
type jail struct {
	*ledger.Jail
	sockets []io.Closer
	stop    context.CancelFunc
	done    sync.WaitGroup
}

const maxID = 64

// add starts to serve a jail at the sockets of fds, which it takes over one by one.
func (d *daemon) add(a netpolicy.Add, fds []*os.File) error {
	switch {
	case a.Jail == "" || len(a.Jail) > maxID:
		return fmt.Errorf("%w: id of %d bytes", netpolicy.ErrProtocol, len(a.Jail))
	case len(fds) != netpolicy.Sockets:
		return fmt.Errorf("%w: %d sockets, want %d", netpolicy.ErrProtocol, len(fds), netpolicy.Sockets)
	case d.jails[a.Jail] != nil:
		return errors.New("the jail is served already")
	case d.config.Load() == nil:
		return errors.New("not configured yet")
	}
	l, err := ledger.New(a, d.emit, d.config.Load)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	j := &jail{Jail: l, stop: stop}
	var serve []func()
	for i, f := range fds {
		switch i {
		case netpolicy.Listener4, netpolicy.Listener6:
			s, err := proxy.Listen(f)
			if err != nil {
				j.close()
				return fmt.Errorf("socket %d: %w", i, err)
			}
			j.sockets = append(j.sockets, s)
			serve = append(serve, func() { d.proxy.Serve(ctx, l, s) })
		case netpolicy.Datagram4, netpolicy.Datagram6:
			s, err := resolver.Open(f)
			if err != nil {
				j.close()
				return fmt.Errorf("socket %d: %w", i, err)
			}
			j.sockets = append(j.sockets, s)
			serve = append(serve, func() { s.Serve(ctx, l) })
		}
	}
	for _, f := range serve {
		j.done.Go(f)
	}
	j.done.Go(func() { sweep(ctx, l) })
	d.jails[a.Jail] = j
	return nil
}

// sweep cuts connections that are idle.
func sweep(ctx context.Context, l *ledger.Jail) {
	t := time.NewTicker(max(l.Limits.Idle/8, 100*time.Millisecond))
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			l.CutIdle(now.Add(-l.Limits.Idle))
		case <-ctx.Done():
			return
		}
	}
}

// close cuts everything and waits until it has been told.
func (j *jail) close() {
	j.stop()
	for _, s := range j.sockets {
		_ = s.Close()
	}
	done := make(chan struct{})
	go func() { j.done.Wait(); close(done) }()
	for { // a connection may be accepted until the listener's Accept has returned
		j.CutAll("the jail has ended")
		select {
		case <-done:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
