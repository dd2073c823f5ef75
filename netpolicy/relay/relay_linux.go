// Package relay moves bytes between two TCP connections, in both directions, until both
// have ended, without copying them through this process (splice(2)).
//
// Half-close is kept: the end of one direction is sent on, and the other goes on.
// An error of either end, and a Count that says no, ends both with a reset, so that
// neither end takes what is missing for the end of the data.
//
// A connection on which nothing happens costs two goroutines and no pipe: pipes are borrowed
// when bytes are there and given back when they have gone out. Where no pipe can be
// had (descriptors, /proc/sys/fs/pipe-user-pages-soft), bytes are copied.
package relay

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrCut is returned when a Count said no.
var ErrCut = errors.New("cut")

const (
	chunk    = 1 << 20 // bytes that one splice moves at most
	pipeSize = 1 << 20 // asked for; the kernel may give less
	copySize = 32 << 10
)

// Count is told of n bytes that have been received and not yet sent, and says
// whether they may go on. It is called by one goroutine at a time per direction.
type Count func(n int) bool

// Both moves bytes from a to b, counted by sent, and from b to a, counted by
// received, until both directions have ended. It closes neither connection, but an
// error leaves both so that closing them resets them. The error is nil when both ended in order.
func Both(a, b *net.TCPConn, sent, received Count) error {
	done := make(chan error, 1)
	go func() { done <- One(a, b, received) }()
	err := One(b, a, sent)
	if err == nil {
		return <-done
	}
	_ = b.Close() // wakes the other direction; both were set to reset
	_ = a.Close()
	<-done
	return err
}

// One moves bytes from src to dst until src ends, and then ends dst's writing. On an
// error both are closed with a reset.
func One(dst, src *net.TCPConn, count Count) error {
	err := move(dst, src, -1, count)
	if err == nil {
		if err = dst.CloseWrite(); err != nil && errors.Is(err, unix.ENOTCONN) {
			err = nil // it has ended already
		}
	}
	if err != nil {
		Reset(dst)
		Reset(src)
	}
	return err
}

// N moves exactly n bytes from src to dst. An end before that is
// [io.ErrUnexpectedEOF].
func N(dst, src *net.TCPConn, n int64, count Count) error {
	return move(dst, src, n, count)
}

// Reset closes c so that its peer sees a reset at once, whatever was sent (SO_LINGER
// of 0, socket(7)).
func Reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// mover is one direction. Its methods are the poller's callbacks: they say
// whether they are done with waiting.
type mover struct {
	pipe *pipe
	buf  *[copySize]byte // instead of a pipe
	left int64           // bytes still to move; negative is all
	n    int             // bytes in the pipe or in buf
	out  int             // of them, those of buf that are sent
	err  error
}

func move(dst, src *net.TCPConn, n int64, count Count) error {
	in, err := src.SyscallConn()
	if err != nil {
		return err
	}
	out, err := dst.SyscallConn()
	if err != nil {
		return err
	}
	return (&mover{left: n}).run(out, in, count)
}

func (m *mover) run(out, in syscall.RawConn, count Count) error {
	defer m.release()
	fill, drain := m.fill, m.drain // once: each use as a value allocates
	for m.left != 0 {
		if err := in.Read(fill); err != nil {
			return err
		}
		switch {
		case m.err != nil:
			return m.err
		case m.n == 0 && m.left > 0:
			return io.ErrUnexpectedEOF
		case m.n == 0:
			return nil
		case !count(m.n):
			return ErrCut
		}
		if m.left > 0 {
			m.left -= int64(m.n)
		}
		for m.n > 0 {
			if err := out.Write(drain); err != nil {
				return err
			}
			if m.err != nil {
				return m.err
			}
		}
		m.out = 0
	}
	return nil
}

func (m *mover) fill(fd uintptr) bool {
	if m.pipe == nil && m.buf == nil {
		if m.pipe = borrow(); m.pipe == nil {
			m.buf, _ = buffers.Get().(*[copySize]byte)
		}
	}
	want := chunk
	if m.left > 0 {
		want = int(min(int64(chunk), m.left))
	}
	for {
		if m.pipe != nil {
			var n int64
			n, m.err = unix.Splice(int(fd), nil, m.pipe.w, nil, want, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
			m.n = int(n)
		} else {
			m.n, m.err = unix.Read(int(fd), m.buf[:min(want, len(m.buf))])
		}
		switch m.err {
		case unix.EINTR:
			continue
		case unix.EAGAIN: // nothing is there, and an empty pipe is not full
			m.n = 0
			m.release()
			return false
		case nil:
		default:
			m.n = 0
		}
		return true
	}
}

func (m *mover) drain(fd uintptr) bool {
	for m.n > 0 {
		var n int
		if m.pipe != nil {
			var n64 int64
			n64, m.err = unix.Splice(m.pipe.r, nil, int(fd), nil, m.n, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
			n = int(n64)
		} else {
			n, m.err = unix.SendmsgN(int(fd), m.buf[m.out:m.out+m.n], nil, nil, unix.MSG_NOSIGNAL)
		}
		switch m.err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			m.err = nil
			return false
		case nil:
			m.n -= n
			m.out += n
		default:
			return true
		}
	}
	return true
}

// release gives back what was borrowed; a pipe that has bytes is closed.
func (m *mover) release() {
	if m.pipe != nil {
		give(m.pipe, m.n == 0)
		m.pipe = nil
	}
	if m.buf != nil {
		buffers.Put(m.buf)
		m.buf = nil
	}
}

var buffers = sync.Pool{New: func() any { return new([copySize]byte) }}

type pipe struct{ r, w int }

// pipes are the pipes that nobody uses: more than this at rest are closed.
var pipes = make(chan *pipe, 32)

func borrow() *pipe {
	select {
	case p := <-pipes:
		return p
	default:
	}
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return nil
	}
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	return &pipe{fds[0], fds[1]}
}

func give(p *pipe, empty bool) {
	if empty {
		select {
		case pipes <- p:
			return
		default:
		}
	}
	_ = unix.Close(p.r)
	_ = unix.Close(p.w)
}
