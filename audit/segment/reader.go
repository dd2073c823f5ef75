package segment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/agentos/agentos/audit/event"
)

// Record is an event stored: it has a place in the log.
type Record struct {
	Seq uint64 // 1, 2, ... without holes over the whole log
	event.Event
}

// AppendJSON appends r to dst as one JSON object on one line: "seq", then the
// keys of the event.
func (r *Record) AppendJSON(dst []byte) []byte {
	dst = fmt.Appendf(dst, `{"seq":%d,`, r.Seq)
	at := len(dst)
	dst = r.Event.AppendJSON(dst) // an event is never empty: kind is always there
	return append(dst[:at], dst[at+1:]...)
}

// MarshalJSON is [Record.AppendJSON]; it never fails.
func (r Record) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// UnmarshalJSON is the inverse of [Record.AppendJSON].
func (r *Record) UnmarshalJSON(data []byte) error {
	var seq struct {
		Seq uint64 `json:"seq"`
	}
	if err := json.Unmarshal(data, &seq); err != nil {
		return err
	}
	if err := r.Event.UnmarshalJSON(data); err != nil {
		return err
	}
	r.Seq = seq.Seq
	return nil
}

// Problem is one thing that is wrong with a log.
type Problem struct {
	Segment uint32 `json:"segment"` // 1, 2, ...; 0 for the log as a whole
	Offset  int64  `json:"offset"`  // in the segment's file, bytes
	Seq     uint64 `json:"seq"`     // last record that is good before it
	What    string `json:"what"`
}

// Error says where and what.
func (p *Problem) Error() string {
	if p.Segment == 0 {
		return p.What
	}
	return fmt.Sprintf("segment %d, offset %d: %s", p.Segment, p.Offset, p.What)
}

// Reader streams the records of a log. It checks hashes, not signatures: that
// is [Verify]. It is for one goroutine.
type Reader struct {
	files  []io.ReaderAt
	at     int // index of the current file
	scan   *scanner
	unpack *unpacker
	header Header
	cur    cursor
	from   uint64 // first record wanted
	last   uint64 // last record seen
}

// Open reads the segments of one log, given in order. The files stay the
// caller's, must stay open, and their offsets are not used. It reads the first
// header; errors wrap [ErrFormat] or are the file's.
func Open(files ...*os.File) (*Reader, error) {
	r := &Reader{}
	r.Add(files...)
	return r, r.open()
}

func (r *Reader) open() (err error) {
	if len(r.files) == 0 {
		return fmt.Errorf("open audit log: %w: no segment", ErrFormat)
	}
	if r.header, err = ReadHeader(r.files[0]); err != nil {
		return fmt.Errorf("open audit log: %w", err)
	}
	if r.unpack, err = newUnpacker(); err != nil {
		return fmt.Errorf("open audit log: %w", err)
	}
	r.scan = newScanner(r.files[0])
	return nil
}

// Add appends further segments, which a log that is being followed got since.
func (r *Reader) Add(files ...*os.File) {
	for _, f := range files {
		r.files = append(r.files, f)
	}
}

// Header returns the header of the current segment.
func (r *Reader) Header() Header { return r.header }

// From makes Next skip the records before seq, cheaply.
func (r *Reader) From(seq uint64) { r.from = seq }

// Next returns the next record. At the end it returns io.EOF, and more after
// that when the log has grown. A place that is not good is a *[Problem], once;
// the call after it goes on behind that place. Strings of one block share
// memory: clone what is kept for long.
func (r *Reader) Next() (Record, error) {
	var rec Record
	for {
		for r.cur.left > 0 {
			rec.Seq = r.cur.seq
			if err := r.cur.next(&rec.Event); err != nil {
				r.cur.left = 0
				return Record{}, r.problem(r.scan.off, err.Error())
			}
			r.last = rec.Seq
			if rec.Seq >= r.from {
				return rec, nil
			}
		}
		if err := r.nextBlock(); err != nil {
			return Record{}, err
		}
	}
}

// nextBlock makes the next wanted block the current one.
func (r *Reader) nextBlock() error {
	for {
		f, err := r.scan.next()
		var d *damage
		switch {
		case errors.Is(err, io.EOF), errors.As(err, &d) && d.tail && !d.hash:
			if r.at+1 == len(r.files) {
				return io.EOF // also an incomplete tail: it may still be written
			}
			r.at++
			r.scan = newScanner(r.files[r.at])
			if d != nil {
				return r.problem(d.off, d.what)
			}
			continue
		case d != nil:
			return r.problem(d.off, d.what)
		case err != nil:
			return fmt.Errorf("read audit log: %w", err)
		}
		switch f.kind {
		case frameHeader:
			h, err := decodeHeader(f.payload)
			if err != nil {
				return r.problem(f.off, err.Error())
			}
			r.header = h
		case frameBlock:
			b, err := decodeBlock(f.payload)
			if err != nil {
				return r.problem(f.off, err.Error())
			}
			missing := b.first != r.last+1
			before := r.last
			r.last = b.last()
			if b.last() >= r.from {
				text, err := r.unpack.open(b, f.payload)
				if err != nil {
					return r.problem(f.off, err.Error())
				}
				r.cur = cursor{rest: text, seq: b.first, left: b.count, session: r.header.Session}
			}
			if missing && before > 0 {
				return r.problem(f.off, fmt.Sprintf("record %d follows record %d", b.first, before))
			}
			if r.cur.left > 0 {
				return nil
			}
		}
	}
}

func (r *Reader) problem(off int64, what string) *Problem {
	return &Problem{Segment: r.header.Segment, Offset: off, Seq: r.last, What: what}
}
