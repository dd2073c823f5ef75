package opens

import (
	"fmt"
	"strings"
	"testing"
)

// TestLinked: what a known name of a file is refused, the file is; by the rules of the day; and with more than is kept, all is refused.
func TestLinked(t *testing.T) {
	var l Linked
	env := func(name string) bool { return !strings.HasSuffix(name, ".env") }
	all := func(string) bool { return true }
	if l.Some() || l.Refused(1, 2, env) {
		t.Error("something is known of nothing")
	}
	l.Met(1, 2, []byte("/ws/.env"))
	l.Met(1, 2, []byte("/ws/.env"))
	if !l.Some() || !l.Refused(1, 2, env) || l.Refused(1, 2, all) || l.Refused(2, 2, env) || l.Refused(1, 3, env) {
		t.Error("not the file that was met is refused, or not for its name")
	}
	for i := range maxEach {
		l.Met(3, 3, fmt.Appendf(nil, "/ws/%d", i))
	}
	if l.Refused(3, 3, all) {
		t.Error("refused without a name that is")
	}
	l.Met(3, 3, []byte("/ws/more"))
	if !l.Refused(3, 3, all) {
		t.Error("a file of which more names are known than are kept is not refused")
	}
	for i := range uint64(maxLinked) {
		l.Met(4, i, []byte("/x"))
	}
	if !l.Refused(9, 9, all) {
		t.Error("with more files than are kept, others are not refused")
	}
}
