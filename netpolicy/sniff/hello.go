package sniff

import (
	"encoding/binary"
	"fmt"
)

// Hello is what a ClientHello says.
type Hello struct {
	Name string   // of the server_name extension, as sent; "" when there is none
	ALPN []string // of the application_layer_protocol_negotiation extension
}

const (
	recordHandshake = 22
	clientHello     = 1
	maxRecord       = 1 << 14 // bytes of plaintext in a record, RFC 8446 5.1

	extServerName = 0
	extALPN       = 16
)

// hiding are extensions that carry another hello or name: ECH (RFC 9849), its drafts, and ESNI.
var hiding = map[uint16]bool{0xfe0d: true, 0xfe08: true, 0xfe09: true, 0xfe0a: true, 0xfe0b: true, 0xfe0c: true, 0xffce: true, 0xfd00: true}

// ReadHello reads the ClientHello at the start of b. It returns [ErrShort] when b is
// only the beginning of one, [ErrECH], or an error that wraps [ErrHello].
func ReadHello(b []byte) (Hello, error) {
	body, err := handshake(b)
	if err != nil {
		return Hello{}, err
	}
	return parse(body)
}

// handshake joins the first handshake message from its records.
func handshake(b []byte) ([]byte, error) {
	var msg []byte
	for total := -1; ; {
		if total >= 0 && len(msg) >= total {
			return msg[4:total], nil
		}
		if len(b) >= 1 && b[0] != recordHandshake || len(b) >= 2 && b[1] != 3 {
			return nil, fmt.Errorf("%w: a record that is no handshake", ErrHello)
		}
		if len(b) < 5 {
			return nil, ErrShort
		}
		n := int(binary.BigEndian.Uint16(b[3:]))
		if n == 0 || n > maxRecord {
			return nil, fmt.Errorf("%w: record of %d bytes", ErrHello, n)
		}
		part := b[5:min(len(b), 5+n)]
		msg = append(msg, part...)
		if len(msg) >= 1 && msg[0] != clientHello {
			return nil, fmt.Errorf("%w: the first message is of type %d", ErrHello, msg[0])
		}
		if len(msg) >= 4 {
			total = 4 + int(msg[1])<<16 + int(msg[2])<<8 + int(msg[3])
			if total > MaxHello {
				return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrHello, total, MaxHello)
			}
			if len(msg) > total {
				return nil, fmt.Errorf("%w: another message in its record", ErrHello)
			}
		}
		if len(part) < n {
			return nil, ErrShort
		}
		b = b[5+n:]
	}
}

// reader takes fields off the front; after an error it stays at the end.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) number(size int) int {
	n := 0
	for _, c := range r.take(size) {
		n = n<<8 | int(c)
	}
	return n
}

// vector takes a vector whose length has size bytes.
func (r *reader) vector(size int) []byte { return r.take(r.number(size)) }

// done says whether everything was read and all of it was there.
func (r *reader) done() bool { return !r.bad && len(r.b) == 0 }

func parse(body []byte) (Hello, error) {
	var h Hello
	malformed := func(what string) (Hello, error) { return Hello{}, fmt.Errorf("%w: %s", ErrHello, what) }
	r := &reader{b: body}
	if v := r.number(2); v>>8 != 3 {
		return malformed("version")
	}
	r.take(32) // random
	if session := r.vector(1); len(session) > 32 {
		return malformed("session id")
	}
	if suites := r.vector(2); len(suites) < 2 || len(suites)%2 != 0 {
		return malformed("cipher suites")
	}
	if methods := r.vector(1); len(methods) == 0 {
		return malformed("compression methods")
	}
	if r.bad {
		return malformed("cut")
	}
	if len(r.b) == 0 {
		return h, nil // without extensions, as TLS 1.0 had it
	}
	list := &reader{b: r.vector(2)}
	if !r.done() {
		return malformed("bytes after its extensions")
	}
	seen := map[uint16]bool{}
	for len(list.b) > 0 {
		kind, data := uint16(list.number(2)), list.vector(2)
		if list.bad {
			return malformed("extensions are cut")
		}
		if seen[kind] {
			return malformed(fmt.Sprintf("extension %d twice", kind))
		}
		seen[kind] = true
		if hiding[kind] {
			return Hello{}, ErrECH
		}
		ok := true
		switch kind {
		case extServerName:
			h.Name, ok = serverName(data)
		case extALPN:
			h.ALPN, ok = protocols(data)
		}
		if !ok {
			return malformed(fmt.Sprintf("extension %d", kind))
		}
	}
	if list.bad {
		return malformed("extensions are cut")
	}
	return h, nil
}

// serverName reads RFC 6066 3: exactly one host_name.
func serverName(data []byte) (string, bool) {
	r := &reader{b: data}
	list := &reader{b: r.vector(2)}
	kind, name := list.number(1), list.vector(2)
	return string(name), r.done() && list.done() && kind == 0 && len(name) > 0
}

// protocols reads RFC 7301 3.1.
func protocols(data []byte) ([]string, bool) {
	r := &reader{b: data}
	list := &reader{b: r.vector(2)}
	var out []string
	for len(list.b) > 0 {
		p := list.vector(1)
		if len(p) == 0 {
			return nil, false
		}
		out = append(out, string(p))
	}
	return out, r.done() && list.done()
}
