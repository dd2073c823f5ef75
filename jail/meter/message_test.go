package meter

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"
)

// told is a datagram as the kernel sends it for a thread: AGGR_PID{PID, STATS}, or, without stats, AGGR_TGID alone.
func told(family uint16, tid, uid uint32, wrote uint64, withStats bool) []byte {
	attr := func(kind uint16, value []byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(attrHeader+len(value)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		b = append(b, value...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		return b
	}
	stats := make([]byte, 400)
	binary.NativeEndian.PutUint32(stats[offUID:], uid)
	binary.NativeEndian.PutUint32(stats[offPid:], tid)
	binary.NativeEndian.PutUint64(stats[offWrote:], wrote)
	body := attr(5, attr(2, []byte{1, 0, 0, 0}))
	if withStats {
		body = append(attr(attrAggrPid|1<<15, append(attr(1, []byte{9, 0, 0, 0}), attr(attrStats, stats)...)), body...)
	}
	b := make([]byte, msgHeader+genlHeader)
	binary.NativeEndian.PutUint16(b[4:], family)
	b = append(b, body...)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

func TestExits(t *testing.T) {
	var got []exit
	data := slices.Concat(told(28, 7, 70000, 4096, true), told(28, 0, 0, 0, false), told(29, 8, 1, 1, true), told(28, 9, 70001, 1<<40, true))
	if err := exits(28, data, func(e exit) { got = append(got, e) }); err != nil {
		t.Fatal(err)
	}
	if want := []exit{{7, 70000, 4096}, {9, 70001, 1 << 40}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	whole := told(28, 7, 70000, 4096, true)
	for n := range whole { // no prefix panics, none is taken for a count
		cut := slices.Clone(whole[:n])
		if n >= 4 {
			binary.NativeEndian.PutUint32(cut, uint32(n))
		}
		_ = exits(28, cut, func(e exit) {
			if e.wrote != 4096 {
				t.Errorf("cut at %d: %+v", n, e)
			}
		})
	}
	if err := exits(28, request(typeError, 0, 1, "x"), func(exit) {}); err == nil {
		t.Error("an error of the kernel was taken for an answer")
	}
}

func TestPause(t *testing.T) {
	for rest, want := range map[uint64]time.Duration{0: Fastest, 1 << 20: Fastest, Rate / 2: Slowest / 2, Rate: Slowest, 1 << 60: Slowest} {
		if got := pause(rest); got != want {
			t.Errorf("%d bytes left: next look in %s, want %s", rest, got, want)
		}
	}
}
