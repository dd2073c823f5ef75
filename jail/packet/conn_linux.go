package packet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is one end of a SEQPACKET socket. Send may be called by many goroutines,
// Recv by one; see [Conn.RecvHolding] for more.
type Conn struct {
	f    *os.File
	sc   rawConn
	mu   sync.Mutex // serialises Send, so that a slow peer blocks only senders
	recv []byte
	oob  []byte
}

// recvKept is the largest buffer that a Conn keeps while it waits: hundreds wait at a time.
const recvKept = 4 << 10

type rawConn interface {
	Read(func(fd uintptr) bool) error
	Write(func(fd uintptr) bool) error
	Control(func(fd uintptr)) error
}

// New wraps fd, a connected SOCK_SEQPACKET socket, and takes ownership of it.
func New(fd int) (*Conn, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("set socket non-blocking: %w", err)
	}
	f := os.NewFile(uintptr(fd), "packet")
	sc, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("use socket: %w", err)
	}
	return &Conn{f: f, sc: sc}, nil
}

// Pair returns a connected Conn and the other end as a close-on-exec file that
// can be given to a child.
func Pair() (*Conn, *os.File, error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	c, err := New(p[0])
	if err != nil {
		_ = unix.Close(p[1])
		return nil, nil, err
	}
	return c, os.NewFile(uintptr(p[1]), "packet"), nil
}

// Dial connects to the SEQPACKET socket at path.
func Dial(path string) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("connect %s: %w", path, err)
	}
	return New(fd)
}

// Peer returns who is at the other end, as the kernel recorded it at connect
// time (SO_PEERCRED, unix(7)).
func (c *Conn) Peer() (*unix.Ucred, error) {
	var cred *unix.Ucred
	var err error
	if cerr := c.sc.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, fmt.Errorf("read peer credentials: %w", err)
	}
	return cred, nil
}

// SetDeadline bounds Send and Recv; the zero time removes the bound.
func (c *Conn) SetDeadline(t time.Time) error { return c.f.SetDeadline(t) }

// Close closes the socket. It is safe to call twice.
func (c *Conn) Close() error {
	if err := c.f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// Send marshals v and sends it with fds, which stay the caller's.
func (c *Conn) Send(v any, fds ...int) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	return c.SendBytes(data, fds...)
}

// SendBytes is [Conn.Send] for a payload that is not JSON.
func (c *Conn) SendBytes(data []byte, fds ...int) error {
	if len(data) > MaxSize || len(fds) > MaxFDs {
		return ErrTooLarge
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var serr error
	if err := c.sc.Write(func(fd uintptr) bool {
		serr = unix.Sendmsg(int(fd), data, oob, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(serr, unix.EAGAIN)
	}); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if serr != nil {
		return fmt.Errorf("send: %w", serr)
	}
	return nil
}

// Recv receives one datagram. The descriptors are the caller's to close; data
// is valid until the next Recv. At the end of the conversation it returns
// io.EOF. A datagram that is too large, or whose descriptors did not fit, is
// dropped whole with [ErrTooLarge].
func (c *Conn) Recv() (data []byte, fds []*os.File, err error) {
	return c.receive(true, nil)
}

// RecvHolding is [Conn.Recv] for a reader that shares the socket: it waits
// without mu and returns with mu held, unless it returns an error. Who holds mu
// in between may call [Conn.TryRecv] and knows that every datagram before the
// present moment has been dealt with when that returns [ErrEmpty].
func (c *Conn) RecvHolding(mu sync.Locker) (data []byte, fds []*os.File, err error) {
	return c.receive(true, mu)
}

// TryRecv is [Conn.Recv] that returns [ErrEmpty] instead of waiting.
func (c *Conn) TryRecv() (data []byte, fds []*os.File, err error) {
	return c.receive(false, nil)
}

// receive waits in the poller, which only one reader can do; without waiting it
// does not enter it.
func (c *Conn) receive(wait bool, mu sync.Locker) (data []byte, fds []*os.File, err error) {
	var n, oobn, flags int
	var rerr error
	held := false
	try := func(fd uintptr) bool {
		if mu != nil {
			mu.Lock()
			held = true
		}
		if c.oob == nil {
			c.oob = make([]byte, unix.CmsgSpace(4*MaxFDs))
		}
		n, rerr = c.next(int(fd))
		if errors.Is(rerr, unix.ECONNRESET) { // the other end had not read everything; said once, before what it had sent
			n, rerr = c.next(int(fd))
		}
		if rerr == nil {
			n, oobn, flags, _, rerr = unix.Recvmsg(int(fd), c.recv, c.oob, unix.MSG_CMSG_CLOEXEC)
		}
		again := errors.Is(rerr, unix.EAGAIN)
		if again && mu != nil {
			mu.Unlock()
			held = false
		}
		return !again
	}
	if wait {
		err = c.sc.Read(try)
	} else {
		err = c.sc.Control(func(fd uintptr) { try(fd) })
	}
	if err != nil {
		return nil, nil, fmt.Errorf("receive: %w", err)
	}
	defer func() {
		if err != nil && held {
			mu.Unlock()
		}
	}()
	switch {
	case errors.Is(rerr, unix.EAGAIN):
		return nil, nil, ErrEmpty
	case errors.Is(rerr, unix.ECONNRESET):
		return nil, nil, io.EOF
	case rerr != nil:
		return nil, nil, fmt.Errorf("receive: %w", rerr)
	}
	fds, err = files(c.oob[:oobn])
	switch {
	case err != nil:
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || n > MaxSize:
		err = ErrTooLarge
	case n == 0:
		err = io.EOF
	default:
		return c.recv[:n], fds, nil
	}
	CloseAll(fds)
	return nil, nil, err
}

// next looks at the length of the next datagram and makes the buffer fit: one
// larger than MaxSize is cut, and refused by Recv.
func (c *Conn) next(fd int) (int, error) {
	n, _, err := unix.Recvfrom(fd, nil, unix.MSG_PEEK|unix.MSG_TRUNC)
	if err != nil {
		if cap(c.recv) > recvKept {
			c.recv = nil
		}
		return 0, err
	}
	want := min(max(n, recvKept), MaxSize+1)
	if cap(c.recv) < want {
		c.recv = make([]byte, want)
	}
	c.recv = c.recv[:cap(c.recv)]
	return n, nil
}

// Receive is [Conn.Recv] and [Unmarshal] into v; on error all descriptors are
// closed.
func (c *Conn) Receive(v any) ([]*os.File, error) {
	data, fds, err := c.Recv()
	if err != nil {
		return nil, err
	}
	if err := Unmarshal(data, v); err != nil {
		CloseAll(fds)
		return nil, err
	}
	return fds, nil
}

// CloseAll closes every file of fds; nil entries are skipped.
func CloseAll(fds []*os.File) {
	for _, f := range fds {
		if f != nil {
			_ = f.Close()
		}
	}
}

func files(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parse control message: %w", err)
	}
	var out []*os.File
	for i := range msgs {
		got, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // not SCM_RIGHTS: carries no descriptors
		}
		for _, fd := range got {
			out = append(out, os.NewFile(uintptr(fd), "received"))
		}
	}
	return out, nil
}
