package view

import (
	"strings"
	"time"
	"unicode"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

// Table lays records out in lines: time, process, what, object, verdict, rule.
// The zero value has no colours and cuts nothing.
type Table struct {
	Color    bool           // SGR colours
	Width    int            // cells in a line, 0: do not cut (not a terminal)
	Location *time.Location // nil: UTC
	Session  bool           // with a column for the session

	day    string // of the last line
	headed bool
}

// Widths of the columns in cells; two between columns.
const (
	timeWidth    = 12
	sessionWidth = 12
	processWidth = 18
	whatWidth    = 12
	objectWidth  = 48 // at least, when lines are not cut
	verdictWidth = 7
	gap          = "  "
)

// Append appends the line of r to dst; before the first one the head of the
// table, and before the first one of a day its date.
func (t *Table) Append(dst []byte, r *segment.Record) []byte {
	when := r.Time.UTC()
	if t.Location != nil {
		when = r.Time.In(t.Location)
	}
	if day := when.Format("2006-01-02"); !r.Time.IsZero() && day != t.day {
		t.day = day
		dst = t.line(dst, "2", day)
	}
	if !t.headed {
		t.headed = true
		dst = t.row(dst, "1", "", [...]string{"TIME", "SESSION", "PROCESS", "WHAT", "OBJECT", "VERDICT", "RULE"})
	}
	stamp := "-"
	if !r.Time.IsZero() {
		stamp = when.Format("15:04:05.000")
	}
	said := r.Event
	if said.Kind.Class() == event.Net && said.Denied() && said.Rule == "" { // no line of a policy did it: why stands where that would
		said.Rule, said.Detail = said.Detail, ""
	}
	return t.row(dst, "", colour(&said), [...]string{
		stamp, event.Printable(r.Jail), process(&said), what(&said), Object(&said), verdict(&said), event.Printable(said.Rule),
	})
}

// colour is the SGR code that a record's verdict and object deserve.
func colour(e *event.Event) string {
	switch {
	case e.Kind == event.Escape:
		return "1;31"
	case e.Denied():
		return "31"
	case e.Kind == event.Loss, e.Kind == event.Gap:
		return "33"
	}
	return ""
}

func (t *Table) row(dst []byte, all, verdict string, c [7]string) []byte {
	b := &line{dst: dst, table: t}
	b.cell(c[0], timeWidth, orElse(all, "2"))
	if t.Session {
		if t.Width > 0 {
			c[1] = cutRight(c[1], sessionWidth)
		}
		b.cell(c[1], sessionWidth, all)
	}
	if t.Width > 0 {
		c[2] = cutProcess(c[2])
	}
	b.cell(c[2], processWidth, all)
	b.cell(c[3], whatWidth, all)
	left := max(t.Width-b.used-len(gap)-max(cells(c[5]), verdictWidth), 16)
	object, below := objectWidth, ""
	switch {
	case t.Width > 0 && left < narrow: // the rule gets a line of its own
		object, below, c[6] = left, c[6], ""
		c[4] = cutLeft(c[4], object)
	case t.Width > 0:
		object = left * 3 / 5
		c[4], c[6] = cutLeft(c[4], object), cutRight(c[6], left-object-len(gap))
	}
	b.cell(c[4], object, orElse(all, verdict))
	b.cell(c[5], verdictWidth, orElse(all, verdict))
	b.cell(c[6], 0, all)
	dst = b.end()
	if below == "" || all != "" {
		return dst
	}
	b = &line{dst: dst, table: t}
	b.cell("", timeWidth, "")
	b.cell(cutRight(below, t.Width-b.used), 0, "2")
	return b.end()
}

// narrow is the room for object and rule below which they do not share a line.
const narrow = 70

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (t *Table) line(dst []byte, sgr, s string) []byte {
	b := &line{dst: dst, table: t}
	b.cell(s, 0, sgr)
	return b.end()
}

// line builds one line; spaces are written only when something follows.
type line struct {
	dst   []byte
	table *Table
	used  int // cells, with the gap and padding that is due
	due   int // spaces owed
}

func (b *line) cell(s string, width int, sgr string) {
	n := cells(s)
	if s != "" {
		for ; b.due > 0; b.due-- {
			b.dst = append(b.dst, ' ')
		}
		if b.table.Color && sgr != "" {
			b.dst = append(append(append(append(append(b.dst, "\x1b["...), sgr...), 'm'), s...), "\x1b[0m"...)
		} else {
			b.dst = append(b.dst, s...)
		}
	}
	b.due += max(width-n, 0) + len(gap)
	b.used += max(width, n) + len(gap)
}

func (b *line) end() []byte { return append(b.dst, '\n') }

// cells is how many terminal cells printable text takes.
func cells(s string) (n int) {
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

// wide are the ranges that terminals draw over two cells (East Asian Wide and
// Fullwidth of Unicode, emoji), a little generous: a line may end up short,
// never too long.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1},
		{Lo: 0x231a, Hi: 0x23ff, Stride: 1},
		{Lo: 0x25fd, Hi: 0x27bf, Stride: 1},
		{Lo: 0x2b1b, Hi: 0x2b55, Stride: 1},
		{Lo: 0x2e80, Hi: 0xa4cf, Stride: 1},
		{Lo: 0xa960, Hi: 0xa97f, Stride: 1},
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1},
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1},
		{Lo: 0xfe10, Hi: 0xfe6f, Stride: 1},
		{Lo: 0xff00, Hi: 0xff60, Stride: 1},
		{Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x16fe0, Hi: 0x1b2ff, Stride: 1}, {Lo: 0x1f000, Hi: 0x1faff, Stride: 1}, {Lo: 0x20000, Hi: 0x3fffd, Stride: 1}},
}

