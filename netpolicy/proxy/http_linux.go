package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/netpolicy/relay"
	"github.com/agentos/agentos/netpolicy/sniff"
)

// relay moves all that follows. An error means that the connection is reset.
func (v *visit) relay(f *first, up *net.TCPConn) error {
	if f.kind == sniff.HTTP && f.looks {
		return (&requests{visit: v, up: up, buf: f.buf, ended: f.ended}).relay(f.req)
	}
	if err := v.send(up, f.buf); err != nil {
		return err
	}
	f.buf = nil // the connection may last
	return relay.Both(v.client, up, v.entry.Sent, v.entry.Received)
}

func (v *visit) send(up *net.TCPConn, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if !v.entry.Sent(len(b)) {
		return relay.ErrCut
	}
	_, err := up.Write(b)
	return err
}

// requests is the client's side of an HTTP/1 connection.
type requests struct {
	*visit
	up    *net.TCPConn
	buf   []byte // read from the client, not sent
	ended bool   // the client has ended its writing
}

// relay sends requests on, each after its check, while answers go back unread.
func (r *requests) relay(first sniff.Request) error {
	if first.Upgrade {
		return r.upgrade(first)
	}
	answers := make(chan error, 1)
	go func() { answers <- relay.One(r.client, r.up, r.entry.Received) }()
	err := r.all(first)
	if err != nil {
		relay.Reset(r.client)
		relay.Reset(r.up)
		<-answers
		return err
	}
	return <-answers
}

// all sends the first request, which was checked, and those that follow it.
func (r *requests) all(req sniff.Request) error {
	for {
		if err := r.one(&req); err != nil {
			return err
		}
		if req.Close {
			return r.last()
		}
		var err error
		if req, err = r.next(); err != nil {
			if errors.Is(err, io.EOF) && len(r.buf) == 0 {
				return r.up.CloseWrite()
			}
			if errors.Is(err, errDenied) {
				r.jail.Count.Denied.Add(1)
				r.jail.Mention(netpolicy.Event{Kind: netpolicy.Denied, Generation: r.gen, Connection: r.entry.Connection(), Why: err.Error()})
			}
			return err
		}
	}
}

// next reads and checks the next head.
func (r *requests) next() (sniff.Request, error) {
	for {
		req, err := sniff.ReadRequest(r.buf)
		switch {
		case err == nil && req.Upgrade:
			return req, fmt.Errorf("%w: an upgrade has to be the first request", errDenied)
		case err == nil:
			return req, denied(r.request(&req))
		case !errors.Is(err, sniff.ErrShort):
			return req, denied(err)
		}
		if err := r.more(); err != nil {
			return req, err
		}
	}
}

// more reads what the client has sent.
func (r *requests) more() error {
	if r.ended {
		return io.EOF
	}
	if len(r.buf) == 0 { // nothing is kept while the client thinks
		r.buf = nil
		peek(r.client)
	}
	if len(r.buf) == cap(r.buf) {
		r.buf = append(make([]byte, 0, max(2048, 2*cap(r.buf))), r.buf...)
	}
	n, err := r.client.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	if n == 0 && errors.Is(err, io.EOF) {
		r.ended = true
	}
	return err
}

// take sends n bytes of what was read.
func (r *requests) take(n int) error {
	if err := r.send(r.up, r.buf[:n]); err != nil {
		return err
	}
	r.buf = r.buf[n:]
	return nil
}

// one sends a request, head and body.
func (r *requests) one(req *sniff.Request) error {
	if err := r.take(req.Size); err != nil {
		return err
	}
	if req.Length >= 0 {
		here := min(req.Length, int64(len(r.buf)))
		if err := r.take(int(here)); err != nil {
			return err
		}
		if rest := req.Length - here; rest > 0 {
			if r.ended {
				return io.ErrUnexpectedEOF
			}
			return relay.N(r.up, r.client, rest, r.entry.Sent)
		}
		return nil
	}
	var c sniff.Chunked
	for {
		n, end, err := c.Next(r.buf)
		if err != nil {
			return denied(err)
		}
		if err := r.take(n); err != nil || end {
			return err
		}
		if err := r.more(); err != nil {
			return err
		}
	}
}

// last waits until the client, which is to send nothing more, ends.
func (r *requests) last() error {
	if len(r.buf) == 0 && !r.ended {
		peek(r.client)
		if err := r.more(); err != nil && !errors.Is(err, io.EOF) {
			return nil // the server's end closed both, in order
		}
	}
	if len(r.buf) > 0 {
		return fmt.Errorf("%w: bytes after the last request", errDenied)
	}
	return nil
}

// upgrade sends a request for a WebSocket, and what follows only when the
// server has agreed.
func (r *requests) upgrade(req sniff.Request) error {
	if len(r.buf) > req.Size {
		return fmt.Errorf("%w: bytes after a request to upgrade", errDenied)
	}
	if err := r.take(req.Size); err != nil {
		return err
	}
	const agreed = "HTTP/1.1 101 "
	b := make([]byte, len(agreed))
	if err := r.up.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	n, err := io.ReadFull(r.up, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if err := r.up.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if !r.entry.Received(n) {
		return relay.ErrCut
	}
	if _, err := r.client.Write(b[:n]); err != nil {
		return err
	}
	if string(b[:n]) == agreed {
		return relay.Both(r.client, r.up, r.entry.Sent, r.entry.Received)
	}
	if err := r.up.CloseWrite(); err != nil { // no other request
		return err
	}
	return relay.One(r.client, r.up, r.entry.Received)
}
