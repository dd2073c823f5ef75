package why

import (
	"strings"
	"sync"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/policy"
)

// Bounds of what is remembered and shown.
const (
	remembered = 32
	shown      = 5
	perSecond  = 20 // questions of one jail, and as many at once
)

// Memory is what a helper remembers of one jail's denials. The zero Memory is empty. It is
// safe for concurrent use.
type Memory struct {
	mu   sync.Mutex
	list []Denial // oldest first

	tokens float64
	asked  time.Time
}

// Add remembers e if it is a denial. The same one again is only counted, so that a loop
// does not push out the others.
func (m *Memory) Add(e *event.Event) {
	d, ok := Of(e)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.list {
		if m.list[i].same(&d) {
			d.Count += m.list[i].Count
			m.list = append(m.list[:i], m.list[i+1:]...)
			break
		}
	}
	if len(m.list) == remembered {
		m.list = append(m.list[:0], m.list[1:]...)
	}
	m.list = append(m.list, d)
}

// Busy is the answer to a question that [Memory.May] has not let pass.
const Busy = "0too many questions; ask again in a second\n"

// Answer answers one question, which anybody in the jail may have written, by the rules
// that hold now, in at most room bytes. e may be nil: then only what was denied is known.
func (m *Memory) Answer(question string, room int, g Ground, e *policy.Explainer, now time.Time) string {
	word, path, _ := strings.Cut(question, "\x00")
	if path != "" && !strings.HasPrefix(path, "/") {
		return "0paths must be absolute\n"
	}
	var out []byte
	switch op := policy.Op(word); {
	case (word == "" || word == "why") && path == "":
		if out = m.last(&g, func(*Denial) bool { return true }, now); len(out) == 1 {
			out = append(out, "nothing was denied so far\n"...)
		}
	case word == "why":
		if out = m.last(&g, func(d *Denial) bool { return d.About(path) }, now); len(out) == 1 && e != nil {
			out = append(out, "nothing of it was denied lately; by the rules that hold now:\n"...)
			before := ""
			for _, op := range []policy.Op{policy.OpRead, policy.OpWrite, policy.OpExec} {
				line, advice, _ := strings.Cut(string(explain(&g, e, op, path)[1:]), "\n")
				if out = append(out, line+"\n"...); advice != before {
					out = append(out, advice...) // once where it is the same
				}
				before = advice
			}
		}
	case op.File() && path != "" && e != nil:
		out = explain(&g, e, op, path)
	default:
		return "0ask: why [PATH], or read, write or exec and a PATH\n"
	}
	if len(out) > room {
		out = append(out[:room-4], "...\n"...)
	}
	return string(out)
}

// May reports whether one more question is answered: it bounds what a jail can make
// the helper do.
func (m *Memory) May(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked.IsZero() {
		m.tokens = perSecond
	} else if past := now.Sub(m.asked); past > 0 {
		m.tokens = min(perSecond, m.tokens+past.Seconds()*perSecond)
	}
	m.asked = now
	if m.tokens < 1 {
		return false
	}
	m.tokens--
	return true
}

// last says what the last denials were, newest first.
func (m *Memory) last(g *Ground, wanted func(*Denial) bool, now time.Time) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []byte{'0'}
	n := 0
	for i := len(m.list) - 1; i >= 0 && n < shown; i-- {
		if wanted(&m.list[i]) {
			out = m.list[i].Append(out, g, now)
			n++
		}
	}
	return out
}

// explain answers whether op on path is allowed.
func explain(g *Ground, e *policy.Explainer, op policy.Op, path string) []byte {
	v := e.Explain(op, path)
	name := string(op) + " " + event.Printable(path)
	if v.Allow {
		return append([]byte("1"), name+": allowed by the rules\n"...)
	}
	rule := ""
	if v.Rule != nil {
		rule = v.Rule.String()
	}
	return g.Advise(append([]byte("0"), name+": denied\n"...), op, path, rule)
}
