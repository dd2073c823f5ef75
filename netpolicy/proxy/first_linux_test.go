package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/netpolicy/ruleset"
	"github.com/agentos/agentos/netpolicy/sniff"
)

// connected returns both ends of a TCP connection.
func connected(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if far, err = net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr)); err != nil {
		t.Fatal(err)
	}
	if near, err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// What is said first, by whom and in which pieces, and what becomes of it.
func TestMeet(t *testing.T) {
	for _, tt := range []struct {
		name   string
		port   uint16
		server string   // says first
		client []string // segments
		kind   sniff.Kind
		denied bool
	}{
		{"server only", 21, "220 hello\r\n", nil, sniff.Other, false},
		{"server, and a client that has begun", 21, "220 hello\r\n", []string{"U", "SER x\r\n"}, sniff.Other, false},
		{"client only", 6379, "", []string{"*1\r\n"}, sniff.Other, false},
		{"client in pieces", 8080, "", []string{"G", "ET", " ", "/ HTTP/1.1\r\nHost: web.", "example\r\n\r\n"}, sniff.HTTP, false},
		{"another host in pieces", 8080, "", []string{"G", "ET / HTTP/1.1\r\nHost: evil.", "example\r\n\r\n"}, sniff.HTTP, true},
		{"server first, then another host", 8080, "220\r\n", []string{"G", "ET / HTTP/1.1\r\nHost: evil.", "example\r\n\r\n"}, sniff.HTTP, true},
		{"something else on the port of TLS", 443, "", []string{"*1\r\n"}, sniff.Other, true},
		{"a preface of HTTP/2", 8080, "", []string{"PRI * HT", "TP/2.0\r\n\r\n"}, sniff.Hidden, true},
		{"half a word", 21, "", []string{"US", ""}, sniff.Other, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set, err := ruleset.Compile(netpolicy.Rules{Layers: 1, Rules: []netpolicy.Rule{{Kind: netpolicy.Name, Name: "web.example", Ports: []netpolicy.Ports{{Low: 1, High: 65535}}}}})
			if err != nil {
				t.Fatal(err)
			}
			v := &visit{dest: ruleset.Dest{Name: "web.example"}}
			v.conn = netpolicy.Connection{Name: "web.example", Asked: netip.AddrPortFrom(netip.MustParseAddr("198.18.0.1"), tt.port)}
			v.dec = set.Connect(v.dest, tt.port)
			client, outside := connected(t)
			up, server := connected(t)
			if _, err := io.WriteString(server, tt.server); err != nil {
				t.Fatal(err)
			}
			go func() {
				for i, s := range tt.client {
					if i > 0 {
						time.Sleep(20 * time.Millisecond) // segments of their own
					}
					if s == "" {
						_ = outside.CloseWrite()
					}
					_, _ = io.WriteString(outside, s)
				}
			}()
			if tt.server != "" && len(tt.client) > 0 {
				peek(client) // the client has begun before the destination is dialled
			}
			dial := make(chan dialled, 1)
			dial <- dialled{conn: up}
			f := newFirst(client, v.looks())
			_, err = f.meet(context.Background(), dial, v)
			if errors.Is(err, errDenied) != tt.denied || err != nil && !tt.denied || f.kind != tt.kind {
				t.Errorf("kind %d, %v, %q", f.kind, err, f.buf)
			}
		})
	}
}

// A destination that cannot be reached is told at once, whatever the client has not said yet.
func TestUnreachable(t *testing.T) {
	client, outside := connected(t)
	if _, err := io.WriteString(outside, "G"); err != nil {
		t.Fatal(err)
	}
	dial := make(chan dialled, 1)
	dial <- dialled{err: io.ErrUnexpectedEOF}
	done := make(chan error, 1)
	go func() {
		_, err := newFirst(client, true).meet(context.Background(), dial, &visit{})
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errDenied) {
			t.Error(err)
		}
	case <-time.After(firstTime):
		t.Error("it waits for the client")
	}
}
