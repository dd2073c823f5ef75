package policy

import "testing"

func benchmarkBuiltin(b *testing.B, f func(*Document) error) {
	for _, name := range []string{"strict", "standard", "permissive"} {
		d, err := Builtin(name)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := f(d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkResolve(b *testing.B) {
	benchmarkBuiltin(b, func(d *Document) error {
		_, err := Resolve([]Layer{{Profile, d}}, SampleVars())
		return err
	})
}

// What agentos run does with a builtin policy before it reaches the helper.
func BenchmarkReference(b *testing.B) {
	for b.Loop() {
		d, err := BuiltinReference("strict")
		if err != nil {
			b.Fatal(err)
		}
		r, err := Resolve([]Layer{{Profile, d}}, SampleVars())
		if err != nil || len(r.View()) == 0 {
			b.Fatal(err)
		}
	}
}

func BenchmarkAutomaton(b *testing.B) {
	for _, name := range []string{"strict", "standard", "permissive"} {
		d, err := Builtin(name)
		if err != nil {
			b.Fatal(err)
		}
		r, err := Resolve([]Layer{{Profile, d}}, SampleVars())
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				a, err := r.Automaton()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(a.Bytes())), "blob-bytes")
			}
		})
	}
}

// What agentos run does for each --env: it must not compile file rules.
func BenchmarkExplainEnv(b *testing.B) {
	d, err := Builtin("strict")
	if err != nil {
		b.Fatal(err)
	}
	r, err := Resolve([]Layer{{Profile, d}}, SampleVars())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if r.Explain(OpEnv, "LD_PRELOAD").Allow {
			b.Fatal("allowed")
		}
	}
}
