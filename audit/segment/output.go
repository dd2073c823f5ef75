package segment

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
)

// file is an open segment: *os.File, or a test's.
type file interface {
	io.Writer
	io.ReaderAt
	Truncate(size int64) error
	Sync() error
	Close() error
}

// store is the directory of a log. Segments are numbered from 1.
type store interface {
	create(segment uint32) (file, error) // must not exist; appends
	reopen(segment uint32) (file, error) // must exist; appends
	last() (uint32, error)               // highest number there is, 0 for none
	size(f file) (int64, error)
	sync() error // of the directory
	close() error
}

// need is what the output must write before it can take blocks.
type need uint8

const (
	needNothing need = iota
	needHead         // the first head of a segment, behind its header
	needHeader       // the file is there and empty
	needFile         // the segment's file
)

// output writes frames. It belongs to one goroutine. Every method that fails
// leaves the file as it was, and may be called again.
type output struct {
	store store
	key   Key
	head  Header // of the current segment
	wall  func() time.Time
	boot  func() uint64
	tell  func(Head) // nil: nobody wants to know
	comp  *Compressor
	zstd  *zstd.Encoder // of comp, nil while the log rests

	file   file
	old    []file // earlier segments, not yet synced
	size   int64  // good bytes in file
	torn   bool   // file may be longer than size
	need   need
	chain  hash
	seq    uint64 // last record written
	headed uint64 // last record that a head covers
	number uint64 // last head written
	last   Head
	frame  []byte
	pack   []byte
}

// write appends one frame or nothing.
func (o *output) write(kind byte, payload ...[]byte) error {
	if err := o.mend(); err != nil {
		return err
	}
	var sum hash
	o.frame, sum = appendFrame(o.frame[:0], kind, o.chain, payload...)
	n, err := o.file.Write(o.frame)
	if err == nil && n < len(o.frame) {
		err = io.ErrShortWrite
	}
	if err != nil {
		o.torn = n > 0
		return errors.Join(fmt.Errorf("write segment %d: %w", o.head.Segment, err), o.mend())
	}
	o.size += int64(n)
	o.chain = sum
	return nil
}

// mend cuts what a failed write left behind.
func (o *output) mend() error {
	if !o.torn {
		return nil
	}
	if err := o.file.Truncate(o.size); err != nil {
		return fmt.Errorf("cut segment %d back: %w", o.head.Segment, err)
	}
	o.torn = false
	return nil
}

// ready writes what the current segment lacks before its first block.
func (o *output) ready() error {
	if o.need == needFile {
		f, err := o.store.create(o.head.Segment)
		if err != nil {
			return err
		}
		if o.file != nil {
			o.old = append(o.old, o.file)
		}
		o.file, o.size, o.torn, o.need = f, 0, false, needHeader
	}
	if o.need == needHeader {
		o.head.Created, o.head.FirstSeq, o.head.FirstHead = o.wall().UTC(), o.seq+1, o.number+1
		payload, err := o.head.encode()
		if err != nil {
			return fmt.Errorf("encode header: %w", err)
		}
		if err := o.write(frameHeader, payload); err != nil {
			return err
		}
		o.need = needHead
	}
	if o.need == needHead {
		return o.sign(Running)
	}
	return nil
}

// block writes b as one block.
func (o *output) block(b *batch) error {
	if err := o.ready(); err != nil {
		return err
	}
	if o.zstd == nil {
		z, err := o.comp.take()
		if err != nil {
			return err
		}
		o.zstd = z
	}
	o.pack = encodeBlock(o.pack, b, o.wall().UnixNano(), o.boot(), o.zstd)
	if err := o.write(frameBlock, o.pack); err != nil {
		return err
	}
	o.seq = b.first + uint64(b.count) - 1
	return nil
}

// sign writes a head.
func (o *output) sign(s HeadState) error {
	h := Head{
		Session: o.head.Session, Segment: o.head.Segment, Number: o.number + 1, Seq: o.seq,
		Wall: o.wall().UnixNano(), Mono: o.boot(), State: s, Chain: append([]byte(nil), o.chain[:]...),
	}
	h.sign(o.key)
	if err := o.write(frameHead, h.encode()); err != nil {
		return err
	}
	o.number, o.headed, o.last, o.need = h.Number, h.Seq, h, needNothing
	if o.tell != nil {
		o.tell(h)
	}
	return nil
}

// rotate closes the current segment and begins the next one.
func (o *output) rotate() error {
	if o.need == needNothing {
		if err := o.sign(Rotated); err != nil {
			return err
		}
		o.head.Segment++
		o.need = needFile
	}
	return o.ready()
}

// syncAll makes everything written so far durable.
func (o *output) syncAll() error {
	files, done := o.unsynced()
	if err := syncFiles(o.store, files); err != nil {
		return err
	}
	done()
	return nil
}

// unsynced returns the files to sync, the current one last, and what to call
// when that succeeded.
func (o *output) unsynced() (files []file, done func()) {
	n := len(o.old)
	files = append(files, o.old...)
	if o.file != nil {
		files = append(files, o.file)
	}
	return files, func() {
		for _, f := range o.old[:n] {
			f.Close() // synced: nothing can fail any more
		}
		o.old = o.old[n:]
	}
}

// syncFiles makes files and their names durable. It may run beside an output
// that goes on writing.
func syncFiles(s store, files []file) error {
	for _, f := range files {
		if err := f.Sync(); err != nil {
			return fmt.Errorf("sync segment: %w", err)
		}
	}
	return s.sync()
}

// rest gives back what only writing needs.
func (o *output) rest() {
	o.frame, o.pack = nil, nil
	if o.zstd != nil {
		o.zstd = nil
		o.comp.give()
	}
}

func (o *output) close() error {
	o.rest()
	var errs []error
	for _, f := range o.old {
		errs = append(errs, f.Close())
	}
	if o.file != nil {
		errs = append(errs, o.file.Close())
	}
	o.old, o.file = nil, nil
	if o.store != nil {
		errs = append(errs, o.store.close())
	}
	return errors.Join(errs...)
}
