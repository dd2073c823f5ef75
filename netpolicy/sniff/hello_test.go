package sniff

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// hello returns what crypto/tls sends first.
func hello(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	go func() { _ = tls.Client(b, c).HandshakeContext(context.Background()); b.Close() }()
	head := make([]byte, 5)
	if _, err := io.ReadFull(a, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(a, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// records cuts the message of one record into records of at most n bytes.
func records(h []byte, n int) []byte {
	var out []byte
	for body := h[5:]; len(body) > 0; {
		k := min(n, len(body))
		out = append(out, 22, 3, 1, byte(k>>8), byte(k))
		out = append(out, body[:k]...)
		body = body[k:]
	}
	return out
}

func TestReadHello(t *testing.T) {
	for name, c := range map[string]*tls.Config{
		"with a name": {ServerName: "api.example", NextProtos: []string{"h2", "http/1.1"}},
		"TLS 1.2":     {ServerName: "api.example", MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}},
	} {
		h := hello(t, c)
		for _, n := range []int{1, 3, 7, 100, 1 << 14} {
			cut := records(h, n)
			for i := range cut {
				if _, err := ReadHello(cut[:i]); !errors.Is(err, ErrShort) {
					t.Fatalf("%s: %d of %d bytes in records of %d: %v", name, i, len(cut), n, err)
				}
			}
			for _, after := range []string{"", "more"} {
				got, err := ReadHello(append(bytes.Clone(cut), after...))
				if err != nil || got.Name != "api.example" || strings.Join(got.ALPN, " ") != "h2 http/1.1" {
					t.Errorf("%s in records of %d: %+v, %v", name, n, got, err)
				}
			}
		}
	}
	got, err := ReadHello(hello(t, &tls.Config{InsecureSkipVerify: true}))
	if err != nil || got.Name != "" {
		t.Errorf("without a name: %+v, %v", got, err)
	}
}

func TestRefusedHellos(t *testing.T) {
	h := hello(t, &tls.Config{ServerName: "api.example", MinVersion: tls.VersionTLS12})
	change := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(h)) }
	sni := bytes.Index(h, []byte("api.example"))
	for name, b := range map[string][]byte{
		"alert":            {21, 3, 1, 0, 2, 1, 0},
		"empty record":     {22, 3, 1, 0, 0},
		"huge record":      {22, 3, 1, 0xff, 0xff},
		"server hello":     {22, 3, 1, 0, 4, 2, 0, 0, 0},
		"huge message":     {22, 3, 1, 0, 4, 1, 0xff, 0, 0},
		"empty hello":      {22, 3, 1, 0, 4, 1, 0, 0, 0},
		"two messages":     append(change(func(b []byte) []byte { b[3], b[4] = byte((len(b)-4)>>8), byte(len(b)-4); return b }), 0),
		"wrong version":    change(func(b []byte) []byte { b[9] = 2; return b }),
		"name type":        change(func(b []byte) []byte { b[sni-3] = 1; return b }),
		"name length":      change(func(b []byte) []byte { b[sni-1]++; return b }),
		"name list length": change(func(b []byte) []byte { b[sni-4]--; return b }),
	} {
		if _, err := ReadHello(b); !errors.Is(err, ErrHello) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The same extension twice: the first and the last name could differ.
	twice := change(func(b []byte) []byte {
		ext := bytes.Clone(b[sni-9 : sni+11]) // type, length, list length, type, length, name
		b = append(b, ext...)
		for _, at := range []struct{ off, size int }{{3, 2}, {6, 3}} {
			n := len(ext)
			for i := at.off + at.size - 1; n > 0; i-- {
				n += int(b[i])
				b[i] = byte(n)
				n >>= 8
			}
		}
		session := 43
		suites := session + 1 + int(b[session])
		methods := suites + 2 + int(b[suites])<<8 + int(b[suites+1])
		exts := methods + 1 + int(b[methods])
		n := int(b[exts])<<8 + int(b[exts+1]) + len(ext)
		b[exts], b[exts+1] = byte(n>>8), byte(n)
		return b
	})
	if _, err := ReadHello(twice); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("extension twice: %v", err)
	}
}

