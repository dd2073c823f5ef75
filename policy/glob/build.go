package glob

import (
	"encoding/binary"
	"slices"
)

// maxIDs bounds everything that is numbered in 16 bits.
const maxIDs = 0xfff0

// builder makes states and rows out of a tree. Its numbers are unbounded; emit packs
// and bounds them.
type builder struct {
	tree  *tree
	names *names
	fold  *fold // nil: exact
	limit limits
	cells int

	cores  []core
	mids   []mid // of both later stages
	finals []final
	ids    map[string]value
	buf    []byte
}

// limits end a construction that would not fit.
type limits struct{ cells, cores, mids, finals, states, bytes int }

// value is what a cell holds: a row's or final's number, by sort.
type value int32

const (
	sortCore  = 0 << 28
	sortMid   = 1 << 28
	sortFinal = 2 << 28
	sortMask  = 3 << 28
)

func (v value) sort() value { return v & sortMask }
func (v value) index() int  { return int(v &^ sortMask) }

// row maps symbols to values: cells where it differs from the row of core or mid up, or
// from def where up is -1.
type row struct {
	up    int
	def   value
	cells []cell // by symbol, ascending
}

type cell struct {
	sym int32
	val value
}

// core is a state without the decision of its last step.
type core struct {
	nodes []int32
	trees []uint16
	row   row
	done  bool
}

// mid is a name half looked at.
type mid struct {
	stage   int // 2: the end comes next; 3: the DFA
	at      set
	suffix  []int32 // nodes whose edges of kind suffix are open
	pending []edge  // edges of kind both whose beginning matched
	other   []int32 // nodes whose edges of kind other are open
	row     row
	done    bool
}

type edge struct{ pat, to int32 }

// final is the end of a step.
type final struct {
	core int
	ends []uint16
}

// build makes all states that can be reached.
func build(t *tree, n *names, f *fold, limit limits) (*builder, value, *Error) {
	b := &builder{tree: t, names: n, fold: f, limit: limit, ids: map[string]value{}}
	var s set
	b.closure(&s, 0)
	start := b.final(&s)
	mids := 0
	for at := 0; at < len(b.cores); at++ {
		b.fill(at)
		for ; mids < len(b.mids); mids++ {
			b.fillMid(mids)
			if b.over() {
				return nil, 0, errTooMany
			}
		}
		if b.over() {
			return nil, 0, errTooMany
		}
	}
	return b, start, nil
}

var errTooMany = &Error{Index: -1, Msg: "too many combinations: " +
	"fewer globs with ** between names, fewer trees (x/**) that lie in each other, or fewer wildcards"}

func (b *builder) over() bool {
	l := b.limit
	return b.cells > l.cells || len(b.cores) > l.cores || len(b.mids) > l.mids || len(b.finals) > l.finals
}

func appendList[T int32 | uint16](buf []byte, s []T) []byte {
	buf = binary.LittleEndian.AppendUint32(buf, uint32(len(s)))
	for _, v := range s {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(v))
	}
	return buf
}

// core answers the core of a place, made if need be.
func (b *builder) core(nodes []int32, trees []uint16) int {
	b.buf = append(b.buf[:0], 'c')
	b.buf = appendList(appendList(b.buf, nodes), trees)
	if v, ok := b.ids[string(b.buf)]; ok {
		return v.index()
	}
	id := len(b.cores)
	b.ids[string(b.buf)] = sortCore | value(id)
	b.cores = append(b.cores, core{nodes: slices.Clone(nodes), trees: slices.Clone(trees)})
	return id
}

// final answers where a step ends, made if need be.
func (b *builder) final(s *set) value {
	c := b.core(s.nodes, s.trees)
	b.buf = append(b.buf[:0], 'f')
	b.buf = binary.LittleEndian.AppendUint32(b.buf, uint32(c))
	b.buf = appendList(b.buf, s.ends)
	if v, ok := b.ids[string(b.buf)]; ok {
		return v
	}
	v := sortFinal | value(len(b.finals))
	b.ids[string(b.buf)] = v
	b.finals = append(b.finals, final{c, slices.Clone(s.ends)})
	return v
}

