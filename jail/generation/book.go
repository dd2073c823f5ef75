package generation

import (
	"sync"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/glob"
)

// kept is how many generations are remembered, and have numbers of their own in the
// kernel's records.
const kept = 4

// The numbers of one generation: rules from its first on, which are at most 8,192,
// and at the end the two that name no one rule. The first generation keeps those of
// package glob, because its automaton is shared with other jails.
const (
	window = 0x3000
	some   = window - 2
	none   = window - 1
)

// Renumber is for [glob.Automaton.Renumber]: what rule i of a generation is called in
// the kernel's records.
func Renumber(number uint32) func(i uint16) uint16 {
	if number == 0 {
		return func(i uint16) uint16 { return i }
	}
	first := uint16(number%kept) * window
	return func(i uint16) uint16 {
		switch i {
		case glob.NoRule:
			i = none
		case glob.SomeRule:
			i = some
		}
		return first + i
	}
}

// Rules is one generation.
type Rules struct {
	Number  uint32
	From    uint64 // CLOCK_BOOTTIME in ns, shortly before it was put in place
	Policy  *policy.Resolved
	Explain *policy.Explainer
	Answers *Answers // of Explain, which jails of one policy share; nil: nothing is remembered
}

// Book remembers the last generations of one jail. It is safe for concurrent use.
type Book struct {
	mu   sync.Mutex
	list []Rules // oldest first
}

// Answers remembers which rules were looked for, which takes a fraction of a millisecond:
// who is refused a thing asks for it again, and every jail check asks for the same. It is
// safe for concurrent use, and the zero value is ready.
type Answers struct {
	mu   sync.Mutex
	told map[question]string
}

// question is a denial whose rule has to be looked for.
type question struct{ op, one, two string }

// maxTold and maxAsked bound the questions that are remembered, and the bytes of the paths of
// one: the agent chooses them.
const (
	maxTold  = 256
	maxAsked = 512
)

func (a *Answers) find(q question) (text string, ok bool) {
	if a == nil {
		return "", false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	text, ok = a.told[q]
	return text, ok
}

func (a *Answers) add(q question, text string) {
	if a == nil || len(q.one)+len(q.two) > maxAsked {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.told == nil || len(a.told) >= maxTold {
		a.told = map[question]string{}
	}
	a.told[q] = text
}

// New makes a book of the rules that a jail starts with.
func New(first Rules) *Book { return &Book{list: []Rules{first}} }

// Add makes r the newest generation. Its number is one more than that of the one before.
func (b *Book) Add(r Rules) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, r)
	if len(b.list) > kept {
		b.list = append([]Rules(nil), b.list[1:]...)
	}
}

// Drop takes the newest generation away again: it never held.
func (b *Book) Drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) > 1 {
		b.list = b.list[:len(b.list)-1]
	}
}

// Now answers the newest generation.
func (b *Book) Now() Rules {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.list[len(b.list)-1]
}

// Kernel says which rule of which generation a kernel record means by its number; ok
// is false for numbers of none: the record was judged by the first generation, by
// several rules or none, or not by rules at all.
func (b *Book) Kernel(number uint16) (generation uint32, rule uint16, ok bool) {
	w, rule := uint32(number)/window, number%window
	if w >= kept {
		return 0, glob.NoRule, false
	}
	if rule == some || rule == none {
		rule = glob.NoRule
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.list) - 1; i >= 0; i-- {
		if g := b.list[i].Number; g%kept == w {
			return g, rule, true
		}
	}
	return 0, glob.NoRule, false
}

// Text names the rule that decided e, which a generation judged: rule i of it, or,
// for [glob.NoRule] and of denials only, the one that its policy says denies. It is
// "" when that is not known any more.
func (b *Book) Text(generation uint32, i uint16, e *event.Event) string {
	b.mu.Lock()
	var r Rules
	for _, g := range b.list {
		if g.Number == generation {
			r = g
		}
	}
	b.mu.Unlock()
	switch {
	case r.Policy == nil:
		return ""
	case int(i) < len(r.Policy.Files):
		return r.Policy.Files[i].String()
	}
	return r.why(e)
}

// At names the rule for a denial of which only the time is known.
func (b *Book) At(e *event.Event) string {
	b.mu.Lock()
	r := b.list[0]
	for _, g := range b.list[1:] {
		if g.From <= e.Mono {
			r = g
		}
	}
	b.mu.Unlock()
	return r.why(e)
}

// why asks the policy for the rule that a producer could not name: where several
// rules end in one state of the automaton, it keeps the verdict only.
func (r *Rules) why(e *event.Event) string {
	if e.Verdict != event.Deny {
		return ""
	}
	q := question{e.Asked(), e.Path, e.Path2}
	text, ok := r.Answers.find(q)
	if !ok {
		text = r.look(e)
		r.Answers.add(q, text)
	}
	return text
}

func (r *Rules) look(e *event.Event) string {
	op := policy.Op(e.Asked())
	if r.Explain == nil || op == "" {
		return ""
	}
	for _, p := range []string{e.Path, e.Path2} {
		if p == "" {
			continue
		}
		if v := r.Explain.Explain(op, p); !v.Allow && v.Rule != nil {
			return v.Rule.String()
		}
	}
	return ""
}
