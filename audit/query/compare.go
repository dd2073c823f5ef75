package query

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

func (t *term) compareNumbers() (at int, err error) {
	want := make([]number, len(t.values))
	for i, v := range t.values {
		if want[i], err = parseNumber(v, t.field.kind == errnoValue); err != nil {
			return i, err
		}
	}
	f, op := t.field, t.op
	t.test = func(_ *Matcher, r *segment.Record) bool {
		have := f.numbers(r)
		for i, n := range have {
			if i > 0 && n == (number{}) {
				continue // there is no second one
			}
			for _, w := range want {
				if holds(op, n.compare(w)) {
					return true
				}
			}
		}
		return false
	}
	return 0, nil
}

func parseNumber(v string, names bool) (number, error) {
	if names {
		if n, ok := event.ErrnoNumber(strings.ToUpper(v)); ok {
			return signedNumber(int64(n)), nil
		}
	}
	if n, err := strconv.ParseUint(v, 0, 64); err == nil {
		return number{lo: n}, nil
	}
	if n, err := strconv.ParseInt(v, 0, 64); err == nil {
		return signedNumber(n), nil
	}
	if names {
		return number{}, errors.New("want a number or the name of an error, such as EACCES")
	}
	return number{}, errors.New("want a number, such as 443, 0x1bb or 0o644")
}

func (t *term) compareWords() (at int, err error) {
	tests := make([]test, len(t.values))
	for i, v := range t.values {
		if tests[i], err = t.field.words(v); err != nil {
			return i, err
		}
	}
	t.test = func(_ *Matcher, r *segment.Record) bool {
		return slices.ContainsFunc(tests, func(f test) bool { return f(r) })
	}
	return 0, nil
}

func (t *term) compareFlags() (at int, err error) {
	want := make([]bool, len(t.values))
	for i, v := range t.values {
		switch v {
		case "yes", "true", "1":
			want[i] = true
		case "no", "false", "0":
		default:
			return i, errors.New("want yes or no")
		}
	}
	f := t.field
	t.test = func(m *Matcher, r *segment.Record) bool { return slices.Contains(want, f.flag(r, m)) }
	return 0, nil
}

// compareTimes makes since and until comparisons of time, and each value absolute, so
// that the text of a query means the same later.
func (t *term) compareTimes(e Env) (at int, err error) {
	if len(t.values) > 1 {
		return 1, errors.New("one time is enough")
	}
	when, err := moment(t.values[0], e.Now, e.location())
	if err != nil {
		return 0, err
	}
	if t.field.kind == boundValue {
		t.op = map[string]string{"since": ">=", "until": "<"}[t.field.name]
		t.field = findField("time")
	}
	t.values = []string{when.UTC().Format(time.RFC3339Nano)}
	op := t.op
	t.test = func(_ *Matcher, r *segment.Record) bool { return !r.Time.IsZero() && holds(op, r.Time.Compare(when)) }
	return 0, nil
}
