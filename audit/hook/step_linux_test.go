package hook

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/agentos/agentos/bpf/selftest"
	"github.com/agentos/agentos/policy/glob"
)

// stepProgram loads the program that walks one name, with maps of its own.
func stepProgram(t *testing.T) *ebpf.Collection {
	t.Helper()
	spec, err := selftest.LoadStep()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range spec.Maps {
		if m.Pinning = ebpf.PinNone; !strings.HasPrefix(name, ".") && name != "questions" && name != "rules_small" && name != "rules_large" {
			delete(spec.Maps, name)
		}
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(plain(err))
	}
	t.Cleanup(coll.Close)
	return coll
}

// TestStepInKernel asks the program and package glob about the same random paths.
func TestStepInKernel(t *testing.T) {
	rootOnly(t)
	coll := stepProgram(t)
	globs := []string{
		"/**", "**/.env", "**/.env.*", "**/*.pem", "**/*secret*", "/home/*/.ssh/**", "**/.git/hooks/**",
		"**/a*b", "**/?x[0-9]", "/usr/**", "**/id_*", "/home/u/work/**", "**/{x,y}.key",
	}
	a, err := glob.Compile(globs, func(m []uint16) glob.Accept {
		acc := glob.Accept{}
		for i := range acc.Rule {
			acc.Rule[i] = glob.NoRule
		}
		for _, r := range m {
			acc.Bits ^= 1 << (r % 3)
			acc.Rule[r%3] = r
		}
		return acc
	})
	if err != nil {
		t.Fatal(err)
	}
	h := &Hook{maps: coll.Maps}
	small, err := ebpf.NewMap(rulesSpec(rulesSmall))
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	if err := coll.Maps["rules_small"].Put(uint32(3), uint32(small.FD())); err != nil {
		t.Fatal(err)
	}
	j := &jail{slot: &slot{index: 3, rules: small}}
	if err := h.putRules(j, a.Bytes()); err != nil {
		t.Fatal(err)
	}
	defer h.dropLarge(j)
	if err := h.putRules(j, append(a.Bytes(), make([]byte, rulesSmall)...)); err != nil { // the same in a large table
		t.Fatal(err)
	}
	words := []string{
		".env", ".env.local", "x.pem", ".pem", "mysecrets", "home", "u", ".ssh", ".git", "hooks", "ab", "aab", "a", "b",
		"qx7", "usr", "id_rsa", "work", "x.key", "y.key", "z.key", strings.Repeat("n", 255), strings.Repeat("a", 254) + "b",
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		state, q := a.Start(), selftest.StepQuestion{Slot: 3, Start: 1}
		q.Large = rng.Uint32N(2)
		path := ""
		for range 1 + rng.IntN(5) {
			word := words[rng.IntN(len(words))]
			path += "/" + word
			q.Len = uint32(copy(q.Name[:], word))
			if err := coll.Maps["questions"].Put(uint32(0), q); err != nil {
				t.Fatal(err)
			}
			if ret, err := coll.Programs["step"].Run(&ebpf.RunOptions{}); err != nil || ret != 0 {
				t.Fatalf("run: %d, %v", ret, err)
			}
			if err := coll.Maps["questions"].Lookup(uint32(0), &q); err != nil {
				t.Fatal(err)
			}
			state = a.StepString(state, word)
			acc := a.Accept(state)
			if q.StepState != uint32(state) || q.MatchState != uint32(state) {
				t.Fatalf("%s: step.h %#x, match.h %#x, Go %#x", path, q.StepState, q.MatchState, state)
			}
			if q.Bits != uint32(acc.Bits) || q.Rule[0] != uint32(acc.Rule[0]) || q.Rule[2] != uint32(acc.Rule[2]) {
				t.Fatalf("%s: bits %b rules %v, Go %+v", path, q.Bits, q.Rule, acc)
			}
			q.State, q.Start = q.StepState, 0
		}
	}
}
