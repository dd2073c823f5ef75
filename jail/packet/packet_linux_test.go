package packet_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/packet"
)

type note struct {
	Text string `json:"text"`
}

func pair(t testing.TB) (a, b *packet.Conn) {
	t.Helper()
	a, f, err := packet.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = packet.New(fd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestMessagesArriveWholeWithTheirDescriptors(t *testing.T) {
	a, b := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := a.Send(note{"hello"}, int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var n note
	fds, err := b.Receive(&n)
	if err != nil || n.Text != "hello" || len(fds) != 1 {
		t.Fatalf("got %+v, %d descriptors, %v", n, len(fds), err)
	}
	if flags, err := unix.FcntlInt(fds[0].Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("received descriptor would pass an exec: flags %#x, %v", flags, err)
	}
	if _, err := fds[0].WriteString("x"); err != nil {
		t.Error(err)
	}
	packet.CloseAll(fds)
	if got, err := io.ReadAll(r); err != nil || string(got) != "x" {
		t.Errorf("through the descriptor came %q, %v; a copy is still open?", got, err)
	}
}

func TestRefusedMessages(t *testing.T) {
	for _, tt := range []struct {
		name, data string
		want       error
	}{
		{"unknown field", `{"text":"x","more":1}`, packet.ErrMalformed},
		{"two objects", `{"text":"x"}{"text":"y"}`, packet.ErrMalformed},
		{"cut", `{"text":"x`, packet.ErrMalformed},
		{"wrong type", `{"text":7}`, packet.ErrMalformed},
		{"not an object", `[]`, packet.ErrMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := pair(t)
			if err := a.SendBytes([]byte(tt.data)); err != nil {
				t.Fatal(err)
			}
			var n note
			if _, err := b.Receive(&n); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	a, b := pair(t)
	if err := a.Send(note{strings.Repeat("x", packet.MaxSize)}); !errors.Is(err, packet.ErrTooLarge) {
		t.Errorf("sending: %v", err)
	}
	// Past our own sender: a raw datagram over the limit with a descriptor.
	raw, f, err := packet.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	defer raw.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	big := bytes.Repeat([]byte("x"), packet.MaxSize+100)
	if err := unix.Sendmsg(int(f.Fd()), big, unix.UnixRights(int(w.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, _, err := raw.Recv(); !errors.Is(err, packet.ErrTooLarge) {
		t.Errorf("receiving: %v", err)
	}
	if _, err := io.ReadAll(r); err != nil { // ends only when the refused descriptor was closed
		t.Error(err)
	}
	a.Close()
	if _, _, err := b.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"text":"x"}`))
	f.Add([]byte(`{"text":"x"} {}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var n note
		if err := packet.Unmarshal(data, &n); err != nil && !errors.Is(err, packet.ErrMalformed) && !errors.Is(err, packet.ErrTooLarge) {
			t.Errorf("unexpected kind of error: %v", err)
		}
	})
}

// Two readers of one socket: one waits, the other takes what is there under the
// lock. Together they must see everything once, in order.
func TestSharedReading(t *testing.T) {
	a, b := pair(t)
	if _, _, err := b.TryRecv(); !errors.Is(err, packet.ErrEmpty) {
		t.Fatalf("nothing was sent: %v", err)
	}
	const total = 2000
	var mu sync.Mutex
	var got []string
	waiting := make(chan error, 1)
	go func() {
		for {
			data, fds, err := b.RecvHolding(&mu)
			if err != nil {
				waiting <- err
				return
			}
			got = append(got, string(data))
			packet.CloseAll(fds)
			mu.Unlock()
		}
	}()
	for i := range total {
		if err := a.SendBytes([]byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
		if i%7 != 0 {
			continue
		}
		mu.Lock()
		for {
			data, _, err := b.TryRecv()
			if errors.Is(err, packet.ErrEmpty) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(data))
		}
		if len(got) != i+1 { // all that was sent before has been dealt with
			t.Fatalf("%d of %d messages", len(got), i+1)
		}
		mu.Unlock()
	}
	a.Close()
	if err := <-waiting; !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	mu.Lock() // not held after an error
	defer mu.Unlock()
	for i, s := range got {
		if s != strconv.Itoa(i) {
			t.Fatalf("message %d is %q", i, s)
		}
	}
	if len(got) != total {
		t.Errorf("%d of %d messages", len(got), total)
	}
}

// What was sent before the end arrives, also when the other end had not read what was sent to it.
func TestLastMessagesArrive(t *testing.T) {
	a, b := pair(t)
	for _, text := range []string{"one", "two"} {
		if err := b.Send(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Send("nobody reads this"); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one", "two"} {
		var got string
		if _, err := a.Receive(&got); err != nil || got != want {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	if _, _, err := a.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v, want %v", err, io.EOF)
	}
}
