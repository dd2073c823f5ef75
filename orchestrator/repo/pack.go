package repo

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// What is read of packs at most. Git makes chains of 50 deltas, and of 250 when a
// user asks for it (git-gc(1), gc.aggressiveDepth).
const (
	maxPacks = 1000
	maxChain = 300
)

var errPack = errors.New("broken pack")

// pack is a file of objects with its index of version 2 (gitformat-pack(5)).
type pack struct {
	name  string // without extension
	data  *os.File
	index *os.File
	size  int64 // of the index
	total uint32
	bad   bool
}

func (p *pack) close() {
	for _, f := range []*os.File{p.data, p.index} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// packed reads an object from one of the packs. depth counts deltas.
func (s *Store) packed(id []byte, depth int) (string, []byte, error) {
	if !s.known {
		s.known = true
		names, _ := filepath.Glob(filepath.Join(escape(s.dir), "pack", "*.idx"))
		for _, n := range names[:min(len(names), maxPacks)] {
			s.packs = append(s.packs, &pack{name: strings.TrimSuffix(n, ".idx")})
		}
	}
	for _, p := range s.packs {
		off, err := p.find(id)
		if err != nil {
			continue
		}
		return s.entry(p, off, len(id), depth)
	}
	return "", nil, ErrNone
}

// escape quotes what means something to filepath.Glob.
func escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}

func (p *pack) open() error {
	if p.bad || p.index != nil {
		if p.bad {
			return errPack
		}
		return nil
	}
	p.bad = true
	for _, f := range []struct {
		to  **os.File
		ext string
	}{{&p.index, ".idx"}, {&p.data, ".pack"}} {
		file, err := os.OpenFile(p.name+f.ext, openRead, 0)
		if err != nil {
			return err
		}
		*f.to = file
		st, err := file.Stat()
		if err != nil || !st.Mode().IsRegular() {
			return errPack
		}
		if f.ext == ".idx" {
			p.size = st.Size()
		}
	}
	var head [8]byte
	if _, err := p.index.ReadAt(head[:], 0); err != nil || !bytes.Equal(head[:], []byte{0xff, 't', 'O', 'c', 0, 0, 0, 2}) {
		return errPack
	}
	total, err := p.word(8 + 255*4)
	if err != nil {
		return err
	}
	p.total, p.bad = total, false
	return nil
}

// word reads four bytes of the index.
func (p *pack) word(off int64) (uint32, error) {
	var b [4]byte
	_, err := p.index.ReadAt(b[:], off)
	return binary.BigEndian.Uint32(b[:]), err
}

// find returns where an object begins in the pack.
func (p *pack) find(id []byte) (int64, error) {
	if err := p.open(); err != nil {
		return 0, err
	}
	const names = 8 + 256*4
	low := uint32(0)
	if id[0] > 0 {
		var err error
		if low, err = p.word(8 + int64(id[0]-1)*4); err != nil {
			return 0, err
		}
	}
	high, err := p.word(8 + int64(id[0])*4)
	if err != nil || high > p.total || low > high {
		return 0, errPack
	}
	n, size, total := int64(-1), int64(len(id)), int64(p.total)
	got := make([]byte, size)
	for low < high {
		mid := low + (high-low)/2
		if _, err := p.index.ReadAt(got, names+int64(mid)*size); err != nil {
			return 0, err
		}
		switch c := bytes.Compare(got, id); {
		case c == 0:
			n, low = int64(mid), high
		case c < 0:
			low = mid + 1
		default:
			high = mid
		}
	}
	if n < 0 {
		return 0, ErrNone
	}
	offsets := names + total*(size+4)
	off, err := p.word(offsets + n*4)
	if err != nil {
		return 0, err
	}
	if off&(1<<31) == 0 {
		return int64(off), nil
	}
	var b [8]byte
	_, err = p.index.ReadAt(b[:], offsets+total*4+int64(off&^(1<<31))*8)
	return int64(binary.BigEndian.Uint64(b[:]) &^ (1 << 63)), err
}

