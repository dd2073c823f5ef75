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
	conn  *packet.Conn
	Hello HelloReply

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

// Dial connects to the helper's socket at path and says hello.
func Dial(path, build string) (*Client, error) {
	conn, err := packet.Dial(path)
	if err != nil {
		return nil, err
	}
	return NewClient(conn, build)
}

// NewClient says hello on conn and takes ownership of it.
func NewClient(conn *packet.Conn, build string) (*Client, error) {
	c := &Client{conn: conn, pending: map[uint64]chan answer{}, done: make(chan struct{})}
	go c.read() // ends with the connection; Close waits for it
	if err := c.Call(context.Background(), HelloVerb, Hello{Protocol, build}, &c.Hello); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("greet helper: %w", err)
	}
	if c.Hello.Protocol != Protocol {
		_ = c.Close()
		return nil, fmt.Errorf("helper speaks protocol %d, this program %d: upgrade the older one", c.Hello.Protocol, Protocol)
	}
	return c, nil
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
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", v, err)
	}
	ch := make(chan answer, 1)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	c.next++
	id := c.next
	c.pending[id] = ch
	c.mu.Unlock()
	if err := c.conn.Send(Request{v, id, raw}, fds...); err != nil {
		c.forget(id)
		return nil, fmt.Errorf("ask helper to %s: %w", v, err)
	}
	select {
	case a := <-ch:
		return a.decode(out)
	case <-ctx.Done():
		c.forget(id)
		return nil, ctx.Err()
	case <-c.done:
		select {
		case a := <-ch: // the answer came just before the end
			return a.decode(out)
		default:
			return nil, c.err
		}
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

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	delete(c.pending, id)
	c.mu.Unlock()
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
		c.mu.Unlock()
		if ch == nil {
			packet.CloseAll(fds)
			continue
		}
		ch <- answer{r, fds}
	}
}
