package records

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
	lookEvery = 250 * time.Millisecond
	listEvery = time.Second
)

// maxNotes is how many damaged places are told; the rest are counted.
const maxNotes = 3

// Reader reads the records of one session or of all, in the order of time. It is for one
// goroutine.
type Reader struct {
	Gate    orchestrator.Gate
	Session string                        // id or name; "" is the newest one, or all
	Query   query.Query                   // which records
	Follow  bool                          // go on with sessions that run
	From    func(s rpc.Session) uint64    // first record wanted of a session; nil: all of them
	Note    func(format string, a ...any) // is told of damaged places

	lines   timeline.Timeline
	known   map[string]bool // sessions by id; nil before the first ones were added
	listed  time.Time
	damaged int
	where   string // a session with a damaged log
}

// Log is one log of a [Reader].
type Log struct {
	*orchestrator.Log
	reader *Reader
	ctx    context.Context // of the command that reads: timeline.Log has no room for it
	file   *segment.Reader
	match  *query.Matcher
	ended  bool // its end was seen
}

// Next implements [timeline.Log]. When it is asked again at the end of a log that is
// followed, it asks the helper for more.
func (l *Log) Next() (segment.Record, error) {
	rec, err := l.file.Next()
	if !errors.Is(err, io.EOF) || !l.Live() {
		return rec, err
	}
	if !l.ended {
		l.ended = true
		return rec, err
	}
	added, err := l.Newer(l.ctx, l.reader.Gate)
	if err != nil {
		return segment.Record{}, err
	}
	l.file.Add(added...)
	return l.file.Next()
}

// Live implements [timeline.Log].
func (l *Log) Live() bool { return l.reader.Follow && l.Log.Live }

// Match reports whether the filter chooses rec; to be asked of every record in order.
func (l *Log) Match(rec *segment.Record) bool { return l.match.Match(rec) }

func (r *Reader) open(ctx context.Context, session string, from uint64) (*Log, error) {
	l, err := orchestrator.OpenLog(ctx, r.Gate, session)
	if err != nil {
		return nil, err
	}
	f, err := segment.Open(l.Files...)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	f.From(from)
	return &Log{Log: l, reader: r, ctx: ctx, file: f, match: r.Query.Matcher(l.Session, l.Name)}, nil
}

// One adds the log of one session: of Session, or the newest.
func (r *Reader) One(ctx context.Context) error {
	l, err := r.open(ctx, r.Session, 0)
	if err != nil {
		return err
	}
	r.known = map[string]bool{l.Session: true}
	r.lines.Add(time.Time{}, func() (timeline.Log, error) { return l, nil })
	return nil
}

// All adds the logs of Session or, without one, of every session that the filter may be
// about and that is not known yet: of those that run, or also of those that have ended.
func (r *Reader) All(ctx context.Context, past bool) error {
	if r.Session != "" {
		if r.known != nil {
			return nil
		}
		return r.One(ctx)
	}
	list, err := orchestrator.List(ctx, r.Gate, past)
	if err != nil {
		return err
	}
	if r.listed = time.Now(); r.known == nil {
		r.known = map[string]bool{}
	}
	for _, s := range list {
		if r.known[s.ID] || !r.Query.Concerns(s.ID, s.Name) {
			continue
		}
		r.known[s.ID] = true
		from := uint64(0)
		if r.From != nil {
			from = r.From(s)
		}
		r.lines.Add(s.Started, func() (timeline.Log, error) { return r.open(ctx, s.ID, from) })
	}
	return nil
}

// Each calls f for every record up to the end of all logs, chosen or not.
func (r *Reader) Each(f func(l *Log, rec *segment.Record) error) error {
	for {
		rec, from, err := r.lines.Next()
		l, _ := from.(*Log)
		var bad *segment.Problem
		switch {
		case err == nil:
			if err := f(l, &rec); err != nil {
				return err
			}
		case errors.As(err, &bad):
			if r.damaged++; r.damaged <= maxNotes && r.Note != nil {
				r.Note("the record of %s is damaged: %v", l.Name, bad)
			}
			r.where = l.Name
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// Chosen calls f for the records that the filter chooses.
func (r *Reader) Chosen(f func(l *Log, rec *segment.Record) error) error {
	return r.Each(func(l *Log, rec *segment.Record) error {
		if !l.Match(rec) {
			return nil
		}
		return f(l, rec)
	})
}

// Wait waits until logs that are followed are worth another look, and adds those of
// sessions that were started since when the Reader is about all. It answers false when
// there will be nothing more: nothing is followed, all have ended, or ctx is over.
func (r *Reader) Wait(ctx context.Context) (bool, error) {
	if !r.Follow || ctx.Err() != nil || r.Session != "" && !r.lines.Alive() {
		return false, nil
	}
	select {
	case <-ctx.Done():
		return false, nil
	case <-time.After(lookEvery):
	}
	if r.listed.IsZero() || time.Since(r.listed) < listEvery { // zero: about one session
		return r.lines.Alive() || !r.listed.IsZero(), nil
	}
	return true, r.All(ctx, false)
}

// Close closes the logs. It is an error if any of them was damaged.
func (r *Reader) Close() error {
	err := r.lines.Close()
	if r.damaged > 0 {
		return &orchestrator.Error{Err: fmt.Errorf("%d places of the records are damaged", r.damaged), Hint: "agentos audit verify " + r.where}
	}
	return err
}
