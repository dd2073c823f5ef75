package segment

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/agentos/agentos/audit/event"
)

// Report is what [Verify] found.
type Report struct {
	Session  string    `json:"session"` // as the log says; compare it with the one that was asked for
	Policy   string    `json:"policy"`
	Kernel   string    `json:"kernel"`
	Key      string    `json:"key"` // id of the key that was verified against
	Segments int       `json:"segments"`
	Blocks   int       `json:"blocks"`    // good ones
	Heads    int       `json:"heads"`     // good ones
	Records  uint64    `json:"records"`   // good ones
	FirstSeq uint64    `json:"first"`     // first good record, 0 for none
	LastSeq  uint64    `json:"last"`      // last good record
	Signed   uint64    `json:"signed"`    // last record that a good head covers
	SignedAt time.Time `json:"signed_at"` // wall clock of that head
	Losses   uint64    `json:"losses"`    // events lost before they were records, as recorded
	Gaps     int       `json:"gaps"`      // times that the recorder was not running, as recorded
	Closed   bool      `json:"closed"`    // the last frame is the closing head
	Problems []Problem `json:"problems"`  // at most 100
	More     int       `json:"more"`      // problems beyond those
}

// OK reports that nothing is wrong. A log that is still being written, or
// whose end was cut off at a frame, is OK but not Closed.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// Complete reports that nothing is wrong and the log is closed: what the log
// of a session that has ended must be.
func (r *Report) Complete() bool { return r.OK() && r.Closed }

const maxProblems = 100

// Verify proves a log with the public key of its writer: hashes, chain,
// signatures, sequence numbers, and every record decodes. files are the
// segments in order; they stay the caller's and their offsets are not used.
// Heads that were kept elsewhere (witness) must be part of the log.
//
// What is wrong with the log is in the report. The error is for what could not
// be looked at: no files, a read that failed, a public key of the wrong size.
func Verify(files []*os.File, pub ed25519.PublicKey, witness ...Head) (Report, error) {
	readers := make([]io.ReaderAt, len(files))
	for i, f := range files {
		readers[i] = f
	}
	return verify(readers, pub, witness)
}

func verify(files []io.ReaderAt, pub ed25519.PublicKey, witness []Head) (Report, error) {
	if len(pub) != ed25519.PublicKeySize {
		return Report{}, fmt.Errorf("verify audit log: public key of %d bytes", len(pub))
	}
	if len(files) == 0 {
		return Report{}, errors.New("verify audit log: no segment")
	}
	u, err := newUnpacker()
	if err != nil {
		return Report{}, fmt.Errorf("verify audit log: %w", err)
	}
	v := &verifier{pub: pub, unpack: u, witness: witness, matched: make([]bool, len(witness)), seq: 1, number: 1}
	v.rep.Key, v.rep.Problems = KeyID(pub), []Problem{}
	parts, err := v.order(files)
	if err != nil {
		return Report{}, fmt.Errorf("verify audit log: %w", err)
	}
	for i, p := range parts {
		if err := v.segment(p, i == len(parts)-1); err != nil {
			return Report{}, fmt.Errorf("verify audit log: %w", err)
		}
	}
	v.end()
	return v.rep, nil
}

// verifier is the state of one walk over a log.
type verifier struct {
	rep     Report
	pub     ed25519.PublicKey
	unpack  *unpacker
	witness []Head
	matched []bool

	header  Header
	segNo   uint32
	chain   []hash // hashes that the next frame may name; empty: any (after damage)
	seq     uint64 // next record
	number  uint64 // next head
	state   HeadState
	unsure  bool // damage since the last good block: do not blame the next one
	badHead bool // one bad signature has been reported
}

// part is one file with its header.
type part struct {
	r      io.ReaderAt
	given  int // place among the files, from 1
	header Header
	ok     bool
}

// order reads the headers, reports what is misplaced, and returns the parts of
// the log by number.
func (v *verifier) order(files []io.ReaderAt) ([]part, error) {
	parts := make([]part, len(files))
	votes := map[string]int{}
	for i, r := range files {
		h, err := ReadHeader(r)
		if err != nil && !errors.Is(err, ErrFormat) {
			return nil, err
		}
		parts[i] = part{r: r, given: i + 1, header: h, ok: err == nil}
		if err == nil {
			votes[h.Session]++
		} else {
			parts[i].header = Header{Segment: uint32(i + 1)} // its own walk says what is wrong
		}
	}
	for _, p := range parts {
		if p.ok && (v.rep.Session == "" || votes[p.header.Session] > votes[v.rep.Session]) {
			v.rep.Session = p.header.Session
		}
	}
	kept := parts[:0]
	for _, p := range parts {
		if p.ok && p.header.Session != v.rep.Session {
			v.problem(uint32(p.given), 0, "file %d belongs to session %s, not %s", p.given, p.header.Session, v.rep.Session)
			continue
		}
		kept = append(kept, p)
	}
	for i := range kept {
		if i > 0 && kept[i].header.Segment < kept[i-1].header.Segment {
			v.problem(kept[i].header.Segment, 0, "segments are out of order: file %d holds segment %d", kept[i].given, kept[i].header.Segment)
		}
	}
	slices.SortStableFunc(kept, func(a, b part) int { return int(int64(a.header.Segment) - int64(b.header.Segment)) })
	return kept, nil
}

