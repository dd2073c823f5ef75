//go:build root

package agents

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// BenchmarkFirstScreen is the time from a command to an agent's first screen: bare, and in a jail under strict. tmux and the looking
// take some 20 ms of each.
//
//	tests/agents/run.sh -run NONE -bench FirstScreen -benchtime 5x -count 3
func BenchmarkFirstScreen(b *testing.B) {
	s := newStage(b)
	for _, a := range seats {
		for _, jailed := range []bool{false, true} {
			how, argv := "bare", []string{filepath.Join(s.agents, a.name)}
			if jailed {
				how, argv = "jail", []string{filepath.Join(s.bin, "agentos"), "run", "--policy", "strict", a.name}
			}
			b.Run(a.name+"/"+how, func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					must(b, os.RemoveAll(filepath.Join(s.root, a.script)))
					d := s.newDesk(b, a.script)
					d.sit(a.agent)
					b.StartTimer()
					term := d.open(slices.Concat(argv, a.flags)...)
					term.await(a.drawn)
					b.StopTimer()
					term.leave()
					for _, p := range d.litter() { // bare, agents leave their files in /tmp
						if !slices.Contains(d.before, p) {
							must(b, os.RemoveAll(p))
						}
					}
					b.StartTimer()
				}
			})
		}
	}
}
