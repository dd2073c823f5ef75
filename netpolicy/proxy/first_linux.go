package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/netpolicy/name"
	"github.com/agentos/agentos/netpolicy/relay"
	"github.com/agentos/agentos/netpolicy/sniff"
)

// first is what a client says first.
type first struct {
	client *net.TCPConn
	looks  bool
	kind   sniff.Kind
	buf    []byte        // what was read and is not sent
	req    sniff.Request // of HTTP
	ended  bool          // the client has ended its writing
	enough atomic.Bool   // the server has spoken: a silent client is not waited for
}

func newFirst(c *net.TCPConn, looks bool) *first {
	return &first{client: c, looks: looks, kind: sniff.Other}
}

// past is a deadline that makes a read return now.
var past = time.Unix(1, 0)

// meet waits until the destination is dialled and, where the first bytes are
// looked at, until the client or the server has said enough.
func (f *first) meet(ctx context.Context, dial <-chan dialled, v *visit) (dialled, error) {
	if !f.looks {
		d := <-dial
		return d, d.err
	}
	heard := make(chan error, 1)
	go func() { heard <- f.listen(v) }()
	var d dialled
	select {
	case d = <-dial:
	case err := <-heard:
		if err != nil {
			go discard(dial) // ends when dialling does
			return dialled{}, err
		}
		d = <-dial
		return d, d.err
	}
	if d.err != nil {
		relay.Reset(f.client) // ends listen
		<-heard
		return d, d.err
	}
	if v.strict() {
		return d, <-heard
	}
	spoke := make(chan struct{})
	go func() { peek(d.conn); close(spoke) }()
	var err error
	select {
	case err = <-heard:
		_ = d.conn.SetReadDeadline(past)
		<-spoke
	case <-spoke: // the server first: a client that has begun to speak is looked at all the same
		f.enough.Store(true)
		_ = f.client.SetReadDeadline(past)
		if err = <-heard; errors.Is(err, errSilent) {
			err = nil
		}
	}
	return d, errors.Join(err, d.conn.SetReadDeadline(time.Time{}), f.client.SetReadDeadline(time.Time{}))
}

func discard(dial <-chan dialled) {
	if d := <-dial; d.conn != nil {
		_ = d.conn.Close()
	}
}

// peek waits until c has something to read, or has ended.
func peek(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(ready)
}

// has says whether c has something to read, or has ended. A read whose
// deadline is past fails before it looks.
func has(c *net.TCPConn) (yes bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { yes = ready(fd) })
	return yes
}

func ready(fd uintptr) bool {
	var b [1]byte
	_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return !errors.Is(err, unix.EAGAIN)
}

// errSilent: the client was to be heard no longer, and had said nothing.
var errSilent = errors.New("nothing was said")

// listen reads until the kind of the connection is known, and checks it.
func (f *first) listen(v *visit) error {
	defer func() { _ = f.client.SetReadDeadline(time.Time{}) }()
	for {
		err := f.more()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			f.ended = true
		case errors.Is(err, os.ErrDeadlineExceeded) && len(f.buf) == 0 && !has(f.client):
			return errSilent
		case errors.Is(err, os.ErrDeadlineExceeded) && f.enough.CompareAndSwap(true, false):
			if err := f.client.SetReadDeadline(time.Now().Add(firstTime)); err != nil {
				return err
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("%w: the client did not say in time whom it wants", errDenied)
		default:
			return fmt.Errorf("read from the client: %w", err)
		}
		if f.ended && len(f.buf) == 0 {
			f.kind = sniff.Other
			return nil // it went away, or only listens
		}
		if f.kind = sniff.Begins(f.buf); f.kind == sniff.Unknown && f.ended {
			f.kind = sniff.Other
		}
		if err := f.judge(v); !errors.Is(err, sniff.ErrShort) {
			return err
		}
		if f.ended {
			return fmt.Errorf("%w: it ended before it said whom it wants", errDenied)
		}
	}
}

// more reads what is there.
func (f *first) more() error {
	if len(f.buf) == cap(f.buf) {
		f.buf = append(make([]byte, 0, max(2048, 2*cap(f.buf))), f.buf...)
	}
	n, err := f.client.Read(f.buf[len(f.buf):cap(f.buf)])
	if n > 0 && len(f.buf) == 0 {
		if err := f.client.SetReadDeadline(time.Now().Add(firstTime)); err != nil {
			return err
		}
	}
	f.buf = f.buf[:len(f.buf)+n]
	return err
}

// judge returns [sniff.ErrShort] while more has to be read.
func (f *first) judge(v *visit) error {
	switch f.kind {
	case sniff.Unknown:
		return sniff.ErrShort
	case sniff.TLS:
		h, err := sniff.ReadHello(f.buf)
		if errors.Is(err, sniff.ErrShort) {
			return err
		}
		if err == nil {
			err = v.hello(h)
		}
		return denied(err)
	case sniff.HTTP:
		var err error
		if f.req, err = sniff.ReadRequest(f.buf); errors.Is(err, sniff.ErrShort) {
			return err
		}
		if err == nil {
			err = v.request(&f.req)
		}
		return denied(err)
	case sniff.Hidden:
		return fmt.Errorf("%w: what it begins with would hide whom it wants", errDenied)
	}
	if v.strict() {
		return fmt.Errorf("%w: neither TLS nor HTTP/1", errDenied)
	}
	return nil
}

func denied(err error) error {
	if err == nil || errors.Is(err, errDenied) {
		return err
	}
	return fmt.Errorf("%w: %w", errDenied, err)
}

// strict says whether the connection may only speak TLS or HTTP/1.
func (v *visit) strict() bool {
	p := v.conn.Asked.Port()
	return p == 80 || p == 443 || v.dec.Limited()
}

// hello checks what a ClientHello asks for.
func (v *visit) hello(h sniff.Hello) error {
	if v.dec.Limited() {
		return errors.New("a rule names methods or paths, which cannot be seen inside TLS")
	}
	if h.Name == "" {
		return errors.New("the TLS ClientHello names no server")
	}
	if n, err := name.Normal(h.Name); err != nil || n != v.conn.Name {
		return fmt.Errorf("the TLS ClientHello asks for %.253q", h.Name)
	}
	return nil
}

// request checks one HTTP request.
func (v *visit) request(r *sniff.Request) error {
	if v.conn.Name != "" && !v.dest.IsHost() {
		if n, err := name.Normal(r.Host); err != nil || n != v.conn.Name {
			return fmt.Errorf("an HTTP request names the host %.253q", r.Host)
		}
		if p := v.conn.Asked.Port(); r.Port != 0 && r.Port != p {
			return fmt.Errorf("an HTTP request names port %d", r.Port)
		}
	}
	if !v.dec.Request(r.Method, r.Path) {
		return fmt.Errorf("no rule allows %s %.200q", r.Method, r.Path)
	}
	return nil
}
