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
	fewStates   = 512     // of the exact form, which is given up soon
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

// determine builds the DFA: the subset construction over all such patterns. Patterns that
// are alike are told apart only as far as they must be: once one of them is sure to match,
// the others are forgotten. Without that n patterns *x* have 2^n states.
func (n *names) determine(t *tree, most int) *Error {
	d := &n.dfa
	count := d.classes(t)
	d.shift = uint(bits.Len(uint(count - 1)))
	n.gsyms = [][]int32{nil}
	m := newSubset(t, n.alike, d, count)
	m.n = n
	m.add(make([]uint64, m.words)) // dead
	if len(m.first) == 0 {         // a start all the same, from which everything is dead
		m.sets, d.sym = append(m.sets, nil), append(d.sym, 0)
	} else {
		start := slices.Clone(m.start)
		m.settle(start)
		m.add(start)
	}
	d.next = make([]uint16, 1<<d.shift)
	next := make([]uint64, m.words)
	for at := 1; at < len(m.sets); at++ {
		row := make([]uint16, 1<<d.shift)
		for c := range count {
			if m.sets[at] != nil {
				m.step(next, m.sets[at], c)
				row[c] = m.add(next)
			}
		}
		d.next = append(d.next, row...)
		if len(m.sets) > most || 2*len(d.next) > maxDFABytes || m.work > maxDFAWork {
			return &Error{
				Index: t.owner[m.last],
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

// subset is the working memory of the subset construction. A set of places is one bit for each: place i of
// a pattern lies before its token i, the last one behind them all. Patterns that are alike are neighbours, and share
// two places more, a run and its end, for "one of them matches, whatever follows".
type subset struct {
	n     *names
	d     *dfa
	words int        // of a set
	start []uint64   // places before the first tokens
	stay  []uint64   // places before runs
	take  [][]uint64 // by byte class: places before tokens that take it
	ends  []int32    // by place: the pattern that has matched there, or -1
	kin   []kin
	first []int32 // patterns of kind other
	last  int32   // of those

	ids  map[string]uint16
	syms map[string]uint16
	sets [][]uint64
	key  []byte
	work int // words looked at
}

// kin are patterns that are alike.
type kin struct {
	from    int      // the word that their places begin in
	all     []uint64 // their places, from that word on
	sure    []uint64 // those before a run at the end
	matched int      // their shared place
}

// newKin is the kin of places [begin, end).
func newKin(begin, end int, sure []int) kin {
	from := begin / 64
	size := (end+63)/64 - from
	k := kin{from, make([]uint64, size), make([]uint64, size), end}
	for at := begin; at < end; at++ {
		put(k.all, at-64*from)
	}
	for _, at := range sure {
		put(k.sure, at-64*from)
	}
	return k
}

func newSubset(t *tree, like []int32, d *dfa, count int) *subset {
	m := &subset{d: d, ids: map[string]uint16{}, syms: map[string]uint16{"": 0}}
	places := 0
	for i := range t.pats {
		if t.pats[i].kind == other {
			m.first, m.last = append(m.first, int32(i)), int32(i)
			places += len(t.pats[i].toks) + 3
		}
	}
	slices.SortStableFunc(m.first, func(x, y int32) int { return int(like[x] - like[y]) })
	m.words = (places + 63) / 64
	set := func() []uint64 { return make([]uint64, m.words) }
	m.start, m.stay = set(), set()
	rep := make([]byte, count)
	for b := range 256 {
		rep[d.class[b]] = byte(b)
	}
	for range count {
		m.take = append(m.take, set())
	}
	m.ends = make([]int32, places)
	for i := range m.ends {
		m.ends[i] = -1
	}
	at := 0
	for i := 0; i < len(m.first); {
		begin, who := at, like[m.first[i]]
		var sure []int
		for ; i < len(m.first) && like[m.first[i]] == who; i++ {
			toks := t.pats[m.first[i]].toks
			put(m.start, at)
			for _, k := range toks {
				if k.run {
					put(m.stay, at)
				}
				for c := range m.take {
					if !k.run && k.set.has(rep[c]) {
						put(m.take[c], at)
					}
				}
				at++
			}
			if toks[len(toks)-1].run {
				sure = append(sure, at-1)
			}
			m.ends[at] = who
			at++
		}
		m.kin = append(m.kin, newKin(begin, at, sure))
		put(m.stay, at)
		m.ends[at+1] = who
		at += 2
	}
	return m
}

func put(s []uint64, at int) { s[at>>6] |= 1 << (at & 63) }

// step makes next the places after a byte of class c.
func (m *subset) step(next, s []uint64, c int) {
	carry := uint64(0)
	take := m.take[c]
	for i, w := range s {
		moved := w & take[i]
		next[i] = moved<<1 | carry | w&m.stay[i]
		carry = moved >> 63
	}
	m.work += 3 * m.words
	m.settle(next)
}

// settle adds what empty runs lead to, and forgets what no longer matters.
func (m *subset) settle(s []uint64) {
	carry := uint64(0)
	for i, w := range s {
		run := w & m.stay[i]
		s[i] |= run<<1 | carry
		carry = run >> 63
	}
	for i := range m.kin {
		k := &m.kin[i]
		sure := s[k.matched>>6]>>(k.matched&63)&1 == 1
		for j := 0; j < len(k.sure) && !sure; j++ {
			sure = s[k.from+j]&k.sure[j] != 0
		}
		if !sure {
			continue
		}
		for j, w := range k.all {
			s[k.from+j] &^= w
		}
		put(s, k.matched)
		put(s, k.matched+1)
	}
}

// add answers the state of a set, made if need be; s is the caller's.
func (m *subset) add(s []uint64) uint16 {
	m.key = m.key[:0]
	for _, w := range s {
		m.key = binary.LittleEndian.AppendUint64(m.key, w)
	}
	if id, ok := m.ids[string(m.key)]; ok {
		return id
	}
	id := uint16(len(m.sets))
	m.ids[string(m.key)] = id
	m.sets = append(m.sets, slices.Clone(s))
	var hits []int32
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			if p := m.ends[i<<6+bits.TrailingZeros64(w)]; p >= 0 {
				hits = append(hits, p)
			}
		}
	}
	slices.Sort(hits)
	hits = slices.Compact(hits)
	var hit []byte
	for _, h := range hits {
		hit = binary.LittleEndian.AppendUint32(hit, uint32(h))
	}
	sym, ok := m.syms[string(hit)]
	if !ok {
		sym = uint16(len(m.n.gsyms))
		m.syms[string(hit)] = sym
		m.n.gsyms = append(m.n.gsyms, hits)
	}
	m.d.sym = append(m.d.sym, sym)
	return id
}
