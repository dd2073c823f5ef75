package relay_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/netpolicy/relay"
)

func all(int) bool { return true }

// connected returns both ends of a TCP connection.
func connected(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr)); err != nil {
		t.Fatal(err)
	}
	if b, err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	for _, c := range []*net.TCPConn{a, b} {
		if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

// relayed returns a client and a server with a relay between them.
func relayed(t testing.TB, sent, received relay.Count) (client, server *net.TCPConn, done chan error) {
	client, a := connected(t)
	b, server := connected(t)
	done = make(chan error, 1)
	go func() {
		done <- relay.Both(a, b, sent, received)
		a.Close()
		b.Close()
	}()
	return client, server, done
}

func TestBothDirectionsAndHalfClose(t *testing.T) {
	var up, down atomic.Int64
	client, server, done := relayed(t, func(n int) bool { up.Add(int64(n)); return true }, func(n int) bool { down.Add(int64(n)); return true })
	request, answer := make([]byte, 3<<20+7), make([]byte, 5<<20+1)
	_, _ = rand.Read(request)
	_, _ = rand.Read(answer)
	go func() {
		_, _ = client.Write(request)
		_ = client.CloseWrite() // the answer comes after the end of the request
	}()
	got, err := io.ReadAll(server)
	if err != nil || !bytes.Equal(got, request) {
		t.Fatalf("server got %d bytes, %v", len(got), err)
	}
	go func() { _, _ = server.Write(answer); _ = server.CloseWrite() }()
	if got, err = io.ReadAll(client); err != nil || !bytes.Equal(got, answer) {
		t.Fatalf("client got %d bytes, %v", len(got), err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if up.Load() != int64(len(request)) || down.Load() != int64(len(answer)) {
		t.Errorf("counted %d and %d", up.Load(), down.Load())
	}
}

func TestResetIsPassedOn(t *testing.T) {
	client, server, done := relayed(t, all, all)
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(server, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	relay.Reset(server)
	if err := <-done; err == nil {
		t.Error("a reset is no error")
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client sees %v", err)
	}
}

func TestCut(t *testing.T) {
	left := int64(1 << 20)
	client, server, done := relayed(t, func(n int) bool { left -= int64(n); return left >= 0 }, all)
	go func() { _, _ = client.Write(make([]byte, 8<<20)) }()
	n, err := io.Copy(io.Discard, server)
	if n > 1<<20 || !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%d bytes arrived, then %v", n, err)
	}
	if err := <-done; !errors.Is(err, relay.ErrCut) {
		t.Errorf("got %v", err)
	}
}

func TestExactly(t *testing.T) {
	client, a := connected(t)
	b, server := connected(t)
	go func() { _, _ = client.Write(make([]byte, 300_000)) }()
	if err := relay.N(b, a, 200_000, all); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if n, err := io.Copy(io.Discard, server); n != 200_000 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if rest, err := io.ReadFull(a, make([]byte, 100_000)); err != nil {
		t.Errorf("of the rest %d bytes, %v", rest, err)
	}
	client.Close()
	c, _ := connected(t)
	if err := relay.N(c, a, 1, all); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("after the end: %v", err)
	}
}

func TestWithoutPipes(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	client, server, done := relayed(t, all, all)
	tight := old
	tight.Cur = 3 // every new descriptor is above
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &tight); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = client.Write(make([]byte, 1<<20)); _ = client.CloseWrite() }()
	n, err := io.Copy(io.Discard, server)
	if rerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); rerr != nil {
		t.Fatal(rerr)
	}
	if n != 1<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	server.Close()
	<-done
}

// bulk sends 64 KiB writes until b is done and reads them at the other end.
func bulk(b *testing.B, client, server *net.TCPConn) {
	data := make([]byte, 64<<10)
	b.SetBytes(int64(len(data)))
	_ = client.SetDeadline(time.Time{})
	_ = server.SetDeadline(time.Time{})
	got := make(chan struct{})
	go func() {
		buf := make([]byte, 256<<10)
		for {
			if _, err := server.Read(buf); err != nil {
				close(got)
				return
			}
		}
	}()
	b.ResetTimer()
	for range b.N {
		if _, err := client.Write(data); err != nil {
			b.Fatal(err)
		}
	}
	_ = client.CloseWrite()
	<-got
}

func BenchmarkBulk(b *testing.B) {
	b.Run("direct", func(b *testing.B) { client, server := connected(b); bulk(b, client, server) })
	b.Run("relayed", func(b *testing.B) { client, server, _ := relayed(b, all, all); bulk(b, client, server) })
}
