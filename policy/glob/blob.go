package glob

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The blob: a header of 64 u32, then sections in the order of the constants, each
// aligned to 4 bytes. Everything is little endian. bpf/include/match.h has the same numbers.
const (
	magic       = 0x424c4741 // "AGLB"
	version     = 1
	headerBytes = 256

	hMagic   = 0
	hVersion = 1
	hGlobs   = 2
	hSize    = 3
	hStart   = 4
	hRows    = 5
	hShift   = 6
	hStride  = 7
	hSection = 8  // byte offset of section i at hSection+i
	hCount   = 32 // number of its elements at hCount+i
)

// Sections.
const (
	sFwd = iota
	sFwdSym
	sBwd
	sBwdSym
	sGMap
	sGTab
	sGSym
	sRow
	sCell
	sFinal
	sBits
	sRule
	sClass
	sGain
	sections
)

// widths are the element sizes of the sections in bytes.
func widths() [sections]int {
	return [sections]int{4, 4, 4, 2, 1, 2, 2, 16, 4, 4, 1, 2, 2, 4}
}

// Sizes of the two BPF maps that hold a blob, in bytes; [Automaton.Bytes] is never
// longer than MaxBytes.
const (
	SmallBytes = 256 << 10
	MaxBytes   = 2 << 20
)

// table is a blob, decoded.
type table struct {
	globs   int
	nrows   int
	start   State
	shift   uint
	stride  int
	fwd     []uint32
	fwdsym  []uint32
	bwd     []uint32
	bwdsym  []uint16
	gmap    []uint8
	gtab    []uint16
	gsym    []uint16
	rows    []slot
	cells   []uint32
	finals  []uint32
	bits    []uint8
	rules   []uint16
	class   []uint16
	gain    []uint32
	counted [sections]int
}

// encode writes a table.
func (t *table) encode() []byte {
	var b [headerBytes]byte
	out := b[:]
	le := binary.LittleEndian
	put := func(at int, v uint32) { le.PutUint32(out[4*at:], v) }
	section := func(s, count int) {
		for len(out)%4 != 0 {
			out = append(out, 0)
		}
		put(hSection+s, uint32(len(out)))
		put(hCount+s, uint32(count))
	}
	put(hMagic, magic)
	put(hVersion, version)
	put(hGlobs, uint32(t.globs))
	put(hStart, uint32(t.start))
	put(hRows, uint32(t.nrows))
	put(hShift, uint32(t.shift))
	put(hStride, uint32(t.stride))
	words := func(s int, v []uint32) {
		section(s, len(v))
		for _, x := range v {
			out = le.AppendUint32(out, x)
		}
	}
	halves := func(s int, v []uint16) {
		section(s, len(v))
		for _, x := range v {
			out = le.AppendUint16(out, x)
		}
	}
	bytes := func(s int, v []uint8) {
		section(s, len(v))
		out = append(out, v...)
	}
	words(sFwd, t.fwd)
	words(sFwdSym, t.fwdsym)
	words(sBwd, t.bwd)
	halves(sBwdSym, t.bwdsym)
	bytes(sGMap, t.gmap)
	halves(sGTab, t.gtab)
	halves(sGSym, t.gsym)
	section(sRow, len(t.rows))
	for _, r := range t.rows {
		out = le.AppendUint32(out, r.off)
		out = le.AppendUint32(out, r.tag|uint32(r.up)<<16)
		out = le.AppendUint32(out, uint32(r.def))
		out = le.AppendUint32(out, 0)
	}
	words(sCell, t.cells)
	words(sFinal, t.finals)
	bytes(sBits, t.bits)
	halves(sRule, t.rules)
	halves(sClass, t.class)
	words(sGain, t.gain)
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
	put(hSize, uint32(len(out)))
	return out
}

// ErrBlob is what [Load] answers for bytes that [Compile] did not make.
var ErrBlob = errors.New("not a valid glob automaton")

func broken(what string) error { return fmt.Errorf("load automaton: %w: %s", ErrBlob, what) }

