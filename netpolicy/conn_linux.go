package netpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/packet"
)

// ErrProtocol is a message that does not belong to the conversation.
var ErrProtocol = errors.New("network protocol")

// bodyRoom is what an envelope takes of a datagram at most.
const bodyRoom = 256

// Send sends one request. fds stay the caller's. A body too large for a datagram
// goes in a sealed memfd.
func Send(c *packet.Conn, verb Verb, id uint64, body any, fds ...int) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %s: %w", verb, err)
	}
	if len(data) <= packet.MaxSize-bodyRoom {
		return c.Send(Request{Verb: verb, ID: id, Body: data}, fds...)
	}
	if len(data) > MaxDocument {
		return fmt.Errorf("%w: %s of %d bytes, at most %d", ErrProtocol, verb, len(data), MaxDocument)
	}
	f, err := sealed(data)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.Send(Request{Verb: verb, ID: id, Large: true}, append(fds[:len(fds):len(fds)], int(f.Fd()))...)
}

// Receive receives one request and the descriptors beside it, without the one of
// a large body, which it reads. The descriptors are the caller's to close.
func Receive(c *packet.Conn) (Request, []*os.File, error) {
	var r Request
	fds, err := c.Receive(&r)
	if err != nil {
		return Request{}, nil, err
	}
	if !r.Large {
		r.Body = append(json.RawMessage(nil), r.Body...)
		return r, fds, nil
	}
	if len(fds) == 0 || len(r.Body) > 0 {
		packet.CloseAll(fds)
		return Request{}, nil, fmt.Errorf("%w: a large %s without its document", ErrProtocol, r.Verb)
	}
	last := fds[len(fds)-1]
	r.Body, err = document(last)
	_ = last.Close()
	if err != nil {
		packet.CloseAll(fds[:len(fds)-1])
		return Request{}, nil, fmt.Errorf("document of %s: %w", r.Verb, err)
	}
	return r, fds[:len(fds)-1], nil
}

// Decode decodes the body of a request or an answer strictly.
func Decode(body json.RawMessage, v any) error {
	if err := packet.UnmarshalDocument(body, v); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}

// ReceiveAnswer receives one reply or event of netd; it never has descriptors.
func ReceiveAnswer(c *packet.Conn) (Answer, error) {
	var a Answer
	fds, err := c.Receive(&a)
	if err != nil {
		return Answer{}, err
	}
	packet.CloseAll(fds)
	if len(fds) > 0 || (a.ID == 0) != (a.Event != nil) {
		return Answer{}, fmt.Errorf("%w: neither a reply nor an event", ErrProtocol)
	}
	return a, nil
}

const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK

func sealed(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("netpolicy", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "netpolicy")
	if _, err := f.Write(data); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("fill memfd: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals|unix.F_SEAL_SEAL); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("seal memfd: %w", err)
	}
	return f, nil
}

// document reads a memfd that nobody can change any more.
func document(f *os.File) ([]byte, error) {
	got, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || got&seals != seals {
		return nil, fmt.Errorf("%w: not a sealed memfd", ErrProtocol)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() <= 0 || st.Size() > MaxDocument {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrProtocol, st.Size(), MaxDocument)
	}
	data := make([]byte, st.Size())
	if _, err := f.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return data, nil
}
