package orchestrator

import (
	"os"
	"testing"
)

func BenchmarkPrepare(b *testing.B) {
	dir, home := b.TempDir(), b.TempDir()
	o := Options{Policy: "strict", Workspace: dir, Agent: "true", Environ: append(os.Environ(), "HOME="+home)}
	for b.Loop() {
		p, err := Prepare(o)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.document(); err != nil {
			b.Fatal(err)
		}
		_ = p.Close()
	}
}
