package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/agentos/agentos/jail/packet"
)

// Client is the user's end of the gate. Its methods may be called by many
// goroutines.
type Client struct {
	conn *packet.Conn

	greeting sync.Mutex
	hello    *request // nil once it was answered
	refused  error    // what that said

	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan answer
	err     error // why the conversation ended; set once
	done    chan struct{}
}

type answer struct {
	reply Reply
	fds   []*os.File
}

// request is one that was sent.
type request struct {
	c  *Client
	id uint64
	ch chan answer
}

// Dial connects to the helper's socket at path and says hello.
func Dial(path, build string) (*Client, error) {
	conn, err := packet.Dial(path)
	if err != nil {
		return nil, err
	}
	return NewClient(conn, build)
}

// NewClient says hello on conn and takes ownership of it. It does not wait for
// the helper's: that is the first error of every later call, and [Client.Greet]
// waits for it.
func NewClient(conn *packet.Conn, build string) (*Client, error) {
	c := &Client{conn: conn, pending: map[uint64]chan answer{}, done: make(chan struct{})}
	go c.read() // ends with the connection; Close waits for it
	var err error
	if c.hello, err = c.send(HelloVerb, Hello{Protocol, build}); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("greet helper: %w", err)
	}
	return c, nil
}

// Greet waits for the helper's hello. The error says why the two cannot talk.
func (c *Client) Greet(ctx context.Context) error {
	c.greeting.Lock()
	defer c.greeting.Unlock()
	if c.hello == nil {
		return c.refused
	}
	var r HelloReply
	fds, err := c.hello.answer(ctx, &r)
	packet.CloseAll(fds)
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		err = fmt.Errorf("greet helper: %w", err)
	case r.Protocol != Protocol:
		err = fmt.Errorf("helper speaks protocol %d, this program %d: upgrade the older one", r.Protocol, Protocol)
	}
	c.hello, c.refused = nil, err
	return err
}

// Close ends the conversation, and with it the jails it made.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	return err
}

// Done is closed when the helper has gone.
func (c *Client) Done() <-chan struct{} { return c.done }

// Call sends one request and decodes its answer into out (nil: ignored).
// Errors of the helper are of type [*Error].
func (c *Client) Call(ctx context.Context, v Verb, body, out any, fds ...int) error {
	got, err := c.CallFDs(ctx, v, body, out, fds...)
	packet.CloseAll(got)
	return err
}

// CallFDs is [Client.Call] that also returns the descriptors of the answer.
func (c *Client) CallFDs(ctx context.Context, v Verb, body, out any, fds ...int) ([]*os.File, error) {
	a, err := c.Ask(v, body, fds...)
	if err != nil {
		return nil, err
	}
	return a.Answer(ctx, out)
}

// Ask sends one request with fds, which stay the caller's, and does not wait for
// the answer: requests that only make sense together are sent together. The
// caller takes the answer or forgets it.
func (c *Client) Ask(v Verb, body any, fds ...int) (*Asked, error) {
	r, err := c.send(v, body, fds...)
	if err != nil {
		if refused := c.Greet(context.Background()); refused != nil { // why it hears no more; the conversation has ended, so it is known
			err = refused
		}
		return nil, err
	}
	return &Asked{forget: r.forget, answer: func(ctx context.Context, out any) ([]*os.File, error) {
		if err := c.Greet(ctx); err != nil {
			r.forget()
			return nil, err
		}
		return r.answer(ctx, out)
	}}, nil
}

func (c *Client) send(v Verb, body any, fds ...int) (*request, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", v, err)
	}
	r := &request{c: c, ch: make(chan answer, 1)}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	c.next++
	r.id = c.next
	c.pending[r.id] = r.ch
	c.mu.Unlock()
	if err := c.conn.Send(Request{v, r.id, raw}, fds...); err != nil {
		r.forget()
		return nil, fmt.Errorf("ask helper to %s: %w", v, err)
	}
	return r, nil
}

func (r *request) answer(ctx context.Context, out any) ([]*os.File, error) {
	select {
	case got := <-r.ch:
		return got.decode(out)
	case <-ctx.Done():
		r.forget()
		return nil, ctx.Err()
	case <-r.c.done:
		select {
		case got := <-r.ch: // the answer came just before the end
			return got.decode(out)
		default:
			return nil, r.c.err
		}
	}
}

func (r *request) forget() {
	r.c.mu.Lock()
	delete(r.c.pending, r.id)
	r.c.mu.Unlock()
	select {
	case got := <-r.ch:
		packet.CloseAll(got.fds)
	default:
	}
}

func (a answer) decode(out any) ([]*os.File, error) {
	if a.reply.Error != nil {
		packet.CloseAll(a.fds)
		return nil, a.reply.Error
	}
	if out != nil {
		if err := packet.Unmarshal(a.reply.Body, out); err != nil {
			packet.CloseAll(a.fds)
			return nil, err
		}
	}
	return a.fds, nil
}

func (c *Client) read() {
	defer close(c.done)
	for {
		var r Reply
		fds, err := c.conn.Receive(&r)
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
				err = errors.New("the helper has ended the conversation")
			}
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
		c.mu.Lock()
		ch := c.pending[r.ID]
		delete(c.pending, r.ID)
		if ch != nil {
			ch <- answer{r, fds} // has room; under the lock, so that forget does not miss it
		}
		c.mu.Unlock()
		if ch == nil {
			packet.CloseAll(fds)
		}
	}
}
