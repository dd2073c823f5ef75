package glob

import "slices"

// maxClasses bounds the inclusion matrix.
const maxClasses = 2048

// maxWork bounds the time that the matrix takes, in cells looked at.
const maxWork = 100 << 20

// gains computes for all pairs of cores whether a directory may move from one to the
// other. Cores that allow the same everywhere below are one class. The relation is the
// greatest one such that for every name the bits after it are included and so are the
// states: it is found by starting with "all" and striking out.
type gains struct {
	painting
	stride int
	bits   []uint32

	no      map[uint64]bool // pairs of rows' colors: for ever
	yes     map[uint64]bool // pairs of rows' colors: in this round
	trouble []*troubles     // of pairs of parents, by their numbers, in this round
	number  []int           // core that is a parent -> its number
	parents int
	most    []int // by core: the most cells among the rows that have it as parent
	own     [][]hue
	work    int        // comparisons
	dense   [][]uint32 // by number of a parent: hue by symbol
}

// hue is a cell of a core that has a parent: the colors of its value and its parent's.
type hue struct {
	sym      int32
	own, old uint32
}

// troubles are the symbols for which a pair of parent rows is not included.
type troubles struct {
	all  bool // too many, or the default
	syms []int32
}

func (m *machine) gains(fsyms []fsym) (*gains, *Error) {
	g := &gains{painting: painting{m: m, fsyms: fsyms}, no: map[uint64]bool{}}
	g.flatten()
	if !g.paint() || len(g.rep) > maxClasses {
		return nil, errTooMany
	}
	g.stride = (len(g.rep) + 31) / 32
	g.bits = make([]uint32, g.stride*len(g.rep))
	for f := range g.rep {
		for t := range g.rep {
			g.bits[f*g.stride+t>>5] |= 1 << (t & 31)
		}
	}
	g.most = make([]int, m.cores)
	g.own = make([][]hue, m.cores)
	g.number = make([]int, m.cores)
	for i := range g.number {
		g.number[i] = -1
	}
	for _, i := range g.rep {
		if up := m.rows[i].up; g.number[up] < 0 {
			g.number[up] = g.parents
			g.parents++
		}
	}
	g.dense = make([][]uint32, g.parents)
	for i := range m.cores {
		r := &m.rows[i]
		if r.up == i {
			continue
		}
		g.most[r.up] = max(g.most[r.up], len(r.syms))
		for j, sym := range r.syms {
			g.own[i] = append(g.own[i], hue{sym, g.hue(int(r.vals[j]), sym), g.hue(int(m.get(r.up, sym)), sym)})
		}
	}
	if !g.strike() {
		return nil, errTooMany
	}
	return g, nil
}

// strike takes pairs out until all that are left hold. Rows are looked at again only if
// a row that they lead to lost something. It goes backward because cores are numbered in
// the order of paths. It answers false when that takes too long.
func (g *gains) strike() bool {
	next := g.follow()
	g.trouble = make([]*troubles, g.parents*g.parents)
	lost := make([]bool, len(g.rep)) // in this round or, so far, in the next
	for i := range lost {
		lost[i] = true
	}
	for changed := true; changed; {
		changed = false
		g.yes = map[uint64]bool{}
		clear(g.trouble)
		before := slices.Clone(lost)
		clear(lost)
		for f := len(g.rep) - 1; f >= 0; f-- {
			if !slices.ContainsFunc(next[f], func(c uint16) bool { return before[c] || lost[c] }) {
				continue
			}
			row := g.bits[f*g.stride : (f+1)*g.stride]
			for t := len(g.rep) - 1; t >= 0; t-- {
				if row[t>>5]>>(t&31)&1 == 1 && f != t && !g.core(g.rep[f], g.rep[t]) {
					row[t>>5] &^= 1 << (t & 31)
					lost[f], changed = true, true
				}
			}
		}
		if g.work > maxWork {
			return false
		}
	}
	return true
}