// Load reads what [Automaton.Bytes] gave, perhaps from somebody less trusted: every
// offset, size and entry is checked, so that no walk leaves the tables, here or in BPF.
// It does not prove that the automaton decides what anybody wanted. The automaton keeps
// blob; the caller must not change it. Errors are [ErrBlob].
func Load(blob []byte) (*Automaton, error) {
	a := &Automaton{blob: blob}
	if len(blob) < headerBytes || len(blob) > MaxBytes || len(blob)%4 != 0 {
		return nil, broken("size")
	}
	le := binary.LittleEndian
	get := func(at int) int { return int(le.Uint32(blob[4*at:])) }
	switch {
	case get(hMagic) != magic:
		return nil, broken("magic")
	case get(hVersion) != version:
		return nil, broken("version")
	case get(hSize) != len(blob):
		return nil, broken("size")
	case get(hShift) > 8:
		return nil, broken("shift")
	}
	t := &a.table
	t.globs, t.start, t.nrows = get(hGlobs), State(get(hStart)), get(hRows)
	t.shift, t.stride = uint(get(hShift)), get(hStride)
	var part [sections][]byte
	end := headerBytes
	for s, w := range widths() {
		end = (end + 3) &^ 3
		n := get(hCount + s)
		if get(hSection+s) != end || n == 0 || n > (len(blob)-end)/w {
			return nil, broken("section")
		}
		part[s], t.counted[s] = blob[end:end+n*w], n
		end += n * w
	}
	if (end+3)&^3 != len(blob) {
		return nil, broken("size")
	}
	t.fwd, t.fwdsym, t.bwd = words(part[sFwd]), words(part[sFwdSym]), words(part[sBwd])
	t.bwdsym, t.gtab, t.gsym = halves(part[sBwdSym]), halves(part[sGTab]), halves(part[sGSym])
	t.gmap, t.bits = part[sGMap], part[sBits]
	t.cells, t.finals, t.gain = words(part[sCell]), words(part[sFinal]), words(part[sGain])
	t.rules, t.class = halves(part[sRule]), halves(part[sClass])
	t.rows = make([]slot, t.counted[sRow])
	for i := range t.rows {
		r := part[sRow][16*i:]
		x := le.Uint32(r[4:])
		t.rows[i] = slot{off: le.Uint32(r), tag: x & 0xffff, up: uint16(x >> 16), def: uint16(le.Uint32(r[8:]))}
		if le.Uint32(r[8:])>>16 != 0 || le.Uint32(r[12:]) != 0 {
			return nil, broken("row")
		}
	}
	if what := t.check(); what != "" {
		return nil, broken(what)
	}
	return a, nil
}

func words(b []byte) []uint32 {
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}

func halves(b []byte) []uint16 {
	out := make([]uint16, len(b)/2)
	for i := range out {
		out[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return out
}

// check answers what is wrong with the entries, or "".
func (t *table) check() string {
	maxSym := 0
	for _, v := range t.fwdsym {
		maxSym = max(maxSym, int(v&0xffff), int(v>>16))
	}
	for _, v := range t.bwdsym {
		maxSym = max(maxSym, int(v))
	}
	for _, v := range t.gsym {
		maxSym = max(maxSym, int(v))
	}
	states := len(t.gsym)
	switch {
	case t.nrows != len(t.rows) || t.nrows > maxIDs || t.nrows+len(t.finals) > maxIDs+1:
		return "rows"
	case !checkTrie(t.fwd) || len(t.fwdsym) != len(t.fwd) || !checkTrie(t.bwd) || len(t.bwdsym) != len(t.bwd):
		return "trie"
	case len(t.gmap) != 256 || states < 2 || states > maxStates+1 || len(t.gtab) != states<<t.shift:
		return "DFA"
	case len(t.bits) > maxIDs+1 || len(t.rules) != Ops*len(t.bits):
		return "decisions"
	case len(t.class) > t.nrows || t.stride < 1 || t.stride > maxClasses/32 || len(t.gain)%t.stride != 0:
		return "classes"
	}
	for _, c := range t.gmap {
		if c>>t.shift != 0 {
			return "byte class"
		}
	}
	for _, s := range t.gtab {
		if int(s) >= states {
			return "DFA state"
		}
	}
	n := t.nrows + len(t.finals)
	for _, r := range t.rows {
		if int(r.off)+maxSym >= len(t.cells) || int(r.up) >= t.nrows || int(r.def) >= n {
			return "row"
		}
	}
	for _, c := range t.cells {
		if int(c&0xffff) >= n {
			return "cell"
		}
	}
	ok := func(s uint32) bool { return int(s&0xffff) < len(t.class) && int(s>>16) < len(t.bits) }
	for _, s := range t.finals {
		if !ok(s) {
			return "final"
		}
	}
	classes := len(t.gain) / t.stride
	for _, c := range t.class {
		if int(c) >= classes || int(c>>5) >= t.stride {
			return "class"
		}
	}
	if !ok(uint32(t.start)) {
		return "start"
	}
	return ""
}

// checkTrie reports whether no byte leads out of a double array.
func checkTrie(t []uint32) bool {
	for _, e := range t {
		if int(e&0xffff)+255 >= len(t) {
			return false
		}
	}
	return len(t) <= 1<<16
}
