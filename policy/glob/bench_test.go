package glob

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// mixed draws n globs as policies have them, and their kinds: half of them floating,
// most of those denials.
func mixed(n int) (globs []string, kinds []uint16) {
	r := rand.New(rand.NewPCG(7, 7))
	word := func() string {
		b := make([]byte, 3+r.IntN(8))
		for i := range b {
			b[i] = "etaoinshrdlucmfwypvbgkqjxz_-"[min(r.IntN(28), r.IntN(28))]
		}
		return string(b)
	}
	add := func(kind int, form string, args ...any) {
		globs = append(globs, fmt.Sprintf(form, args...))
		kinds = append(kinds, uint16(kind))
	}
	add(0, "/home/u/work/**")
	add(1, "/home/u/work/**")
	add(2, "/usr/**")
	add(0, "/usr/**")
	for i := 4; i < n; i++ {
		switch i % 12 {
		case 0:
			add(3, "**/*.%s", word())
		case 1:
			add(3, "**/.%s", word())
		case 2:
			add(3, "**/%s*", word())
		case 3:
			add(3, "**/%s/**", word())
		case 4:
			add(4, "**/%s/%s*.yml", word(), word())
		case 5:
			add(r.IntN(2), "/etc/%s/**", word())
		case 6:
			add(r.IntN(3), "/opt/%s/%s/**", word(), word())
		case 7:
			add(3, "/home/u/.%s/**", word())
		case 8:
			add(3, "**/%s*.%s", word(), word())
		case 9:
			add(4, "**/.%s/%s", word(), word())
		case 10:
			add(3, "/home/u/work/%s/%s", word(), word())
		case 11:
			add(r.IntN(2), "/var/%s/%s/*", word(), word())
		}
	}
	return globs[:n], kinds[:n]
}

func mixedAutomaton(tb testing.TB, n int) *Automaton {
	tb.Helper()
	globs, kinds := mixed(n)
	a, err := CompileKinds(globs, kinds, layered(kinds))
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func TestSizes(t *testing.T) {
	for _, c := range []struct{ globs, most int }{{10, 8 << 10}, {100, 96 << 10}, {300, 512 << 10}, {1000, 1536 << 10}} {
		a := mixedAutomaton(t, c.globs)
		t.Logf("%d globs: %d bytes, %d cores, %d classes, %d rows, %d cells, %d finals, %d decisions, tries %d+%d, gain %d", c.globs,
			len(a.blob), len(a.class), len(a.gain)/a.stride, a.nrows, len(a.cells), len(a.finals), len(a.bits), len(a.fwd), len(a.bwd), 4*len(a.gain))
		if len(a.Bytes()) > c.most {
			t.Errorf("%d globs take %d bytes, at most %d", c.globs, len(a.Bytes()), c.most)
		}
	}
}

func benchCompile(b *testing.B, n int) {
	globs, kinds := mixed(n)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := CompileKinds(globs, kinds, layered(kinds)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile10(b *testing.B)   { benchCompile(b, 10) }
func BenchmarkCompile100(b *testing.B)  { benchCompile(b, 100) }
func BenchmarkCompile1000(b *testing.B) { benchCompile(b, 1000) }

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		a := mixedAutomaton(b, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a.Match("/home/u/work/project/src/internal/main.go")
			}
		})
	}
}
