package glob

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// tree holds all globs; edges are component patterns. Node 0 stands for "/".
type tree struct {
	pats  []pattern
	owner []int // a glob that uses the pattern, for errors
	nodes []node
	index map[string]int32 // pattern key -> pattern
	extra int              // alternatives that sets became
}

// node is a place in globs. A loop node stays where it is on every name: it stands for
// a ** and hangs below the node it follows.
type node struct {
	edge   map[int32]int32 // pattern -> node
	order  []int32         // the keys of edge, as they came
	loop   int32           // the loop node of the ** that may follow here, or 0
	isLoop bool
	accept []uint16 // globs that end here, ascending
	// Kinds among the edges:
	hasStar, hasSuffix, hasOther bool
}

func (n *node) leaf() bool { return len(n.edge) == 0 && n.loop == 0 && !n.isLoop }

func plant(globs []string) (*tree, *Error) {
	if len(globs) > maxGlobs {
		return nil, &Error{Index: -1, Msg: fmt.Sprintf("%d globs, at most %d", len(globs), maxGlobs)}
	}
	t := &tree{nodes: make([]node, 1), index: map[string]int32{}}
	total := 0
	for i, g := range globs {
		alts, err := parse(g)
		if err != nil {
			err.Index = i
			return nil, err
		}
		if total += len(alts); total > maxExpanded {
			return nil, &Error{Index: i, Msg: fmt.Sprintf("more than %d globs after expanding {}", maxExpanded)}
		}
		for _, parts := range alts {
			for _, p := range t.spread(parts) {
				t.insert(i, p)
			}
		}
	}
	return t, nil
}

func (t *tree) insert(glob int, parts []pattern) {
	at := int32(0)
	for _, p := range parts {
		n := &t.nodes[at]
		if p.kind == deep {
			if n.loop == 0 {
				n.loop = int32(len(t.nodes))
				t.nodes = append(t.nodes, node{isLoop: true})
			}
			at = t.nodes[at].loop
			continue
		}
		id := t.intern(p, glob)
		to, ok := n.edge[id]
		if !ok {
			to = int32(len(t.nodes))
			if n.edge == nil {
				n.edge = map[int32]int32{}
			}
			n.edge[id] = to
			n.order = append(n.order, id)
			n.hasStar = n.hasStar || p.kind == star
			n.hasSuffix = n.hasSuffix || p.kind == suffix
			n.hasOther = n.hasOther || p.kind == other
			t.nodes = append(t.nodes, node{})
		}
		at = to
	}
	if n := &t.nodes[at]; len(n.accept) == 0 || n.accept[len(n.accept)-1] != uint16(glob) {
		n.accept = append(n.accept, uint16(glob))
	}
}

func (t *tree) intern(p pattern, glob int) int32 {
	key := []byte{byte(p.kind), byte(len(p.pre))}
	key = append(append(key, p.pre...), p.suf...)
	for _, k := range p.toks {
		if k.run {
			key = append(key, '*')
			continue
		}
		key = append(key, '.')
		for _, w := range k.set {
			key = binary.LittleEndian.AppendUint64(key, w)
		}
	}
	id, ok := t.index[string(key)]
	if !ok {
		id = int32(len(t.pats))
		t.pats = append(t.pats, p)
		t.owner = append(t.owner, glob)
		t.index[string(key)] = id
	}
	return id
}

// set is what a walk knows: the places it is at, the trees it is in, the globs that end
// here. All three ascend; when folding, trees and ends together hold one glob of each kind.
type set struct {
	nodes []int32
	trees []uint16
	ends  []uint16
}

func (s *set) clone() set {
	return set{slices.Clone(s.nodes), slices.Clone(s.trees), slices.Clone(s.ends)}
}

func insert[T cmp.Ordered](s []T, v T) []T {
	if i, ok := slices.BinarySearch(s, v); !ok {
		return slices.Insert(s, i, v)
	}
	return s
}

