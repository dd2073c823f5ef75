package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/agentos/agentos/audit/event"
)

// ErrBatch is returned for a batch of events that does not decode.
var ErrBatch = errors.New("malformed event batch")

// RuleRef stands in an event for the text of rule i of a generation of the jail's
// rules, which only the helper knows; 0xffff is no one rule.
func RuleRef(generation uint32, i uint16) string {
	b := append(make([]byte, 0, 24), '#')
	b = append(strconv.AppendUint(b, uint64(generation), 10), '.')
	return string(strconv.AppendUint(b, uint64(i), 10))
}

// ParseRuleRef is the opposite of [RuleRef].
func ParseRuleRef(ref string) (generation uint32, i uint16, ok bool) {
	rest, found := strings.CutPrefix(ref, "#")
	g, n, both := strings.Cut(rest, ".")
	v, err := strconv.ParseUint(g, 10, 32)
	w, err2 := strconv.ParseUint(n, 10, 16)
	return uint32(v), uint16(w), found && both && err == nil && err2 == nil
}

// AppendEvent adds e to a batch: its length as a uvarint, then its binary form.
func AppendEvent(batch []byte, e *event.Event) []byte {
	var one [512]byte
	data := e.AppendBinary(one[:0])
	batch = binary.AppendUvarint(batch, uint64(len(data)))
	return append(batch, data...)
}

// EachEvent calls f for every event of a batch, in order.
func EachEvent(batch []byte, f func(event.Event)) error {
	for len(batch) > 0 {
		n, k := binary.Uvarint(batch)
		if k <= 0 || n > uint64(len(batch)-k) {
			return ErrBatch
		}
		e, err := event.DecodeBinary(batch[k : k+int(n)])
		if err != nil {
			return fmt.Errorf("%w: %w", ErrBatch, err)
		}
		f(e)
		batch = batch[k+int(n):]
	}
	return nil
}
