package event

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// Limits of the binary form. They bound what one hostile event can cost: a
// record never exceeds MaxBinary bytes.
const (
	MaxString = 16 << 10  // bytes of every string but Detail and Argv
	MaxDetail = 64 << 10  // bytes of Detail
	MaxArgv   = 48 << 10  // bytes of all of Argv, four more counted per argument
	MaxArgs   = 4096      // arguments in Argv
	MaxBinary = 256 << 10 // bytes of one encoded event
)

// ErrBinary is returned, wrapped with what is wrong, for bytes that are not an
// encoded event.
var ErrBinary = errors.New("not an encoded event")

// Tags of the fields. A field is a varint of tag<<1|form, then a varint (form
// 0) or a varint length and bytes (form 1). Fields come in ascending order, so
// that a field can neither hide nor override another; only argv repeats. The
// numbers are stored in logs: never renumber, only append. What repeats from
// event to event comes first, because then it compresses as one run.
const (
	tagKind = iota + 1
	tagVerdict
	tagPid       // zigzag
	tagTid       // zigzag
	tagJailPid   // zigzag
	tagPpid      // zigzag
	tagTaskStart //
	tagExe       // bytes
	tagComm      // bytes
	tagJail      // bytes
	tagRule      // bytes
	tagErrno     // zigzag
	tagFlags     //
	tagDev       //
	tagPath      // bytes
	tagPath2     // bytes
	tagArgv      // bytes, one per argument
	tagCut       // 1
	tagAddr      // bytes
	tagName      // bytes
	tagCode      // zigzag
	tagCount     //
	tagDetail    // bytes
	tagIno       //
	tagNoTime    // 1: the event has no wall time
	tagMono      // zigzag, difference to the event before
	tagWall      // zigzag, change of (wall - mono) since the event before
)

// Coder encodes and decodes the events of one run in order, storing times as
// differences to the event before. The zero value starts a run with absolute
// times. It is two words; copy it to go back.
type Coder struct {
	mono uint64
	off  uint64 // wall - mono, modulo 2^64
}

// AppendBinary appends the compact form of e to dst with absolute times. It
// cannot fail: what is over a limit is cut and the encoded event says Cut.
func (e *Event) AppendBinary(dst []byte) []byte {
	var c Coder
	return c.Append(dst, e)
}

// DecodeBinary decodes one event that [Event.AppendBinary] encoded. Errors
// wrap [ErrBinary].
func DecodeBinary(data []byte) (Event, error) {
	var c Coder
	var e Event
	err := c.Decode(string(data), &e)
	return e, err
}

// Append appends the compact form of the next event of the run to dst.
func (c *Coder) Append(dst []byte, e *Event) []byte {
	cut := e.Cut
	dst = appendUint(dst, tagKind, uint64(e.Kind))
	dst = appendUint(dst, tagVerdict, uint64(e.Verdict))
	dst = appendInt(dst, tagPid, int64(e.Pid))
	dst = appendInt(dst, tagTid, int64(e.Tid))
	dst = appendInt(dst, tagJailPid, int64(e.JailPid))
	dst = appendInt(dst, tagPpid, int64(e.Ppid))
	dst = appendUint(dst, tagTaskStart, e.TaskStart)
	dst = appendString(dst, tagExe, e.Exe, MaxString, &cut)
	dst = appendString(dst, tagComm, e.Comm, MaxString, &cut)
	dst = appendString(dst, tagJail, e.Jail, MaxString, &cut)
	dst = appendString(dst, tagRule, e.Rule, MaxString, &cut)
	dst = appendInt(dst, tagErrno, int64(e.Errno))
	dst = appendUint(dst, tagFlags, uint64(e.Flags))
	dst = appendUint(dst, tagDev, e.Dev)
	dst = appendString(dst, tagPath, e.Path, MaxString, &cut)
	dst = appendString(dst, tagPath2, e.Path2, MaxString, &cut)
	dst = appendArgv(dst, e.Argv, &cut)
	// The later strings are cut before the flag is written: only they can still set it.
	cut = cut || len(e.Addr) > MaxString || len(e.Name) > MaxString || len(e.Detail) > MaxDetail
	if cut {
		dst = appendUint(dst, tagCut, 1)
	}
	dst = appendString(dst, tagAddr, e.Addr, MaxString, &cut)
	dst = appendString(dst, tagName, e.Name, MaxString, &cut)
	dst = appendInt(dst, tagCode, int64(e.Code))
	dst = appendUint(dst, tagCount, e.Count)
	dst = appendString(dst, tagDetail, e.Detail, MaxDetail, &cut)
	dst = appendUint(dst, tagIno, e.Ino)
	return c.appendTimes(dst, e)
}

