package glob

import (
	"fmt"
	"math/bits"
	"strings"
)

// Bounds on one glob and on all.
const (
	maxGlobBytes    = 4096
	maxBraces       = 64
	maxAlternatives = 256
	maxGlobs        = 8192
	maxExpanded     = 16384
)

// Error says which glob cannot be compiled, where, and why.
type Error struct {
	Index int    // of the glob; -1 if all of them together are the reason
	Pos   int    // byte offset in the glob; 0 if no single place is the reason
	Msg   string // "empty component"
}

func (e *Error) Error() string {
	if e.Index < 0 {
		return "compile globs: " + e.Msg
	}
	return fmt.Sprintf("compile glob %d: byte %d: %s", e.Index, e.Pos+1, e.Msg)
}

// Valid checks one glob's syntax. Its error is an [*Error] with Index 0.
func Valid(glob string) error {
	_, err := parse(glob)
	if err != nil {
		return err
	}
	return nil
}

// kind is what the names of a component must look like.
type kind uint8

const (
	star    kind = iota // any name
	literal             // pre
	prefix              // pre*
	suffix              // *suf
	both                // pre*suf
	other               // toks
	deep                // ** : any number of names
)

// pattern is one component of a glob.
type pattern struct {
	kind     kind
	pre, suf string
	toks     []token // of kind other
}

// token matches one byte out of a set, or any run of bytes.
type token struct {
	run bool
	set byteset
}

// byteset has bit b of word b/64 set for every byte b in it.
type byteset [4]uint64

func (s *byteset) add(b byte)      { s[b>>6] |= 1 << (b & 63) }
func (s *byteset) has(b byte) bool { return s[b>>6]>>(b&63)&1 == 1 }

func (s *byteset) negate() {
	for i := range s {
		s[i] = ^s[i]
	}
}

// size is the number of bytes in the set.
func (s *byteset) size() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// only answers the one byte of a set that has just one.
func (s *byteset) only() (b byte, ok bool) {
	n := 0
	for i, w := range s {
		if w != 0 {
			b = byte(i<<6 + bits.TrailingZeros64(w))
			n += bits.OnesCount64(w)
		}
	}
	return b, n == 1
}

// text is a piece of a glob whose bytes know where they came from.
type text struct {
	s  string
	at []int
}

func (t text) cut(from, to int) text { return text{t.s[from:to], t.at[from:to]} }

func (t text) join(parts ...text) text {
	t.at = t.at[:len(t.at):len(t.at)]
	for _, p := range parts {
		t.s += p.s
		t.at = append(t.at, p.at...)
	}
	return t
}

// pos is the glob's offset of byte i, also for i at or behind the end.
func (t text) pos(i int) int {
	if len(t.at) == 0 {
		return 0
	}
	return t.at[min(i, len(t.at)-1)]
}

// parse expands a glob and splits every alternative into components.
func parse(glob string) ([][]pattern, *Error) {
	switch {
	case glob == "":
		return nil, &Error{Msg: "empty glob"}
	case len(glob) > maxGlobBytes:
		return nil, &Error{Msg: fmt.Sprintf("longer than %d bytes", maxGlobBytes)}
	}
	t := text{s: glob, at: make([]int, len(glob))}
	for i := range t.at {
		t.at[i] = i
	}
	if i := strings.IndexByte(glob, 0); i >= 0 {
		return nil, &Error{Pos: i, Msg: "a path holds no zero byte"}
	}
	if strings.Count(glob, "{") > maxBraces {
		return nil, &Error{Pos: strings.IndexByte(glob, '{'), Msg: fmt.Sprintf("more than %d braces", maxBraces)}
	}
	alts, err := expand(t, nil)
	if err != nil {
		return nil, err
	}
	out := make([][]pattern, 0, len(alts))
	for _, a := range alts {
		parts, err := split(a)
		if err != nil {
			return nil, err
		}
		out = append(out, parts)
	}
	return out, nil
}

// skip answers the index behind the escape, set or byte at i.
func skip(s string, i int) int {
	switch s[i] {
	case '\\':
		return min(i+2, len(s))
	case '[':
		if end := setEnd(s, i); end > 0 {
			return end
		}
	}
	return i + 1
}