func (v *verifier) problem(segment uint32, off int64, format string, args ...any) {
	if len(v.rep.Problems) == maxProblems {
		v.rep.More++
		return
	}
	v.rep.Problems = append(v.rep.Problems, Problem{Segment: segment, Offset: off, Seq: v.seq - min(v.seq, 1), What: fmt.Sprintf(format, args...)})
}

// segment walks one file.
func (v *verifier) segment(p part, last bool) error {
	if p.header.Segment == v.segNo {
		v.problem(v.segNo, 0, "segment %d is there twice", v.segNo)
		return nil
	}
	for n := v.segNo + 1; n < p.header.Segment; n++ {
		if n-v.segNo > maxProblems {
			v.problem(0, 0, "segments %d to %d missing", n, p.header.Segment-1)
			break
		}
		v.problem(0, 0, "segment %d missing", n)
		v.chain, v.unsure, v.state = nil, true, Running
	}
	if v.segNo > 0 && v.state != Rotated && !v.unsure {
		v.problem(v.segNo, 0, "segment %d does not end with a head that announces segment %d", v.segNo, p.header.Segment)
	}
	v.segNo, v.state = p.header.Segment, Running
	v.rep.Segments++
	s := newScanner(p.r)
	for {
		f, err := s.next()
		var d *damage
		switch {
		case errors.Is(err, io.EOF):
			if s.off == 0 && !(last && v.segNo > 1) { // else the writer died between making the file and its header
				v.problem(v.segNo, 0, "segment %d is empty", v.segNo)
			}
			return nil
		case errors.As(err, &d):
			v.damaged(f, d, last)
			if d.tail {
				return nil
			}
		case err != nil:
			return err
		default:
			v.frame(f)
		}
	}
}

// damaged reports a place that is not a good frame.
func (v *verifier) damaged(f frame, d *damage, last bool) {
	switch {
	case d.off == 0 && !d.hash && !(d.torn && last && v.segNo > 1):
		v.problem(v.segNo, 0, "header of segment %d: %s", v.segNo, d.what)
	case d.hash:
		what := "frame"
		switch f.kind {
		case frameHeader:
			what = "header"
		case frameHead:
			what = fmt.Sprintf("head %d", v.number)
			v.number++
		case frameBlock:
			what = fmt.Sprintf("block %d", v.rep.Blocks+1)
			if b, err := decodeBlock(f.payload); err == nil {
				what += fmt.Sprintf(" (records %d to %d by its own account)", b.first, b.last())
			}
		}
		v.problem(v.segNo, d.off, "%s: hash mismatch", what)
	case v.state == Closed:
		v.problem(v.segNo, d.off, "%d bytes after the closing head", d.bytes)
	case d.torn && last:
		v.problem(v.segNo, d.off, "tail incomplete after seq %d: %d bytes are not a whole frame", v.seq-1, d.bytes)
	case d.tail:
		v.problem(v.segNo, d.off, "tail damaged after seq %d: %d bytes are not a frame", v.seq-1, d.bytes)
	default:
		v.problem(v.segNo, d.off, "%d bytes after seq %d are not a frame", d.bytes, v.seq-1)
	}
	v.unsure = true
	if d.hash { // the frame after it may name the hash that it states or the one that it has
		sum := frameSum(f)
		v.chain = []hash{f.hash, sum}
		return
	}
	v.chain = nil
}

// frame checks one frame whose own hash is right.
func (v *verifier) frame(f frame) {
	linked := v.chain == nil && (v.unsure || v.segNo == 1 && f.off == 0 && f.prev == hash{}) || slices.Contains(v.chain, f.prev)
	if (v.state == Closed || v.state == Rotated && f.kind != frameHeader) && f.off != 0 {
		v.problem(v.segNo, f.off, "frame after the head that ends the %s", map[bool]string{true: "log", false: "segment"}[v.state == Closed])
	}
	if (f.off == 0) != (f.kind == frameHeader) {
		v.problem(v.segNo, f.off, "header in the wrong place, or none")
		linked = true // said already
	}
	switch f.kind {
	case frameHeader:
		v.headerFrame(f, linked)
	case frameBlock:
		v.blockFrame(f, linked)
	case frameHead:
		v.headFrame(f, linked)
	}
	v.chain = []hash{f.hash}
}

func (v *verifier) headerFrame(f frame, linked bool) {
	h, err := decodeHeader(f.payload)
	if err != nil {
		v.problem(v.segNo, f.off, "header: %v", err)
		return
	}
	if !linked {
		v.problem(v.segNo, f.off, "segment %d does not follow the segment before it: chain broken", h.Segment)
	}
	if h.Key != v.rep.Key {
		v.problem(v.segNo, f.off, "signed by another key: %s, not %s", h.Key, v.rep.Key)
	}
	if v.header.Session != "" && !v.unsure && (h.FirstSeq != v.seq || h.FirstHead != v.number) {
		v.problem(v.segNo, f.off, "header expects record %d and head %d, the log has %d and %d", h.FirstSeq, h.FirstHead, v.seq, v.number)
	}
	if v.header.Session == "" {
		v.rep.Policy, v.rep.Kernel = h.Policy, h.Kernel
	} else if h.Policy != v.rep.Policy || h.Kernel != v.rep.Kernel {
		v.problem(v.segNo, f.off, "header names another policy or kernel than the first")
	}
	v.header, v.state = h, Running
}

