package policy

import (
	"fmt"
	"slices"

	"github.com/agentos/agentos/policy/glob"
)

const noRule = glob.NoRule

// validGlob checks the syntax of an absolute or floating glob.
func validGlob(g string) error { return glob.Valid(g) }

// matchGlob matches one glob without an automaton; slow.
func matchGlob(g, path string) bool { return len(glob.Reference([]string{g}, path)) > 0 }

// Automaton compiles the file rules of all layers to the one machine that the
// kernel programs, the broker and [Resolved.Explain] walk. Rule numbers are
// indices into Files.
func (r *Resolved) Automaton() (*glob.Automaton, error) {
	globs := make([]string, len(r.Files))
	for i, rule := range r.Files {
		globs[i] = rule.Glob
	}
	layers := make([]int, len(r.Layers))
	for i := range layers {
		layers[i] = i
	}
	ops := [...]struct {
		op   glob.Op
		kind Kind
	}{{glob.Read, Read}, {glob.Write, Write}, {glob.Exec, Exec}}
	a, err := glob.CompileKinds(globs, r.kinds(), func(matched []uint16) glob.Accept {
		var acc glob.Accept
		for i := range acc.Rule {
			acc.Rule[i] = noRule
		}
		if !slices.IsSorted(matched) {
			matched = slices.Sorted(slices.Values(matched))
		}
		for _, o := range ops {
			ok, rule := r.judge(o.kind, matched, layers)
			acc.Rule[o.op] = rule
			if ok {
				acc.Bits |= 1 << o.op
			}
		}
		hidden, rule := r.hidden(matched, layers)
		acc.Rule[glob.See] = rule
		if !hidden {
			acc.Bits |= 1 << glob.See
		}
		return acc
	})
	if err != nil {
		return nil, fmt.Errorf("compile policy %s: %w", r.Name, err)
	}
	return a, nil
}

// kinds numbers the file rules so that rules of one number are interchangeable
// for judge: those of one layer and list, and of deny and protect those with no
// exception between them. Long runs keep the automaton small.
func (r *Resolved) kinds() []uint16 {
	type list struct {
		layer int
		kind  Kind
	}
	out := make([]uint16, len(r.Files))
	type manner struct{ except, hide bool }
	current := map[list]uint16{}
	sign := map[list]manner{}
	next := uint16(0)
	for i, rule := range r.Files {
		l := list{rule.Layer, rule.Kind}
		s := manner{rule.Except, rule.Hide}
		if n, ok := current[l]; !ok || sign[l] != s {
			current[l], sign[l] = next, s
			out[i] = next
			next++
		} else {
			out[i] = n
		}
	}
	return out
}

// judge decides one file operation for the rules that match a path, ascending,
// over the given layers, ascending: a deny rule of any layer denies, a protect
// rule denies writing, and every layer that has a list for the operation must
// list the path. rule is the deciding one: the deny or protect rule, the grant
// of the lowest layer, or noRule when nothing grants.
func (r *Resolved) judge(op Kind, matched []uint16, layers []int) (ok bool, rule uint16) {
	for _, l := range layers {
		for _, kind := range []Kind{Deny, Protect} {
			if kind == Protect && op != Write {
				continue
			}
			last := uint16(noRule)
			for _, m := range matched {
				if f := &r.Files[m]; f.Layer == l && f.Kind == kind {
					last = m
				}
			}
			if last != noRule && !r.Files[last].Except {
				return false, last
			}
		}
	}
	rule = noRule
	for _, l := range layers {
		if !slices.Contains(r.Layers[l].Lists, op) {
			continue
		}
		i := slices.IndexFunc(matched, func(m uint16) bool { return r.Files[m].Layer == l && r.Files[m].Kind == op })
		if i < 0 {
			return false, noRule
		}
		rule = matched[i]
	}
	return rule != noRule, rule
}

// hidden reports whether the name itself is kept from the agent: in some layer a deny rule
// that hides matches, with no exception below it that does. The last such rule of the first
// such layer is the one that is named, noRule if there is none. What is hidden is denied.
func (r *Resolved) hidden(matched []uint16, layers []int) (bool, uint16) {
	for _, l := range layers {
		last := uint16(noRule)
		for _, m := range matched {
			switch f := &r.Files[m]; {
			case f.Layer != l || f.Kind != Deny:
			case f.Except:
				last = noRule
			case f.Hide:
				last = m
			}
		}
		if last != noRule {
			return true, last
		}
	}
	return false, noRule
}

// Hides says whether some rule hides names, which costs each look at a name.
func (r *Resolved) Hides() bool {
	return slices.ContainsFunc(r.Files, func(f Rule) bool { return f.Hide })
}
