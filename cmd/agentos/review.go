package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/agentos/agentos/audit/query"
	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/audit/timeline"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/orchestrator"
)

// How often logs that are followed are looked at, and how often it is asked whether there
// are new ones.
const (
	followEvery = 250 * time.Millisecond
	listEvery   = time.Second
)

// maxDamageNotes is how many bad places of logs are named; the rest are counted.
const maxDamageNotes = 3

// review reads the records of one session or of all, in the order of time.
type review struct {
	p      *program
	gate   orchestrator.Gate
	sel    *selection
	follow bool
	from   func(s rpc.Session) uint64 // first record wanted of a session; nil: all of them

	lines   timeline.Timeline
	known   map[string]bool // sessions by id
	damaged int
	where   string // a session with a damaged log
}

// sessionLog is one log of a review.
type sessionLog struct {
	*orchestrator.Log
	review *review
	ctx    context.Context
	reader *segment.Reader
	match  *query.Matcher
	looked bool // at its end, it was asked for more
}

// Next implements [timeline.Log]. At the end of a log that is followed it asks for more.
func (l *sessionLog) Next() (segment.Record, error) {
	rec, err := l.reader.Next()
	if !errors.Is(err, io.EOF) || !l.Live() {
		return rec, err
	}
	if !l.looked {
		l.looked = true
		return rec, err
	}
	added, err := l.Newer(l.ctx, l.review.gate)
	if err != nil {
		return segment.Record{}, err
	}
	l.reader.Add(added...)
	return l.reader.Next()
}

// Live implements [timeline.Log].
func (l *sessionLog) Live() bool { return l.review.follow && l.Log.Live }

// open opens the log of a session, by id or name.
func (v *review) open(ctx context.Context, session string, from uint64) (*sessionLog, error) {
	l, err := orchestrator.OpenLog(ctx, v.gate, session)
	if err != nil {
		return nil, err
	}
	r, err := segment.Open(l.Files...)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	r.From(from)
	return &sessionLog{Log: l, review: v, ctx: ctx, reader: r, match: v.sel.query.Matcher(l.Session, l.Name)}, nil
}

// one makes the review one of a single session: the selected one, or the newest.
func (v *review) one(ctx context.Context) (*sessionLog, error) {
	l, err := v.open(ctx, v.sel.session, 0)
	if err != nil {
		return nil, err
	}
	v.lines.Add(time.Time{}, func() (timeline.Log, error) { return l, nil })
	return l, nil
}

// many adds the sessions that the selection may be about and that are not known yet:
// those that run, or all that left a record.
func (v *review) many(ctx context.Context, all bool) error {
	if v.sel.session != "" {
		if v.known == nil {
			v.known = map[string]bool{}
			_, err := v.one(ctx)
			return err
		}
		return nil
	}
	list, err := orchestrator.List(ctx, v.gate, all)
	if err != nil {
		return err
	}
	if v.known == nil {
		v.known = map[string]bool{}
	}
	for _, s := range list {
		if v.known[s.ID] || !v.sel.query.Concerns(s.ID, s.Name) {
			continue
		}
		v.known[s.ID] = true
		from := uint64(0)
		if v.from != nil {
			from = v.from(s)
		}
		v.lines.Add(s.Started, func() (timeline.Log, error) { return v.open(ctx, s.ID, from) })
	}
	return nil
}

// enough ends a review early.
var enough = errors.New("enough")

// each calls f for every record up to the end of all logs, chosen or not.
func (v *review) each(f func(l *sessionLog, r *segment.Record) error) error {
	for {
		rec, from, err := v.lines.Next()
		l, _ := from.(*sessionLog)
		var bad *segment.Problem
		switch {
		case err == nil:
			if err := f(l, &rec); err != nil {
				return err
			}
		case errors.As(err, &bad):
			if v.damaged++; v.damaged <= maxDamageNotes {
				v.p.err.note("the record of %s is damaged: %v", l.Name, bad)
			}
			v.where = l.Name
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// chosen calls f for the records that the selection chooses.
func (v *review) chosen(f func(l *sessionLog, r *segment.Record) error) error {
	return v.each(func(l *sessionLog, r *segment.Record) error {
		if !l.match.Match(r) {
			return nil
		}
		return f(l, r)
	})
}

// rest waits until logs that are followed are worth another look; false when there will
// be nothing more.
func (v *review) rest(ctx context.Context, more func() bool) bool {
	if err := v.p.out.flush(); err != nil || !v.follow || !more() {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(followEvery):
		return true
	}
}

// end closes the logs, and is an error if one was damaged.
func (v *review) end() error {
	err := v.lines.Close()
	if v.damaged > 0 {
		return &orchestrator.Error{Err: fmt.Errorf("%d places of the records are damaged", v.damaged), Hint: "agentos audit verify " + v.where}
	}
	return err
}
