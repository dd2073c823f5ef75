package corpus_test

import (
	"slices"
	"testing"

	"github.com/agentos/agentos/policy/corpus"
	"github.com/agentos/agentos/policy/glob"
)

func match(g, p string) bool { return len(glob.Reference([]string{g}, p)) > 0 }

// A corpus in which everything has the same answer would agree with anybody.
func TestCorpusAsksBothWays(t *testing.T) {
	count := map[corpus.Act][2]int{}
	for seed := range uint64(20) {
		c := corpus.New(seed, "/work/x")
		for _, r := range c.Rules {
			if err := glob.Valid(trim(r.Glob)); err != nil {
				t.Fatal(r.Glob, err)
			}
		}
		seen := map[string]bool{}
		for i, row := range c.Rows {
			n := count[row.Act]
			if c.Allows(row, match, func(string, string) bool { return true }) {
				n[1]++
			} else {
				n[0]++
			}
			count[row.Act] = n
			if row.Act.Two() != (row.To != "") {
				t.Fatalf("row %d: %+v", i, row)
			}
			for _, p := range []string{row.Path, row.To} {
				if key := string(row.Act) + " " + p; p != "" && seen[key] {
					t.Fatalf("two rows meet: %s", key)
				} else {
					seen[key] = true
				}
			}
		}
	}
	t.Log(count)
	for act, n := range count {
		if n[0] < 15 || n[1] < 15 {
			t.Errorf("%s: %d denied, %d allowed", act, n[0], n[1])
		}
	}
	if len(count) != 11 {
		t.Errorf("%d acts", len(count))
	}
}

func trim(g string) string {
	if g[0] == '!' {
		return g[1:]
	}
	return g
}

func TestMixed(t *testing.T) {
	rules := corpus.Mixed(1000)
	if len(rules) != 1000 || !slices.Equal(rules, corpus.Mixed(1000)) {
		t.Fatal("not the same twice")
	}
	for _, r := range rules {
		if err := glob.Valid(trim(r.Glob)); err != nil {
			t.Error(r.Glob, err)
		}
	}
}
