//go:build linux && cgo && (amd64 || arm64)

package seccomp

import (
	"embed"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write golden files")

// goldens travel with the test binary, which also runs in virtual machines.
//
//go:embed testdata
var goldens embed.FS

// TestTable: no name twice, every name known, every class sensible.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Calls() {
		if seen[c.Name] {
			t.Errorf("%s is listed twice", c.Name)
		}
		seen[c.Name] = true
		if _, ok := number(c.Name); !ok {
			t.Errorf("%s is unknown", c.Name)
		}
		if (c.Class == Check) != (refusals(c.Name, false) != nil) {
			t.Errorf("%s: class %s does not fit its refusals", c.Name, c.Class)
		}
	}
	for name, nr := range late() {
		if got, ok := number(name); !ok || got != nr {
			t.Errorf("%s: %d, libseccomp says %d", name, nr, got)
		}
		if nr >= limit {
			t.Errorf("%s lies above the limit", name)
		}
	}
	// What libseccomp can name and no row mentions would be absent by accident.
	decisions, err := decide(Spec{}, number)
	if err != nil {
		t.Fatal(err)
	}
	for nr := range limit {
		if name := numberName(nr); name != "" {
			if _, ok := decisions[nr]; !ok {
				t.Errorf("%s (%d) has no row", name, nr)
			}
		}
	}
}

// TestGolden keeps the profile in a readable file, independent of libseccomp's
// version, and its pseudo code for the version it was made with.
func TestGolden(t *testing.T) {
	var b strings.Builder
	for _, c := range Calls() {
		fmt.Fprintf(&b, "%-24s %-7s %s\n", c.Name, c.Class, c.Why)
	}
	golden(t, "profile.txt", b.String())
	for _, name := range []string{"default", "notify"} {
		pfc, err := PFC(specs[name])
		if err != nil {
			t.Fatal(err)
		}
		file := fmt.Sprintf("%s.%s.%s.pfc", name, runtime.GOARCH, Version())
		if _, err := fs.Stat(goldens, "testdata/"+file); err != nil && !*update {
			t.Logf("no golden file for libseccomp %s; the program is checked by TestEveryNumber", Version())
			continue
		}
		golden(t, file, pfc)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := goldens.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (run with -update):\n%s", name, d)
	}
}
