package hook

import (
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/bpf/selftest"
	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/corpus"
	"github.com/agentos/agentos/policy/glob"
)

func matchOne(g, p string) bool { return len(glob.Reference([]string{g}, p)) > 0 }

// compiled is the automaton of a case, from its document as for any policy.
func compiled(t *testing.T, c *corpus.Case) *glob.Automaton {
	t.Helper()
	d, err := policy.Parse("corpus.toml", c.Document())
	if err != nil {
		t.Fatal(err)
	}
	r, err := policy.Resolve([]policy.Layer{{Kind: policy.Profile, Doc: d}}, policy.Vars{Workspace: c.Base, Home: "/h"})
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.Automaton()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAgreement tries the rows of the agreement corpus in jails: real operations, judged by the kernel. What
// they did is looked at from outside. jail/broker does the same with its engine, policy with the evaluator.
func TestAgreement(t *testing.T) {
	x := enforcing(t)
	rows := 0
	for seed := range uint64(4) { // half a minute each pair on an emulated machine
		c := corpus.New(seed, t.TempDir())
		a := compiled(t, &c)
		noGain := func(from, to string) bool { return a.NoGain(a.Walk(from), a.Walk(to)) }
		j := x.jail(Jail{Rules: a.Bytes(), Enforce: true, Strict: true})
		for _, phase := range c.Phases() {
			if err := c.Plant(-1, -1); err != nil {
				t.Fatal(err)
			}
			var acts [][]string
			for _, r := range phase {
				act := []string{string(r.Act), r.Path}
				if r.Act == corpus.ActMoveDir {
					act[0] = "rename"
				}
				if r.Act.Two() {
					act = append(act, r.To)
				}
				acts = append(acts, act)
			}
			for i, got := range j.do(acts...) {
				r := phase[i]
				want := c.Allows(r, matchOne, noGain)
				allowed, ok := corpus.Allowed(errno(got))
				did, known := r.Happened()
				if !ok || allowed != want || known && did != want {
					t.Errorf("case %d: %s %s %s: %s, happened %v, allowed by the definition: %v\n%s", seed, r.Act, r.Path, r.To, got, did, want, c.Document())
				}
				rows++
			}
		}
	}
	t.Logf("%d rows on tier %s", rows, x.f.Tier)
}

// errno reads what an act printed; unknown text is an errno that no act may have.
func errno(s string) syscall.Errno {
	if s == "ok" {
		return 0
	}
	for e := syscall.Errno(1); e < 200; e++ {
		if unix.ErrnoName(e) == s {
			return e
		}
	}
	return syscall.Errno(4095)
}

// TestAgreementStep walks every path of the corpus through the BPF code alone, which also
// machines without trampolines run.
func TestAgreementStep(t *testing.T) {
	rootOnly(t)
	coll := stepProgram(t)
	h, j := stepTables(t, coll)
	paths := 0
	for seed := range uint64(12) {
		c := corpus.New(seed, "/work/x")
		a := compiled(t, &c)
		if err := h.putRules(j, a.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := h.putRules(j, append(a.Bytes(), make([]byte, rulesSmall)...)); err != nil { // the same in a large table
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for i, r := range c.Rows {
			for _, p := range []string{r.Path, r.To} {
				if p == "" || seen[p] {
					continue
				}
				seen[p] = true
				paths++
				if got, want := stepBits(t, coll, p, uint32(i)&1), corpus.Bits(c.Rules, matchOne, p); got != want {
					t.Errorf("case %d: %s: %b, the definition says %b\n%s", seed, p, got, want, c.Document())
				}
			}
		}
	}
	if err := h.dropLarge(j); err != nil {
		t.Error(err)
	}
	t.Logf("%d paths", paths)
}

// stepBits walks a path from "/" in the program and answers the operations allowed at its end.
func stepBits(t *testing.T, coll *ebpf.Collection, path string, large uint32) int {
	t.Helper()
	q := selftest.StepQuestion{Slot: 3, Start: 1, Large: large}
	for from, i := 1, 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		q.Len = uint32(copy(q.Name[:], path[from:i]))
		from = i + 1
		if err := coll.Maps["questions"].Put(uint32(0), q); err != nil {
			t.Fatal(err)
		}
		if ret, err := coll.Programs["step"].Run(&ebpf.RunOptions{}); err != nil || ret != 0 {
			t.Fatalf("run: %d, %v", ret, err)
		}
		if err := coll.Maps["questions"].Lookup(uint32(0), &q); err != nil {
			t.Fatal(err)
		}
		q.State, q.Start = q.StepState, 0
	}
	return int(q.Bits)
}
