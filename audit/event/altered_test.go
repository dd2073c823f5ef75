package event

import "testing"

// What alters files is counted; what only read them, was refused or removed one is not.
func TestAltered(t *testing.T) {
	var sum Tally
	for i, tt := range []struct {
		e    Event
		want bool
	}{
		{Event{Kind: Open, Verdict: Allow}, false},
		{Event{Kind: Open, Verdict: Allow, Flags: 0o1}, true},
		{Event{Kind: Open, Verdict: Allow, Flags: 0o2, Errno: 2}, true}, // its end may not have been known
		{Event{Kind: Open, Verdict: Allow, Flags: 0o1000}, true},
		{Event{Kind: Open, Verdict: Deny, Flags: 0o1}, false},
		{Event{Kind: Open, Flags: 0o1}, false},
		{Event{Kind: Create, Verdict: Allow}, true},
		{Event{Kind: Rename, Verdict: Allow}, true},
		{Event{Kind: Rename, Verdict: Allow, Errno: 18}, false},
		{Event{Kind: Link, Verdict: Allow}, true},
		{Event{Kind: Symlink, Verdict: Allow}, true},
		{Event{Kind: Mknod, Verdict: Allow}, true},
		{Event{Kind: Truncate, Verdict: Allow}, true},
		{Event{Kind: Chmod, Verdict: Allow}, true},
		{Event{Kind: Setattr, Verdict: Allow}, true},
		{Event{Kind: Unlink, Verdict: Allow}, false},
		{Event{Kind: Exec, Verdict: Allow}, false},
	} {
		before := sum.Altered
		sum.Add(&tt.e)
		if got := sum.Altered > before; got != tt.want || tt.e.Alters() != tt.want {
			t.Errorf("%d: %+v alters: %t, want %t", i, tt.e, got, tt.want)
		}
	}
}
