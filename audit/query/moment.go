package query

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// units of a span of time, longest first.
var units = []struct {
	name string
	span time.Duration
}{
	{"w", 7 * 24 * time.Hour},
	{"d", 24 * time.Hour},
	{"h", time.Hour},
	{"m", time.Minute},
	{"s", time.Second},
}

// layouts of a moment; those without a zone are in the caller's.
var layouts = []string{
	time.RFC3339Nano,
	"2006-01-02T15:04Z07:00",
	"2006-01-02T15:04:05.999999999",
	"2006-01-02T15:04",
	"2006-01-02 15:04:05.999999999",
	"2006-01-02 15:04",
	"2006-01-02",
}

var errMoment = errors.New(`want how long ago (90s, 15m, 2h, 3d, 1d12h), a time (10:30, 2026-11-21, 2026-11-21T10:30, RFC 3339), today, yesterday or now`)

// moment reads a point in time: how long ago, a time of today, or a date.
func moment(text string, now time.Time, loc *time.Location) (time.Time, error) {
	now = now.In(loc)
	today := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, loc)
	switch text {
	case "now":
		return now, nil
	case "today":
		return today, nil
	case "yesterday":
		return today.AddDate(0, 0, -1), nil
	}
	if ago, ok := span(text); ok {
		return now.Add(-ago), nil
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, loc); err == nil {
			if y := t.Year(); y < 1678 || y > 2261 { // what an event can have
				return time.Time{}, errMoment
			}
			return t, nil
		}
	}
	for _, layout := range []string{"15:04", "15:04:05.999999999"} {
		if t, err := time.Parse(layout, text); err == nil {
			return time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), loc), nil
		}
	}
	return time.Time{}, errMoment
}

// span reads "1d12h": whole numbers and units, longer units first.
func span(text string) (time.Duration, bool) {
	if text == "" {
		return 0, false
	}
	var sum time.Duration
	for _, u := range units {
		i := strings.Index(text, u.name)
		if i < 0 {
			continue
		}
		n, err := strconv.ParseUint(text[:i], 10, 32)
		if err != nil || n > uint64(200*365*24*time.Hour/u.span) {
			return 0, false
		}
		if sum += time.Duration(n) * u.span; sum > 200*365*24*time.Hour {
			return 0, false
		}
		text = text[i+1:]
	}
	return sum, text == ""
}
