package query

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// SyntaxError says what is wrong with a text, and where.
type SyntaxError struct {
	Text   string // all of it
	Offset int    // of the place, bytes from 0
	Length int    // of the place, bytes; at least 1, may be just behind the end
	Msg    string // lower case, without a period
	Hint   string // what to write instead, or ""
}

// Error says where in characters, counted from 1.
func (e *SyntaxError) Error() string {
	at := utf8.RuneCountInString(e.Text[:min(e.Offset, len(e.Text))]) + 1
	return fmt.Sprintf("filter, character %d: %s", at, e.Msg)
}

// token is one piece of a text.
type token struct {
	kind   tokenKind
	off, n int    // where it stands
	text   string // a word as it is written; a value as it is meant
	quoted bool
}

type tokenKind uint8

const (
	tokenEnd     tokenKind = iota
	tokenWord              // a field or "and", "or", "not"
	tokenOp                // = != ~ !~ < <= > >=
	tokenNot               // !
	tokenAnd               // &&
	tokenOr                // ||
	tokenOpen              // (
	tokenClose             // )
	tokenComma             // between values
	tokenValue             // behind an operator or a comma
	tokenStrange           // none of these
)

// lexer cuts a text into tokens. What is a value depends on what stands before it,
// so the parser asks for the one or the other.
type lexer struct {
	text string
	at   int
}

func (l *lexer) fail(off, n int, hint, format string, args ...any) *SyntaxError {
	return &SyntaxError{Text: l.text, Offset: off, Length: max(n, 1), Msg: fmt.Sprintf(format, args...), Hint: hint}
}

func (l *lexer) space() {
	for l.at < len(l.text) && strings.IndexByte(" \t\r\n", l.text[l.at]) >= 0 {
		l.at++
	}
}

// operators, longer ones before those that they begin with.
var operators = []struct {
	text string
	kind tokenKind
}{
	{"==", tokenOp},
	{"!=", tokenOp},
	{"!~", tokenOp},
	{"<=", tokenOp},
	{">=", tokenOp},
	{"&&", tokenAnd},
	{"||", tokenOr},
	{"=", tokenOp},
	{"~", tokenOp},
	{"<", tokenOp},
	{">", tokenOp},
	{"!", tokenNot},
	{"(", tokenOpen},
	{")", tokenClose},
	{",", tokenComma},
}

// next returns the next token that is no value.
func (l *lexer) next() token {
	l.space()
	start := l.at
	if start == len(l.text) {
		return token{kind: tokenEnd, off: start, n: 1}
	}
	for _, o := range operators {
		if strings.HasPrefix(l.text[start:], o.text) {
			l.at += len(o.text)
			text := o.text
			if text == "==" { // what other languages call it
				text = "="
			}
			return token{kind: o.kind, off: start, n: len(o.text), text: text}
		}
	}
	for l.at < len(l.text) && wordByte(l.text[l.at]) {
		l.at++
	}
	if l.at == start {
		_, size := utf8.DecodeRuneInString(l.text[start:])
		l.at += size
		return token{kind: tokenStrange, off: start, n: size, text: l.text[start:l.at]}
	}
	return token{kind: tokenWord, off: start, n: l.at - start, text: l.text[start:l.at]}
}

// wordByte: names of fields, and what somebody may write in the place of one.
func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-./*:@", c) >= 0
}

// comma takes a comma that follows at once.
func (l *lexer) comma() bool {
	if l.at < len(l.text) && l.text[l.at] == ',' {
		l.at++
		return true
	}
	return false
}

// value returns the value that stands here.
func (l *lexer) value() (token, *SyntaxError) {
	l.space()
	start := l.at
	if start == len(l.text) {
		return token{}, l.fail(start, 1, `write "" for an empty one`, "a value is missing")
	}
	switch l.text[start] {
	case '\'':
		end := strings.IndexByte(l.text[start+1:], '\'')
		if end < 0 {
			return token{}, l.fail(start, len(l.text)-start, "", "the quote is not closed")
		}
		l.at = start + end + 2
		return l.quoted(start, l.text[start+1:l.at-1])
	case '"':
		prefix, err := strconv.QuotedPrefix(l.text[start:])
		if err != nil {
			return token{}, l.fail(start, len(l.text)-start, `escapes are those of Go: \" \\ \n \t \xff \u202e; single quotes have none`, "the quote is not closed, or has an unknown escape")
		}
		text, err := strconv.Unquote(prefix)
		if err != nil {
			return token{}, l.fail(start, len(prefix), "", "the quoted value does not make sense")
		}
		l.at = start + len(prefix)
		return l.quoted(start, text)
	}
	return l.bare()
}

// quoted ends a quoted value, behind which a word must end.
func (l *lexer) quoted(start int, text string) (token, *SyntaxError) {
	if l.at < len(l.text) && strings.IndexByte(" \t\r\n,)", l.text[l.at]) < 0 {
		return token{}, l.fail(l.at, 1, "put all of the value in quotes", "something stands directly behind a quote")
	}
	return token{kind: tokenValue, off: start, n: l.at - start, text: text, quoted: true}, nil
}

// bare returns a value without quotes: to the next space, comma or closing
// parenthesis that is outside of {} and [].
func (l *lexer) bare() (token, *SyntaxError) {
	start, braces, set := l.at, 0, false
	for ; l.at < len(l.text); l.at++ {
		c := l.text[l.at]
		switch {
		case strings.IndexByte(" \t\r\n", c) >= 0, (c == ',' || c == ')') && braces == 0 && !set:
			return l.bareEnd(start)
		case c == '\\' && l.at+1 < len(l.text):
			l.at++
		case c == '(' || c == '"' || c == '\'':
			return token{}, l.fail(l.at, 1, "put all of the value in quotes", "%q in a value without quotes", c)
		case c == '{':
			braces++
		case c == '}' && braces > 0:
			braces--
		case c == '[':
			set = true
		case c == ']':
			set = false
		}
	}
	return l.bareEnd(start)
}

func (l *lexer) bareEnd(start int) (token, *SyntaxError) {
	if l.at == start {
		return token{}, l.fail(start, 1, `write "" for an empty one`, "a value is missing")
	}
	return token{kind: tokenValue, off: start, n: l.at - start, text: l.text[start:l.at]}, nil
}
