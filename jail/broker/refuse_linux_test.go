package broker

import (
	"maps"
	"slices"
	"testing"
)

// TestRefused: the filter sends what the table answers, and no call that a handler carries out.
func TestRefused(t *testing.T) {
	if got, want := slices.Sorted(maps.Values(refusals)), slices.Sorted(slices.Values(Refused)); !slices.Equal(got, want) {
		t.Errorf("answered %q, asked about %q", got, want)
	}
	for _, name := range Refused {
		if slices.Contains(Notified, name) || slices.Contains(Looks, name) || slices.Contains(LooksInKernel, name) {
			t.Errorf("%s is carried out for the caller", name)
		}
	}
}
