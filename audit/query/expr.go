package query

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/policy/glob"
)

// node is a part of a query.
type node interface {
	match(m *Matcher, r *segment.Record) bool
	// may tells what match can answer for records of a session, of which nothing else is
	// known.
	may(m *Matcher) (yes, no bool)
	write(b *strings.Builder, inner bool)
}

// all holds when each part does; none are always true.
type all []node

// anyOf holds when one part does.
type anyOf []node

// opposite holds when its part does not.
type opposite struct{ of node }

func (a all) match(m *Matcher, r *segment.Record) bool {
	for _, n := range a {
		if !n.match(m, r) {
			return false
		}
	}
	return true
}

func (a all) may(m *Matcher) (yes, no bool) {
	yes = true
	for _, n := range a {
		y, f := n.may(m)
		yes, no = yes && y, no || f
	}
	return yes, no
}

func (a all) write(b *strings.Builder, inner bool) { list(b, a, " ", inner && len(a) != 1) }

func (a anyOf) match(m *Matcher, r *segment.Record) bool {
	for _, n := range a {
		if n.match(m, r) {
			return true
		}
	}
	return false
}

func (a anyOf) may(m *Matcher) (yes, no bool) {
	no = true
	for _, n := range a {
		y, f := n.may(m)
		yes, no = yes || y, no && f
	}
	return yes, no
}

func (a anyOf) write(b *strings.Builder, inner bool) { list(b, a, " or ", inner) }

func list(b *strings.Builder, parts []node, between string, inner bool) {
	if inner {
		b.WriteByte('(')
	}
	for i, n := range parts {
		if i > 0 {
			b.WriteString(between)
		}
		n.write(b, true)
	}
	if inner {
		b.WriteByte(')')
	}
}

func (o opposite) match(m *Matcher, r *segment.Record) bool { return !o.of.match(m, r) }

func (o opposite) may(m *Matcher) (yes, no bool) {
	y, n := o.of.may(m)
	return n, y
}

func (o opposite) write(b *strings.Builder, _ bool) {
	b.WriteString("not ")
	o.of.write(b, true)
}

// term is FIELD OP VALUES. "!=" and "!~" are opposites of terms; so ops are =, ~, <,
// <=, >, >=, and "" for a field alone.
type term struct {
	field  *field
	op     string
	values []string
	test   func(m *Matcher, r *segment.Record) bool
}

func (t *term) match(m *Matcher, r *segment.Record) bool { return t.test(m, r) }

func (t *term) may(m *Matcher) (yes, no bool) {
	if t.field.name != "session" || m.session == "" {
		return true, true
	}
	yes = t.test(m, &segment.Record{})
	return yes, !yes
}

func (t *term) write(b *strings.Builder, _ bool) {
	b.WriteString(t.field.name)
	b.WriteString(t.op)
	for i, v := range t.values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quote(v))
	}
}

// quote writes a value so that it is read as the same.
func quote(v string) string {
	bare := v != ""
	for _, c := range []byte(v) {
		bare = bare && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-./*?:@+%^$~", c) >= 0)
	}
	if bare {
		return v
	}
	return strconv.Quote(v)
}

// matchTexts matches records of which f matches one of the texts; empty is the answer
// for those that have none.
func matchTexts(f *field, match func(string) bool, empty bool) func(m *Matcher, r *segment.Record) bool {
	return func(m *Matcher, r *segment.Record) bool {
		none := true
		for s := range f.texts(r, m) {
			if none = false; match(s) {
				return true
			}
		}
		return none && empty
	}
}

// compile makes the test of a term. The error is about values[at].
func (t *term) compile(p *parser) (at int, err error) {
	switch f := t.field; {
	case t.op == "":
		t.test = isSet(f)
	case t.op == "~":
		return t.expressions()
	case f.kind <= addressValue:
		return t.patterns(p.env.Home)
	case f.kind == numberValue || f.kind == errnoValue:
		return t.compareNumbers()
	case f.kind == wordValue:
		return t.compareWords()
	case f.kind == flagValue:
		return t.compareFlags()
	default:
		return t.compareTimes(p.env)
	}
	return 0, nil
}

// isSet is the test of a field alone.
func isSet(f *field) func(m *Matcher, r *segment.Record) bool {
	switch {
	case f.flag != nil:
		return func(m *Matcher, r *segment.Record) bool { return f.flag(r, m) }
	case f.numbers != nil:
		return func(_ *Matcher, r *segment.Record) bool { return f.numbers(r) != [2]number{} }
	}
	return matchTexts(f, func(string) bool { return true }, false)
}

func (t *term) expressions() (at int, err error) {
	res := make([]*regexp.Regexp, len(t.values))
	for i, v := range t.values {
		if t.field.kind == hostValue {
			v = "(?i:" + v + ")"
		}
		if res[i], err = regexp.Compile(v); err != nil {
			return i, err
		}
	}
	t.test = matchTexts(t.field, func(s string) bool {
		for _, re := range res {
			if re.MatchString(s) {
				return true
			}
		}
		return false
	}, false)
	return 0, nil
}

// patterns compiles "=" of texts.
func (t *term) patterns(home string) (at int, err error) {
	var tests []func(string) bool
	var globs []string
	empty := false
	for i, v := range t.values {
		switch {
		case v == "":
			empty = true
		case t.field.kind == pathValue:
			g := absolute(v, home)
			if err := glob.Valid(g); err != nil {
				return i, err
			}
			t.values[i] = g
			globs = append(globs, g)
		case t.field.kind == hostValue:
			match := wildcard(strings.ToLower(v))
			tests = append(tests, func(s string) bool { return match(strings.ToLower(s)) })
		case t.field.kind == addressValue:
			tests = append(tests, address(v))
		default:
			tests = append(tests, wildcard(v))
		}
	}
	if len(globs) > 0 {
		a, err := glob.Compile(globs, func(matched []uint16) glob.Accept {
			if len(matched) == 0 {
				return glob.Accept{}
			}
			return glob.Accept{Bits: 1 << glob.Read}
		})
		if err != nil {
			return 0, err
		}
		tests = append(tests, func(s string) bool { return a.Match(s).Allows(glob.Read) })
	}
	t.test = matchTexts(t.field, func(s string) bool {
		for _, match := range tests {
			if match(s) {
				return true
			}
		}
		return false
	}, empty)
	return 0, nil
}

// literal makes a glob of a path.
var literal = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, "{", `\{`, "}", `\}`, ",", `\,`)

// absolute makes of what people write the glob of a whole path: "~" is the home, and
// what does not begin at the root may stand anywhere.
func absolute(g, home string) string {
	switch {
	case g == "~":
		return literal.Replace(home)
	case strings.HasPrefix(g, "~/"):
		return literal.Replace(strings.TrimSuffix(home, "/")) + g[1:]
	case strings.HasPrefix(g, "/"), strings.HasPrefix(g, "**/"):
		return g
	}
	return "**/" + strings.TrimPrefix(g, "./")
}

// address matches socket addresses: those of a network, of one address, or as text.
func address(v string) func(string) bool {
	network, err := netip.ParsePrefix(v)
	if one, bad := netip.ParseAddr(v); bad == nil {
		network, err = netip.PrefixFrom(one, one.BitLen()), nil
	}
	if err != nil {
		return wildcard(v)
	}
	return func(s string) bool {
		at, err := netip.ParseAddrPort(s)
		return err == nil && (network.Contains(at.Addr()) || network.Contains(at.Addr().Unmap()))
	}
}

// holds says what each comparison wants of a three-way one.
func holds(op string, c int) bool {
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	case ">=":
		return c >= 0
	}
	return c == 0
}
