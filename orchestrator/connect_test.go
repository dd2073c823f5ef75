package orchestrator

import (
	"slices"
	"testing"
)

// TestHelperPlaces: a program installed below any prefix finds the helper of its own prefix before another's.
func TestHelperPlaces(t *testing.T) {
	got := helperPlaces("/home/dev/.local/bin/agentos", "")
	own, other := slices.Index(got, "/home/dev/.local/libexec/agentos/agentos-helper"), slices.Index(got, "/usr/local/libexec/agentos/agentos-helper")
	if own < 0 || other < 0 || own > other {
		t.Errorf("looked for in %v", got)
	}
}