// closure arrives at node n: with all that ends there, and the ** that may follow.
func (b *builder) closure(s *set, n int32) {
	p := &b.tree.nodes[n]
	if p.isLoop { // it stays
		s.nodes = insert(s.nodes, n)
		return
	}
	for _, g := range p.accept {
		b.end(s, g)
	}
	if len(p.edge) > 0 {
		s.nodes = insert(s.nodes, n)
	}
	if p.loop == 0 {
		return
	}
	l := &b.tree.nodes[p.loop]
	for _, g := range l.accept {
		b.enter(s, g)
	}
	if len(l.edge) > 0 {
		s.nodes = insert(s.nodes, p.loop)
	}
}

// end notes that glob g ends here.
func (b *builder) end(s *set, g uint16) {
	if b.known(s, g) {
		return
	}
	s.ends = insert(s.ends, g)
}

// enter notes that g holds here and for everything below.
func (b *builder) enter(s *set, g uint16) {
	if b.fold == nil {
		s.trees = insert(s.trees, g)
		s.ends = slices.DeleteFunc(s.ends, func(e uint16) bool { return e == g })
		return
	}
	if !b.fold.holds(s.trees, g) {
		s.trees = insert(s.trees, g)
		s.ends = slices.DeleteFunc(s.ends, func(e uint16) bool { return b.fold.of(e) == b.fold.of(g) })
	}
}

// known reports whether g, or when folding one of its kind, is in s already.
func (b *builder) known(s *set, g uint16) bool {
	if b.fold != nil {
		return b.fold.holds(s.trees, g) || b.fold.holds(s.ends, g)
	}
	_, in := slices.BinarySearch(s.trees, g)
	_, on := slices.BinarySearch(s.ends, g)
	return in || on
}

// idle reports whether arriving at n would change nothing.
func (b *builder) idle(s *set, n int32) bool {
	p := &b.tree.nodes[n]
	if !p.leaf() {
		return false
	}
	for _, g := range p.accept {
		if !b.known(s, g) {
			return false
		}
	}
	return true
}

// Bounds on the alternatives that sets become: of one component, of one glob, of all.
const (
	spreadPart = 32
	spreadGlob = 64
	spreadAll  = 1024
)

// spread writes small sets out: *.py[cod] as *.pyc, *.pyo and *.pyd, [Bb]in as Bin and bin. The tries
// hold those, and the DFA, whose patterns multiply, is left for ?, larger sets and several *.
func (t *tree) spread(parts []pattern) [][]pattern {
	out := [][]pattern{parts}
	for i := range parts {
		all := parts[i].plain()
		if len(all) < 2 || len(out)*len(all) > spreadGlob || t.extra+len(out)*(len(all)-1) > spreadAll {
			continue
		}
		t.extra += len(out) * (len(all) - 1)
		wide := make([][]pattern, 0, len(out)*len(all))
		for _, o := range out {
			for _, p := range all {
				w := append([]pattern(nil), o...)
				w[i] = p
				wide = append(wide, w)
			}
		}
		out = wide
	}
	return out
}

// plain answers the patterns without sets that together are p, nil if p is not made of few
// sets and at most one run.
func (p *pattern) plain() []pattern {
	if p.kind != other {
		return nil
	}
	runs, count := 0, 1
	for _, k := range p.toks {
		if k.run {
			runs++
			continue
		}
		if count *= k.set.size(); count > spreadPart {
			return nil
		}
	}
	if runs > 1 {
		return nil
	}
	all := [][]token{nil}
	for _, k := range p.toks {
		var next [][]token
		for _, a := range all {
			if k.run {
				next = append(next, append(a[:len(a):len(a)], k))
				continue
			}
			for b := range 256 {
				if k.set.has(byte(b)) {
					var one token
					one.set.add(byte(b))
					next = append(next, append(a[:len(a):len(a)], one))
				}
			}
		}
		all = next
	}
	out := make([]pattern, len(all))
	for i, a := range all {
		out[i] = classify(a)
	}
	return out
}