// follow answers for every class those that a name leads to.
func (g *gains) follow() [][]uint16 {
	out := make([][]uint16, len(g.rep))
	parents := map[int][]uint16{}
	seen := make([]int, len(g.m.rows)+len(g.m.finals))
	stamp := 0
	reach := func(r *flat, list []uint16) []uint16 {
		stamp++
		todo := []int{r.def}
		for _, v := range r.vals {
			todo = append(todo, int(v))
		}
		for len(todo) > 0 {
			v := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if seen[v] == stamp {
				continue
			}
			seen[v] = stamp
			if v >= len(g.rows) {
				list = append(list, g.class[g.m.finals[v-len(g.rows)]&0xffff])
				continue
			}
			todo = append(todo, g.rows[v].def)
			for _, w := range g.rows[v].vals {
				todo = append(todo, int(w))
			}
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	for c, at := range g.rep {
		r := &g.m.rows[at]
		var list []uint16
		if r.up != at {
			p, ok := parents[r.up]
			if !ok {
				p = reach(&g.m.rows[r.up], nil)
				parents[r.up] = p
			}
			list = slices.Clone(p)
		}
		out[c] = reach(r, list)
	}
	return out
}

func (g *gains) included(f, t int) bool { return g.bits[f*g.stride+t>>5]>>(t&31)&1 == 1 }

// value reports whether all that a value of color t allows below, one of color f allows too.
func (g *gains) value(f, t uint32) bool {
	g.work++
	if f == t {
		return true
	}
	ef, et := g.ends[f], g.ends[t]
	if ef.row < 0 && et.row < 0 {
		return et.bits&^ef.bits == 0 && g.included(int(ef.class), int(et.class))
	}
	key := uint64(f)<<32 | uint64(t)
	if g.no[key] {
		return false
	}
	if g.yes[key] {
		return true
	}
	ok := g.mids(f, t)
	if ok {
		g.yes[key] = true
	} else {
		g.no[key] = true
	}
	return ok
}

// mids compares rows of one stage; a final stands for a row that is the same everywhere.
func (g *gains) mids(f, t uint32) bool {
	rf, df := g.open(f)
	rt, dt := g.open(t)
	if !g.value(df, dt) {
		return false
	}
	return eachCell(rf, rt, -1, -1, func(_ int32, vf, vt int) bool {
		cf, ct := df, dt
		if vf >= 0 {
			cf = g.color[vf]
		}
		if vt >= 0 {
			ct = g.color[vt]
		}
		return g.value(cf, ct)
	})
}

// open answers the row of a color, nil for a final's, and the color of its default.
func (g *gains) open(c uint32) (*flat, uint32) {
	if e := g.ends[c]; e.row >= 0 {
		r := &g.rows[e.row]
		return r, g.color[r.def]
	}
	return nil, c
}

// eachCell calls do for every symbol that one of two rows has a cell for, until it answers
// false; df and dt stand for a cell that a row lacks. A nil row has no cells.
func eachCell(f, t *flat, df, dt int, do func(sym int32, vf, vt int) bool) bool {
	i, j := 0, 0
	for {
		inF, inT := f != nil && i < len(f.syms), t != nil && j < len(t.syms)
		vf, vt := df, dt
		var sym int32
		switch {
		case !inF && !inT:
			return true
		case inF && inT && f.syms[i] == t.syms[j]:
			sym, vf, vt = f.syms[i], int(f.vals[i]), int(t.vals[j])
			i, j = i+1, j+1
		case inF && (!inT || f.syms[i] < t.syms[j]):
			sym, vf = f.syms[i], int(f.vals[i])
			i++
		default:
			sym, vt = t.syms[j], int(t.vals[j])
			j++
		}
		if !do(sym, vf, vt) {
			return false
		}
	}
}

// core compares two cores: where neither has a cell of its own, their parents count.
func (g *gains) core(f, t int) bool {
	uf, ut := g.m.rows[f].up, g.m.rows[t].up
	var trouble []int32
	if uf != ut {
		tr := g.pair(uf, ut)
		if tr.all {
			return false
		}
		trouble = tr.syms
	}
	own, oth := g.own[f], g.own[t]
	for len(own) > 0 || len(oth) > 0 {
		var sym int32
		var cf, ct uint32
		switch {
		case len(own) > 0 && len(oth) > 0 && own[0].sym == oth[0].sym:
			sym, cf, ct = own[0].sym, own[0].own, oth[0].own
			own, oth = own[1:], oth[1:]
		case len(oth) == 0 || len(own) > 0 && own[0].sym < oth[0].sym:
			sym, cf, ct = own[0].sym, own[0].own, own[0].old
			if uf != ut {
				ct = g.inherited(ut, sym)
			}
			own = own[1:]
		default:
			sym, cf, ct = oth[0].sym, oth[0].old, oth[0].own
			if uf != ut {
				cf = g.inherited(uf, sym)
			}
			oth = oth[1:]
		}
		if len(trouble) > 0 && trouble[0] == sym {
			trouble = trouble[1:]
		}
		// What is left of trouble is where the parents differ and neither row says otherwise.
		if len(trouble) > 0 && trouble[0] < sym || !g.value(cf, ct) {
			return false
		}
	}
	return len(trouble) == 0
}

// inherited answers the color of a parent's value for a symbol.
func (g *gains) inherited(up int, sym int32) uint32 {
	if g.parents*len(g.fsyms) > maxDense {
		return g.hue(int(g.m.get(up, sym)), sym)
	}
	d := g.dense[g.number[up]]
	if d == nil {
		d = make([]uint32, len(g.fsyms))
		for i := range d {
			d[i] = unknown
		}
		g.dense[g.number[up]] = d
	}
	if d[sym] == unknown {
		d[sym] = g.hue(int(g.m.get(up, sym)), sym)
	}
	return d[sym]
}

const (
	unknown  = ^uint32(0)
	maxDense = 4 << 20 // entries
)

// pair answers for which symbols the rows of two parents are not included.
func (g *gains) pair(f, t int) *troubles {
	at := &g.trouble[g.number[f]*g.parents+g.number[t]]
	if *at != nil {
		return *at
	}
	tr := &troubles{}
	*at = tr
	rf, rt := &g.m.rows[f], &g.m.rows[t]
	if !g.value(g.color[rf.def], g.color[rt.def]) {
		tr.all = true
		return tr
	}
	most := g.most[f] + g.most[t]
	tr.all = !eachCell(rf, rt, rf.def, rt.def, func(sym int32, vf, vt int) bool {
		if !g.value(g.hue(vf, sym), g.hue(vt, sym)) {
			tr.syms = append(tr.syms, sym)
		}
		return len(tr.syms) <= most
	})
	return tr
}
