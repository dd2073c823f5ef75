package opens

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkFifos walks as many files as `make bench-start` plants: 3,000 directories of 100.
func BenchmarkFifos(b *testing.B) {
	top := b.TempDir()
	for i := range 3000 {
		dir := filepath.Join(top, fmt.Sprintf("d%d", i%50), fmt.Sprintf("e%d", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 100 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%d.go", j)), nil, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(root)
	for b.Loop() {
		f, err := Fifos(root, top, time.Now().Add(time.Minute), func(string) bool { return false }, func(int) error { return nil })
		if err != nil || f.Partial {
			b.Fatal(f, err)
		}
	}
}
