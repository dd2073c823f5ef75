package policy_test

import (
	"fmt"
	"testing"

	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/corpus"
	"github.com/agentos/agentos/policy/glob"
)

func match(g, p string) bool { return len(glob.Reference([]string{g}, p)) > 0 }

// resolved reads rules as a document and resolves them as a profile.
func resolved(tb testing.TB, rules []corpus.Rule, base string) *policy.Resolved {
	tb.Helper()
	d, err := policy.Parse("corpus.toml", corpus.Document(rules))
	if err != nil {
		tb.Fatal(err)
	}
	r, err := policy.Resolve([]policy.Layer{{Kind: policy.Profile, Doc: d}}, policy.Vars{Workspace: base, Home: "/h"})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// TestCorpusExplain asks the Go evaluator, that is the automaton and the rules one by one, every
// row of the agreement corpus. audit/hook asks the kernel, jail/broker the broker.
func TestCorpusExplain(t *testing.T) {
	rows := 0
	for seed := range uint64(60) {
		c := corpus.New(seed, "/work/x")
		e, err := resolved(t, c.Rules, c.Base).Explainer()
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range c.Rows {
			for _, p := range []string{row.Path, row.To} {
				if p == "" {
					continue
				}
				bits := corpus.Bits(c.Rules, match, p)
				for op, bit := range map[policy.Op]int{policy.OpRead: corpus.CanRead, policy.OpWrite: corpus.CanWrite, policy.OpExec: corpus.CanExec} {
					if v := e.Explain(op, p); v.Allow != (bits&bit != 0) {
						t.Errorf("case %d: %s %s: %+v, the definition says %b\n%s", seed, op, p, v, bits, c.Document())
					}
					rows++
				}
			}
		}
	}
	t.Logf("%d answers", rows)
}

// TestCorpusMixed does the same for the 1,000 globs that compiling is measured with.
func TestCorpusMixed(t *testing.T) {
	rules := corpus.Mixed(1000)
	e, err := resolved(t, rules, "/h/w").Explainer()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(e.Automaton().Bytes()); n > 1536<<10 {
		t.Errorf("%d bytes, at most 1.5 MiB", n)
	}
	for _, p := range corpus.MixedPaths(rules, 400) {
		bits := corpus.Bits(rules, match, p)
		if got := int(e.Automaton().Match(p).Bits); got != bits {
			t.Errorf("%s: %b, the definition says %b", p, got, bits)
		}
	}
}

// BenchmarkCompile is from the document to what the kernel gets: parsed, resolved, compiled.
func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("globs=%d", n), func(b *testing.B) {
			r := resolved(b, corpus.Mixed(n), "/h/w")
			b.ReportAllocs()
			var a *glob.Automaton
			for b.Loop() {
				var err error
				if a, err = r.Automaton(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(a.Bytes()))/1024, "KiB")
		})
	}
}
