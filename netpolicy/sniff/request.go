package sniff

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
)

// Request is the head of an HTTP/1 request.
type Request struct {
	Method  string
	Path    string // without the query; "*" of OPTIONS
	Host    string // as sent, without the port
	Port    uint16 // 0 when not said
	Minor   int    // HTTP/1.Minor
	Length  int64  // bytes of the body; -1 when it is chunked
	Upgrade bool   // asks for a WebSocket
	Close   bool   // the client will send no other request
	Size    int    // bytes of the head, with its empty line
}

// ReadRequest reads the head at the start of b. It returns [ErrShort] when b is
// only the beginning of one, or an error that wraps [ErrRequest].
func ReadRequest(b []byte) (Request, error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		if len(b) >= MaxHead {
			return Request{}, fmt.Errorf("%w: head larger than %d bytes", ErrRequest, MaxHead)
		}
		return Request{}, lineErrors(b)
	}
	if end+4 > MaxHead {
		return Request{}, fmt.Errorf("%w: head larger than %d bytes", ErrRequest, MaxHead)
	}
	head := string(b[:end])
	for i := 0; i < len(head); i++ {
		switch c := head[i]; {
		case c == '\r' && (i+1 >= len(head) || head[i+1] != '\n'), c == '\n' && (i == 0 || head[i-1] != '\r'):
			return Request{}, fmt.Errorf("%w: a line that does not end in CRLF", ErrRequest)
		case c < ' ' && c != '\r' && c != '\n' && c != '\t', c == 0x7f:
			return Request{}, fmt.Errorf("%w: byte %#x in the head", ErrRequest, c)
		}
	}
	lines := strings.Split(head, "\r\n")
	r := Request{Size: end + 4}
	authority, err := r.line(lines[0])
	if err != nil {
		return Request{}, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if err := r.fields(lines[1:], authority); err != nil {
		return Request{}, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return r, nil
}

// lineErrors refuses early what no more bytes can make right: a head whose lines end in LF alone would never end.
func lineErrors(b []byte) error {
	for i, c := range b {
		if c == '\n' && (i == 0 || b[i-1] != '\r') {
			return fmt.Errorf("%w: a line that does not end in CRLF", ErrRequest)
		}
	}
	return ErrShort
}

func (r *Request) line(s string) (authority string, err error) {
	method, rest, ok1 := strings.Cut(s, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok1 || !ok2 || !token(method) {
		return "", fmt.Errorf("request line %.100q", s)
	}
	switch version {
	case "HTTP/1.1":
		r.Minor = 1
	case "HTTP/1.0":
	default:
		return "", fmt.Errorf("version %.20q", version)
	}
	for i := range len(target) {
		if target[i] <= ' ' || target[i] >= 0x7f || target[i] == '#' || target[i] == '\t' {
			return "", fmt.Errorf("target %.100q", target)
		}
	}
	r.Method = method
	if method == "CONNECT" {
		return "", fmt.Errorf("CONNECT asks a proxy, not a server")
	}
	switch {
	case strings.HasPrefix(target, "/"):
	case target == "*" && method == "OPTIONS":
	case len(target) > 7 && strings.EqualFold(target[:7], "http://"):
		authority, target, _ = strings.Cut(target[7:], "/")
		target = "/" + target
		if i := strings.IndexByte(authority, '?'); i >= 0 || authority == "" {
			return "", fmt.Errorf("target with authority %.100q", authority)
		}
	default:
		return "", fmt.Errorf("target %.100q", target)
	}
	r.Path, _, _ = strings.Cut(target, "?")
	return authority, nil
}

func (r *Request) fields(lines []string, authority string) error {
	f := map[string]string{}
	for _, l := range lines {
		if err := field(f, l); err != nil {
			return err
		}
	}
	host, hasHost := f["host"]
	if err := r.host(host, authority, hasHost); err != nil {
		return err
	}
	length, hasLength := f["content-length"]
	coding, hasCoding := f["transfer-encoding"]
	if err := r.framing(length, coding, hasLength, hasCoding); err != nil {
		return err
	}
	if upgrade, ok := f["upgrade"]; ok {
		if !strings.EqualFold(upgrade, "websocket") || r.Minor == 0 || r.Method != "GET" || r.Length != 0 {
			return fmt.Errorf("upgrade to %.100q", upgrade)
		}
		r.Upgrade = true
	}
	for _, o := range strings.Split(strings.ToLower(f["connection"]), ",") {
		switch strings.Trim(o, " \t") {
		case "close":
			r.Close = true
		case "host", "content-length", "transfer-encoding": // would be removed on the way
			return fmt.Errorf("connection option %s", o)
		}
	}
	r.Close = r.Close || r.Minor == 0
	return nil
}

// field notes a field that is read here, in lower case; each may come once, but for
// Connection, whose values add up.
func field(f map[string]string, line string) error {
	key, value, ok := strings.Cut(line, ":")
	if !ok || !token(key) { // also a folded line, and a space before the colon
		return fmt.Errorf("field %.100q", line)
	}
	value, key = strings.Trim(value, " \t"), strings.ToLower(key)
	switch strings.ReplaceAll(key, "_", "-") {
	case "connection":
		value = f["connection"] + "," + value
	case "host", "content-length", "transfer-encoding", "upgrade":
		if _, twice := f[key]; twice {
			return fmt.Errorf("field %s twice", key)
		}
	case "http2-settings":
		return fmt.Errorf("an upgrade to HTTP/2")
	default:
		return nil
	}
	if strings.Contains(key, "_") { // some servers take '_' for '-' (CGI), so it would be read differently
		return fmt.Errorf("field %.100q", key)
	}
	f[key] = value
	return nil
}

func (r *Request) host(host, authority string, seen bool) error {
	switch {
	case authority != "" && (!seen || !strings.EqualFold(host, authority)):
		return fmt.Errorf("host %.100q of a request to %.100q", host, authority)
	case !seen || host == "":
		return fmt.Errorf("no host")
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		p, err := strconv.ParseUint(host[i+1:], 10, 16)
		if err != nil || p == 0 {
			return fmt.Errorf("port of host %.100q", host)
		}
		host, r.Port = host[:i], uint16(p)
	}
	if strings.HasPrefix(host, "[") {
		if a, err := netip.ParseAddr(strings.TrimSuffix(host[1:], "]")); err != nil || !a.Is6() || !strings.HasSuffix(host, "]") {
			return fmt.Errorf("host %.100q", host)
		}
		host = host[1 : len(host)-1]
	}
	r.Host = host
	return nil
}

func (r *Request) framing(length, coding string, hasLength, hasCoding bool) error {
	switch {
	case hasLength && hasCoding:
		return fmt.Errorf("both Content-Length and Transfer-Encoding")
	case hasCoding:
		if r.Minor == 0 || !strings.EqualFold(coding, "chunked") {
			return fmt.Errorf("transfer coding %.100q", coding)
		}
		r.Length = -1
	case hasLength:
		if length == "" || strings.Trim(length, "0123456789") != "" {
			return fmt.Errorf("content length %.100q", length)
		}
		n, err := strconv.ParseUint(length, 10, 63)
		if err != nil || n > math.MaxInt64 {
			return fmt.Errorf("content length %.100q", length)
		}
		r.Length = int64(n)
	}
	return nil
}

// token says whether s is a token of RFC 9110 5.6.2.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0 {
			continue
		}
		return false
	}
	return s != ""
}

