package glob

import (
	"encoding/binary"
	"maps"
	"slices"
)

// vague is the first of the numbers that stand for "some glob of kind number - vague";
// smaller ones are globs.
const vague = 0x8000

// fold is what [CompileKinds] gives up rules for: kinds, and which of them are vague.
type fold struct {
	kind []uint16 // glob -> kind, from 0 without holes
	one  []uint16 // kind -> the first glob of it
}

// of answers the kind of a glob or vague number.
func (f *fold) of(id uint16) uint16 {
	if id >= vague {
		return id - vague
	}
	return f.kind[id]
}

// holds reports whether ids has one of id's kind.
func (f *fold) holds(ids []uint16, id uint16) bool {
	k := f.of(id)
	for _, x := range ids {
		if f.of(x) == k {
			return true
		}
	}
	return false
}

// fold answers a smaller tree in which globs are known by their kind only (unless there is
// but one of the kind), and places with the same future are one node.
func (t *tree) fold(kinds []uint16) (*tree, *fold) {
	f := &fold{kind: make([]uint16, len(kinds))}
	dense := map[uint16]uint16{}
	for i, k := range kinds {
		if _, ok := dense[k]; !ok {
			dense[k] = uint16(len(dense))
			f.one = append(f.one, uint16(i))
		}
		f.kind[i] = dense[k]
	}
	count := make([]int, len(dense))
	for _, k := range f.kind {
		count[k]++
	}
	out := &tree{pats: t.pats, owner: t.owner, index: t.index, nodes: make([]node, 1)}
	c := folder{old: t, new: out, f: f, count: count, seen: map[string]int32{}, done: map[int32]int32{}}
	root := c.copy(0)
	out.nodes[0], out.nodes[root] = out.nodes[root], node{}
	return out, f
}

type folder struct {
	old, new *tree
	f        *fold
	count    []int // kind -> globs
	seen     map[string]int32
	done     map[int32]int32
}

// copy answers the new node for an old one; its depth is that of the globs.
func (c *folder) copy(at int32) int32 {
	if to, ok := c.done[at]; ok {
		return to
	}
	old := &c.old.nodes[at]
	n := *old
	n.accept = nil
	for _, g := range old.accept {
		id := g
		if k := c.f.kind[g]; c.count[k] > 1 {
			id = vague + k
		}
		if !c.f.holds(n.accept, id) {
			n.accept = insert(n.accept, id)
		}
	}
	if old.loop != 0 {
		n.loop = c.copy(old.loop)
	}
	n.edge = maps.Clone(old.edge)
	n.order = slices.Clone(old.order)
	slices.Sort(n.order)
	key := []byte{0}
	if n.isLoop {
		key[0] = 1
	}
	key = binary.LittleEndian.AppendUint32(key, uint32(n.loop))
	key = appendList(key, n.accept)
	for _, id := range n.order {
		n.edge[id] = c.copy(old.edge[id])
		key = binary.LittleEndian.AppendUint32(key, uint32(id))
		key = binary.LittleEndian.AppendUint32(key, uint32(n.edge[id]))
	}
	to, ok := c.seen[string(key)]
	if !ok {
		to = int32(len(c.new.nodes))
		c.seen[string(key)] = to
		c.new.nodes = append(c.new.nodes, n)
	}
	c.done[at] = to
	return to
}
