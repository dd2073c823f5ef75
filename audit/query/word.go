package query

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

type test = func(r *segment.Record) bool

// kindWord is a kind, or a class that has no kind of its name.
func kindWord(word string) (test, error) {
	if k, err := event.ParseKind(word); err == nil {
		return func(r *segment.Record) bool { return r.Kind == k }, nil
	}
	if c, err := event.ParseClass(word); err == nil {
		return func(r *segment.Record) bool { return r.Kind.Class() == c }, nil
	}
	return nil, errors.New("want file, net, session, system, or one of " + strings.Join(kindNames(), " "))
}

func kindNames() []string {
	var names []string
	for _, k := range event.Kinds() {
		if k != event.Unknown {
			names = append(names, k.String())
		}
	}
	return names
}

func classWord(word string) (test, error) {
	c, err := event.ParseClass(word)
	if err != nil {
		return nil, errors.New("want file, exec, net, session or system")
	}
	return func(r *segment.Record) bool { return r.Kind.Class() == c }, nil
}

// verdictWord: a verdict is deny where something was refused ([event.Event.Denied]),
// and none where nothing was asked.
func verdictWord(word string) (test, error) {
	verdict := func(r *segment.Record) string {
		switch {
		case r.Denied():
			return "deny"
		case r.Kind.Class() == event.Session, r.Kind == event.Fork, r.Kind == event.Exit, r.Kind == event.Unknown:
			return "none"
		}
		return "allow"
	}
	switch word {
	case "allow", "deny", "none":
		return func(r *segment.Record) bool { return verdict(r) == word }, nil
	}
	return nil, errors.New("want allow, deny or none")
}

func accessWord(word string) (test, error) {
	switch word {
	case "read", "write", "exec":
		return func(r *segment.Record) bool { return r.Asked() == word }, nil
	}
	return nil, errors.New("want read, write or exec")
}

// wildcard returns a matcher of the whole text: "*" is any bytes, "?" one character,
// "\" takes the next one literally. At worst it costs the product of the lengths.
func wildcard(pattern string) func(s string) bool {
	return func(s string) bool {
		p, i, back, from := 0, 0, -1, 0 // back: behind the last "*", from: what it is tried at
		for i < len(s) {
			lit, star, n := step(pattern, p)
			switch {
			case star:
				p, back, from = p+n, p+n, i
				continue
			case n > 0 && lit == "" && pattern[p] == '?':
				_, size := utf8.DecodeRuneInString(s[i:])
				p, i = p+n, i+size
				continue
			case n > 0 && strings.HasPrefix(s[i:], lit):
				p, i = p+n, i+len(lit)
				continue
			case back < 0:
				return false
			}
			from++
			p, i = back, from
		}
		for p < len(pattern) && pattern[p] == '*' {
			p++
		}
		return p == len(pattern)
	}
}

// step is the element of pattern at p: a literal byte, or a wildcard; n is its length,
// 0 at the end.
func step(pattern string, p int) (lit string, star bool, n int) {
	switch {
	case p == len(pattern):
		return "", false, 0
	case pattern[p] == '*':
		return "", true, 1
	case pattern[p] == '?':
		return "", false, 1
	case pattern[p] == '\\' && p+1 < len(pattern):
		return pattern[p+1 : p+2], false, 2
	}
	return pattern[p : p+1], false, 1
}