// middle answers the row for the rest of a name, or the final if nothing is open.
func (b *builder) middle(m mid) value {
	if m.stage == 2 && len(m.suffix) == 0 && len(m.pending) == 0 && len(m.other) == 0 ||
		m.stage == 3 && len(m.other) == 0 {
		return b.final(&m.at)
	}
	b.buf = append(b.buf[:0], 'm', byte(m.stage))
	b.buf = appendList(appendList(appendList(b.buf, m.at.nodes), m.at.trees), m.at.ends)
	b.buf = appendList(b.buf, m.suffix)
	b.buf = appendList(b.buf, m.other)
	for _, e := range m.pending {
		b.buf = binary.LittleEndian.AppendUint32(b.buf, uint32(e.pat))
		b.buf = binary.LittleEndian.AppendUint32(b.buf, uint32(e.to))
	}
	if v, ok := b.ids[string(b.buf)]; ok {
		return v
	}
	v := sortMid | value(len(b.mids))
	b.ids[string(b.buf)] = v
	m.at = m.at.clone()
	m.pending = slices.Clone(m.pending)
	b.mids = append(b.mids, m)
	return v
}

// view is a core while its row is made.
type view struct {
	base          set // after any name: loops and * edges
	nodes         []int32
	suffix, other []int32
}

func (b *builder) view(c *core) view {
	v := view{nodes: c.nodes, base: set{trees: slices.Clone(c.trees)}}
	for _, n := range c.nodes {
		p := &b.tree.nodes[n]
		if p.isLoop {
			b.closure(&v.base, n)
		}
		if p.hasSuffix {
			v.suffix = append(v.suffix, n)
		}
		if p.hasOther {
			v.other = append(v.other, n)
		}
	}
	for _, n := range c.nodes {
		p := &b.tree.nodes[n]
		if !p.hasStar {
			continue
		}
		for _, id := range p.order {
			if b.tree.pats[id].kind == star {
				b.closure(&v.base, p.edge[id])
			}
		}
	}
	return v
}

// fill makes the row of a core. Where its nodes that do not stay react to few
// beginnings only, the row of those that stay is its parent.
func (b *builder) fill(at int) {
	if b.cores[at].done {
		return
	}
	b.cores[at].done = true
	c := b.cores[at]
	up, from := -1, c.nodes
	var stay, move []int32
	cheap := true
	for _, n := range c.nodes {
		p := &b.tree.nodes[n]
		if p.isLoop {
			stay = append(stay, n)
			continue
		}
		move = append(move, n)
		cheap = cheap && !p.hasStar && !p.hasSuffix && !p.hasOther
	}
	if cheap && len(move) > 0 {
		up, from = b.core(stay, c.trees), move
		b.fill(up)
	}
	v := b.view(&c)
	r := row{up: up, def: b.value(&v, 0)}
	for _, sym := range b.begins(from) {
		val := b.value(&v, sym)
		if old := b.parent(up, r.def, sym); old != val {
			r.cells = append(r.cells, cell{sym, val})
		}
	}
	b.cells += len(r.cells)
	b.cores[at].row = r
}

// parent answers what a core's row says without a cell of its own.
func (b *builder) parent(up int, def value, sym int32) value {
	if up < 0 {
		return def
	}
	return b.cores[up].row.get(sym)
}

// get answers a row's own cell, or its default.
func (r *row) get(sym int32) value {
	i, ok := slices.BinarySearchFunc(r.cells, sym, func(c cell, s int32) int { return int(c.sym - s) })
	if ok {
		return r.cells[i].val
	}
	return r.def
}

