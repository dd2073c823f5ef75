package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/jail/rpc"
)

// Log is the record of one session: descriptors that the helper opened, read
// here without a privilege.
type Log struct {
	rpc.LogFiles // Names and Files are in order, oldest first, and complete
	Files        []*os.File
}

// OpenLog asks for the record of a session, by id or name; "" is the caller's
// newest one.
func OpenLog(ctx context.Context, g Gate, session string) (*Log, error) {
	l := &Log{}
	before := ""
	for {
		var part rpc.LogFiles
		files, err := g.CallFDs(ctx, rpc.Log, rpc.LogRef{Session: session, Before: before}, &part)
		if err == nil && len(files) != len(part.Names) {
			err = fmt.Errorf("helper sent %d descriptors for %d segments", len(files), len(part.Names))
		}
		if err != nil {
			closeFiles(files)
			_ = l.Close()
			return nil, fmt.Errorf("open log: %w", err)
		}
		if before != "" {
			part.Live, part.Names = l.Live, slices.Concat(part.Names, l.Names)
			files = slices.Concat(files, l.Files)
		}
		session = part.Session // the same one, should names be reused meanwhile
		l.LogFiles, l.Files = part, files
		if !part.More || len(part.Names) == 0 || part.Names[0] == before {
			l.More = false
			return l, nil
		}
		before = part.Names[0]
	}
}

// Close closes the segments.
func (l *Log) Close() error {
	closeFiles(l.Files)
	return nil
}

// Newer asks whether the log has got segments since, adds them, and returns
// those.
func (l *Log) Newer(ctx context.Context, g Gate) ([]*os.File, error) {
	var part rpc.LogFiles
	files, err := g.CallFDs(ctx, rpc.Log, rpc.LogRef{Session: l.Session}, &part)
	if err != nil {
		return nil, fmt.Errorf("follow log: %w", err)
	}
	l.Live = part.Live
	var added []*os.File
	for i, f := range files {
		if i >= len(part.Names) || slices.Contains(l.Names, part.Names[i]) {
			_ = f.Close()
			continue
		}
		l.Names, l.Files, added = append(l.Names, part.Names[i]), append(l.Files, f), append(added, f)
	}
	return added, nil
}

// Tries tells the acts of the jail check, which must be denied and which init
// makes before the agent is there, from those of the agent. Show it every record
// in order.
type Tries struct{ until uint64 } // when the receipt was written, as [event.Event.Mono]

// Has reports whether r is an act of the jail check: from before the receipt,
// though the kernel's records of it may come after. Later acts are not, whoever's:
// then they mean something.
func (t *Tries) Has(r *segment.Record) bool {
	if r.Kind == event.Receipt && t.until == 0 {
		t.until = r.Mono
	}
	return r.Denied() && r.Kind != event.Escape && (t.until == 0 || r.Mono < t.until)
}

// Summary counts what a session's record holds.
type Summary struct {
	Session string         `json:"session"`
	Name    string         `json:"name"`
	Records uint64         `json:"records"`
	Denied  int            `json:"denied"`
	Kinds   map[string]int `json:"kinds"` // records by kind
	Limits  []string       `json:"limits,omitempty"`
	Lost    uint64         `json:"lost,omitempty"`
	Escapes int            `json:"escapes,omitempty"`
	Denials []Denial       `json:"denials,omitempty"` // most frequent first, at most 5
}

// Denial is what was refused, how often.
type Denial struct {
	What  string `json:"what"` // kind and object; hostile text
	Rule  string `json:"rule"`
	Count int    `json:"count"`
}

// Summarize reads a whole log.
func Summarize(l *Log) (Summary, error) {
	s := Summary{Session: l.Session, Name: l.Name, Kinds: map[string]int{}}
	r, err := segment.Open(l.Files...)
	if err != nil {
		return s, fmt.Errorf("summarize log: %w", err)
	}
	denials := map[Denial]int{}
	var tries Tries
	for {
		rec, err := r.Next()
		var bad *segment.Problem
		switch {
		case errors.Is(err, io.EOF):
			for d, n := range denials {
				d.Count = n
				s.Denials = append(s.Denials, d)
			}
			slices.SortFunc(s.Denials, func(a, b Denial) int {
				if a.Count != b.Count {
					return b.Count - a.Count
				}
				if a.What < b.What {
					return -1
				}
				return 1
			})
			s.Denials = s.Denials[:min(len(s.Denials), 5)]
			return s, nil
		case errors.As(err, &bad):
			continue // verify is for that
		case err != nil:
			return s, fmt.Errorf("summarize log: %w", err)
		}
		if !tries.Has(&rec) {
			s.add(&rec, denials)
		}
	}
}

func (s *Summary) add(rec *segment.Record, denials map[Denial]int) {
	s.Records++
	s.Kinds[rec.Kind.String()]++
	switch rec.Kind {
	case event.Limit:
		s.Limits = append(s.Limits, rec.Name)
	case event.Loss:
		s.Lost += rec.Count
	case event.Escape:
		s.Escapes++
	case event.Receipt, event.Start, event.Spawn, event.End, event.Fork, event.Exit, event.Gap:
	default:
		if rec.Verdict == event.Deny {
			n := max(1, int(min(rec.Count, 1<<30)))
			s.Denied += n
			if len(denials) < 10_000 {
				denials[Denial{What: rec.Kind.String() + " " + object(rec), Rule: rec.Rule}] += n
			}
		}
	}
}

func object(rec *segment.Record) string {
	for _, o := range []string{rec.Path, rec.Addr, rec.Name} {
		if o != "" {
			return string([]byte(o)) // strings of a block share memory
		}
	}
	return rec.Comm
}
