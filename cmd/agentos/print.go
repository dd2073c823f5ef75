package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/orchestrator"
)

// printer writes to one of our streams; stdout is buffered until flush.
type printer struct {
	file  *os.File
	w     *bufio.Writer
	color bool
	fit   func(string) (string, bool) // what of a line is printed; nil: all
}

func newPrinter(f *os.File, noColor bool) printer {
	p := printer{file: f, w: bufio.NewWriterSize(f, 32<<10)}
	p.color = !noColor && p.terminal()
	return p
}

func (p *printer) terminal() bool { return p.file != nil && term.IsTerminal(int(p.file.Fd())) }

func (p *printer) flush() error { return p.w.Flush() }

// paint wraps s in an SGR sequence where colours are wanted.
func (p *printer) paint(sgr, s string) string {
	if !p.color {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}

func (p *printer) red(s string) string   { return p.paint("31", s) }
func (p *printer) green(s string) string { return p.paint("32", s) }
func (p *printer) dim(s string) string   { return p.paint("2", s) }

func (p *printer) linef(format string, a ...any) {
	line, ok := fmt.Sprintf(format, a...), true
	if p.fit != nil {
		line, ok = p.fit(line)
	}
	if ok {
		_, _ = p.w.WriteString(line + "\n")
	}
}

// json writes v, indented for a person. What could act on a terminal is escaped, as in
// the JSON of events.
func (p *printer) json(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	for _, r := range b.String() { // only strings have anything else than ASCII
		switch {
		case r == '\n', r >= ' ' && r < 0x7f, r == utf8.RuneError, r > 0x7f && event.Printable(string(r)) == string(r):
			_, _ = p.w.WriteRune(r)
		case r < 0x10000:
			_, _ = fmt.Fprintf(p.w, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			_, _ = fmt.Fprintf(p.w, `\u%04x\u%04x`, high, low)
		}
	}
	return nil
}

// note says something to the user on stderr, at once.
func (p *printer) note(format string, a ...any) {
	p.linef("agentos: %s", clean(fmt.Sprintf(format, a...)))
	_ = p.flush()
}

func (p *printer) hint(text string) {
	if text != "" {
		p.linef("hint: %s", clean(text))
		_ = p.flush()
	}
}

func (p *printer) failure(err error) {
	p.note("%s", strings.TrimSpace(err.Error()))
	p.hint(orchestrator.Hint(err))
}

// clean makes one printable line of a message of ours, which may quote hostile
// text. Backslashes stay single: messages quote with %q where it matters.
func clean(s string) string {
	return strings.ReplaceAll(event.Printable(s), `\\`, `\`)
}

// table aligns rows; cells are printable already and may be painted.
type table struct {
	head []string
	rows [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(p *printer) {
	width := make([]int, len(t.head))
	for _, r := range append([][]string{t.head}, t.rows...) {
		for i, c := range r {
			width[i] = max(width[i], cellWidth(c))
		}
	}
	for n, r := range append([][]string{t.head}, t.rows...) {
		var b strings.Builder
		for i, c := range r {
			if i > 0 {
				b.WriteString("  ")
			}
			if n == 0 {
				c = p.dim(c)
			}
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-cellWidth(c)))
			}
		}
		p.linef("%s", b.String())
	}
}

// cellWidth counts characters, not SGR sequences.
func cellWidth(s string) int {
	n := 0
	for {
		i := strings.IndexByte(s, 0x1b)
		if i < 0 {
			return n + utf8.RuneCountInString(s)
		}
		n += utf8.RuneCountInString(s[:i])
		end := strings.IndexByte(s[i:], 'm')
		if end < 0 {
			return n
		}
		s = s[i+end+1:]
	}
}

// cutCells keeps the first n characters of s, and every SGR sequence.
func cutCells(s string, n int) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] == 0x1b {
			end := i + strings.IndexByte(s[i:], 'm') + 1
			b.WriteString(s[i:end])
			i = end
			continue
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		if n--; n >= 0 {
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// size prints bytes for people.
func size(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
