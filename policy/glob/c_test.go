package glob

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const include = "../../bpf/include"

// buildC compiles testdata/walk.c.
func buildC(t *testing.T) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("wanted a C compiler (cc) for bpf/include/match.h, got none")
	}
	exe := filepath.Join(t.TempDir(), "walk")
	out, err := exec.Command(cc, "-O1", "-Wall", "-Wextra", "-Werror", "-I", include, "-o", exe, "testdata/walk.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exe
}

// compareC walks paths in C and in Go.
func compareC(t *testing.T, exe string, a *Automaton, paths []string) {
	t.Helper()
	le := binary.LittleEndian
	in := le.AppendUint32(nil, uint32(len(a.Bytes())))
	in = append(in, a.Bytes()...)
	for _, p := range paths {
		in = le.AppendUint16(in, uint16(len(p)))
		in = append(in, p...)
	}
	cmd := exec.Command(exe)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if err != nil || len(out) != 28*len(paths) {
		t.Fatalf("%d bytes: %v", len(out), err)
	}
	before := a.Start()
	for i, p := range paths {
		s := a.Walk(p)
		acc := a.Accept(s)
		gain := uint32(0)
		if a.NoGain(before, s) {
			gain = 1
		}
		want := []uint32{uint32(s), uint32(acc.Bits), uint32(acc.Rule[0]), uint32(acc.Rule[1]), uint32(acc.Rule[2]), gain, uint32(acc.Bits)}
		for j, w := range want {
			if got := le.Uint32(out[28*i+4*j:]); got != w {
				t.Fatalf("%q: word %d: C %#x, Go %#x", p, j, got, w)
			}
		}
		before = s
	}
}

func TestC(t *testing.T) {
	exe := buildC(t)
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(5, seed))
		globs := randomGlobs(r, 1+r.IntN(10), true)
		kinds := anyKinds(r, len(globs))
		a, err := Compile(globs, layered(kinds))
		if err != nil {
			t.Fatal(err)
		}
		paths := []string{"/", "/" + strings.Repeat("a", 255), "/" + strings.Repeat("a", 256), "/" + strings.Repeat("b", 300) + "/a"}
		for range 400 {
			paths = append(paths, randomPath(r))
		}
		compareC(t, exe, a, paths)
	}
	globs, _ := mixed(1000)
	a := mixedAutomaton(t, 1000)
	compareC(t, exe, a, mixedPaths(globs, 5000))
}

// mixedPaths makes paths out of globs: as they are, and cut and joined.
func mixedPaths(globs []string, n int) []string {
	r := rand.New(rand.NewPCG(6, 6))
	var names []string
	for _, g := range globs {
		for p := range strings.SplitSeq(g, "/") {
			if p != "" && p != "**" {
				names = append(names, p, strings.ReplaceAll(p, "*", "-mid-"), strings.Trim(p, "*"))
			}
		}
	}
	paths := make([]string, 0, n)
	for range n {
		var s strings.Builder
		if r.IntN(2) == 0 {
			s.WriteString("/home/u/work")
		}
		for range 1 + r.IntN(4) {
			if name := names[r.IntN(len(names))]; name != "" {
				s.WriteByte('/')
				s.WriteString(name)
			}
		}
		if s.Len() > 0 {
			paths = append(paths, s.String())
		}
	}
	return paths
}

func TestMixedEqualsReference(t *testing.T) {
	globs, kinds := mixed(1000)
	a := mixedAutomaton(t, 1000)
	decide := layered(kinds)
	parsed := make([][][]pattern, len(globs))
	for i, g := range globs {
		parsed[i], _ = parse(g)
	}
	some := 0
	for _, p := range mixedPaths(globs, 1500) {
		names, _ := clean(p)
		var set []uint16
		for i, alts := range parsed {
			for _, parts := range alts {
				if matchParts(parts, names) {
					set = append(set, uint16(i))
					break
				}
			}
		}
		want, got := decide(set), a.Match(p)
		if got.Bits != want.Bits {
			t.Fatalf("%q: got %v want %v", p, got, want)
		}
		if got.Rule[Read] == SomeRule {
			some++
		}
	}
	t.Logf("%d rules are vague", some)
}

// The header's numbers are written down twice: in match.h and in blob.go.
func TestHeaderNumbers(t *testing.T) {
	text, err := os.ReadFile(include + "/match.h")
	if err != nil {
		t.Fatal(err)
	}
	body := string(text)
	body = body[strings.Index(body, "enum match_header {"):]
	body = body[:strings.Index(body, "};")]
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^\tMATCH_H_(\w+),`).FindAllStringSubmatch(body, -1) {
		names = append(names, m[1])
	}
	want := "MAGIC VERSION GLOBS SIZE START ROWS SHIFT STRIDE FWD FWDSYM BWD BWDSYM GMAP GTAB GSYM ROW CELL FINAL BITS RULE CLASS GAIN"
	if got := strings.Join(names, " "); got != want || len(names) != hSection+sections {
		t.Errorf("header is %s", got)
	}
	for _, s := range []string{"MATCH_MAGIC 0x424c4741U", "MATCH_VERSION 1U", "MATCH_SMALL_BYTES (256U << 10)", "MATCH_LARGE_BYTES (2048U << 10)"} {
		if !strings.Contains(string(text), s) {
			t.Errorf("match.h lacks %s", s)
		}
	}
	if SmallBytes != 256<<10 || MaxBytes != 2048<<10 || magic != 0x424c4741 || version != 1 {
		t.Error("constants moved")
	}
}
