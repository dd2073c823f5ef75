package glob

import (
	"encoding/binary"
	"slices"
	"strings"
)

// names tells for every name which patterns it matches: by a symbol of its beginning,
// one of its end, and one of the DFA.
type names struct {
	fwd, bwd trie
	fsyms    []fsym    // by symbol of the beginning; 0: no prefix matches
	ssyms    [][]int32 // by symbol of the end: patterns of kind suffix and both with that end
	gsyms    [][]int32 // by symbol of the DFA: patterns of kind other
	dfa      dfa
	alike    []int32   // pattern -> the one that stands for it in all of these
	lits     [][]int32 // pattern -> its symbols, for literals
	under    [][]int32 // pattern -> the symbols of fsyms that imply its beginning
	ends     [][]int32 // pattern -> the symbols of ssyms (kind other: gsyms) that imply its end
}

// fsym is one symbol of a beginning.
type fsym struct {
	pats  []int32 // of kind prefix and both whose beginning matches
	exact bool    // the whole name is known:
	lit   int32   // the literal that it is, or -1
	full  []int32 // all patterns it matches but literals and star
	not   []int32 // of pats, those of kind both that it does not match after all
	end   int32   // its symbol of the end
	gen   int32   // and of the DFA
}

// trie is a byte trie while it grows.
type trie struct {
	next map[uint32]int32 // node<<8 | byte -> node
	up   []int32          // parent of each node
	byte []byte           // the byte that leads to it
	pats [][]int32        // patterns that end at the node
	sym  []uint16         // symbol at the node if bytes follow
	end  []uint16         // symbol if the name ends here
}

func newTrie() trie {
	return trie{next: map[uint32]int32{}, up: []int32{-1}, byte: []byte{0}, pats: make([][]int32, 1)}
}

// put answers the node of s, made if need be.
func (t *trie) put(s string, reverse bool) int32 {
	at := int32(0)
	for i := range len(s) {
		c := s[i]
		if reverse {
			c = s[len(s)-1-i]
		}
		key := uint32(at)<<8 | uint32(c)
		to, ok := t.next[key]
		if !ok {
			to = int32(len(t.up))
			t.next[key] = to
			t.up = append(t.up, at)
			t.byte = append(t.byte, c)
			t.pats = append(t.pats, nil)
		}
		at = to
	}
	return at
}

// maxTrie keeps node numbers, packed, below 65,536.
const maxTrie = 56 << 10

var errTrie = &Error{Index: -1, Msg: "too many different names and endings"}

// names numbers the names; most bounds the states of the DFA.
func (t *tree) names(most int) (*names, *Error) {
	n := &names{fwd: newTrie(), bwd: newTrie(), alike: t.alike()}
	n.lits = make([][]int32, len(t.pats))
	n.under = make([][]int32, len(t.pats))
	n.ends = make([][]int32, len(t.pats))
	exact := map[int32]string{} // node of fwd -> the name
	for i, p := range t.pats {
		id := int32(i)
		switch p.kind {
		case literal:
			exact[n.fwd.put(p.pre, false)] = p.pre
		case prefix:
			n.fwd.grow(id, p.pre, false)
		case suffix:
			n.bwd.grow(id, p.suf, true)
		case both:
			n.fwd.grow(id, p.pre, false)
			n.bwd.grow(id, p.suf, true)
			for _, name := range overlaps(p.pre, p.suf) {
				exact[n.fwd.put(name, false)] = name
			}
		}
		if len(n.fwd.up) > maxTrie || len(n.bwd.up) > maxTrie {
			return nil, errTrie
		}
	}
	if err := n.determine(t, most); err != nil {
		return nil, err
	}
	n.endSymbols(t)
	n.partial()
	return n, n.whole(t, exact)
}

func (t *trie) grow(id int32, s string, reverse bool) {
	at := t.put(s, reverse)
	t.pats[at] = append(t.pats[at], id)
}

// overlaps answers the names that begin with pre and end with suf but are too short to
// hold both.
func overlaps(pre, suf string) (out []string) {
	for k := 1; k <= min(len(pre), len(suf)); k++ {
		if strings.HasSuffix(pre, suf[:k]) {
			out = append(out, pre+suf[k:])
		}
	}
	return out
}

// endSymbols numbers the ends. Parents come before children in a trie.
func (n *names) endSymbols(t *tree) {
	n.ssyms = [][]int32{nil}
	seen := map[string]uint16{}
	n.bwd.sym = make([]uint16, len(n.bwd.up))
	for i := 1; i < len(n.bwd.up); i++ {
		above := n.bwd.sym[n.bwd.up[i]]
		n.bwd.sym[i] = above
		if len(n.bwd.pats[i]) == 0 {
			continue
		}
		all := n.one(append(slices.Clone(n.ssyms[above]), n.bwd.pats[i]...))
		key := string(appendList(nil, all))
		if id, ok := seen[key]; ok {
			n.bwd.sym[i] = id
			continue
		}
		n.bwd.sym[i] = uint16(len(n.ssyms))
		seen[key] = n.bwd.sym[i]
		for _, p := range all {
			n.ends[p] = append(n.ends[p], int32(len(n.ssyms)))
		}
		n.ssyms = append(n.ssyms, all)
	}
	for g, all := range n.gsyms {
		for _, p := range all {
			n.ends[p] = append(n.ends[p], int32(g))
		}
	}
}

