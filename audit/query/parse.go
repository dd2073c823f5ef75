package query

import (
	"slices"
	"strings"
)

// Limits of a text.
const (
	maxText  = 64 << 10 // bytes
	maxTerms = 1000
	maxDepth = 64
)

// parser reads by recursive descent: any = all {"or" all}, all = one {["and"] one},
// one = "not" one | "(" any ")" | term.
type parser struct {
	lex   lexer
	env   Env
	token token // the next one
	terms int
	depth int
}

func (p *parser) advance() { p.token = p.lex.next() }

func (p *parser) fail(t token, hint, format string, args ...any) *SyntaxError {
	return p.lex.fail(t.off, t.n, hint, format, args...)
}

func (t token) is(kind tokenKind, word string) bool {
	return t.kind == kind || t.kind == tokenWord && t.text == word
}

func (p *parser) any() (node, *SyntaxError) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail(p.token, "", "more than %d levels", maxDepth)
	}
	defer func() { p.depth-- }()
	var parts anyOf
	for {
		n, err := p.all()
		if err != nil {
			return nil, err
		}
		parts = append(parts, n)
		if !p.token.is(tokenOr, "or") {
			break
		}
		p.advance()
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return parts, nil
}

func (p *parser) all() (node, *SyntaxError) {
	var parts all
	for {
		n, err := p.one()
		if err != nil {
			return nil, err
		}
		parts = append(parts, n)
		if p.token.is(tokenAnd, "and") {
			p.advance()
			continue
		}
		if p.token.kind == tokenEnd || p.token.kind == tokenClose || p.token.is(tokenOr, "or") {
			break
		}
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return parts, nil
}

func (p *parser) one() (node, *SyntaxError) {
	t := p.token
	switch {
	case t.is(tokenNot, "not"):
		if p.depth++; p.depth > maxDepth {
			return nil, p.fail(t, "", "more than %d levels", maxDepth)
		}
		defer func() { p.depth-- }()
		p.advance()
		n, err := p.one()
		if err != nil {
			return nil, err
		}
		return opposite{n}, nil
	case t.kind == tokenOpen:
		p.advance()
		n, err := p.any()
		if err != nil {
			return nil, err
		}
		if p.token.kind != tokenClose {
			return nil, p.fail(t, "", "the parenthesis is not closed")
		}
		p.advance()
		return n, nil
	case t.kind == tokenWord && t.text != "and" && t.text != "or":
		return p.term()
	case t.kind == tokenEnd:
		return nil, p.fail(t, "", "a condition is missing at the end")
	case t.kind == tokenOp:
		return nil, p.fail(t, "FIELD"+t.text+"VALUE", "a field is missing before %q", t.text)
	}
	return nil, p.fail(t, "", "a condition is missing before %q", p.lex.text[t.off:t.off+t.n])
}

// term reads FIELD or FIELD OP VALUES.
func (p *parser) term() (node, *SyntaxError) {
	name := p.token
	f := findField(name.text)
	if f == nil {
		return nil, p.fail(name, nearest(name.text), "there is no field %q", name.text)
	}
	if p.terms++; p.terms > maxTerms {
		return nil, p.fail(name, "", "more than %d conditions", maxTerms)
	}
	t := &term{field: f}
	p.advance()
	op := p.token
	if op.kind != tokenOp {
		if f.kind == wordValue || f.kind >= timeValue {
			return nil, p.fail(name, name.text+strings.Fields(takes[f.kind])[0]+"...", "%s wants a value", name.text)
		}
		_, err := t.compile(p)
		return t, p.about(name, err)
	}
	if !slices.Contains(strings.Fields(takes[f.kind]), op.text) {
		return nil, p.fail(op, name.text+" takes "+takes[f.kind], "%s does not take %s", name.text, op.text)
	}
	negated := strings.HasPrefix(op.text, "!")
	if t.op = op.text; negated {
		t.op = map[string]string{"!=": "=", "!~": "~"}[op.text]
	}
	values, err := p.values(t)
	if err != nil {
		return nil, err
	}
	if len(values) > 1 && strings.ContainsAny(t.op, "<>") {
		return nil, p.fail(values[1], "", "%s compares with one value", op.text)
	}
	if at, err := t.compile(p); err != nil {
		return nil, p.about(values[at], err)
	}
	p.advance()
	if negated {
		return opposite{t}, nil
	}
	return t, nil
}

// about is err at t, or nil.
func (p *parser) about(t token, err error) *SyntaxError {
	if err == nil {
		return nil
	}
	msg := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error parsing regexp: "), "compile glob 0: ")
	return p.fail(t, "", "%q: %s", t.text, msg)
}

// values reads the values behind an operator; the next token is not read yet.
func (p *parser) values(t *term) ([]token, *SyntaxError) {
	var out []token
	for {
		v, err := p.lex.value()
		if err != nil {
			return nil, err
		}
		out, t.values = append(out, v), append(t.values, v.text)
		if !p.lex.comma() {
			return out, nil
		}
	}
}

// nearest says which field was meant, if that can be guessed.
func nearest(word string) string {
	lower := strings.ToLower(word)
	if i := strings.IndexByte(lower, ':'); i > 0 && findField(lower[:i]) != nil {
		return "write " + lower[:i] + "=" + word[i+1:]
	}
	if other := otherNames[lower]; other != "" {
		return "did you mean " + other + "?"
	}
	if findField(lower) != nil || lower == "and" || lower == "or" || lower == "not" {
		return "did you mean " + lower + "?"
	}
	best, least := "", 3
	for _, f := range fields {
		if d := distance(lower, f.name); d < least && d < len(f.name) {
			best, least = f.name, d
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return "write any~" + quote(word) + " to find text anywhere in a record; agentos audit query --help lists the fields"
}

// distance is how many letters must be put in, taken out or changed to make b of a;
// words that are long are far.
func distance(a, b string) int {
	if len(a) > 32 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(diagonal+cost, above+1, row[j]+1)
			diagonal = above
		}
	}
	return row[len(b)]
}
