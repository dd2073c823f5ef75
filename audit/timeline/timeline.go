package timeline

import (
	"container/heap"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/agentos/agentos/audit/segment"
)

// Log is the log of one session, as [segment.Reader] reads it.
type Log interface {
	// Next returns the next record, a *[segment.Problem] for a place that is not good,
	// io.EOF at the end, and more after that when the log has grown.
	Next() (segment.Record, error)
	// Live reports, at the end, whether more may come and is wanted.
	Live() bool
	Close() error
}

// Timeline is several logs. The zero value has none. It is for one goroutine.
type Timeline struct {
	waiting []entry   // not open yet, the latest first
	open    queue     // by the next record
	resting []*source // at their end, alive
	again   []*source // of those, the ones to be looked at in this round
	last    *source   // whose record was returned
	ended   bool      // Next has said so
	opened  int
}

// entry is a log that is not open.
type entry struct {
	began time.Time
	open  func() (Log, error)
}

// source is an open log.
type source struct {
	log  Log
	rec  segment.Record
	at   time.Time // of rec, never before that of the record before
	rank int       // order of opening, for records of one time
}

// Add adds a log that began at a time. Next calls open once; what that returns is closed
// at its end, or by Close.
func (t *Timeline) Add(began time.Time, open func() (Log, error)) {
	i, _ := slices.BinarySearchFunc(t.waiting, began, func(e entry, at time.Time) int { return at.Compare(e.began) })
	t.waiting = slices.Insert(t.waiting, i, entry{began, open})
}

// Next returns the next record of all logs and the log that it is of; io.EOF at the
// end of them all, and more after that if one was alive and has grown. Another error is
// about one log, which is nil when it could not be opened. After a *[segment.Problem] that
// log goes on; after others it is closed.
func (t *Timeline) Next() (segment.Record, Log, error) {
	if s := t.last; s != nil {
		t.last = nil
		if err := t.advance(s); err != nil {
			return segment.Record{}, s.log, err
		}
	}
	if t.ended {
		t.ended, t.again, t.resting = false, t.resting, nil
	}
	for len(t.again) > 0 {
		s := t.again[0]
		t.again = t.again[1:]
		if err := t.advance(s); err != nil {
			return segment.Record{}, s.log, err
		}
	}
	for n := len(t.waiting); n > 0 && (len(t.open) == 0 || !t.waiting[n-1].began.After(t.open[0].at)); n-- {
		e := t.waiting[n-1]
		t.waiting = t.waiting[:n-1]
		l, err := e.open()
		if err != nil {
			return segment.Record{}, nil, err
		}
		t.opened++
		if err := t.advance(&source{log: l, at: e.began, rank: t.opened}); err != nil {
			return segment.Record{}, l, err
		}
	}
	if len(t.open) == 0 {
		t.ended = true
		return segment.Record{}, nil, io.EOF
	}
	t.last = heap.Pop(&t.open).(*source) // holds nothing else
	return t.last.rec, t.last.log, nil
}

// advance reads the next record of s and puts s where it belongs.
func (t *Timeline) advance(s *source) error {
	rec, err := s.log.Next()
	var bad *segment.Problem
	switch {
	case err == nil:
		s.rec = rec
		if rec.Time.After(s.at) {
			s.at = rec.Time
		}
		heap.Push(&t.open, s)
		return nil
	case errors.As(err, &bad):
		t.last = s
		return err
	case !errors.Is(err, io.EOF):
		return errors.Join(err, s.log.Close())
	case s.log.Live():
		t.resting = append(t.resting, s)
		return nil
	}
	return s.log.Close()
}

// Alive reports whether any log may have more.
func (t *Timeline) Alive() bool {
	return len(t.waiting)+len(t.open)+len(t.resting)+len(t.again) > 0 || t.last != nil
}

// Close closes the logs that are open and forgets all.
func (t *Timeline) Close() error {
	var errs []error
	for _, s := range slices.Concat(t.open, t.resting, t.again) {
		errs = append(errs, s.log.Close())
	}
	if t.last != nil {
		errs = append(errs, t.last.log.Close())
	}
	*t = Timeline{}
	return errors.Join(errs...)
}

// queue is a heap of open logs by the time of their next record.
type queue []*source

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	if c := q[i].at.Compare(q[j].at); c != 0 {
		return c < 0
	}
	return q[i].rank < q[j].rank
}

func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

func (q *queue) Push(x any) { *q = append(*q, x.(*source)) }

func (q *queue) Pop() any {
	s := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return s
}