func (v *verifier) blockFrame(f frame, linked bool) {
	name := fmt.Sprintf("block %d", v.rep.Blocks+1)
	b, err := decodeBlock(f.payload)
	if err != nil {
		v.problem(v.segNo, f.off, "%s: %v", name, err)
		v.unsure = true
		return
	}
	switch {
	case b.first > v.seq:
		v.problem(v.segNo, f.off, "%s: records %d to %d missing before it", name, v.seq, b.first-1)
	case b.first < v.seq:
		v.problem(v.segNo, f.off, "%s: records %d to %d again or out of order, expected %d", name, b.first, b.last(), v.seq)
	case !linked:
		v.problem(v.segNo, f.off, "%s: chain broken: something before it was removed or changed", name)
	}
	text, err := v.unpack.open(b, f.payload)
	if err == nil {
		err = v.records(b, text)
	}
	if err != nil {
		v.problem(v.segNo, f.off, "%s: %v", name, err)
	}
	v.rep.Blocks++
	v.seq, v.unsure = max(v.seq, b.last()+1), false
}

// records decodes every record of a block and counts.
func (v *verifier) records(b block, text string) error {
	c := cursor{rest: text, seq: b.first, left: b.count, session: v.header.Session}
	var e event.Event
	for c.left > 0 {
		if err := c.next(&e); err != nil {
			return fmt.Errorf("record %d: %w", c.seq, err)
		}
		v.rep.Records++
		switch e.Kind {
		case event.Loss:
			v.rep.Losses += e.Count
		case event.Gap:
			v.rep.Gaps++
		}
	}
	if v.rep.FirstSeq == 0 {
		v.rep.FirstSeq = b.first
	}
	v.rep.LastSeq = max(v.rep.LastSeq, b.last())
	return nil
}

func (v *verifier) headFrame(f frame, linked bool) {
	h, err := decodeHead(f.payload, v.header.Session, v.segNo, f.prev)
	if err != nil {
		v.problem(v.segNo, f.off, "%v", err)
		return
	}
	if !linked {
		v.problem(v.segNo, f.off, "head %d: chain broken: something before it was removed or changed", h.Number)
	}
	if err := h.Verify(v.pub); err != nil {
		if !v.badHead {
			v.problem(v.segNo, f.off, "head %d: %v: records after %d are not proven", h.Number, err, v.rep.Signed)
		}
		v.badHead, v.number = true, h.Number+1
		return
	}
	switch {
	case h.Number != v.number && !v.unsure:
		v.problem(v.segNo, f.off, "head %d where head %d was expected", h.Number, v.number)
	case h.Seq != v.seq-1 && !v.unsure:
		v.problem(v.segNo, f.off, "head %d covers %d records, the log has %d", h.Number, h.Seq, v.seq-1)
	case h.Seq > v.seq-1:
		v.problem(v.segNo, f.off, "records %d to %d missing: head %d covers them", v.seq, h.Seq, h.Number)
		v.seq = h.Seq + 1
	}
	for i := range v.witness {
		w := &v.witness[i]
		v.matched[i] = v.matched[i] || w.Number == h.Number && bytes.Equal(w.Signature, h.Signature)
	}
	v.number, v.state = h.Number+1, h.State
	v.rep.Heads++
	if h.Seq >= v.rep.Signed {
		v.rep.Signed, v.rep.SignedAt = h.Seq, h.Time()
	}
}

// end checks what only the whole log can tell.
func (v *verifier) end() {
	if v.state == Rotated {
		v.problem(0, 0, "segment %d missing: segment %d announces it", v.segNo+1, v.segNo)
	}
	if v.rep.Heads == 0 {
		v.problem(0, 0, "no signed head: nothing here is proven")
	}
	v.rep.Closed = v.state == Closed
	for i := range v.witness {
		w := &v.witness[i]
		switch {
		case v.matched[i]:
		case w.Verify(v.pub) != nil:
			v.problem(0, 0, "witness: head %d is not signed by this key", w.Number)
		case w.Session != v.rep.Session:
			v.problem(0, 0, "witness: head %d is of session %s", w.Number, w.Session)
		case w.Seq > v.rep.LastSeq:
			v.problem(0, 0, "witness: head %d of %s covers %d records, the log has %d: records %d to %d were removed",
				w.Number, w.Time().Format(time.RFC3339), w.Seq, v.rep.LastSeq, v.rep.LastSeq+1, w.Seq)
		default:
			v.problem(0, 0, "witness: head %d is not part of this log: it was written again", w.Number)
		}
	}
}