// Chunked follows a chunked body (RFC 9112 7.1). The zero value is at its start.
type Chunked struct {
	state chunkState
	left  uint64 // bytes of the present chunk
	digit int    // digits of the size so far
	line  int    // bytes of the present line
	empty bool   // the present trailer line is empty so far
}

type chunkState int

const (
	inSize    chunkState = iota
	afterSize            // CR was seen
	inData
	afterData   // CR is due
	afterDataCR // LF is due
	inTrailer
	afterTrailer // CR was seen
	ended
)

// maxLine bounds a chunk's first line and a trailer's.
const maxLine = 4 << 10

// Next follows b and returns how many of its bytes belong to the body, and
// whether the body ends with them. Chunk extensions are refused: servers differ in where they end.
func (c *Chunked) Next(b []byte) (n int, end bool, err error) {
	bad := func() (int, bool, error) { return n, false, fmt.Errorf("%w: chunked body", ErrRequest) }
	for n < len(b) && c.state != ended {
		if c.state == inData {
			k := min(c.left, uint64(len(b)-n))
			n += int(k)
			if c.left -= k; c.left == 0 {
				c.state = afterData
			}
			continue
		}
		if c.line++; c.line > maxLine || !c.step(b[n]) {
			return bad()
		}
		n++
	}
	return n, c.state == ended, nil
}

// step follows one byte outside of data.
func (c *Chunked) step(b byte) bool {
	switch c.state {
	case inSize:
		if d := hex(b); d >= 0 && c.digit < 15 {
			c.left = c.left<<4 | uint64(d)
			c.digit++
			return true
		}
		c.state = afterSize
		return b == '\r' && c.digit > 0
	case afterSize:
		c.line = 0
		if c.state = inData; c.left == 0 {
			c.state, c.empty = inTrailer, true
		}
		c.digit = 0
		return b == '\n'
	case afterData:
		c.state = afterDataCR
		return b == '\r'
	case afterDataCR:
		c.state, c.line = inSize, 0
		return b == '\n'
	case inTrailer:
		if b == '\r' {
			c.state = afterTrailer
			return true
		}
		c.empty = false
		return b >= ' ' && b != 0x7f || b == '\t'
	case afterTrailer:
		c.state, c.line = inTrailer, 0
		if c.empty {
			c.state = ended
		}
		c.empty = true
		return b == '\n'
	}
	return false
}

func hex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