// Types of entries in a pack.
var packKinds = [...]string{1: "commit", 2: "tree", 3: "blob", 4: "tag"}

const (
	ofsDelta = 6
	refDelta = 7
)

// entry reads the object that begins at off. size is the length of an id.
func (s *Store) entry(p *pack, off int64, size, depth int) (string, []byte, error) {
	if depth > maxChain {
		return "", nil, errPack
	}
	r := bufio.NewReader(io.NewSectionReader(p.data, off, 1<<62))
	c, err := r.ReadByte()
	if err != nil {
		return "", nil, err
	}
	kind, length := int(c>>4&7), uint64(c&15)
	for shift := 4; c&0x80 != 0; shift += 7 {
		if c, err = r.ReadByte(); err != nil || shift > 50 {
			return "", nil, errPack
		}
		length |= uint64(c&0x7f) << shift
	}
	if length > MaxObject {
		return "", nil, fmt.Errorf("%d bytes, at most %d", length, MaxObject)
	}
	var base []byte
	is := ""
	switch {
	case kind == ofsDelta:
		back, err := offset(r)
		if err != nil || back <= 0 || back > off {
			return "", nil, errPack
		}
		is, base, err = s.entry(p, off-back, size, depth+1)
		if err != nil {
			return "", nil, err
		}
	case kind == refDelta:
		id := make([]byte, size)
		if _, err := io.ReadFull(r, id); err != nil {
			return "", nil, err
		}
		if is, base, err = s.packed(id, depth+1); err != nil {
			return "", nil, err
		}
	case kind > 0 && kind < len(packKinds):
		is = packKinds[kind]
	default:
		return "", nil, errPack
	}
	z, err := zlib.NewReader(r)
	if err != nil {
		return "", nil, err
	}
	data, err := exactly(z, int(length))
	if err == nil && base != nil {
		data, err = apply(base, data)
	}
	return is, data, err
}

// offset is the distance to the base of a delta.
func offset(r io.ByteReader) (int64, error) {
	c, err := r.ReadByte()
	n := int64(c & 0x7f)
	for c&0x80 != 0 && err == nil {
		if n > 1<<50 {
			return 0, errPack
		}
		c, err = r.ReadByte()
		n = (n+1)<<7 | int64(c&0x7f)
	}
	return n, err
}

// apply makes an object of its base and a delta.
func apply(base, delta []byte) ([]byte, error) {
	from, n := binary.Uvarint(delta)
	if n <= 0 || from != uint64(len(base)) {
		return nil, errPack
	}
	delta = delta[n:]
	to, n := binary.Uvarint(delta)
	if n <= 0 || to > MaxObject {
		return nil, errPack
	}
	delta = delta[n:]
	out := make([]byte, 0, min(to, uint64(len(base)+len(delta))))
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		var part []byte
		if op&0x80 == 0 { // the next op bytes
			if op == 0 || len(delta) < int(op) {
				return nil, errPack
			}
			part, delta = delta[:op], delta[op:]
		} else { // a piece of the base
			var v [7]uint32
			for i := range v {
				if op&(1<<i) != 0 {
					if len(delta) == 0 {
						return nil, errPack
					}
					v[i], delta = uint32(delta[0]), delta[1:]
				}
			}
			at := uint64(v[0] | v[1]<<8 | v[2]<<16 | v[3]<<24)
			length := uint64(v[4] | v[5]<<8 | v[6]<<16)
			if length == 0 {
				length = 0x10000
			}
			if at+length > uint64(len(base)) {
				return nil, errPack
			}
			part = base[at : at+length]
		}
		if uint64(len(out)+len(part)) > to {
			return nil, errPack
		}
		out = append(out, part...)
	}
	if uint64(len(out)) != to {
		return nil, errPack
	}
	return out, nil
}