func (c *Coder) appendTimes(dst []byte, e *Event) []byte {
	wall, ok := unixNano(e.Time)
	if !ok {
		dst = appendUint(dst, tagNoTime, 1)
	}
	dst = appendInt(dst, tagMono, int64(e.Mono-c.mono))
	c.mono = e.Mono
	if ok {
		off := uint64(wall) - e.Mono
		dst = appendInt(dst, tagWall, int64(off-c.off))
		c.off = off
	}
	return dst
}

func appendUint(dst []byte, tag int, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return binary.AppendUvarint(append(dst, byte(tag<<1)), v)
}

func appendInt(dst []byte, tag int, v int64) []byte {
	return appendUint(dst, tag, uint64(v)<<1^uint64(v>>63))
}

func appendString(dst []byte, tag int, s string, limit int, cut *bool) []byte {
	if s == "" {
		return dst
	}
	if len(s) > limit {
		s, *cut = s[:limit], true
	}
	dst = binary.AppendUvarint(append(dst, byte(tag<<1|1)), uint64(len(s)))
	return append(dst, s...)
}

// argCost is what one argument counts against MaxArgv beside its bytes: the
// most that its tag and length can take.
const argCost = 4

func appendArgv(dst []byte, argv []string, cut *bool) []byte {
	room := MaxArgv
	for i, s := range argv {
		room -= argCost
		if i == MaxArgs || room < 0 {
			*cut = true
			return dst
		}
		if len(s) > room {
			s, *cut = s[:room], true
		}
		room -= len(s)
		dst = binary.AppendUvarint(append(dst, tagArgv<<1|1), uint64(len(s)))
		dst = append(dst, s...)
	}
	return dst
}

// Decode sets e to the next event of the run, which must be all of data.
// Strings of e share data's memory: clone what is kept for long. Errors wrap
// [ErrBinary] and leave the run unusable.
func (c *Coder) Decode(data string, e *Event) error {
	*e = Event{}
	if len(data) > MaxBinary {
		return fmt.Errorf("%w: %d bytes, over the limit of %d", ErrBinary, len(data), MaxBinary)
	}
	var (
		last  uint64
		times decodedTimes
		room  = MaxArgv
	)
	for len(data) > 0 {
		key, n := uvarint(data)
		if n <= 0 {
			return fmt.Errorf("%w: bad tag", ErrBinary)
		}
		data = data[n:]
		tag := key >> 1
		if tag < last || tag == 0 || (tag == last && tag != tagArgv) {
			return fmt.Errorf("%w: field %d after field %d", ErrBinary, tag, last)
		}
		last = tag
		v, n := uvarint(data)
		if n <= 0 {
			return fmt.Errorf("%w: field %d: bad number", ErrBinary, tag)
		}
		data = data[n:]
		if key&1 == 0 {
			if err := e.setNumber(tag, v, &times); err != nil {
				return err
			}
			continue
		}
		if v > uint64(len(data)) {
			return fmt.Errorf("%w: field %d: %d bytes, %d are left", ErrBinary, tag, v, len(data))
		}
		if err := e.setString(tag, data[:v], &room); err != nil {
			return err
		}
		data = data[v:]
	}
	e.Mono = c.mono + times.mono
	c.mono = e.Mono
	if times.none {
		return nil
	}
	c.off += times.wall
	e.Time = time.Unix(0, int64(c.off+e.Mono)).UTC()
	return nil
}

