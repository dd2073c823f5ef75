package event

import "slices"

// maxTallied bounds the names of a [Tally].
const maxTallied = 16

// Tally counts what a user is told at the end of a session.
type Tally struct {
	Records uint64   // all records
	Denied  uint64   // acts that were denied
	Lost    uint64   // events that were not recorded
	Escapes uint64   // escape events
	Limits  []string // names of limits that were hit, each once, in order; at most 16
}

// Add counts one event.
func (t *Tally) Add(e *Event) {
	t.Records++
	switch e.Kind {
	case Limit:
		if len(t.Limits) < maxTallied && !slices.Contains(t.Limits, e.Name) {
			t.Limits = append(t.Limits, e.Name)
		}
	case Loss:
		t.Lost += e.Count
	case Escape:
		t.Escapes++
	case Receipt, Start, Spawn, End, Fork, Exit, Gap, Policy:
	default:
		if e.Verdict == Deny {
			t.Denied += max(1, e.Count)
		}
	}
}
