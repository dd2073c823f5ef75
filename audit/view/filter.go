package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

// Filter chooses records. Every field that is set must hold; the zero Filter
// matches everything.
type Filter struct {
	Denied  bool                   // only refusals, see [event.Event.Denied]
	Classes []event.Class          // any of these, or of Kinds
	Kinds   []event.Kind           //
	Path    func(path string) bool // matches Path, Path2 or a unix socket; see [PathGlob]
	Pids    []int32                // host process id, or id inside the jail
	Session string                 // session id
	Since   time.Time              // not before
	Until   time.Time              // before
}

// ParseKinds adds the words of a comma-separated list to f: classes ("file",
// "exec", "net", "session", "system") and kinds ("open", "unix-connect").
// "exec" is the class: exec, fork and exit.
func (f *Filter) ParseKinds(list string) error {
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		if c, err := event.ParseClass(word); err == nil {
			f.Classes = append(f.Classes, c)
			continue
		}
		k, err := event.ParseKind(word)
		if err != nil {
			return fmt.Errorf("kind %q: want file, exec, net, session, system, or one of %s", word, kindList())
		}
		f.Kinds = append(f.Kinds, k)
	}
	return nil
}

func kindList() string {
	var names []string
	for _, k := range event.Kinds() {
		if k != event.Unknown {
			names = append(names, k.String())
		}
	}
	return strings.Join(names, " ")
}

// Match reports whether f chooses r.
func (f *Filter) Match(r *segment.Record) bool {
	switch {
	case f.Denied && !r.Denied():
		return false
	case len(f.Classes)+len(f.Kinds) > 0 && !slices.Contains(f.Classes, r.Kind.Class()) && !slices.Contains(f.Kinds, r.Kind):
		return false
	case f.Session != "" && f.Session != r.Jail:
		return false
	case len(f.Pids) > 0 && !slices.Contains(f.Pids, r.Pid) && !slices.Contains(f.Pids, r.JailPid):
		return false
	case !f.Since.IsZero() && r.Time.Before(f.Since):
		return false
	case !f.Until.IsZero() && !r.Time.Before(f.Until):
		return false
	}
	return f.Path == nil || r.Path != "" && f.Path(r.Path) || r.Path2 != "" && f.Path(r.Path2) ||
		strings.HasPrefix(r.Addr, "/") && f.Path(r.Addr)
}
