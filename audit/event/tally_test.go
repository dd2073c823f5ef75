package event_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/agentos/agentos/audit/event"
)

func TestTally(t *testing.T) {
	for _, tt := range []struct {
		name   string
		events []event.Event
		want   event.Tally
	}{
		{"nothing", nil, event.Tally{}},
		{"allowed", []event.Event{{Kind: event.Open, Verdict: event.Allow}}, event.Tally{Records: 1}},
		{"denied, several at once", []event.Event{{Kind: event.Open}, {Kind: event.Connect, Count: 5}}, event.Tally{Records: 2, Denied: 6}},
		{
			"what only reports is nobody's refusal",
			[]event.Event{{Kind: event.Start}, {Kind: event.End}, {Kind: event.Exit}, {Kind: event.Gap}, {Kind: event.Receipt}, {Kind: event.Fork}, {Kind: event.Spawn}},
			event.Tally{Records: 7},
		},
		{"lost", []event.Event{{Kind: event.Loss, Count: 3}, {Kind: event.Loss, Count: 4}}, event.Tally{Records: 2, Lost: 7}},
		{"escape", []event.Event{{Kind: event.Escape}}, event.Tally{Records: 1, Escapes: 1}},
		{
			"limits, each once",
			[]event.Event{{Kind: event.Limit, Name: "pids"}, {Kind: event.Limit, Name: "memory"}, {Kind: event.Limit, Name: "pids"}},
			event.Tally{Records: 3, Limits: []string{"pids", "memory"}},
		},
	} {
		var got event.Tally
		for i := range tt.events {
			got.Add(&tt.events[i])
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
	var many event.Tally
	for i := range 1000 {
		many.Add(&event.Event{Kind: event.Limit, Name: fmt.Sprint(i)})
	}
	if many.Records != 1000 || len(many.Limits) > 16 {
		t.Errorf("%d records, %d names of limits", many.Records, len(many.Limits))
	}
}
