//go:build root

package daemon_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/netpolicy"
)

// webWorld has servers for TLS and HTTP behind three names, one of which rules do not know.
func webWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	for _, n := range []string{"web.example", "other.example", "api.example"} {
		w.record(n+" A", webAddr)
	}
	limited := named("api.example", 80)
	limited.Methods, limited.Paths = []string{"GET"}, []string{"/v1/*"}
	w.add(t, netpolicy.Limits{}, named("web.example", 80, 443), limited, named("filed.example", 443))
	go w.web(w.net.listen(t, webAddr+":443"), true)
	go w.web(w.net.listen(t, webAddr+":80"), false)
	return w
}

func TestTLS(t *testing.T) {
	w := webWorld(t)
	get := func(n, sni string) (string, error) {
		c, err := w.jail.dial(net.JoinHostPort(w.address(t, n), "443"))
		if err != nil {
			return "", err
		}
		defer c.Close()
		s := tls.Client(c, &tls.Config{ServerName: sni, InsecureSkipVerify: true})
		if _, err := fmt.Fprintf(s, "GET /x HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", sni); err != nil {
			return "", err
		}
		b, err := io.ReadAll(s)
		return string(b), err
	}
	if got, err := get("web.example", "web.example"); err != nil || !strings.HasSuffix(got, "hello from web.example") {
		t.Errorf("TLS to an allowed name: %q, %v", got, err)
	}
	e := w.event(t, "opened", func(e netpolicy.Event) bool { return e.Kind == netpolicy.Opened })
	if c := e.Connection; c.Name != "web.example" || c.Dialled.String() != webAddr+":443" || c.Rule != "rule 0" || c.Asked.Port() != 443 {
		t.Errorf("event %+v", e)
	}
	e = w.event(t, "closed", func(e netpolicy.Event) bool { return e.Kind == netpolicy.Closed })
	if c := e.Connection; c.Sent == 0 || c.Received == 0 {
		t.Errorf("event %+v", e)
	}
	if got, err := get("filed.example", "filed.example"); err != nil || !strings.HasSuffix(got, "filed.example") { // from the host's hosts file
		t.Errorf("TLS to a name in hosts: %q, %v", got, err)
	}
	w.seen()
	for _, sni := range []string{"other.example", "", "WEB.example.evil.example"} {
		if got, err := get("web.example", sni); err == nil {
			t.Errorf("a ClientHello for %q passed: %q", sni, got)
		}
	}
	if hits, _ := w.seen(); len(hits) > 0 {
		t.Errorf("reached the server: %q", hits)
	}
	w.event(t, "denied", func(e netpolicy.Event) bool {
		return e.Kind == netpolicy.Denied && strings.Contains(e.Why, "other.example")
	})
}

func TestHTTP(t *testing.T) {
	w := webWorld(t)
	for _, tt := range []struct {
		name, send string
		hits       string
	}{
		{"web.example", "GET /a HTTP/1.1\r\nHost: web.example\r\n\r\nGET /b HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n", "GET web.example /a, GET web.example /b"},
		{"web.example", "POST /a HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /b HTTP/1.0\r\nHost: web.example\r\n\r\n", "POST web.example /a, GET web.example /b"},
		{"web.example", "GET /a HTTP/1.1\r\nHost: other.example\r\n\r\n", ""},
		{"web.example", "GET /a HTTP/1.1\r\nHost: web.example:443\r\n\r\n", ""},
		{"web.example", "POST /a HTTP/1.1\r\nHost: web.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ""},
		{"web.example", "SSH-2.0-x\r\n", ""},
		{"web.example", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""},
		{"api.example", "GET /v1/x HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n", "GET api.example /v1/x"},
		{"api.example", "GET /v2/x HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n", ""},
		{"api.example", "POST /v1/x HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", ""},
		{"api.example", "GET /v1/../v2 HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n", ""},
	} {
		c, err := w.jail.dial(net.JoinHostPort(w.address(t, tt.name), "80"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, tt.send)
		got, err := io.ReadAll(c)
		c.Close()
		hits, _ := w.seen()
		if strings.Join(hits, ", ") != tt.hits || (err == nil) != (tt.hits != "") {
			t.Errorf("%q: reached the server: %q (%q, %v)", tt.send, hits, got, err)
		}
	}
}

// A request for another host after an allowed one must not arrive, whatever came before.
func TestKeptAlive(t *testing.T) {
	w := webWorld(t)
	for _, second := range []string{"GET /evil HTTP/1.1\r\nHost: other.example\r\n\r\n", "GET /evil HTTP/1.1\r\nHost: web.example\r\nHost: other.example\r\n\r\n", "garbage\r\n\r\n"} {
		c, err := w.jail.dial(net.JoinHostPort(w.address(t, "web.example"), "80"))
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(c)
		_, _ = io.WriteString(c, "GET /first HTTP/1.1\r\nHost: web.example\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_, _ = io.WriteString(c, second)
		if _, err := r.ReadByte(); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("after %q: %v", second, err)
		}
		c.Close()
		if hits, _ := w.seen(); strings.Join(hits, ", ") != "GET web.example /first" {
			t.Errorf("after %q reached the server: %q", second, hits)
		}
	}
}
