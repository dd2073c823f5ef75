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

// RuleRef stands in an event of init for the text of rule i, which only the
// helper knows.
func RuleRef(i uint16) string { return "#" + strconv.Itoa(int(i)) }

// RuleIndex is the i of [RuleRef].
func RuleIndex(ref string) (i uint16, ok bool) {
	n, found := strings.CutPrefix(ref, "#")
	v, err := strconv.ParseUint(n, 10, 16)
	return uint16(v), found && err == nil
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
