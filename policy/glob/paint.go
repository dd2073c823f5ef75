package glob

import (
	"math/bits"
	"math/rand/v2"
	"slices"
)

// painting gives one color to what allows the same everywhere below.
type painting struct {
	m     *machine
	fsyms []fsym
	rows  []flat // as the machine's, but those of mids have no parents
	cells int
	color []uint32 // by value: cores have classes, mids and finals share other numbers
	ends  []end    // by color of mids and finals
	rep   []int    // class -> a core of it
	class []uint16 // by core
}

// end is one mid or final of a color.
type end struct {
	row   int32 // -1: a final
	class uint16
	bits  uint8
}

// flatten copies their parents' cells to the rows of mids.
func (g *painting) flatten() {
	g.rows = slices.Clone(g.m.rows)
	defer func() {
		for i := range g.rows {
			g.cells += len(g.rows[i].syms)
		}
	}()
	for at := g.m.cores; at < len(g.rows); at++ {
		r := &g.m.rows[at]
		if r.up == at {
			continue
		}
		p := &g.m.rows[r.up]
		f := flat{stage: r.stage, up: at, def: r.def}
		eachCell(r, p, -1, -1, func(sym int32, own, parent int) bool {
			if own < 0 {
				own = parent
			}
			f.syms = append(f.syms, sym)
			f.vals = append(f.vals, uint16(own))
			return true
		})
		g.rows[at] = f
	}
}

// paint refines colors until the number of cores' colors stands still.
func (g *painting) paint() bool {
	m := g.m
	key := rand.Uint64() | 1
	hash := func(a, b uint64) uint64 {
		h, l := bits.Mul64(a^key, b^0x9e3779b97f4a7c15)
		h, l = bits.Mul64(h^l^key, 0xd6e8feb86659fd93)
		return h ^ l
	}
	g.color = make([]uint32, len(m.rows)+len(m.finals))
	sums := make([]uint64, m.cores)
	for count, work := 0, 0; ; {
		if work += g.cells + len(g.color); work > maxWork {
			return false
		}
		ids := map[uint64]uint32{}
		number := func(h uint64) uint32 {
			id, ok := ids[h]
			if !ok {
				id = uint32(len(ids))
				ids[h] = id
			}
			return id
		}
		for i, s := range m.finals {
			g.color[len(m.rows)+i] = number(hash(uint64(g.color[s&0xffff])<<8|uint64(m.accs[s>>16].Bits), 1))
		}
		row := func(at int, sum uint64) uint64 {
			r := &g.rows[at]
			for i, sym := range r.syms {
				old, val, def := -1, int(r.vals[i]), r.def
				if r.up != at {
					old = int(m.get(r.up, sym))
				}
				if r.stage == 1 {
					old, val, def = g.settle(old, sym), g.settle(val, sym), g.settle(def, sym)
				}
				if old >= 0 && g.color[old] != g.color[def] {
					sum -= hash(uint64(sym)<<32|uint64(g.color[old]), 2)
				}
				if g.color[val] != g.color[def] {
					sum += hash(uint64(sym)<<32|uint64(g.color[val]), 2)
				}
			}
			return sum
		}
		for _, stage := range [...]int{3, 2} {
			for at := m.cores; at < len(m.rows); at++ {
				if m.rows[at].stage == stage {
					g.color[at] = number(hash(row(at, hash(uint64(g.color[m.rows[at].def]), 3)), 4))
				}
			}
		}
		for at := range m.cores {
			if m.rows[at].up == at {
				sums[at] = row(at, hash(uint64(g.color[m.rows[at].def]), 3))
			}
		}
		for at := range m.cores {
			if up := m.rows[at].up; up != at {
				sums[at] = row(at, sums[up])
			}
		}
		classes := map[uint64]uint32{}
		g.rep = g.rep[:0]
		for at, s := range sums {
			id, ok := classes[s]
			if !ok {
				id = uint32(len(classes))
				classes[s] = id
				g.rep = append(g.rep, at)
			}
			g.color[at] = id
		}
		if len(classes) == count {
			break
		}
		count = len(classes)
	}
	g.ends = make([]end, len(g.color)+m.cores)
	for at := m.cores; at < len(m.rows); at++ {
		g.ends[g.color[at]] = end{row: int32(at)}
	}
	for i, s := range m.finals {
		g.ends[g.color[len(m.rows)+i]] = end{row: -1, class: uint16(g.color[s&0xffff]), bits: m.accs[s>>16].Bits}
	}
	g.class = make([]uint16, m.cores)
	for at := range m.cores {
		g.class[at] = uint16(g.color[at])
	}
	return true
}

// settle answers the final of a value under the symbol of a whole name, whose end is
// known; else v itself.
func (g *painting) settle(v int, sym int32) int {
	f := &g.fsyms[sym]
	if !f.exact || v < 0 {
		return v
	}
	for v < len(g.m.rows) {
		if g.rows[v].stage == 2 {
			v = int(g.m.get(v, f.end))
		} else {
			v = int(g.m.get(v, f.gen))
		}
	}
	return v
}

// hue answers the color of a value under a symbol of the beginning.
func (g *painting) hue(v int, sym int32) uint32 { return g.color[g.settle(v, sym)] }
