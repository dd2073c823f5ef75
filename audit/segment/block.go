package segment

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/agentos/agentos/audit/event"
)

// Block payload, little endian:
//
//	0   8  sequence number of the first record
//	8   4  number of records, at least 1
//	12  8  wall clock when it was written, ns since 1970
//	20  8  CLOCK_BOOTTIME when it was written, ns
//	28  4  length of the records before compression
//	32  1  codec: 0 none, 1 zstd
//	33     records: varint length and [event.Coder] bytes each; one run of
//	       times per block; Jail is left out when it is the session
const (
	blockPrefix = 33
	codecNone   = 0
	codecZstd   = 1

	// maxRaw bounds the records of a block before compression: what a hostile
	// file can make a reader allocate.
	maxRaw = 768 << 10
)

// batch collects the records of one block.
type batch struct {
	raw   []byte
	coder event.Coder
	first uint64 // sequence number of the first record
	count uint32
	one   []byte // scratch: one encoded event
}

// add appends the record of e.
func (b *batch) add(e *event.Event, session string) {
	if e.Jail == session {
		bare := *e
		bare.Jail = ""
		e = &bare
	}
	b.one = b.coder.Append(b.one[:0], e)
	b.raw = binary.AppendUvarint(b.raw, uint64(len(b.one)))
	b.raw = append(b.raw, b.one...)
	b.count++
}

func (b *batch) reset() {
	*b = batch{raw: b.raw[:0], one: b.one[:0]}
}

// encodeBlock returns the payload of b's block in dst.
func encodeBlock(dst []byte, b *batch, wall int64, mono uint64, z *zstd.Encoder) []byte {
	dst = binary.LittleEndian.AppendUint64(dst[:0], b.first)
	dst = binary.LittleEndian.AppendUint32(dst, b.count)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(wall))
	dst = binary.LittleEndian.AppendUint64(dst, mono)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b.raw)))
	dst = append(dst, codecZstd)
	dst = z.EncodeAll(b.raw, dst)
	if len(dst)-blockPrefix >= len(b.raw) {
		dst[blockPrefix-1] = codecNone
		dst = append(dst[:blockPrefix], b.raw...)
	}
	return dst
}

// block is a block's prefix.
type block struct {
	first uint64
	count uint32
	wall  int64
	mono  uint64
	raw   uint32
	codec byte
}

func (b *block) last() uint64 { return b.first + uint64(b.count) - 1 }

var errBlock = errors.New("block prefix does not make sense")

func decodeBlock(p []byte) (block, error) {
	if len(p) < blockPrefix {
		return block{}, errBlock
	}
	b := block{
		first: binary.LittleEndian.Uint64(p),
		count: binary.LittleEndian.Uint32(p[8:]),
		wall:  int64(binary.LittleEndian.Uint64(p[12:])),
		mono:  binary.LittleEndian.Uint64(p[20:]),
		raw:   binary.LittleEndian.Uint32(p[28:]),
		codec: p[32],
	}
	if b.first == 0 || b.count == 0 || b.raw > maxRaw || b.count > b.raw || b.codec > codecZstd || b.last() < b.first {
		return block{}, errBlock
	}
	return b, nil
}

// unpacker turns block payloads into records.
type unpacker struct {
	z   *zstd.Decoder
	buf []byte
}

func newUnpacker() (*unpacker, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxRaw))
	if err != nil {
		return nil, fmt.Errorf("make zstd decoder: %w", err)
	}
	return &unpacker{z: z}, nil
}

// open returns the records of a block as one string, in its own memory.
func (u *unpacker) open(b block, p []byte) (string, error) {
	data := p[blockPrefix:]
	if b.codec == codecZstd {
		var err error
		if u.buf, err = u.z.DecodeAll(data, u.buf[:0]); err != nil {
			return "", fmt.Errorf("decompress: %w", err)
		}
		data = u.buf
	}
	if len(data) != int(b.raw) {
		return "", fmt.Errorf("%d bytes of records, the block says %d", len(data), b.raw)
	}
	return string(data), nil
}

// cursor walks the records of one block.
type cursor struct {
	rest    string
	coder   event.Coder
	seq     uint64 // of the next record
	left    uint32
	session string
}

var errRecord = errors.New("records do not fill the block")

// next decodes the next record into e; only when left is not 0.
func (c *cursor) next(e *event.Event) error {
	n, size := uvarint(c.rest)
	if size <= 0 || n > uint64(len(c.rest)-size) {
		return errRecord
	}
	data := c.rest[size : size+int(n)]
	c.rest = c.rest[size+int(n):]
	if err := c.coder.Decode(data, e); err != nil {
		return err
	}
	if e.Jail == "" {
		e.Jail = c.session
	}
	c.seq++
	c.left--
	if c.left == 0 && c.rest != "" {
		return errRecord
	}
	return nil
}

func uvarint(s string) (uint64, int) {
	var head [binary.MaxVarintLen64]byte
	return binary.Uvarint(head[:copy(head[:], s)])
}
