package event

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMarks is how many combining marks may follow one character unescaped;
// more ("zalgo" names) would paint over the lines around.
const maxMarks = 2

// Printable returns s so that it cannot act on a terminal or hide anything:
// control bytes, escape sequences, newlines, bytes that are not UTF-8,
// direction overrides and characters without a width or shape of their own
// appear as \n, \x1b, \u202e; a backslash appears as \\, so that the result
// is unambiguous. Printable ASCII is returned as it is, without a copy.
func Printable(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	marks := maxMarks // no mark may start the text
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if unicode.Is(unicode.M, r) {
			marks++
		} else {
			marks = 0
		}
		switch {
		case r == utf8.RuneError && n == 1:
			writeHex(&b, `\x`, rune(s[i]), 2)
			marks = maxMarks
		case r == '\\':
			b.WriteString(`\\`)
		case visible(r) && marks <= maxMarks:
			b.WriteString(s[i : i+n])
		default:
			writeEscape(&b, r)
			marks = maxMarks
		}
		i += n
	}
	return b.String()
}

// plain reports whether s is printable ASCII without a backslash.
func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return true
}

// visible reports whether r has a shape and cannot act on a terminal.
// [unicode.IsPrint] excludes controls, formats (bidi, joiners), surrogates,
// private use and spaces other than U+0020; some letters and marks that are
// drawn as nothing remain.
func visible(r rune) bool {
	return unicode.IsPrint(r) && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) &&
		!unicode.Is(unicode.Variation_Selector, r)
}

func writeEscape(b *strings.Builder, r rune) {
	switch {
	case r == '\n':
		b.WriteString(`\n`)
	case r == '\t':
		b.WriteString(`\t`)
	case r == '\r':
		b.WriteString(`\r`)
	case r < 0x80:
		writeHex(b, `\x`, r, 2)
	case r < 0x10000:
		writeHex(b, `\u`, r, 4)
	default:
		writeHex(b, `\U`, r, 8)
	}
}

func writeHex(b *strings.Builder, prefix string, r rune, width int) {
	digits := strconv.FormatUint(uint64(r), 16)
	b.WriteString(prefix)
	for i := len(digits); i < width; i++ {
		b.WriteByte('0')
	}
	b.WriteString(digits)
}
