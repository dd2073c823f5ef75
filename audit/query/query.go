package query

import (
	"strings"
	"time"

	"github.com/agentos/agentos/audit/segment"
)

// Env is what a text may refer to.
type Env struct {
	Now      time.Time
	Location *time.Location // of times without a zone; nil: UTC
	Home     string         // what "~" is in paths
}

func (e Env) location() *time.Location {
	if e.Location == nil {
		return time.UTC
	}
	return e.Location
}

// Query chooses records. The zero Query, as the empty text, chooses all of them. It
// may be used by several goroutines.
type Query struct{ root all }

// Parse reads a text. Its error is a [*SyntaxError].
func Parse(text string, env Env) (Query, error) {
	p := parser{lex: lexer{text: text}, env: env}
	if len(text) > maxText {
		return Query{}, p.lex.fail(maxText, 1, "", "longer than %d bytes", maxText)
	}
	p.advance()
	if p.token.kind == tokenEnd {
		return Query{}, nil
	}
	n, err := p.any()
	if err != nil {
		return Query{}, err
	}
	if p.token.kind != tokenEnd {
		return Query{}, p.fail(p.token, "", "%q closes nothing", p.token.text)
	}
	if a, ok := n.(all); ok {
		return Query{a}, nil
	}
	return Query{all{n}}, nil
}

// Quote writes a value so that [Parse] reads it as it is.
func Quote(value string) string { return quote(value) }

// Begins reports whether word, alone, can begin a text: it is a field, "and", "or" or
// "not".
func Begins(word string) bool {
	return findField(word) != nil || word == "and" || word == "or" || word == "not"
}

// And chooses what both choose.
func (q Query) And(o Query) Query {
	return Query{append(append(all(nil), q.root...), o.root...)}
}

// String returns a text that means the same; times are absolute and UTC.
func (q Query) String() string {
	var b strings.Builder
	q.root.write(&b, false)
	return b.String()
}

// Matcher decides about the records of one session. Show it every record in order:
// what the jail check tried is known from those before.
func (q Query) Matcher(session, name string) *Matcher {
	return &Matcher{query: q.root, session: session, name: name}
}

// Concerns reports whether q can choose any record of a session, by its id and its
// name, so that other logs need not be read.
func (q Query) Concerns(session, name string) bool {
	yes, _ := q.root.may(q.Matcher(session, name))
	return yes
}

// Matcher is a [Query] on its way through one session. It is for one goroutine.
type Matcher struct {
	query         all
	session, name string // "" takes the session from the record
	tries         Tries
	tried         bool // the record at hand is an act of the jail check
}

// Match reports whether the query chooses r.
func (m *Matcher) Match(r *segment.Record) bool {
	m.tried = m.tries.Has(r)
	return m.query.match(m, r)
}
