package glob

import (
	"slices"
)

// machine is the automaton in its final numbering: rows of cores, then rows of mids,
// then finals. It is what the inclusion matrix is computed on and what is written out.
type machine struct {
	rows   []flat
	cores  int
	finals []uint32 // states
	accs   []Accept
	start  uint32
}

// emit numbers what build made. decide is called once for each set of globs.
func (b *builder) emit(start value, decide func([]uint16) Accept) (*machine, *Error) {
	m := &machine{cores: len(b.cores)}
	j := judge{b: b, decide: decide, byKey: map[string]uint32{}, byAcc: map[Accept]uint32{}, m: m}
	nrows := len(b.cores) + len(b.mids)
	number := make([]uint16, len(b.finals))
	seen := map[uint32]uint16{}
	for i := range b.finals {
		s := uint32(b.finals[i].core) | j.acc(&b.finals[i])<<16
		id, ok := seen[s]
		if !ok {
			id = uint16(len(m.finals))
			seen[s] = id
			m.finals = append(m.finals, s)
		}
		number[i] = id
		if nrows+len(m.finals) > maxIDs || len(m.accs) > maxIDs {
			return nil, errTooMany
		}
	}
	id := func(v value) uint16 {
		switch v.sort() {
		case sortFinal:
			return uint16(nrows) + number[v.index()]
		case sortMid:
			return uint16(len(b.cores) + v.index())
		default:
			return uint16(v.index())
		}
	}
	m.start = m.finals[number[start.index()]]
	m.rows = make([]flat, 0, nrows)
	for i := range b.cores {
		m.add(&b.cores[i].row, 1, 0, id)
	}
	for i := range b.mids {
		m.add(&b.mids[i].row, b.mids[i].stage, len(b.cores), id)
	}
	m.prune()
	return m, nil
}

// add appends a row; up counts from base.
func (m *machine) add(r *row, stage, base int, id func(value) uint16) {
	f := flat{stage: stage, up: base + r.up, def: int(id(r.def)), share: len(m.rows)}
	if r.up < 0 {
		f.up = len(m.rows)
	}
	f.syms = make([]int32, len(r.cells))
	f.vals = make([]uint16, len(r.cells))
	for i, c := range r.cells {
		f.syms[i], f.vals[i] = c.sym, id(c.val)
	}
	m.rows = append(m.rows, f)
}

// get answers a row's value, its parent's counted in.
func (m *machine) get(at int, sym int32) uint16 {
	r := &m.rows[at]
	if i, ok := slices.BinarySearch(r.syms, sym); ok {
		return r.vals[i]
	}
	if r.up != at {
		return m.get(r.up, sym)
	}
	return uint16(r.def)
}

// prune drops cells that say what the parent says, and finds rows with the same cells.
func (m *machine) prune() {
	same := map[string]int{}
	var key []byte
	for at := range m.rows {
		r := &m.rows[at]
		n := 0
		for i, sym := range r.syms {
			old := uint16(r.def)
			if r.up != at {
				old = m.get(r.up, sym)
			}
			if r.vals[i] != old {
				r.syms[n], r.vals[n] = sym, r.vals[i]
				n++
			}
		}
		r.syms, r.vals = r.syms[:n], r.vals[:n]
	}
	for at := range m.rows {
		r := &m.rows[at]
		key = key[:0]
		for i, sym := range r.syms {
			key = append(key, byte(sym), byte(sym>>8), byte(r.vals[i]), byte(r.vals[i]>>8))
		}
		if first, ok := same[string(key)]; ok {
			r.share = first
		} else {
			same[string(key)] = at
		}
	}
}

// judge asks decide, once for each set.
type judge struct {
	b      *builder
	m      *machine
	decide func([]uint16) Accept
	byKey  map[string]uint32
	byAcc  map[Accept]uint32
	set    []uint16
	key    []byte
}

func (j *judge) acc(f *final) uint32 {
	j.set = append(append(j.set[:0], j.b.cores[f.core].trees...), f.ends...)
	slices.Sort(j.set)
	j.key = j.key[:0]
	for _, g := range j.set {
		j.key = append(j.key, byte(g), byte(g>>8))
	}
	if id, ok := j.byKey[string(j.key)]; ok {
		return id
	}
	key := string(j.key)
	acc := j.ask(j.set)
	id, ok := j.byAcc[acc]
	if !ok {
		id = uint32(len(j.m.accs))
		j.byAcc[acc] = id
		j.m.accs = append(j.m.accs, acc)
	}
	j.byKey[key] = id
	return id
}

// ask calls decide with a glob for every vague number, and makes the answer vague again.
func (j *judge) ask(ids []uint16) Accept {
	var some []uint16
	set := make([]uint16, len(ids))
	for i, g := range ids {
		if set[i] = g; g >= vague {
			set[i] = j.b.fold.one[g-vague]
			some = append(some, set[i])
		}
	}
	slices.Sort(set)
	acc := j.decide(set)
	for op, r := range acc.Rule {
		if slices.Contains(some, r) {
			acc.Rule[op] = SomeRule
		}
	}
	return acc
}
