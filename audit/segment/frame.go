package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
)

// Frame layout, little endian:
//
//	0     3  marker A6 41 4C
//	3     1  type: 'H' header, 'B' block, 'S' signed head
//	4     4  n, length of the payload
//	8    32  SHA-256 of the frame before; zero for the first of a log
//	40    n  payload
//	40+n 32  SHA-256 of bytes 0 to 40+n
const (
	frameHeader = 'H'
	frameBlock  = 'B'
	frameHead   = 'S'

	framePrefix = 40
	frameExtra  = framePrefix + sha256.Size
	maxPayload  = 1 << 20
)

// frameMarker starts every frame; not UTF-8, so that a text file is never
// taken for a log.
const frameMarker = "\xa6AL"

type hash = [sha256.Size]byte

// appendFrame appends a frame to dst, which must be empty or hold whole
// frames, and returns it with the frame's hash.
func appendFrame(dst []byte, kind byte, prev hash, payload ...[]byte) ([]byte, hash) {
	start := len(dst)
	dst = append(dst, frameMarker...)
	dst = append(dst, kind, 0, 0, 0, 0)
	dst = append(dst, prev[:]...)
	n := 0
	for _, p := range payload {
		dst = append(dst, p...)
		n += len(p)
	}
	binary.LittleEndian.PutUint32(dst[start+4:], uint32(n))
	sum := sha256.Sum256(dst[start:])
	return append(dst, sum[:]...), sum
}

// frame is one frame as read; payload is valid until the next read.
type frame struct {
	off     int64
	kind    byte
	prev    hash
	hash    hash // as stored
	payload []byte
}

func (f *frame) end() int64 { return f.off + frameExtra + int64(len(f.payload)) }

// damage is a place in a file that is not a good frame.
type damage struct {
	off   int64
	bytes int64  // how many bytes were passed over
	tail  bool   // nothing good follows in this file
	torn  bool   // it begins like a frame that is not complete; only with tail
	hash  bool   // it is a whole frame with a wrong hash, see the frame
	what  string // in words
}

func (d *damage) Error() string { return d.what }

// scanner reads the frames of one file in order. It reads at positions, never
// moves the descriptor's offset and may be used again when the file has grown.
type scanner struct {
	r      io.ReaderAt
	off    int64 // of the next frame
	buf    []byte
	start  int64 // file offset of buf
	budget int64 // bytes that searches may still hash
}

// searchBudget bounds what a file full of false frame starts can cost.
const searchBudget = 1 << 30

func newScanner(r io.ReaderAt) *scanner { return &scanner{r: r, budget: searchBudget} }

// at returns up to n bytes at off, fewer only at the end of the file. The
// bytes are valid until the next call.
func (s *scanner) at(off int64, n int) ([]byte, error) {
	if off >= s.start && off+int64(n) <= s.start+int64(len(s.buf)) {
		return s.buf[off-s.start:][:n], nil
	}
	const chunk = 256 << 10
	want := max(n, chunk)
	if cap(s.buf) < want {
		s.buf = make([]byte, want)
	}
	got, err := s.r.ReadAt(s.buf[:want], off)
	if err != nil && !errors.Is(err, io.EOF) {
		s.buf = s.buf[:0]
		return nil, err
	}
	s.start, s.buf = off, s.buf[:got]
	return s.buf[:min(n, got)], nil
}

// look reads the frame at off. whole says that all its bytes are there; good
// that its hash is right too. A frame that is not whole has no payload.
func (s *scanner) look(off int64) (f frame, whole, good bool, err error) {
	p, err := s.at(off, framePrefix)
	if err != nil || len(p) < framePrefix || !plausible(p) {
		return frame{off: off}, false, false, err
	}
	n := int(binary.LittleEndian.Uint32(p[4:]))
	if p, err = s.at(off, n+frameExtra); err != nil || len(p) < n+frameExtra {
		return frame{off: off}, false, false, err
	}
	f = frame{off: off, kind: p[3], payload: p[framePrefix : framePrefix+n]}
	copy(f.prev[:], p[8:])
	copy(f.hash[:], p[framePrefix+n:])
	sum := sha256.Sum256(p[:framePrefix+n])
	return f, true, sum == f.hash, nil
}

// plausible reports whether p, which may be short, can begin a frame.
func plausible(p []byte) bool {
	n := min(len(p), len(frameMarker))
	if string(p[:n]) != frameMarker[:n] {
		return false
	}
	if len(p) > 3 && p[3] != frameHeader && p[3] != frameBlock && p[3] != frameHead {
		return false
	}
	return len(p) < 8 || binary.LittleEndian.Uint32(p[4:]) <= maxPayload
}

// next returns the next frame. At the clean end of the file it returns io.EOF;
// at a place that is not a good frame a *damage, with the frame when only its
// hash is wrong, and goes on behind it unless the damage is the tail. Other
// errors are the reader's.
func (s *scanner) next() (frame, error) {
	first, err := s.at(s.off, framePrefix)
	if err != nil {
		return frame{}, err
	}
	if len(first) == 0 {
		return frame{}, io.EOF
	}
	torn := plausible(first)
	f, whole, good, err := s.look(s.off)
	if err != nil {
		return frame{}, err
	}
	if good {
		s.off = f.end()
		return f, nil
	}
	if whole { // believe its length when something that looks like a frame, or nothing, follows
		f.payload = bytes.Clone(f.payload)
		rest, err := s.at(f.end(), 8)
		if err != nil {
			return frame{}, err
		}
		if len(rest) == 0 || len(rest) == 8 && plausible(rest) {
			s.off = f.end()
			return f, &damage{off: f.off, bytes: f.end() - f.off, hash: true, tail: len(rest) == 0, what: "hash mismatch"}
		}
	}
	return s.search(torn && !whole)
}

// search looks for the next good frame behind s.off.
func (s *scanner) search(torn bool) (frame, error) {
	from := s.off
	for off := from + 1; ; {
		p, err := s.at(off, 64<<10)
		if err != nil {
			return frame{}, err
		}
		i := bytes.Index(p, []byte(frameMarker))
		if i < 0 {
			if len(p) < 64<<10 {
				return frame{}, &damage{off: from, bytes: off + int64(len(p)) - from, tail: true, torn: torn, what: "not a frame"}
			}
			off += int64(len(p) - len(frameMarker) + 1)
			continue
		}
		off += int64(i)
		f, whole, good, err := s.look(off)
		if err != nil {
			return frame{}, err
		}
		if good {
			s.off = off
			return frame{}, &damage{off: from, bytes: off - from, what: "not a frame"}
		}
		if whole {
			s.budget -= f.end() - f.off
		}
		if s.budget < 0 {
			return frame{}, &damage{off: from, bytes: off - from, tail: true, what: "too damaged to search for the next frame"}
		}
		off++
	}
}

// frameSum is the hash that a frame ought to state.
func frameSum(f frame) hash {
	prefix := append([]byte(frameMarker), f.kind, 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(prefix[4:], uint32(len(f.payload)))
	prefix = append(prefix, f.prev[:]...)
	return sha256.Sum256(append(prefix, f.payload...))
}
