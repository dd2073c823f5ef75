package main

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/corpus"
	"github.com/agentos/agentos/policy/glob"
)

// rules measures the automaton: how long a policy of n mixed globs compiles, how large it is, and what one path costs.
// Times are this process's processor time, so that a busy machine does not count, and the least of n rounds.
func (b *bench) rules(n int) error {
	fmt.Printf("\n%-34s %12s %12s %14s\n", "policy of mixed globs", "compile", "KiB", "match, a path")
	for _, globs := range []int{10, 100, 1000} {
		all := corpus.Mixed(globs)
		doc, err := policy.Parse("mixed.toml", corpus.Document(all))
		if err != nil {
			return err
		}
		r, err := policy.Resolve([]policy.Layer{{Kind: policy.Profile, Doc: doc}}, policy.Vars{Workspace: "/h/w", Home: "/h"})
		if err != nil {
			return err
		}
		var a *glob.Automaton
		var compile, match []time.Duration
		paths := corpus.MixedPaths(all, 1000)
		for range n {
			began := used()
			if a, err = r.Automaton(); err != nil {
				return err
			}
			compile = append(compile, used()-began)
			began = used()
			for range 100 {
				for _, p := range paths {
					a.Match(p)
				}
			}
			match = append(match, (used()-began)/time.Duration(100*len(paths)))
		}
		note := ""
		if globs == 1000 {
			note = "  goal 100 ms, 1536 KiB"
		}
		fmt.Printf("%-34s %12s %12d %14s%s\n", fmt.Sprintf("%d globs", globs), show(slices.Min(compile)), len(a.Bytes())>>10, show(slices.Min(match)), note)
	}
	return nil
}

// used is the processor time of this process so far.
func used() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
