package main

import (
	"os"
	"testing"

	"github.com/agentos/agentos/policy/corpus"
	"github.com/agentos/agentos/policy/glob"
)

// TestExplainAgrees asks `agentos policy explain` rows of the corpus that audit/hook asks the kernel
// and jail/broker the broker.
func TestExplainAgrees(t *testing.T) {
	project(t)
	match := func(g, p string) bool { return len(glob.Reference([]string{g}, p)) > 0 }
	ops := map[corpus.Act]string{corpus.ActRead: "read", corpus.ActCreate: "write", corpus.ActExec: "exec"}
	asked := map[bool]int{}
	for seed := range uint64(10) {
		c := corpus.New(seed, "/work/x")
		if err := os.WriteFile("p.toml", c.Document(), 0o644); err != nil {
			t.Fatal(err)
		}
		for i, row := range c.Rows {
			op, ok := ops[row.Act]
			if !ok || i%2 != 0 {
				continue
			}
			want := c.Allows(row, match, nil)
			asked[want]++
			status, out, errs := call(t, "policy", "explain", op, row.Path, "--policy", "./p.toml")
			if (status == 0) != want || status != 0 && status != 126 {
				t.Errorf("explain %s %s: %d %s%s, the definition says %v\n%s", op, row.Path, status, out, errs, want, c.Document())
			}
		}
	}
	if asked[true] < 10 || asked[false] < 10 {
		t.Errorf("asked %v", asked)
	}
}
