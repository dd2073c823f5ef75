package view

import "testing"

func TestReceiptLine(t *testing.T) {
	got := receipt(`{"tier":"C","policy":"strict","checks":[{"name":"a","good":true},{"name":"b","good":false}],"missing":[{"guarantee":"bpf-lsm"}]}`)
	if want := "policy strict, tier C, jail check: 1 of 2 held, not: b; without bpf-lsm"; got != want {
		t.Errorf("got %q", got)
	}
}
