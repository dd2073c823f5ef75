package tree

import (
	"fmt"
	"strings"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/view"
)

// Text lays a tree out for a terminal or a file.
type Text struct {
	Color bool // SGR colours
	Width int  // cells in a line, 0: do not cut
	Short bool // without the examples of what each did
}

// Append appends t: a line for each process, and below it examples of what it was
// refused, changed and connected to.
func (x Text) Append(dst []byte, t *Tree) []byte {
	w := &writer{Text: x, dst: dst}
	for _, p := range t.Roots {
		w.process(p)
	}
	if s := summary(&t.Rest); s != "" {
		w.line("", "2", "no process is known of: "+s)
		w.examples("  ", &t.Rest)
	}
	if t.More > 0 {
		w.line("", "33", fmt.Sprintf("%d records of processes that there was no room for", t.More))
	}
	if t.Lost > 0 {
		w.line("", "33", fmt.Sprintf("%d events were lost: processes may be missing", t.Lost))
	}
	return w.dst
}

type writer struct {
	Text
	dst []byte
}

// line writes lead and then s, which is printable, in a colour.
func (w *writer) line(lead, sgr, s string) {
	if w.Width > 0 {
		s = view.Fit(s, max(w.Width-len([]rune(lead)), 20))
	}
	w.dst = append(w.dst, lead...)
	if w.Color && sgr != "" {
		s = "\x1b[" + sgr + "m" + s + "\x1b[0m"
	}
	w.dst = append(append(w.dst, s...), '\n')
}

// maxIndent is how deep a line may stand: a chain of ten thousand forks is no staircase.
const maxIndent = 40

// process writes p and what it started. It is a loop: how deep a tree is, the jail
// chooses.
func (w *writer) process(p *Process) {
	type entry struct {
		p           *Process
		lead, below string // before its own line, before those of its children
	}
	stack := []entry{{p: p}}
	for len(stack) > 0 {
		e := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		w.one(e.p, e.lead, e.below)
		for i := len(e.p.Children) - 1; i >= 0; i-- {
			l, b := e.below+"├─ ", e.below+"│  "
			if i == len(e.p.Children)-1 {
				l, b = e.below+"└─ ", e.below+"   "
			}
			if len([]rune(b)) > maxIndent {
				b = e.below
			}
			stack = append(stack, entry{e.p.Children[i], l, b})
		}
	}
}

// one writes the lines of one process.
func (w *writer) one(p *Process, lead, below string) {
	pid := p.JailPid
	if pid == 0 {
		pid = p.Pid
	}
	name := event.Printable(p.Comm)
	if p.JailPid == 1 {
		name = "init"
	}
	text := fmt.Sprintf("%s[%d]", name, pid)
	if n := len(p.Programs); n > 0 {
		text += " " + p.Programs[n-1].Command
		if n > 1 {
			text += fmt.Sprintf(" (exec %d)", n)
		}
	}
	w.line(lead, "1", text)
	mark := below + "   "
	if len(p.Children) > 0 {
		mark = below + "│  "
	}
	facts := []string{}
	if s := summary(&p.Acts); s != "" {
		facts = append(facts, s)
	}
	if p.Ended != nil {
		facts = append(facts, ended(p))
	}
	if len(facts) > 0 {
		w.line(mark, "2", strings.Join(facts, "; "))
	}
	w.examples(mark, &p.Acts)
}

func ended(p *Process) string {
	took := p.Ended.Sub(p.Began).Round(time.Millisecond)
	if p.Ended.IsZero() || p.Began.IsZero() || took < 0 {
		took = 0
	}
	how := fmt.Sprintf("exit %d", p.Code)
	if p.Detail != "" {
		how = event.Printable(p.Detail)
	}
	return how + " after " + took.String()
}

func (w *writer) examples(lead string, a *Acts) {
	if w.Short {
		return
	}
	for _, group := range []struct {
		word, sgr string
		all       []string
		of        uint64
	}{{"denied", "31", a.Refused, a.Denied}, {"changed", "", a.Changed, a.Altered}, {"connected", "", a.Hosts, a.Reached}} {
		for i, s := range group.all {
			if i == maxExamples-1 && group.of > maxExamples {
				w.line(lead, "2", "and more")
				break
			}
			w.line(lead, group.sgr, group.word+" "+s)
		}
	}
}

// summary is the counts that are not zero.
func summary(a *Acts) string {
	var parts []string
	for _, c := range []struct {
		n    uint64
		what string
	}{{a.Read, "read"}, {a.Altered, "altered"}, {a.Removed, "removed"}, {a.Reached, "connected"}, {a.Failed, "failed"}, {a.Denied, "denied"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return strings.Join(parts, ", ")
}
