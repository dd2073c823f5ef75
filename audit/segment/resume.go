package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/agentos/agentos/audit/event"
)

// ErrDamaged is returned, wrapped with where and what, for a log that is not
// as it was written.
var ErrDamaged = errors.New("audit log is damaged")

// resume goes on with the log in a store, which it owns.
func resume(s store, k Key, o Options) (*Writer, error) {
	o = o.withDefaults()
	out := &output{comp: o.Compressor, store: s, key: k, wall: o.wall, boot: o.boot, tell: o.OnHead}
	cut, err := out.recover()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("resume audit log: %w", err), out.close())
	}
	gap := event.Event{
		Time: o.wall(), Mono: o.boot(), Kind: event.Gap, Count: uint64(cut),
		Detail: fmt.Sprintf("the recorder was not running after record %d; %d bytes of an incomplete tail were cut; %d records before were not covered by a signed head",
			out.seq, cut, out.seq-out.headed),
	}
	w := start(out, o)
	if err := w.Append(gap); err != nil && !errors.Is(err, ErrHeld) {
		return nil, errors.Join(fmt.Errorf("resume audit log: %w", err), w.Abandon())
	}
	return w, nil
}

// recover finds where the log ends, cuts what is behind, and returns how many
// bytes that were.
func (o *output) recover() (cut int64, err error) {
	if o.key.private == nil {
		return 0, errors.New("no key")
	}
	n, err := o.store.last()
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, fmt.Errorf("no segment: %w", fs.ErrNotExist)
	}
	if o.file, err = o.store.reopen(n); err != nil {
		return 0, err
	}
	total, err := o.store.size(o.file)
	if err != nil {
		return 0, err
	}
	t, err := o.scan(o.file)
	switch {
	case err != nil:
		return 0, fmt.Errorf("segment %d: %w", n, err)
	case t.end == 0 && n == 1:
		return 0, fmt.Errorf("segment 1 has no header: %w", fs.ErrNotExist)
	case t.end == 0: // died while it began this segment: the one before knows the rest
		if err := o.takeOver(n - 1); err != nil {
			return 0, fmt.Errorf("segment %d: %w", n-1, err)
		}
		o.head.Segment, o.need = n, needHeader
	case o.head.Segment != n:
		return 0, fmt.Errorf("%w: file %d holds segment %d", ErrDamaged, n, o.head.Segment)
	case t.state == Closed:
		return 0, ErrClosed
	case t.state == Rotated:
		o.head.Segment++
		o.need = needFile
	case t.heads == 0:
		o.need = needHead
	}
	o.size, o.torn = t.end, total > t.end
	return total - t.end, o.mend()
}

// takeOver sets the state from the complete segment n.
func (o *output) takeOver(n uint32) error {
	f, err := o.store.reopen(n)
	if err != nil {
		return err
	}
	defer f.Close()
	t, err := o.scan(f)
	if err != nil {
		return err
	}
	if t.state != Rotated {
		return fmt.Errorf("%w: it does not end with a head that announces the next", ErrDamaged)
	}
	return nil
}

// ending is what scan found.
type ending struct {
	end   int64 // end of the last good frame, 0 when there is no header
	heads int
	state HeadState
}

// scan walks a segment and sets o's chain, header and numbers from it.
func (o *output) scan(r io.ReaderAt) (ending, error) {
	var t ending
	s := newScanner(r)
	for {
		f, err := s.next()
		var d *damage
		switch {
		case errors.Is(err, io.EOF):
			return t, nil
		case errors.As(err, &d):
			return t, o.trusted(s, d)
		case err != nil:
			return t, err
		}
		if (f.off == 0) != (f.kind == frameHeader) || f.off != 0 && f.prev != o.chain {
			return t, fmt.Errorf("%w: offset %d: frame does not follow the one before", ErrDamaged, f.off)
		}
		if t.state != Running {
			return t, fmt.Errorf("%w: offset %d: frame after the last head", ErrDamaged, f.off)
		}
		if err := o.adopt(&t, f); err != nil {
			return t, fmt.Errorf("offset %d: %w", f.off, err)
		}
		o.chain, t.end = f.hash, f.end()
	}
}

// adopt takes over one good frame.
func (o *output) adopt(t *ending, f frame) error {
	switch f.kind {
	case frameHeader:
		h, err := decodeHeader(f.payload)
		if err != nil {
			return err
		}
		if h.Key != o.key.ID() {
			return fmt.Errorf("%w: log of key %s, not of %s", ErrSignature, h.Key, o.key.ID())
		}
		o.head, o.seq, o.headed, o.number = h, h.FirstSeq-1, h.FirstSeq-1, h.FirstHead-1
	case frameBlock:
		b, err := decodeBlock(f.payload)
		if err != nil || b.first != o.seq+1 {
			return fmt.Errorf("%w: block does not follow record %d", ErrDamaged, o.seq)
		}
		o.seq = b.last()
	case frameHead:
		h, err := decodeHead(f.payload, o.head.Session, o.head.Segment, f.prev)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if err := h.Verify(o.key.Public()); err != nil {
			return err
		}
		if h.Number != o.number+1 || h.Seq != o.seq {
			return fmt.Errorf("%w: head %d does not follow head %d", ErrDamaged, h.Number, o.number)
		}
		o.number, o.headed, o.last = h.Number, h.Seq, h
		t.heads, t.state = t.heads+1, h.State
	}
	return nil
}

// trusted decides what damage d means: the tail of a crash may be cut, but not
// when a head of our key stands behind it, because a head is written after
// what it covers.
func (o *output) trusted(s *scanner, d *damage) error {
	for {
		f, err := s.next()
		var more *damage
		switch {
		case errors.As(err, &more):
			if more.tail {
				return nil
			}
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if f.kind != frameHead {
			continue
		}
		h, err := decodeHead(f.payload, o.head.Session, o.head.Segment, f.prev)
		if err == nil && h.Verify(o.key.Public()) == nil {
			return fmt.Errorf("%w: offset %d: %s, and a signed head follows", ErrDamaged, d.off, d.what)
		}
	}
}
