package sniff

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestReadRequest(t *testing.T) {
	for in, want := range map[string]Request{
		"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n":                                        {Method: "GET", Path: "/", Host: "a.example", Minor: 1},
		"GET /x?y=1 HTTP/1.1\r\nhost:  A.example:8080 \r\nConnection: close\r\n\r\nmore":   {Method: "GET", Path: "/x", Host: "A.example", Port: 8080, Minor: 1, Close: true},
		"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n":                        {Method: "POST", Path: "/x", Host: "a", Minor: 1, Length: 12},
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n":                {Method: "POST", Path: "/x", Host: "a", Minor: 1, Length: -1},
		"GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n":                       {Method: "GET", Path: "/x", Host: "a.example", Minor: 1},
		"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n":                                            {Method: "OPTIONS", Path: "*", Host: "a", Minor: 1},
		"GET / HTTP/1.0\r\nHost: a\r\n\r\n":                                                {Method: "GET", Path: "/", Host: "a", Close: true},
		"GET / HTTP/1.1\r\nHost: [fd00::1]:80\r\n\r\n":                                     {Method: "GET", Path: "/", Host: "fd00::1", Port: 80, Minor: 1},
		"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n": {Method: "GET", Path: "/ws", Host: "a", Minor: 1, Upgrade: true},
	} {
		got, err := ReadRequest([]byte(in))
		want.Size = strings.Index(in, "\r\n\r\n") + 4
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
		for i := range want.Size - 1 {
			if _, err := ReadRequest([]byte(in[:i])); !errors.Is(err, ErrShort) {
				t.Fatalf("%q: %v", in[:i], err)
			}
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	const host = "Host: a\r\n"
	for _, in := range []string{
		"GET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost:\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "Host: b\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "hOst: a\r\n\r\n",
		"GET http://b/ HTTP/1.1\r\n" + host + "\r\n",
		"GET http://a@b/ HTTP/1.1\r\n" + host + "\r\n",
		"GET https://a/ HTTP/1.1\r\n" + host + "\r\n",
		"CONNECT a:443 HTTP/1.1\r\n" + host + "\r\n",
		"GET / HTTP/2.0\r\n" + host + "\r\n",
		"GET /\r\n" + host + "\r\n",
		"GET / HTTP/1.1 \r\n" + host + "\r\n",
		"GET  / HTTP/1.1\r\n" + host + "\r\n",
		"GET /a b HTTP/1.1\r\n" + host + "\r\n",
		" GET / HTTP/1.1\r\n" + host + "\r\n",
		"\r\nGET / HTTP/1.1\r\n" + host + "\r\n",
		"GET / HTTP/1.1\r\n" + host + " folded\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "X : y\r\n\r\n",
		"GET / HTTP/1.1\nHost: a\n\n",
		"GET / HTTP/1.1\r\nX: a\rHost: b\r\n" + host + "\r\n",
		"GET / HTTP/1.1\r\nX: a\nHost: b\r\n" + host + "\r\n",
		"GET / HTTP/1.1\r\n" + host + "X: \x00\r\n\r\n",
		"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
		"POST / HTTP/1.1\r\n" + host + "Content-Length: 1, 1\r\n\r\n",
		"POST / HTTP/1.1\r\n" + host + "Content-Length: +1\r\n\r\n",
		"POST / HTTP/1.1\r\n" + host + "Content-Length: 0x1\r\n\r\n",
		"POST / HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\n",
		"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n",
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: \x0bchunked\r\n\r\n",
		"POST / HTTP/1.1\r\n" + host + "Transfer_Encoding: chunked\r\n\r\n",
		"POST / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "Upgrade: h2c\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "Connection: host\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: [a]\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x", MaxHead) + "\r\n\r\n",
		strings.Repeat("x", MaxHead),
	} {
		if r, err := ReadRequest([]byte(in)); !errors.Is(err, ErrRequest) {
			t.Errorf("%.120q: %+v, %v", in, r, err)
		}
	}
}

func TestChunked(t *testing.T) {
	for in, want := range map[string]int{ // bytes of the body; -1 refused; -2 not at its end
		"0\r\n\r\n":                            5,
		"3\r\nabc\r\n0\r\n\r\n":                13,
		"3\r\nabc\r\n0\r\n\r\nGET / ":          13,
		"A\r\n0123456789\r\n0\r\nX: y\r\n\r\n": 26,
		"3\r\nabc\r\n":                         -2,
		"3\r\nabcd\r\n0\r\n\r\n":               -1,
		"3;x=y\r\nabc\r\n0\r\n\r\n":            -1,
		"3 \r\nabc\r\n0\r\n\r\n":               -1,
		"3\nabc\r\n0\r\n\r\n":                  -1,
		"0x3\r\nabc\r\n0\r\n\r\n":              -1,
		"-3\r\n":                               -1,
		"\r\n":                                 -1,
		"fffffffffffffffff\r\n":                -1,
		"0\r\nX: \x00\r\n\r\n":                 -1,
	} {
		for _, step := range []int{1, 2, len(in)} {
			var c Chunked
			got, end := 0, false
			var err error
			for i := 0; i < len(in) && !end && err == nil; i += step {
				var n int
				n, end, err = c.Next([]byte(in[i:min(len(in), i+step)]))
				got += n
			}
			switch {
			case err != nil:
				got = -1
			case !end:
				got = -2
			}
			if got != want {
				t.Errorf("%q in steps of %d: %d, want %d", in, step, got, want)
			}
		}
	}
}

// What is accepted here means the same to net/http: the same host and path, and a body that ends at the same place.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n"))
	f.Add([]byte("POST /x HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nmore"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ReadRequest(b)
		if err != nil {
			return
		}
		src := bytes.NewReader(b)
		r := bufio.NewReader(src)
		want, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		host := want.Host
		if h, _, ok := strings.Cut(host, ":"); ok && !strings.HasPrefix(host, "[") {
			host = h
		}
		if host != got.Host && !strings.HasPrefix(host, "[") || want.Method != got.Method {
			t.Errorf("%q: %s %q, net/http says %s %q", b, got.Method, got.Host, want.Method, want.Host)
		}
		if want.ContentLength != got.Length {
			t.Errorf("%q: body of %d, net/http says %d", b, got.Length, want.ContentLength)
		}
		if got.Length >= 0 {
			return
		}
		var c Chunked
		n, end, err := c.Next(b[got.Size:])
		if err != nil || !end {
			return
		}
		if _, err := io.Copy(io.Discard, want.Body); err == nil && len(b)-src.Len()-r.Buffered() != got.Size+n {
			t.Errorf("%q: the body ends at %d, for net/http at %d", b, got.Size+n, len(b)-src.Len()-r.Buffered())
		}
	})
}
