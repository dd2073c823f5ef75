package glob

import (
	"encoding/binary"
	"slices"
	"strings"
)

// Op is an operation that a policy decides. Bit n of [Accept].Bits is operation n.
type Op uint8

// Operations.
const (
	Read Op = iota
	Write
	Exec
	See // the name may be listed and looked up
)

// Ops is the number of operations a decision has room for.
const Ops = 8

// Special rule indexes.
const (
	NoRule   = 0xffff // no rule decided
	SomeRule = 0xfffe // one of several merged rules: see [CompileKinds]
)

// Accept is the decision for one path. The zero value allows nothing.
type Accept struct {
	Bits uint8       // bit n: operation n is allowed
	Rule [Ops]uint16 // index of the deciding rule for each operation, or NoRule, or SomeRule
}

// Allows reports whether op is allowed.
func (a Accept) Allows(op Op) bool { return op < Ops && a.Bits>>op&1 == 1 }

// deny is the decision where there is nothing to decide about.
func deny() Accept {
	a := Accept{}
	for i := range a.Rule {
		a.Rule[i] = NoRule
	}
	return a
}

// State is where a walk along a path has come to. It is meaningful only with the
// automaton that made it: low 16 bits the core state, high 16 bits the decision here.
type State uint32

// Bad is the state after a name that cannot be (empty, over 255 bytes). It allows
// nothing and leads only to itself.
const Bad State = 0xffffffff

// nameMax is Linux's NAME_MAX: the longest component in bytes.
const nameMax = 255

// Automaton is a compiled set of globs. It is immutable and safe for concurrent use.
// A nil Automaton allows nothing.
type Automaton struct {
	blob []byte
	table
}

// Start answers the state of "/".
func (a *Automaton) Start() State {
	if a == nil {
		return Bad
	}
	return a.start
}

// Step answers the state after one more component. name is 1 to 255 bytes without '/';
// other lengths answer [Bad]. s must be of this automaton.
func (a *Automaton) Step(s State, name []byte) State { return step(a, s, name) }

// StepString is Step for a string.
func (a *Automaton) StepString(s State, name string) State { return step(a, s, name) }

// Accept answers the decision that holds at s.
func (a *Automaton) Accept(s State) Accept {
	if a == nil || int(s>>16) >= len(a.bits) || s == Bad {
		return deny()
	}
	i := int(s >> 16)
	acc := Accept{Bits: a.bits[i]}
	copy(acc.Rule[:], a.rules[i*Ops:])
	return acc
}

// Match answers the decision for an absolute, clean path; "/" is the root. For any
// other string (relative, "//", "." or ".." components, a slash at the end) it allows
// nothing.
func (a *Automaton) Match(path string) Accept { return a.Accept(a.Walk(path)) }

// Along reports whether op is allowed on a path and on every directory above it but "/".
// For what is no absolute, clean path it answers false.
func (a *Automaton) Along(path string, op Op) bool {
	s := a.Start()
	if len(path) == 0 || path[0] != '/' || op >= Ops {
		return false
	}
	if path == "/" {
		return true
	}
	for rest := path[1:]; ; {
		name, tail, more := strings.Cut(rest, "/")
		if name == "." || name == ".." {
			return false
		}
		s = step(a, s, name)
		if a == nil || s == Bad || int(s>>16) >= len(a.bits) || a.bits[s>>16]>>op&1 == 0 {
			return false
		}
		if !more {
			return true
		}
		rest = tail
	}
}

// Walk answers the state at an absolute, clean path, or [Bad].
func (a *Automaton) Walk(path string) State {
	s := a.Start()
	if len(path) == 0 || path[0] != '/' {
		return Bad
	}
	if path == "/" {
		return s
	}
	for rest := path[1:]; ; {
		name, tail, more := strings.Cut(rest, "/")
		if name == "." || name == ".." {
			return Bad
		}
		s = step(a, s, name)
		if !more {
			return s
		}
		rest = tail
	}
}

// NoGain reports whether a directory may move from a path in state from to one in state
// to: no operation that is denied on it, or on anything that is or will be below it,
// becomes allowed.
func (a *Automaton) NoGain(from, to State) bool {
	f, t := int(from&0xffff), int(to&0xffff)
	if a == nil || from == Bad || to == Bad || f >= len(a.class) || t >= len(a.class) {
		return false
	}
	if a.Accept(to).Bits&^a.Accept(from).Bits != 0 {
		return false
	}
	g := a.class[t]
	return a.gain[int(a.class[f])*a.stride+int(g>>5)]>>(g&31)&1 == 1
}

// Bytes answers the compiled form, which [Load] and bpf/include/match.h read. The
// caller must not change it.
func (a *Automaton) Bytes() []byte {
	if a == nil {
		return nil
	}
	return a.blob
}

// step is Step over either kind of name, without allocation.
func step[T string | []byte](a *Automaton, s State, name T) State {
	if a == nil || s == Bad || len(name) == 0 || len(name) > nameMax {
		return Bad
	}
	core := int(s & 0xffff)
	if core >= len(a.class) {
		return Bad
	}
	v := a.look(core, forward(&a.table, name))
	if v < a.nrows {
		v = a.look(v, backward(&a.table, name))
	}
	if v < a.nrows {
		v = a.look(v, general(&a.table, name))
	}
	if v < a.nrows {
		return Bad
	}
	return State(a.finals[v-a.nrows])
}

// look answers the value of a row for a symbol: its own cell, its parent's, its default.
func (t *table) look(row, sym int) int {
	r := &t.rows[row]
	if e := t.cells[int(r.off)+sym]; e>>16 == r.tag {
		return int(e & 0xffff)
	}
	p := &t.rows[r.up]
	if e := t.cells[int(p.off)+sym]; e>>16 == p.tag {
		return int(e & 0xffff)
	}
	return int(r.def)
}

func forward[T string | []byte](t *table, name T) int {
	node, base := uint32(0), t.fwd[0]&0xffff
	for i := range len(name) {
		to := base + uint32(name[i])
		e := t.fwd[to]
		if e>>16 != node {
			return int(t.fwdsym[node] & 0xffff)
		}
		node, base = to, e&0xffff
	}
	return int(t.fwdsym[node] >> 16)
}

func backward[T string | []byte](t *table, name T) int {
	node, base := uint32(0), t.bwd[0]&0xffff
	for i := len(name) - 1; i >= 0; i-- {
		to := base + uint32(name[i])
		e := t.bwd[to]
		if e>>16 != node {
			break
		}
		node, base = to, e&0xffff
	}
	return int(t.bwdsym[node])
}

func general[T string | []byte](t *table, name T) int {
	at := 1
	for i := range len(name) {
		at = int(t.gtab[at<<t.shift+int(t.gmap[name[i]])])
		if at == 0 {
			break
		}
	}
	return int(t.gsym[at])
}

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

// Renumber answers an automaton with the same decisions, whose rule i is called
// name(i); i may be [NoRule] or [SomeRule]. One machine that has been given two
// automata, one after the other, tells by the numbers which of them decided.
func (a *Automaton) Renumber(name func(uint16) uint16) *Automaton {
	if a == nil {
		return nil
	}
	out := &Automaton{blob: slices.Clone(a.blob), table: a.table}
	out.rules = make([]uint16, len(a.rules))
	at := int(binary.LittleEndian.Uint32(a.blob[4*(hSection+sRule):]))
	for i, r := range a.rules {
		out.rules[i] = name(r)
		binary.LittleEndian.PutUint16(out.blob[at+2*i:], out.rules[i])
	}
	return out
}
