package glob

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// Bounds on the DFA of all patterns of kind other.
const (
	maxStates   = 4096
	maxDFABytes = 512 << 10
	maxDFAWork  = 8 << 20 // item visits while it is made
)

// dfa matches all patterns of kind other at once. State 0 is dead, 1 the start.
type dfa struct {
	class [256]uint8 // byte -> class
	shift uint       // a row has 1<<shift classes
	next  []uint16   // [state<<shift | class]
	sym   []uint16   // by state: symbol in names.gsyms
}

func (d *dfa) run(name string) int {
	at := 1
	for i := range len(name) {
		if at = int(d.next[at<<d.shift+int(d.class[name[i]])]); at == 0 {
			break
		}
	}
	return int(d.sym[at])
}

// item is a place in a pattern: before token at.
type item struct{ pat, at int32 }

// determine builds the DFA: the subset construction over all such patterns.
func (n *names) determine(t *tree) *Error {
	var first []item
	last := -1
	for i := range t.pats {
		if t.pats[i].kind == other {
			first = append(first, item{int32(i), 0})
			last = i
		}
	}
	d := &n.dfa
	count := d.classes(t)
	d.shift = uint(bits.Len(uint(count - 1)))
	rep := make([]byte, count)
	for b := range 256 {
		rep[d.class[b]] = byte(b)
	}
	m := subset{t: t, d: d, ids: map[string]uint16{"": 0}, syms: map[string]uint16{"": 0}, n: n}
	n.gsyms = [][]int32{nil}
	m.add(nil)
	if len(first) == 0 { // a start all the same, from which everything is dead
		m.sets, d.sym = append(m.sets, nil), append(d.sym, 0)
	} else {
		m.add(m.jump(first))
	}
	d.next = make([]uint16, 1<<d.shift)
	for at := 1; at < len(m.sets); at++ {
		row := make([]uint16, 1<<d.shift)
		for c := range count {
			row[c] = m.add(m.step(m.sets[at], rep[c]))
		}
		d.next = append(d.next, row...)
		if len(m.sets) > maxStates || 2*len(d.next) > maxDFABytes || m.work > maxDFAWork {
			return &Error{
				Index: t.owner[last],
				Msg:   "patterns with several *, ? or [] have too many combinations: use fewer of them, or plain x*y",
			}
		}
	}
	return nil
}

// classes numbers the bytes that no pattern tells apart.
func (d *dfa) classes(t *tree) int {
	count := 1
	seen := map[byteset]bool{}
	for i := range t.pats {
		for _, k := range t.pats[i].toks {
			if k.run || seen[k.set] {
				continue
			}
			seen[k.set] = true
			var to [512]int // old class, in the set? -> new class + 1
			count = 0
			for b := range 256 {
				at := int(d.class[b]) * 2
				if k.set.has(byte(b)) {
					at++
				}
				if to[at] == 0 {
					count++
					to[at] = count
				}
				d.class[b] = uint8(to[at] - 1)
			}
		}
	}
	return count
}

// subset is the construction's working memory.
type subset struct {
	t    *tree
	n    *names
	d    *dfa
	ids  map[string]uint16
	syms map[string]uint16
	sets [][]item
	work int
}

// jump adds what can be reached by letting runs be empty, and sorts.
func (m *subset) jump(s []item) []item {
	for i := 0; i < len(s); i++ {
		toks := m.t.pats[s[i].pat].toks
		if int(s[i].at) < len(toks) && toks[s[i].at].run {
			s = append(s, item{s[i].pat, s[i].at + 1})
		}
	}
	slices.SortFunc(s, func(x, y item) int {
		if x.pat != y.pat {
			return int(x.pat - y.pat)
		}
		return int(x.at - y.at)
	})
	return slices.Compact(s)
}

func (m *subset) step(s []item, b byte) []item {
	var out []item
	for _, x := range s {
		toks := m.t.pats[x.pat].toks
		if int(x.at) == len(toks) {
			continue
		}
		switch k := &toks[x.at]; {
		case k.run:
			out = append(out, x)
		case k.set.has(b):
			out = append(out, item{x.pat, x.at + 1})
		}
	}
	m.work += len(s)
	return m.jump(out)
}

// add answers the state of a set, made if need be.
func (m *subset) add(s []item) uint16 {
	key := make([]byte, 0, 8*len(s))
	var hits []int32
	var hit []byte
	for _, x := range s {
		key = binary.LittleEndian.AppendUint32(key, uint32(x.pat))
		key = binary.LittleEndian.AppendUint32(key, uint32(x.at))
		if int(x.at) == len(m.t.pats[x.pat].toks) {
			hits = append(hits, x.pat)
			hit = binary.LittleEndian.AppendUint32(hit, uint32(x.pat))
		}
	}
	if id, ok := m.ids[string(key)]; ok && len(m.sets) > 0 {
		return id
	}
	id := uint16(len(m.sets))
	m.ids[string(key)] = id
	m.sets = append(m.sets, s)
	sym, ok := m.syms[string(hit)]
	if !ok {
		sym = uint16(len(m.n.gsyms))
		m.syms[string(hit)] = sym
		m.n.gsyms = append(m.n.gsyms, hits)
	}
	m.d.sym = append(m.d.sym, sym)
	return id
}
