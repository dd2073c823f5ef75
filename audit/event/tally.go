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
	Altered uint64   // events that [Event.Alters] files
	Limits  []string // names of limits that were hit, each once, in order; at most 16
}

// Linux open(2) flags, as events carry them whatever system reads them.
const (
	openAccess   = 0o3
	openCreate   = 0o100
	openTruncate = 0o1000
)

// Alters reports whether e says that a file was written to or may have been, was made, or
// got another name or attribute. What removes a file alters none.
func (e *Event) Alters() bool {
	switch {
	case e.Verdict != Allow:
		return false
	case e.Errno != 0 && e.Kind != Create && e.Kind != Open:
		return false // an open may be recorded before its end is known
	}
	switch e.Kind {
	case Create, Mknod, Symlink, Truncate, Chmod, Setattr, Rename, Link:
		return true
	case Open:
		return e.Flags&(openAccess|openTruncate|openCreate) != 0
	}
	return false
}

// Add counts one event.
func (t *Tally) Add(e *Event) {
	t.Records++
	if e.Alters() {
		t.Altered++
	}
	switch e.Kind {
	case Limit:
		if len(t.Limits) < maxTallied && !slices.Contains(t.Limits, e.Name) {
			t.Limits = append(t.Limits, e.Name)
		}
	case Loss:
		t.Lost += e.Count
	case Escape:
		t.Escapes++
	case Receipt, Start, Spawn, End, Fork, Exit, Gap, Policy, Grant:
	default:
		if e.Verdict == Deny {
			t.Denied += max(1, e.Count)
		}
	}
}