// begins answers the symbols that edges of the nodes react to, ascending.
func (b *builder) begins(nodes []int32) []int32 {
	var out []int32
	for _, n := range nodes {
		for _, id := range b.tree.nodes[n].order {
			switch b.tree.pats[id].kind {
			case literal:
				out = append(out, b.names.lits[id]...)
			case prefix, both:
				out = append(out, b.names.under[id]...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// value answers what a symbol of the beginning leads to.
func (b *builder) value(v *view, sym int32) value {
	f := &b.names.fsyms[sym]
	if f.exact && b.concerns(v, f) {
		return b.whole(v, f)
	}
	m := mid{stage: 2, suffix: v.suffix, other: v.other}
	fresh := false
	for _, id := range f.pats {
		for _, n := range v.nodes {
			to, ok := b.tree.nodes[n].edge[id]
			if !ok || b.idle(&v.base, to) {
				continue
			}
			if !fresh {
				m.at, fresh = v.base.clone(), true
			}
			if b.tree.pats[id].kind == both {
				m.pending = append(m.pending, edge{id, to})
			} else {
				b.closure(&m.at, to)
			}
		}
	}
	if !fresh {
		m.at = v.base
	}
	return b.middle(m)
}

// concerns reports whether the end of an exact name must not be looked at: a literal
// edge is there, or one of kind both that only seems to match.
func (b *builder) concerns(v *view, f *fsym) bool {
	for _, n := range v.nodes {
		e := b.tree.nodes[n].edge
		if _, ok := e[f.lit]; ok && f.lit >= 0 {
			return true
		}
		for _, id := range f.not {
			if _, ok := e[id]; ok {
				return true
			}
		}
	}
	return false
}

func (b *builder) whole(v *view, f *fsym) value {
	s := v.base.clone()
	for _, n := range v.nodes {
		if to, ok := b.tree.nodes[n].edge[f.lit]; ok && f.lit >= 0 {
			b.closure(&s, to)
		}
	}
	for _, id := range f.full {
		for _, n := range v.nodes {
			if to, ok := b.tree.nodes[n].edge[id]; ok {
				b.closure(&s, to)
			}
		}
	}
	return b.final(&s)
}

// fillMid makes the row of a mid. With pending edges, the row without is its parent.
func (b *builder) fillMid(at int) {
	if b.mids[at].done {
		return
	}
	b.mids[at].done = true
	m := b.mids[at]
	syms, open := b.names.gsyms, m.other
	if m.stage == 2 {
		syms, open = b.names.ssyms, m.suffix
	}
	next := mid{stage: 3, other: m.other}
	if m.stage == 3 {
		next.other = nil
	}
	next.at = m.at
	r := row{up: -1, def: b.middle(next)}
	react := open
	if len(m.pending) > 0 {
		plain := m
		plain.pending, plain.done = nil, false
		if v := b.middle(plain); v.sort() == sortMid {
			r.up, react = v.index(), nil
			b.fillMid(r.up)
		}
	}
	for _, sym := range b.hits(&m, react) {
		next.at = m.at
		b.arrive(&m, &next.at, syms[sym], open)
		old := r.def
		if r.up >= 0 {
			old = b.mids[r.up].row.get(sym)
		}
		if val := b.middle(next); val != old {
			r.cells = append(r.cells, cell{sym, val})
		}
	}
	b.cells += len(r.cells)
	b.mids[at].row = r
}

// arrive takes the edges of patterns pats from m's open nodes, and its pending ones. s
// is m's set and is copied before it changes.
func (b *builder) arrive(m *mid, s *set, pats, open []int32) {
	fresh := false
	visit := func(to int32) {
		if b.idle(s, to) {
			return
		}
		if !fresh {
			*s, fresh = s.clone(), true
		}
		b.closure(s, to)
	}
	for _, id := range pats {
		if b.tree.pats[id].kind == both {
			for _, e := range m.pending {
				if m.stage == 2 && e.pat == id {
					visit(e.to)
				}
			}
			continue
		}
		for _, n := range open {
			if to, ok := b.tree.nodes[n].edge[id]; ok {
				visit(to)
			}
		}
	}
}

// hits answers the symbols of m's stage that could lead anywhere, ascending.
func (b *builder) hits(m *mid, open []int32) []int32 {
	var out []int32
	for _, n := range open {
		for _, id := range b.tree.nodes[n].order {
			k := b.tree.pats[id].kind
			if m.stage == 2 && k == suffix || m.stage == 3 && k == other {
				out = append(out, b.names.ends[id]...)
			}
		}
	}
	if m.stage == 2 {
		for _, e := range m.pending {
			out = append(out, b.names.ends[e.pat]...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