// decodedTimes are the time fields of one event before they are added up.
type decodedTimes struct {
	mono, wall uint64
	none       bool
}

// setNumber sets the field that tag names; unknown tags are skipped.
func (e *Event) setNumber(tag, v uint64, t *decodedTimes) error {
	z := int64(v>>1) ^ -int64(v&1)
	ok := true
	switch tag {
	case tagKind:
		e.Kind, ok = Kind(v), v <= math.MaxUint16
	case tagVerdict:
		e.Verdict, ok = Verdict(v), v <= math.MaxUint8
	case tagPid:
		e.Pid, ok = int32(z), z == int64(int32(z))
	case tagTid:
		e.Tid, ok = int32(z), z == int64(int32(z))
	case tagJailPid:
		e.JailPid, ok = int32(z), z == int64(int32(z))
	case tagPpid:
		e.Ppid, ok = int32(z), z == int64(int32(z))
	case tagTaskStart:
		e.TaskStart = v
	case tagErrno:
		e.Errno, ok = int(z), z == int64(int(z))
	case tagFlags:
		e.Flags, ok = uint32(v), v <= math.MaxUint32
	case tagDev:
		e.Dev = v
	case tagCut:
		e.Cut = v != 0
	case tagCode:
		e.Code, ok = int(z), z == int64(int(z))
	case tagCount:
		e.Count = v
	case tagIno:
		e.Ino = v
	case tagNoTime:
		t.none = v != 0
	case tagMono:
		t.mono = uint64(z)
	case tagWall:
		t.wall = uint64(z)
	default:
		ok = tag > tagWall
	}
	if !ok {
		return fmt.Errorf("%w: field %d: number %d does not belong there", ErrBinary, tag, v)
	}
	return nil
}

// setString sets the field that tag names; unknown tags are skipped. room is
// what Argv may still take.
func (e *Event) setString(tag uint64, s string, room *int) error {
	limit := MaxString
	switch tag {
	case tagExe:
		e.Exe = s
	case tagComm:
		e.Comm = s
	case tagJail:
		e.Jail = s
	case tagRule:
		e.Rule = s
	case tagPath:
		e.Path = s
	case tagPath2:
		e.Path2 = s
	case tagAddr:
		e.Addr = s
	case tagName:
		e.Name = s
	case tagDetail:
		e.Detail, limit = s, MaxDetail
	case tagArgv:
		*room -= argCost
		limit = *room
		if len(e.Argv) == MaxArgs {
			return fmt.Errorf("%w: more than %d arguments", ErrBinary, MaxArgs)
		}
		*room -= len(s)
		e.Argv = append(e.Argv, s)
	default:
		if tag <= tagWall {
			return fmt.Errorf("%w: field %d is a number", ErrBinary, tag)
		}
		limit = MaxBinary
	}
	if len(s) > limit {
		return fmt.Errorf("%w: field %d: %d bytes, over the limit", ErrBinary, tag, len(s))
	}
	return nil
}

// uvarint is [binary.Uvarint] on a string.
func uvarint(s string) (uint64, int) {
	if len(s) > 0 && s[0] < 0x80 {
		return uint64(s[0]), 1
	}
	var x uint64
	var shift uint
	for i := 0; i < len(s) && i < binary.MaxVarintLen64; i++ {
		b := s[i]
		if b < 0x80 {
			if i == binary.MaxVarintLen64-1 && b > 1 {
				return 0, -1
			}
			return x | uint64(b)<<shift, i + 1
		}
		x |= uint64(b&0x7f) << shift
		shift += 7
	}
	return 0, -1
}
