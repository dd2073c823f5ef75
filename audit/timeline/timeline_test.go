package timeline

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

var zero = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// log is a log in memory: each step is a record at a second, an error, or its end for now.
type log struct {
	name   string
	steps  []any
	live   bool
	closed int
}

var errPause = errors.New("pause")

func (l *log) Next() (segment.Record, error) {
	if len(l.steps) == 0 {
		return segment.Record{}, io.EOF
	}
	s := l.steps[0]
	l.steps = l.steps[1:]
	switch s := s.(type) {
	case int:
		return segment.Record{Event: event.Event{Time: zero.Add(time.Duration(s) * time.Second), Jail: l.name}}, nil
	case error:
		if s == errPause {
			return segment.Record{}, io.EOF
		}
		return segment.Record{}, s
	}
	return segment.Record{Event: event.Event{Jail: l.name}}, nil // without a time
}

func (l *log) Live() bool   { return l.live }
func (l *log) Close() error { l.closed++; return nil }

// play reads rounds of t to their ends and writes what came: "a1 b2 | a3".
func play(t *Timeline, rounds int) string {
	var out []string
	for rounds > 0 {
		rec, l, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			out = append(out, "|")
			rounds--
		case err != nil && l == nil:
			out = append(out, "!"+err.Error())
		case err != nil:
			out = append(out, l.(*log).name+"!")
		case rec.Time.IsZero():
			out = append(out, rec.Jail+"-")
		default:
			out = append(out, rec.Jail+string(rune('0'+int(rec.Time.Sub(zero).Seconds()))))
		}
	}
	return strings.Join(out, " ")
}

func TestTimeline(t *testing.T) {
	bad := &segment.Problem{What: "bad"}
	broken := errors.New("read failed")
	for name, c := range map[string]struct {
		logs   []*log
		rounds int
		want   string
	}{
		"none":          {nil, 2, "| |"},
		"one":           {[]*log{{name: "a", steps: []any{1, 2}}}, 2, "a1 a2 | |"},
		"two":           {[]*log{{name: "a", steps: []any{1, 3, 5}}, {name: "b", steps: []any{2, 4}}}, 1, "a1 b2 a3 b4 a5 |"},
		"one after two": {[]*log{{name: "a", steps: []any{5}}, {name: "b", steps: []any{1}}}, 1, "b1 a5 |"},
		"equal":         {[]*log{{name: "a", steps: []any{1, 1}}, {name: "b", steps: []any{1}}}, 1, "a1 a1 b1 |"},
		"clock back":    {[]*log{{name: "a", steps: []any{4, 1, 5}}, {name: "b", steps: []any{2, 4}}}, 1, "b2 b4 a4 a1 a5 |"},
		"no time":       {[]*log{{name: "a", steps: []any{2, "none", 3}}, {name: "b", steps: []any{3}}}, 1, "a2 a- a3 b3 |"},
		"problem":       {[]*log{{name: "a", steps: []any{1, bad, bad, 3}}, {name: "b", steps: []any{2}}}, 1, "a1 a! a! b2 a3 |"},
		"broken":        {[]*log{{name: "a", steps: []any{1, broken, 3}}, {name: "b", steps: []any{2}}}, 1, "a1 a! b2 |"},
		"follow":        {[]*log{{name: "a", live: true, steps: []any{1, errPause, 5, errPause, errPause, 7}}, {name: "b", live: true, steps: []any{2, errPause, 3}}}, 5, "a1 b2 | b3 a5 | | a7 | |"},
		"dead":          {[]*log{{name: "a", steps: []any{1, errPause, 5}}}, 2, "a1 | |"},
	} {
		tl := &Timeline{}
		for _, l := range c.logs {
			began := zero
			if n, ok := l.steps[0].(int); ok {
				began = zero.Add(time.Duration(n) * time.Second)
			}
			tl.Add(began, func() (Log, error) { return l, nil })
		}
		if got := play(tl, c.rounds); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if err := tl.Close(); err != nil {
			t.Error(err)
		}
		for _, l := range c.logs {
			if l.closed != 1 {
				t.Errorf("%s: %s closed %d times", name, l.name, l.closed)
			}
		}
	}
}

func TestOpensWhenItsTimeComes(t *testing.T) {
	tl, open, most := &Timeline{}, 0, 0
	for i := range 5 {
		l := &counted{log: log{name: "a", steps: []any{i, i}}, open: &open}
		tl.Add(zero.Add(time.Duration(i)*time.Second), func() (Log, error) {
			open++
			most = max(most, open)
			return l, nil
		})
	}
	tl.Add(zero.Add(2500*time.Millisecond), func() (Log, error) { return nil, errors.New("gone") })
	if got, want := play(tl, 1), "a0 a0 a1 a1 a2 a2 !gone a3 a3 a4 a4 |"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if open != 0 || most > 2 {
		t.Errorf("%d open at the end, %d at most", open, most)
	}
}

type counted struct {
	log
	open *int
}

func (c *counted) Close() error { *c.open--; return nil }
