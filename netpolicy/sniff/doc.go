// Package sniff reads, from the first bytes that a client sends, whom it believes it
// talks to: the server name of a TLS ClientHello and the Host of HTTP/1 requests. It keeps
// nothing, waits for nothing, and is given all bytes so far each time.
//
// It is strict where servers differ: what two servers could read in two ways is an
// error, not a guess. A ClientHello may be cut into records and segments anyhow, up to
// [MaxHello] bytes; it must be the first thing of the connection, with at most one server name, and without
// Encrypted Client Hello (RFC 9849; also the GREASE form, which cannot be told from the real one: only the
// server could). An HTTP head has CRLF line ends, no folded lines, one Host, and one way to say where the body
// ends (RFC 9112 6.3, 11.2), up to [MaxHead] bytes.
//
// It does not see what is inside TLS: a request there may name another host of the same server.
// A second ClientHello after HelloRetryRequest is not read; RFC 8446 4.1.2 makes servers
// refuse one with another name.
package sniff

import "errors"

// Bounds in bytes.
const (
	MaxHello = 32 << 10
	MaxHead  = 64 << 10
)

var (
	// ErrShort is returned when more bytes are needed.
	ErrShort = errors.New("more bytes are needed")
	// ErrHello is a TLS handshake that does not begin with a ClientHello that everybody reads alike.
	ErrHello = errors.New("TLS ClientHello")
	// ErrECH is a ClientHello that may hide another one.
	ErrECH = errors.New("a ClientHello with Encrypted Client Hello, or its GREASE form, may hide another name")
	// ErrRequest is an HTTP request that not everybody reads alike.
	ErrRequest = errors.New("HTTP request")
)

// Kind is what a connection begins with.
type Kind int

// Kinds.
const (
	Unknown Kind = iota // more bytes are needed
	TLS
	HTTP
	Hidden // what would hide a name from this package: an HTTP/2 preface, a PROXY header, a CONNECT, an SSL 2 hello
	Other
)

// Begins says what the bytes that a client sent first begin; it needs at most
// [Decides] of them, and fewer for most.
func Begins(b []byte) Kind {
	if len(b) == 0 {
		return Unknown
	}
	if b[0] == recordHandshake {
		if len(b) < 2 {
			return Unknown
		}
		if b[1] == 3 {
			return TLS
		}
		return Other
	}
	for _, hidden := range []string{"PRI * HTTP/2", "PROXY ", "CONNECT ", "\r\n\r\n\x00\r\nQUIT\n"} {
		n := min(len(b), len(hidden))
		if string(b[:n]) == hidden[:n] {
			if n < len(hidden) {
				return Unknown
			}
			return Hidden
		}
	}
	if b[0]&0x80 != 0 { // SSL 2: two bytes of length, then 1 (ClientHello), then the version
		switch {
		case len(b) < 5:
			return Unknown
		case b[2] == 1 && (b[3] == 3 || b[3] == 0 && b[4] == 2):
			return Hidden
		}
		return Other
	}
	return method(b)
}

// Decides is the number of bytes after which [Begins] never says [Unknown].
const Decides = 32

// method recognises "TOKEN SP", TOKEN in capitals as every method in use is.
func method(b []byte) Kind {
	for i, c := range b {
		switch {
		case i >= Decides-1:
			return Other
		case c == ' ' && i >= 3:
			if len(b) == i+1 {
				return Unknown
			}
			if b[i+1] == '/' || b[i+1] == '*' || b[i+1] == 'h' || b[i+1] == 'H' {
				return HTTP
			}
			return Other
		case c < 'A' || c > 'Z':
			return Other
		}
	}
	return Unknown
}
