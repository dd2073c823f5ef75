package glob

// Everywhere reports whether ops (bit n: operation n) are all allowed on the path of s and
// on everything that is or will be below it, except directly below it under a name of
// except. It may answer false without need: it assumes that every beginning of a name can
// meet every end. It looks at each state that s leads to, which for a large policy takes
// milliseconds: keep the answer.
func (a *Automaton) Everywhere(s State, ops uint8, except ...string) bool {
	if a == nil || s == Bad || int(s&0xffff) >= len(a.class) || a.Accept(s).Bits&ops != ops {
		return false
	}
	first, skip := int(s&0xffff), a.literals(except)
	r := reach{a: a, ops: ops, rows: make([]uint8, a.nrows), cores: make([]bool, len(a.class))}
	if !r.row(first, 0, skip) {
		return false
	}
	if len(skip) > 0 {
		clear(r.rows) // the same row may be met again, where nothing is excepted
	}
	for len(r.todo) > 0 {
		core := r.todo[len(r.todo)-1]
		r.todo = r.todo[:len(r.todo)-1]
		if !r.row(core, 0, nil) {
			return false
		}
	}
	return true
}

// literals answers the symbols that stand for exactly one of the names.
func (a *Automaton) literals(names []string) map[int]bool {
	out := map[int]bool{}
	for _, name := range names {
		sym := forward(&a.table, name)
		if sym != forward(&a.table, name+"\x00") { // no name has a NUL: what goes on like name
			out[sym] = true
		}
	}
	return out
}

// reach is a search through all that a state leads to.
type reach struct {
	a     *Automaton
	ops   uint8
	rows  []uint8 // bit n: the row was looked at in stage n
	cores []bool  // found
	todo  []int   // cores that were found and not looked at
}

// row looks at one row for all symbols of a stage: 0 the beginning of a name, 1 its end,
// 2 the rest.
func (r *reach) row(at, stage int, skip map[int]bool) bool {
	if r.rows[at]>>stage&1 == 1 {
		return true
	}
	r.rows[at] |= 1 << stage
	for sym := range r.a.symbols()[stage] {
		if skip[sym] {
			continue
		}
		v := r.a.look(at, sym)
		if v < r.a.nrows {
			if stage == 2 { // step answers Bad
				return false
			}
			if !r.row(v, stage+1, nil) {
				return false
			}
			continue
		}
		next := State(r.a.finals[v-r.a.nrows])
		if r.a.Accept(next).Bits&r.ops != r.ops {
			return false
		}
		if core := int(next & 0xffff); !r.cores[core] {
			r.cores[core] = true
			r.todo = append(r.todo, core)
		}
	}
	return true
}

// symbols answers how many symbols each stage has.
func (t *table) symbols() (n [3]int) {
	for _, v := range t.fwdsym {
		n[0] = max(n[0], int(v&0xffff)+1, int(v>>16)+1)
	}
	for _, v := range t.bwdsym {
		n[1] = max(n[1], int(v)+1)
	}
	for _, v := range t.gsym {
		n[2] = max(n[2], int(v)+1)
	}
	return n
}