func TestEncryptedHelloIsRefused(t *testing.T) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pub := key.PublicKey().Bytes()
	config := append([]byte{7, 0, 0x20, 0, 32}, pub...) // id, DHKEM(X25519), key
	config = append(config, 0, 4, 0, 1, 0, 1, 0)        // HKDF-SHA256 with AES-128-GCM, no maximum
	config = append(config, byte(len("public.example")))
	config = append(config, "public.example"...)
	config = append(config, 0, 0)
	config = append([]byte{0xfe, 0x0d, 0, byte(len(config))}, config...)
	list := append([]byte{0, byte(len(config))}, config...)
	h := hello(t, &tls.Config{ServerName: "secret.example", EncryptedClientHelloConfigList: list, MinVersion: tls.VersionTLS13})
	if bytes.Contains(h, []byte("secret.example")) {
		t.Fatal("the name was not hidden: this test shows nothing")
	}
	if _, err := ReadHello(h); !errors.Is(err, ErrECH) {
		t.Errorf("got %v", err)
	}
}

func TestBegins(t *testing.T) {
	for in, want := range map[string]Kind{
		"":                              Unknown,
		"\x16":                          Unknown,
		"\x16\x03\x01":                  TLS,
		"\x16\x02":                      Other,
		"G":                             Unknown,
		"GET ":                          Unknown,
		"GET /":                         HTTP,
		"OPTIONS *":                     HTTP,
		"GET http://x/":                 HTTP,
		"PROPFIND /":                    HTTP,
		"get /":                         Other,
		"SSH-2.0-OpenSSH\r\n":           Other,
		"*1\r\n$4\r\nPING\r\n":          Other,
		"\x00\x00\x00\x08\x04\xd2\x16/": Other, // Postgres
		"PRI * HTTP/2.0\r\n":            Hidden,
		"PRI * H":                       Unknown,
		"PROXY TCP4 1.2.3.4":            Hidden,
		"PROXY":                         Unknown,
		"CONNECT evil:443 HTTP/1.1":     Hidden,
		"\r\n\r\n\x00\r\nQUIT\n!":       Hidden,
		"\x80\x2e\x01\x03\x01\x00":      Hidden, // SSL 2 hello
		"\x80\x2e\x02\x03\x01\x00":      Other,
		strings.Repeat("A", Decides):    Other,
	} {
		if got := Begins([]byte(in)); got != want {
			t.Errorf("%q: got %d, want %d", in, got, want)
		}
	}
}

// serverSees is the name that crypto/tls, as a server, reads from b.
func serverSees(b []byte) (string, bool) {
	var got string
	var seen bool
	stop := errors.New("seen")
	c := tls.Server(&canned{Reader: bytes.NewReader(b)}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		got, seen = h.ServerName, true
		return nil, stop
	}})
	_ = c.HandshakeContext(context.Background())
	return got, seen
}

type canned struct{ io.Reader }

func (*canned) Write(b []byte) (int, error)      { return len(b), nil }
func (*canned) Close() error                     { return nil }
func (*canned) LocalAddr() net.Addr              { return nil }
func (*canned) RemoteAddr() net.Addr             { return nil }
func (*canned) SetDeadline(time.Time) error      { return nil }
func (*canned) SetReadDeadline(time.Time) error  { return nil }
func (*canned) SetWriteDeadline(time.Time) error { return nil }

// What is accepted here with one name is never read with another by a server.
func FuzzHello(f *testing.F) {
	for _, c := range []*tls.Config{{ServerName: "api.example"}, {ServerName: "x.example", MaxVersion: tls.VersionTLS12}} {
		h := hello(f, c)
		f.Add(h)
		f.Add(records(h, 50))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ReadHello(b)
		if err != nil {
			return
		}
		if got, ok := serverSees(b); ok && got != h.Name && got != strings.TrimSuffix(h.Name, ".") {
			t.Errorf("read as %q, by a server as %q", h.Name, got)
		}
	})
}

func BenchmarkReadHello(b *testing.B) {
	h := hello(b, &tls.Config{ServerName: "api.example"})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadHello(h); err != nil {
			b.Fatal(err)
		}
	}
}
