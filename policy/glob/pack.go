package glob

import (
	"math/bits"
	"slices"
)

// packer places sparse rows in one array so that no two cells meet.
type packer struct {
	used []uint64
	hint [32]int // by log2 of a row's cells: where the last one of that size went
	end  int     // behind the last used slot
}

func (p *packer) taken(i int) bool {
	w := i >> 6
	return w < len(p.used) && p.used[w]>>(i&63)&1 == 1
}

func (p *packer) take(i int) {
	for i>>6 >= len(p.used) {
		p.used = append(p.used, make([]uint64, max(64, len(p.used)))...)
	}
	p.used[i>>6] |= 1 << (i & 63)
	p.end = max(p.end, i+1)
}

// free answers the first free slot from i on.
func (p *packer) free(i int) int {
	for w := i >> 6; w < len(p.used); w++ {
		open := ^p.used[w]
		if w == i>>6 {
			open &= ^uint64(0) << (i & 63)
		}
		if open != 0 {
			return w<<6 + bits.TrailingZeros64(open)
		}
	}
	return max(i, len(p.used)<<6)
}

// place finds and takes the lowest base >= least whose slots base+at are all free. at
// ascends and is not empty.
func (p *packer) place(at []int32, least int) int {
	size := bits.Len(uint(len(at)))
	slot := max(least+int(at[0]), p.hint[size])
next:
	for {
		slot = p.free(slot)
		base := slot - int(at[0])
		for _, a := range at[1:] {
			if p.taken(base + int(a)) {
				slot++
				continue next
			}
		}
		for _, a := range at {
			p.take(base + int(a))
		}
		p.hint[size] = slot
		return base
	}
}

const noTag = 0xffff // in cells that no row owns

// packTrie makes a double array: slot to = base(node) + byte holds {base(to), node << 16}
// where the edge exists, and node numbers are slots. at maps t's nodes to slots. The root is slot 0.
func packTrie(t *trie) (cells []uint32, at []int32, err *Error) {
	kids := make([][]int32, len(t.up))
	for i := 1; i < len(t.up); i++ {
		kids[t.up[i]] = append(kids[t.up[i]], int32(i))
	}
	at = make([]int32, len(t.up))
	base := make([]uint32, len(t.up))
	var p packer
	p.take(0)
	for i := range t.up {
		if len(kids[i]) == 0 {
			continue
		}
		slices.SortFunc(kids[i], func(x, y int32) int { return int(t.byte[x]) - int(t.byte[y]) })
		offs := make([]int32, len(kids[i]))
		for j, k := range kids[i] {
			offs[j] = int32(t.byte[k])
		}
		base[i] = uint32(p.place(offs, 1))
		for _, k := range kids[i] {
			at[k] = int32(base[i]) + int32(t.byte[k])
		}
	}
	size := p.end + 256
	for _, b := range base {
		size = max(size, int(b)+256)
	}
	if p.end > maxIDs {
		return nil, nil, errTrie
	}
	cells = make([]uint32, size)
	for i := range cells {
		cells[i] = noTag << 16
	}
	for i := range t.up {
		tag := uint32(noTag)
		if i > 0 {
			tag = uint32(at[t.up[i]])
		}
		cells[at[i]] = base[i] | tag<<16
	}
	return cells, at, nil
}

// slab is all rows, packed.
type slab struct {
	rows  []slot
	cells []uint32
}

// slot is where a row's cells lie: at off + symbol, marked with tag.
type slot struct {
	off, tag uint32
	up, def  uint16
}

// flat is a row of the final numbering.
type flat struct {
	stage int // 1: beginning, 2: end, 3: DFA
	up    int // row, or itself
	def   int
	syms  []int32
	vals  []uint16
	share int // an earlier row with the same cells, or itself
}

const emptyTag = 0xfffe // of rows without cells

// packRows packs rows; maxSym is the largest symbol that any lookup can use.
func packRows(rows []flat, maxSym int) *slab {
	s := &slab{rows: make([]slot, len(rows))}
	order := make([]int, 0, len(rows))
	for i := range rows {
		s.rows[i] = slot{tag: emptyTag, up: uint16(rows[i].up), def: uint16(rows[i].def)}
		if len(rows[i].syms) > 0 && rows[i].share == i {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return len(rows[y].syms) - len(rows[x].syms) })
	var p packer
	high := 0
	for tag, i := range order {
		off := p.place(rows[i].syms, 0)
		s.rows[i].off, s.rows[i].tag = uint32(off), uint32(tag)
		high = max(high, off)
	}
	s.cells = make([]uint32, high+maxSym+1)
	for i := range s.cells {
		s.cells[i] = noTag << 16
	}
	for _, i := range order {
		for j, sym := range rows[i].syms {
			s.cells[int(s.rows[i].off)+int(sym)] = uint32(rows[i].vals[j]) | s.rows[i].tag<<16
		}
	}
	for i := range rows {
		if j := rows[i].share; j != i {
			s.rows[i].off, s.rows[i].tag = s.rows[j].off, s.rows[j].tag
		}
	}
	return s
}
