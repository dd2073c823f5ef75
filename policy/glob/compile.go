package glob

import (
	"errors"
	"fmt"
)

// Compile makes the automaton of globs. decide answers for a set of globs (their
// indexes, ascending) what holds for a path that exactly they match; it is called
// once for each set that can occur, and must answer the same every time. Its Rule
// entries should be indexes out of the set, or [NoRule].
//
// Decisions are exact, bits and rules, for every path. The error is an [*Error]: a
// glob's syntax, or too many combinations; [CompileKinds] has far fewer of those.
func Compile(globs []string, decide func(matched []uint16) Accept) (*Automaton, error) {
	t, err := plant(globs)
	if err != nil {
		return nil, err
	}
	return compile(t, nil, large(), len(globs), decide)
}

// CompileKinds is Compile for many globs: kinds[i] is the kind of globs[i], any number.
// Globs of one kind must be interchangeable: putting one for another in a set, or
// having more of them in it, never changes decide's Bits. (For layered policies a kind
// is, for example, layer and verb; where the order of rules matters, also the run of
// such rules.)
//
// It first tries the exact form. If that does not fit the small table, a set holds only
// one glob of each kind. Then Bits are exact as before, and Rule is [SomeRule] wherever a rule
// decided whose kind has others: which one it was, [Reference] with the path tells.
func CompileKinds(globs []string, kinds []uint16, decide func(matched []uint16) Accept) (*Automaton, error) {
	if len(kinds) != len(globs) {
		return nil, &Error{Index: -1, Msg: fmt.Sprintf("%d kinds for %d globs", len(kinds), len(globs))}
	}
	t, err := plant(globs)
	if err != nil {
		return nil, err
	}
	if a, err := compile(t, nil, small(), len(globs), decide); err == nil {
		return a, nil
	}
	t, f := t.fold(kinds)
	return compile(t, f, large(), len(globs), decide)
}

func small() limits {
	return limits{cells: 40 << 10, cores: 768, mids: 2048, finals: 8 << 10, states: fewStates, bytes: SmallBytes}
}

func large() limits {
	return limits{cells: 640 << 10, cores: 16 << 10, mids: 32 << 10, finals: 256 << 10, states: maxStates, bytes: MaxBytes}
}

func compile(t *tree, f *fold, l limits, globs int, decide func([]uint16) Accept) (*Automaton, error) {
	if decide == nil {
		decide = func([]uint16) Accept { return deny() }
	}
	n, err := t.names(l.states)
	if err != nil {
		return nil, err
	}
	b, start, err := build(t, n, f, l)
	if err != nil {
		return nil, err
	}
	m, err := b.emit(start, decide)
	if err != nil {
		return nil, err
	}
	g, err := m.gains(n.fsyms)
	if err != nil {
		return nil, err
	}
	tab, err := m.table(n, g)
	if err != nil {
		return nil, err
	}
	tab.globs = globs
	blob := tab.encode()
	if len(blob) > l.bytes {
		return nil, errTooMany
	}
	a, bad := Load(blob)
	if bad != nil {
		return nil, errors.Join(&Error{Index: -1, Msg: "internal error"}, bad)
	}
	return a, nil
}

// table packs everything.
func (m *machine) table(n *names, g *gains) (*table, *Error) {
	t := &table{
		nrows: len(m.rows), start: State(m.start), stride: g.stride, finals: m.finals,
		class: g.class, gain: g.bits, shift: n.dfa.shift, gmap: n.dfa.class[:], gtab: n.dfa.next, gsym: n.dfa.sym,
	}
	var at []int32
	var err *Error
	if t.fwd, at, err = packTrie(&n.fwd); err != nil {
		return nil, err
	}
	t.fwdsym = make([]uint32, len(t.fwd))
	for i, slot := range at {
		t.fwdsym[slot] = uint32(n.fwd.sym[i]) | uint32(n.fwd.end[i])<<16
	}
	if t.bwd, at, err = packTrie(&n.bwd); err != nil {
		return nil, err
	}
	t.bwdsym = make([]uint16, len(t.bwd))
	for i, slot := range at {
		t.bwdsym[slot] = n.bwd.sym[i]
	}
	s := packRows(m.rows, max(len(n.fsyms), len(n.ssyms), len(n.gsyms)))
	t.rows, t.cells = s.rows, s.cells
	for _, a := range m.accs {
		t.bits = append(t.bits, a.Bits)
		t.rules = append(t.rules, a.Rule[:]...)
	}
	return t, nil
}