// partial numbers the beginnings of names that go on.
func (n *names) partial() {
	n.fsyms = []fsym{{lit: -1}}
	seen := map[string]uint16{}
	n.fwd.sym = make([]uint16, len(n.fwd.up))
	for i := 1; i < len(n.fwd.up); i++ {
		above := n.fwd.sym[n.fwd.up[i]]
		n.fwd.sym[i] = above
		if len(n.fwd.pats[i]) == 0 {
			continue
		}
		all := n.one(append(slices.Clone(n.fsyms[above].pats), n.fwd.pats[i]...))
		key := string(appendList(nil, all))
		if id, ok := seen[key]; ok {
			n.fwd.sym[i] = id
			continue
		}
		n.fwd.sym[i] = uint16(len(n.fsyms))
		seen[key] = n.fwd.sym[i]
		n.addFsym(fsym{pats: all, lit: -1})
	}
	n.fwd.end = slices.Clone(n.fwd.sym)
}

func (n *names) addFsym(f fsym) int32 {
	id := int32(len(n.fsyms))
	n.fsyms = append(n.fsyms, f)
	for _, p := range f.pats {
		n.under[p] = append(n.under[p], id)
	}
	return id
}

// whole numbers the names that are known to their end: literals, and overlaps.
func (n *names) whole(t *tree, exact map[int32]string) *Error {
	nodes := make([]int32, 0, len(exact))
	for at := range exact {
		nodes = append(nodes, at)
	}
	slices.Sort(nodes)
	seen := map[string]int32{}
	for _, at := range nodes {
		name := exact[at]
		f := fsym{exact: true, lit: -1, pats: n.fsyms[n.fwd.sym[at]].pats}
		if id, ok := t.index[string([]byte{byte(literal), byte(len(name))})+name]; ok {
			f.lit = n.alike[id]
		}
		for _, p := range f.pats {
			if t.pats[p].kind == prefix || t.pats[p].matches(name) {
				f.full = append(f.full, p)
			} else {
				f.not = append(f.not, p)
			}
		}
		f.end, f.gen = int32(n.bwd.sym[n.bwd.find(name)]), int32(n.dfa.run(name))
		for _, p := range n.ssyms[f.end] {
			if t.pats[p].kind == suffix {
				f.full = append(f.full, p)
			}
		}
		f.full = append(f.full, n.gsyms[f.gen]...)
		key := appendList(appendList(appendList(nil, f.pats), f.full), f.not)
		key = appendList(key, []int32{f.lit, f.end, f.gen})
		id, ok := seen[string(key)]
		if !ok {
			id = n.addFsym(f)
			seen[string(key)] = id
			if f.lit >= 0 {
				n.lits[f.lit] = append(n.lits[f.lit], id)
			}
		}
		n.fwd.end[at] = uint16(id)
	}
	if len(n.fsyms) >= maxIDs || len(n.ssyms) >= maxIDs || len(n.gsyms) >= maxIDs {
		return errTrie
	}
	return nil
}

// find answers the deepest node on name's way, read backward.
func (t *trie) find(name string) int32 {
	at := int32(0)
	for i := len(name) - 1; i >= 0; i-- {
		to, ok := t.next[uint32(at)<<8|uint32(name[i])]
		if !ok {
			break
		}
		at = to
	}
	return at
}

// alike answers for every pattern the first of its kind that leads to the same places from
// everywhere, perhaps itself. A folded tree has many such: its rules are of few kinds. Those of
// kind both stand for themselves: their two halves must be of one pattern.
func (t *tree) alike() []int32 {
	keys := make([][]byte, len(t.pats))
	for at := range t.nodes {
		for id, to := range t.nodes[at].edge {
			keys[id] = binary.LittleEndian.AppendUint32(keys[id], uint32(at))
			keys[id] = binary.LittleEndian.AppendUint32(keys[id], uint32(to))
		}
	}
	first := map[string]int32{}
	out := make([]int32, len(t.pats))
	for i, k := range keys {
		out[i] = int32(i)
		if t.pats[i].kind == both {
			continue
		}
		k = append(k, byte(t.pats[i].kind))
		if f, ok := first[string(k)]; ok {
			out[i] = f
		} else {
			first[string(k)] = int32(i)
		}
	}
	return out
}

// one answers patterns with one for all that are alike, ascending.
func (n *names) one(pats []int32) []int32 {
	out := make([]int32, len(pats))
	for i, p := range pats {
		out[i] = n.alike[p]
	}
	slices.Sort(out)
	return slices.Compact(out)
}
