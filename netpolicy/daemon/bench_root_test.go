//go:build root

package daemon_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/netpolicy"
)

// hello is a ClientHello for name.
func hello(b *testing.B, name string) []byte {
	b.Helper()
	c, s := net.Pipe()
	go func() { _ = tls.Client(c, &tls.Config{ServerName: name}).Handshake() }()
	buf := make([]byte, 4096)
	n, err := s.Read(buf)
	if err != nil {
		b.Fatal(err)
	}
	s.Close()
	return buf[:n]
}

// once connects, sends h and waits for the first byte of the answer.
func once(b *testing.B, z *zone, to *unix.SockaddrInet4, h []byte, times *[]time.Duration) {
	z.in(func() {
		buf := make([]byte, 16)
		for range b.N {
			start := time.Now()
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Connect(fd, to)
			}
			if err == nil {
				_, err = unix.Write(fd, h)
			}
			n := 0
			if err == nil {
				n, err = unix.Read(fd, buf)
			}
			if err != nil || n == 0 {
				b.Errorf("%d bytes, %v", n, err)
				return
			}
			*times = append(*times, time.Since(start))
			_ = unix.Close(fd)
		}
	})
}

func sockaddr(b *testing.B, addr string, port int) *unix.SockaddrInet4 {
	b.Helper()
	a := mustAddr(addr)
	return &unix.SockaddrInet4{Addr: a.As4(), Port: port}
}

// BenchmarkConnect: connect, ClientHello, first byte of the answer; from the host straight to the server, and
// from the jail through netd to the same server. The difference of the medians is what netd adds.
func BenchmarkConnect(b *testing.B) {
	w := newWorld(b)
	w.ttl = 60
	w.record("web.example A", webAddr)
	w.add(b, netpolicy.Limits{Connections: 20000}, named("web.example", 443))
	l := w.net.listen(b, webAddr+":443")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 4096)
				if _, err := c.Read(buf); err == nil {
					_, _ = c.Write([]byte("x"))
					_, _ = c.Read(buf)
				}
			}()
		}
	}()
	h := hello(b, "web.example")
	inside := sockaddr(b, w.address(b, "web.example"), 443)
	for _, way := range []struct {
		name string
		zone *zone
		to   *unix.SockaddrInet4
	}{{"direct", w.host, sockaddr(b, webAddr, 443)}, {"netd", w.jail, inside}} {
		b.Run(way.name, func(b *testing.B) {
			var times []time.Duration
			once(b, way.zone, way.to, h, &times)
			slices.Sort(times)
			if len(times) > 0 {
				b.ReportMetric(float64(times[len(times)/2].Microseconds()), "us/median")
			}
		})
	}
}

// BenchmarkBulk: bytes to a server, straight and through netd.
func BenchmarkBulk(b *testing.B) {
	w := newWorld(b)
	w.record("bulk.example A", webAddr)
	w.add(b, netpolicy.Limits{}, named("bulk.example", 7000))
	l := w.net.listen(b, webAddr+":7000")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				buf := make([]byte, 256<<10)
				for {
					if _, err := c.Read(buf); err != nil {
						c.Close()
						return
					}
				}
			}()
		}
	}()
	for _, way := range []struct {
		name string
		zone *zone
		to   string
	}{{"direct", w.host, webAddr}, {"netd", w.jail, w.address(b, "bulk.example")}} {
		b.Run(way.name, func(b *testing.B) {
			c, err := way.zone.dial(way.to + ":7000")
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Time{})
			data := make([]byte, 256<<10)
			b.SetBytes(int64(len(data)))
			b.ResetTimer()
			for range b.N {
				if _, err := c.Write(data); err != nil {
					b.Fatal(err)
				}
			}
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c) // until the server has read all
		})
	}
}

// BenchmarkIdle: what a connection on which nothing happens costs netd in memory of its own.
func BenchmarkIdle(b *testing.B) {
	const conns = 5000
	w := newWorld(b)
	w.ttl = 60
	w.record("idle.example A", webAddr)
	w.add(b, netpolicy.Limits{Connections: 2 * conns}, named("idle.example", 7000))
	l := w.net.listen(b, webAddr+":7000")
	var mu sync.Mutex
	var open []net.Conn
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			go func() { // not io.Copy, which keeps a pipe for each connection in this process
				b := make([]byte, 1)
				if _, err := c.Read(b); err == nil {
					_, _ = c.Write(b)
				}
			}()
		}
	}()
	addr := w.address(b, "idle.example") + ":7000"
	before := w.anonymous(b)
	for i := range conns {
		c, err := w.jail.dial(addr)
		if err == nil {
			_, err = c.Write([]byte("x"))
		}
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		if err != nil {
			b.Fatalf("connection %d: %v", i, err)
		}
		defer c.Close()
	}
	b.ReportMetric(float64(w.anonymous(b)-before)/conns, "KB/conn")
	b.ReportMetric(0, "ns/op")
	mu.Lock()
	defer mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

// anonymous is netd's own memory in KB.
func (w *world) anonymous(b *testing.B) int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.netd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			_, _ = fmt.Sscan(rest, &n)
		}
	}
	return n
}
