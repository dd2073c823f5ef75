package view

import (
	"fmt"
	"strings"

	"github.com/agentos/agentos/audit/event"
)

// Report lays a result out for a terminal or a file.
type Report struct {
	Color bool // SGR colours
	Width int  // cells in a line, 0: do not cut
	Top   int  // entries of each list, 0: all
}

// Append appends the report of res to dst: a line of counts, then a section
// for each list that is not empty.
func (o Report) Append(dst []byte, res *Result) []byte {
	w := &reporter{Report: o, dst: dst}
	of := ""
	if res.Sessions > 1 {
		of = " of " + plural(uint64(res.Sessions), "session")
	}
	w.line("", "", "%s%s, %s denied%s", plural(res.Records, "record"), of, number(res.Denied), kindCounts(res.Kinds))
	if res.Escapes > 0 {
		w.line("", "1;31", "%s: the session left its jail or was in a state that cannot be", plural(res.Escapes, "escape"))
	}
	if res.Lost > 0 {
		w.line("", "33", "%s lost before they could be recorded", plural(res.Lost, "event"))
	}
	if res.Gaps > 0 {
		w.line("", "33", "%s in which the recorder was not running", plural(res.Gaps, "gap"))
	}
	w.counts("limits hit", res.Limits)
	w.denials(res.Denials)
	w.counts("programs", res.Programs)
	w.counts("files", res.Files)
	w.counts("hosts", res.Hosts)
	w.changes(res.Changes)
	if res.More > 0 {
		w.line("", "", "and %s that this summary had no room for", plural(res.More, "entry"))
	}
	return w.dst
}

type reporter struct {
	Report
	dst []byte
}

func (w *reporter) line(indent, sgr, format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	if w.Width > 0 {
		s = cutRight(s, max(w.Width-len(indent), 16))
	}
	w.dst = append(w.dst, indent...)
	if w.Color && sgr != "" {
		s = "\x1b[" + sgr + "m" + s + "\x1b[0m"
	}
	w.dst = append(append(w.dst, s...), '\n')
}

// section writes the title of a list of n and returns how many to show.
func (w *reporter) section(title string, n int) int {
	if n > 0 {
		w.line("", "1", "%s: %d", title, n)
	}
	if w.Top > 0 {
		return min(n, w.Top)
	}
	return n
}

func (w *reporter) rest(n, shown int) {
	if n > shown {
		w.line("  ", "2", "and %d more", n-shown)
	}
}

func (w *reporter) counts(title string, all []Count) {
	n := w.section(title, len(all))
	for _, c := range all[:n] {
		w.line("  ", "", "%7d  %s", c.Count, event.Printable(c.Name))
	}
	w.rest(len(all), n)
}

func (w *reporter) denials(all []Denial) {
	n := w.section("denied", len(all))
	for _, d := range all[:n] {
		rule := event.Printable(d.Rule)
		if rule == "" {
			rule = "no rule allows it"
		}
		more := ""
		if d.Objects > 1 {
			more = fmt.Sprintf(" and %d more", d.Objects-1)
		}
		w.line("  ", "31", "%7d  %s %s%s", d.Count, d.Kind, event.Printable(d.Example), more)
		w.line("  ", "2", "         %s", rule)
	}
	w.rest(len(all), n)
}

func (w *reporter) changes(all []Change) {
	n := w.section("changed", len(all))
	for _, c := range all[:n] {
		w.line("  ", "", "%-10s  %s", c.What, event.Printable(c.Path))
	}
	w.rest(len(all), n)
}

// kindCounts is the counts by class, in a fixed order.
func kindCounts(kinds map[string]uint64) string {
	var byClass [event.System + 1]uint64
	for name, n := range kinds {
		if k, err := event.ParseKind(name); err == nil {
			byClass[k.Class()] += n
		}
	}
	var parts []string
	for c := event.File; c <= event.System; c++ {
		if byClass[c] > 0 {
			parts = append(parts, number(byClass[c])+" "+c.String())
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func plural(n uint64, word string) string {
	switch {
	case n == 1:
		return "1 " + word
	case strings.HasSuffix(word, "y"):
		return number(n) + " " + strings.TrimSuffix(word, "y") + "ies"
	}
	return number(n) + " " + word + "s"
}

// number writes n with commas.
func number(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