// setEnd answers the index behind the ']' of the set that begins at i, or 0.
func setEnd(s string, i int) int {
	i++
	if i < len(s) && (s[i] == '!' || s[i] == '^') {
		i++
	}
	for first := true; i < len(s) && s[i] != '/'; first = false {
		switch {
		case s[i] == ']' && !first:
			return i + 1
		case s[i] == '\\':
			i++
		}
		i++
	}
	return 0
}

// expand appends the alternatives of t's braces to out.
func expand(t text, out []text) ([]text, *Error) {
	open := 0
	for open < len(t.s) && t.s[open] != '{' {
		if t.s[open] == '}' {
			return nil, &Error{Pos: t.pos(open), Msg: "} without {"}
		}
		open = skip(t.s, open)
	}
	if open == len(t.s) {
		if len(out) == maxAlternatives {
			return nil, &Error{Pos: t.pos(0), Msg: fmt.Sprintf("more than %d alternatives", maxAlternatives)}
		}
		return append(out, t), nil
	}
	depth, from, closed := 1, open+1, -1
	var alts []text
	for i := open + 1; i < len(t.s) && closed < 0; i = skip(t.s, i) {
		switch t.s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				alts, closed = append(alts, t.cut(from, i)), i
			}
		case ',':
			if depth == 1 {
				alts, from = append(alts, t.cut(from, i)), i+1
			}
		}
	}
	if closed < 0 {
		return nil, &Error{Pos: t.pos(open), Msg: "{ without }"}
	}
	var err *Error
	for _, a := range alts {
		if out, err = expand(t.cut(0, open).join(a, t.cut(closed+1, len(t.s))), out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// split parses one alternative: absolute, or floating.
func split(t text) ([]pattern, *Error) {
	rest := t
	switch {
	case t.s == "/":
		return nil, nil
	case strings.HasPrefix(t.s, "/"):
		rest = t.cut(1, len(t.s))
	case t.s != "**" && !strings.HasPrefix(t.s, "**/"):
		return nil, &Error{Pos: t.pos(0), Msg: "must begin with / or **/"}
	}
	var out []pattern
	for from, more := 0, true; more; {
		to := from
		for to < len(rest.s) && rest.s[to] != '/' {
			to = skip(rest.s, to)
		}
		more = to < len(rest.s)
		if from == to {
			return nil, &Error{Pos: rest.pos(from), Msg: "empty component"}
		}
		p, err := component(rest.cut(from, to))
		if err != nil {
			return nil, err
		}
		if p.kind != deep || len(out) == 0 || out[len(out)-1].kind != deep {
			out = append(out, p)
		}
		from = to + 1
	}
	return out, nil
}

// component parses what stands between two slashes.
func component(t text) (pattern, *Error) {
	if t.s == "**" {
		return pattern{kind: deep}, nil
	}
	p := plain(t.s)
	if p.kind == star {
		var err *Error
		if p, err = tokens(t); err != nil {
			return pattern{}, err
		}
	}
	switch {
	case p.kind == literal && (p.pre == "." || p.pre == ".."):
		return pattern{}, &Error{Pos: t.pos(0), Msg: "paths are clean: no component is . or .."}
	case p.shortest() > nameMax:
		return pattern{}, &Error{Pos: t.pos(0), Msg: fmt.Sprintf("no name is longer than %d bytes", nameMax)}
	}
	return p, nil
}

// plain answers at once for what most components are: a literal, and one with a
// single * in it. For others, and for * itself, it answers the zero pattern.
func plain(s string) pattern {
	i := strings.IndexAny(s, `*?[\`)
	switch {
	case i < 0:
		return pattern{kind: literal, pre: s}
	case s[i] != '*' || strings.ContainsAny(s[i+1:], `*?[\`) || s == "*":
		return pattern{}
	case i == len(s)-1:
		return pattern{kind: prefix, pre: s[:i]}
	case i == 0:
		return pattern{kind: suffix, suf: s[1:]}
	}
	return pattern{kind: both, pre: s[:i], suf: s[i+1:]}
}

// tokens reads any component.
func tokens(t text) (pattern, *Error) {
	toks := make([]token, 0, len(t.s))
	for i := 0; i < len(t.s); {
		var k token
		switch c := t.s[i]; c {
		case '*':
			if i+1 < len(t.s) && t.s[i+1] == '*' {
				return pattern{}, &Error{Pos: t.pos(i), Msg: "** must be a whole component"}
			}
			k.run = true
			i++
		case '?':
			k.set.negate()
			i++
		case '[':
			set, end, err := parseSet(t, i)
			if err != nil {
				return pattern{}, err
			}
			k.set, i = set, end
		case '\\':
			if i+1 == len(t.s) || t.s[i+1] == '/' {
				return pattern{}, &Error{Pos: t.pos(i), Msg: `\ with nothing to escape`}
			}
			k.set.add(t.s[i+1])
			i += 2
		default:
			k.set.add(c)
			i++
		}
		toks = append(toks, k)
	}
	return classify(toks), nil
}

// parseSet parses the [...] at i and answers the index behind it.
func parseSet(t text, i int) (set byteset, end int, err *Error) {
	end = setEnd(t.s, i)
	if end == 0 {
		return set, 0, &Error{Pos: t.pos(i), Msg: "[ without ]"}
	}
	body, at := t.s[i+1:end-1], i+1
	if body[0] == '^' {
		return set, 0, &Error{Pos: t.pos(at), Msg: `write [!...] for "none of", or \^`}
	}
	not := body[0] == '!'
	if not {
		body, at = body[1:], at+1
	}
	one := func(j int) (byte, int) {
		if body[j] == '\\' && j+1 < len(body) {
			return body[j+1], j + 2
		}
		return body[j], j + 1
	}
	for j := 0; j < len(body); {
		from := j
		lo, next := one(j)
		hi := lo
		if next+1 < len(body) && body[next] == '-' {
			hi, next = one(next + 1)
		}
		if hi < lo {
			return set, 0, &Error{Pos: t.pos(at + from), Msg: "range ends before it begins"}
		}
		for b := int(lo); b <= int(hi); b++ {
			set.add(byte(b))
		}
		j = next
	}
	if not {
		set.negate()
	}
	return set, end, nil
}

// shortest is the length of the shortest name that p matches, in bytes.
func (p *pattern) shortest() int {
	n := len(p.pre) + len(p.suf)
	for _, k := range p.toks {
		if !k.run {
			n++
		}
	}
	return n
}

// classify finds the cheapest kind for a component.
func classify(toks []token) pattern {
	var part [2]strings.Builder
	runs := 0
	for _, k := range toks {
		if k.run {
			runs++
			continue
		}
		b, one := k.set.only()
		if !one || runs > 1 {
			return pattern{kind: other, toks: toks}
		}
		part[runs].WriteByte(b)
	}
	p := pattern{pre: part[0].String(), suf: part[1].String()}
	switch {
	case runs > 1:
		return pattern{kind: other, toks: toks}
	case runs == 0:
		p.kind = literal
	case p.pre == "" && p.suf == "":
		p.kind = star
	case p.suf == "":
		p.kind = prefix
	case p.pre == "":
		p.kind = suffix
	default:
		p.kind = both
	}
	return p
}

// matches is the definition of a component pattern; slow, and not for deep.
func (p *pattern) matches(name string) bool {
	switch p.kind {
	case star:
		return true
	case literal:
		return name == p.pre
	case prefix, suffix, both:
		return len(name) >= len(p.pre)+len(p.suf) && strings.HasPrefix(name, p.pre) && strings.HasSuffix(name, p.suf)
	case other:
		return matchTokens(p.toks, name)
	default:
		return false
	}
}

// matchTokens tries every length for every run.
func matchTokens(toks []token, name string) bool {
	for i, k := range toks {
		if k.run {
			for n := 0; n <= len(name); n++ {
				if matchTokens(toks[i+1:], name[n:]) {
					return true
				}
			}
			return false
		}
		if name == "" || !k.set.has(name[0]) {
			return false
		}
		name = name[1:]
	}
	return name == ""
}
