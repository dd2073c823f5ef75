package query

import (
	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

// Tries tells the acts of the jail check, which must be denied and which init
// makes before the agent is there, from those of the agent. Show it every record
// of a session in order.
type Tries struct{ until uint64 } // when the receipt was written, as [event.Event.Mono]

// Has reports whether r is an act of the jail check: from before the receipt,
// though the kernel's records of it may come after. Later acts are not, whoever's:
// then they mean something.
func (t *Tries) Has(r *segment.Record) bool {
	if r.Kind == event.Receipt && t.until == 0 {
		t.until = r.Mono
	}
	return r.Denied() && r.Kind != event.Escape && (t.until == 0 || r.Mono < t.until)
}