func runeCells(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.Is(unicode.Mn, r), unicode.Is(unicode.Me, r):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// cutProcess cuts the name in comm[pid] so that the column holds it.
func cutProcess(s string) string {
	i := strings.LastIndexByte(s, '[')
	if i < 0 || cells(s) <= processWidth {
		return s
	}
	return cutRight(s[:i], processWidth-cells(s[i:])) + s[i:]
}

const ellipsis = "…"

// cutLeft keeps the end of s, which tells more of a path, in at most n cells.
func cutLeft(s string, n int) string {
	if cells(s) <= n {
		return s
	}
	runes := []rune(s)
	from, used := len(runes), 1
	for from > 0 && used+runeCells(runes[from-1]) <= n {
		from--
		used += runeCells(runes[from])
	}
	for from < len(runes) && runeCells(runes[from]) == 0 { // no mark without its letter
		from++
	}
	if from < len(runes) && strings.HasPrefix(s, "/") && n > 20 { // keep the beginning as well when there is room
		return keepBoth(runes, n)
	}
	return ellipsis + string(runes[from:])
}

// keepBoth cuts a long path in its middle: a third of the room goes to its
// beginning.
func keepBoth(runes []rune, n int) string {
	head, used := 0, 0
	for used+runeCells(runes[head]) <= n/3 {
		used += runeCells(runes[head])
		head++
	}
	from, tail := len(runes), used+1
	for from > head && tail+runeCells(runes[from-1]) <= n {
		from--
		tail += runeCells(runes[from])
	}
	for from < len(runes) && runeCells(runes[from]) == 0 {
		from++
	}
	return string(runes[:head]) + ellipsis + string(runes[from:])
}

// Fit cuts the end of s, which is printable, so that it takes at most n cells of a
// terminal.
func Fit(s string, n int) string { return cutRight(s, n) }

// cutRight keeps the beginning of s in at most n cells.
func cutRight(s string, n int) string {
	if cells(s) <= n {
		return s
	}
	if n < 1 {
		return ""
	}
	used := 1
	for i, r := range s {
		if used+runeCells(r) > n {
			return s[:i] + ellipsis
		}
		used += runeCells(r)
	}
	return s
}
