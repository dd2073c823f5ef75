package reach

import (
	"fmt"
	"strconv"
	"time"

	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/policy"
)

// Grant is what a user said about a jail while it ran. It does not change.
type Grant struct {
	ID    int // counts from 1 in its jail
	Deny  bool
	Entry string // as an entry of [net] allow or deny
	UID   int    // of the user
	Made  time.Time
	Until time.Time // for people; zero: the end of the jail
	Ends  uint64    // the same, CLOCK_BOOTTIME in ns; 0: the end of the jail
}

// Over reports whether its time is over at now, CLOCK_BOOTTIME in ns: a clock that nobody sets, and that runs while the machine sleeps.
func (g *Grant) Over(now uint64) bool { return g.Ends != 0 && g.Ends <= now }

// At is how rules and records name it.
func (g *Grant) At() string { return "grant " + strconv.Itoa(g.ID) + " of uid " + strconv.Itoa(g.UID) }

// String is At and what it says, as [policy.Rule.String] does.
func (g *Grant) String() string {
	return g.At() + ": " + string(g.kind()) + " " + g.Entry
}

func (g *Grant) kind() policy.Kind {
	if g.Deny {
		return policy.NetDeny
	}
	return policy.NetAllow
}

// add puts g into rules made of r: a denial as the last of the profile, a grant into each list but those of the
// organisation. So it can allow nothing that the organisation's lists do not have, and no denial is lost. layers are the
// numbers in rules of those of r.
func (g *Grant) add(to *netpolicy.Rules, r *policy.Resolved, layers map[int]int) error {
	made, err := rule(&policy.Rule{Kind: g.kind(), Glob: g.Entry, Text: g.Entry})
	if err != nil {
		return fmt.Errorf("%s: %w", g, err)
	}
	made.At = g.String()
	if g.Deny {
		made.Layer = layers[len(r.Layers)-1]
		to.Rules = append(to.Rules, made)
		return nil
	}
	for i, l := range r.Layers {
		if n := layers[i]; n < to.Layers && l.Kind != policy.Org {
			made.Layer = n
			to.Rules = append(to.Rules, made)
		}
	}
	return nil
}
