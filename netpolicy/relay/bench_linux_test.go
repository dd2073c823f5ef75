package relay

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkBulk: bytes to a server that throws them away, straight and through a relay, with the processor time that a byte costs.
func BenchmarkBulk(b *testing.B) {
	for _, way := range []string{"direct", "relay"} {
		b.Run(way, func(b *testing.B) {
			sink, source := pair(b)
			if way == "relay" {
				in, far := pair(b)
				out := source
				go func() { _ = Both(in, out, func(int) bool { return true }, func(int) bool { return true }) }()
				source = far
			}
			data := make([]byte, 256<<10)
			done := make(chan struct{})
			go func() {
				defer close(done)
				buf := make([]byte, 256<<10)
				for {
					if _, err := sink.Read(buf); err != nil {
						return
					}
				}
			}()
			b.SetBytes(int64(len(data)))
			var from, to unix.Rusage
			_ = unix.Getrusage(unix.RUSAGE_SELF, &from)
			b.ResetTimer()
			for range b.N {
				if _, err := source.Write(data); err != nil {
					b.Fatal(err)
				}
			}
			_ = source.CloseWrite()
			<-done
			b.StopTimer()
			_ = unix.Getrusage(unix.RUSAGE_SELF, &to)
			ns := to.Utime.Nano() + to.Stime.Nano() - from.Utime.Nano() - from.Stime.Nano()
			b.ReportMetric(float64(ns)/float64(b.N)/float64(len(data))*(1<<30)/1e6, "cpu-ms/GB")
			b.ReportMetric(float64(to.Nvcsw+to.Nivcsw-from.Nvcsw-from.Nivcsw)/float64(b.N), "switches/op")
		})
	}
}

// pair is one connection on the loopback.
func pair(b *testing.B) (a, z *net.TCPConn) {
	b.Helper()
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	d := net.Dialer{}
	d.SetMultipathTCP(false)
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close(); s.Close() })
	return s.(*net.TCPConn), c.(*net.TCPConn)
}
