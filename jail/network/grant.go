package network

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail/reach"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

const (
	maxGrants   = 256                  // of one session
	maxGrantFor = 365 * 24 * time.Hour // who wants more wants no end
	expireEvery = time.Second          // how late the end of a grant may come
)

// By is a user of the gate.
type By struct{ UID, PID int }

// owns says whether what a user said is b's to take back.
func (b By) owns(uid int) bool { return b.UID == 0 || b.UID == uid }

// Grant lets the jail reach more or less, or takes that back; see [rpc.SetGrant]. When it returns, netd and the
// kernel have it, and what is not allowed any more is cut. Errors are [*rpc.Error].
func (n *Network) Grant(m rpc.SetGrant, by By) ([]rpc.Grant, error) {
	if (m.Entry == "") == (m.Revoke == "") || m.Revoke != "" && (m.Deny || m.Seconds != 0) {
		return nil, &rpc.Error{Code: rpc.Invalid, Text: "a grant has an entry, or says what is taken back"}
	}
	n.changing.Lock()
	defer n.changing.Unlock()
	if n.closed {
		return nil, n.gone()
	}
	var changed []reach.Grant
	var err error
	if m.Revoke != "" {
		changed, err = n.revoke(m.Revoke, by)
	} else {
		changed, err = n.admit(m, by)
	}
	if err != nil {
		return nil, err
	}
	out := make([]rpc.Grant, len(changed))
	for i, g := range changed {
		out[i] = told(g)
	}
	return out, nil
}

// admit makes a grant. n.changing is held.
func (n *Network) admit(m rpc.SetGrant, by By) ([]reach.Grant, error) {
	now := time.Now().UTC()
	g := reach.Grant{ID: n.last + 1, Deny: m.Deny, Entry: m.Entry, UID: by.UID, Made: now}
	if m.Seconds != 0 {
		if m.Seconds < 0 || m.Seconds > int64(maxGrantFor/time.Second) {
			return nil, &rpc.Error{Code: rpc.Invalid, Text: fmt.Sprintf("a grant for %d seconds: want 1 second to a year", m.Seconds)}
		}
		d := time.Duration(m.Seconds) * time.Second
		g.Until, g.Ends = now.Add(d), bootClock()+uint64(d)
	}
	res, had := n.now()
	err := n.mayGrant(res, had, &g)
	get := slices.DeleteFunc(slices.Clone(had), func(o reach.Grant) bool { // said again: its time is another
		return o.Entry == g.Entry && o.Deny == g.Deny && by.owns(o.UID)
	})
	if err == nil && len(get) >= maxGrants {
		err = &rpc.Error{Code: rpc.Busy, Text: fmt.Sprintf("session %s has %d grants already", n.o.Name, len(get)), Hint: "agentos net revoke " + n.o.Name + " all"}
	}
	if err == nil {
		err = n.set(res, append(get, g))
	}
	if err != nil {
		n.record("refused", g, by, err.Error())
		return nil, err
	}
	n.last = g.ID
	n.record("made", g, by, "")
	if g.Ends != 0 {
		n.expireLater()
	}
	return []reach.Grant{g}, nil
}

// mayGrant refuses what the policies do not let a user grant. To deny more is everybody's right.
func (n *Network) mayGrant(res *policy.Resolved, had []reach.Grant, g *reach.Grant) error {
	want, err := policy.ParseNetRule(g.Entry)
	if err != nil {
		return &rpc.Error{Code: rpc.Invalid, Text: fmt.Sprintf("%.300q: %v", g.Entry, err)}
	}
	if g.Deny {
		if strings.Contains(g.Entry, " ") {
			return &rpc.Error{Code: rpc.Invalid, Text: "a denial is of all that goes to a destination: it has no options"}
		}
		return nil
	}
	refuse := func(text, hint string) error { return &rpc.Error{Code: rpc.Refused, Text: text, Hint: hint} }
	if res.Fixed {
		return refuse(fmt.Sprintf("%s forbids it: the rules of a running session stay as they are", res.Where["files.live"]), "start a new session")
	}
	by, err := res.CheckGrant(g.Entry)
	if err == nil && by == "" { // the organisation's files may have changed since
		by, err = n.o.Bound(g.Entry)
	}
	if err != nil {
		return err
	}
	if by != "" {
		return refuse(fmt.Sprintf("%s is refused by %s", g.Entry, by), "a grant adds to the lists of your own layers; the organisation's bound it, and what is denied stays denied")
	}
	for i := range had {
		if d, err := policy.ParseNetRule(had[i].Entry); had[i].Deny && err == nil && d.Covers(want.Dest) {
			return refuse(fmt.Sprintf("%s is refused by %s", g.Entry, had[i].String()), "agentos net revoke takes that back")
		}
	}
	return nil
}

// revoke takes back the grants that what names: an id, an entry, or "all". n.changing is held.
func (n *Network) revoke(what string, by By) ([]reach.Grant, error) {
	res, had := n.now()
	var gone, get []reach.Grant
	foreign := false
	for _, g := range had {
		switch named := what == "all" || what == strconv.Itoa(g.ID) || what == g.Entry; {
		case named && by.owns(g.UID):
			gone = append(gone, g)
		default:
			foreign = foreign || named
			get = append(get, g)
		}
	}
	if len(gone) == 0 {
		if foreign {
			return nil, &rpc.Error{Code: rpc.Refused, Text: fmt.Sprintf("%.300q was said by another user, who alone takes it back", what)}
		}
		return nil, &rpc.Error{Code: rpc.NotFound, Text: fmt.Sprintf("session %s has no grant %.300q", n.o.Name, what), Hint: "agentos net rules " + n.o.Name}
	}
	if err := n.set(res, get); err != nil {
		return nil, err
	}
	for _, g := range gone {
		n.record("revoked", g, by, "")
	}
	return gone, nil
}

// expireLater sees to it that grants end in time: it is looked at once a second, so that a clock that was
// set, or a machine that slept, makes none longer. n.changing is held.
func (n *Network) expireLater() {
	if n.expiring {
		return
	}
	n.expiring = true
	n.work.Go(func() { // ends with the last grant that has an end, or with the jail
		t := time.NewTicker(expireEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				if !n.expire() {
					return
				}
			case <-n.ended:
				return
			}
		}
	})
}

// expire ends grants whose time is over. It is false when no other one has an end. What netd
// does not take is tried again at the next look.
func (n *Network) expire() (more bool) {
	n.changing.Lock()
	defer n.changing.Unlock()
	if n.closed {
		return false
	}
	res, had := n.now()
	now := bootClock()
	var gone, get []reach.Grant
	for _, g := range had {
		if g.Over(now) {
			gone = append(gone, g)
		} else {
			get = append(get, g)
		}
	}
	if len(gone) > 0 {
		if err := n.set(res, get); err != nil {
			n.o.Logger.Error("end a grant", "session", n.o.ID, "error", err)
			return true
		}
		for _, g := range gone {
			n.record("ended", g, By{UID: g.UID}, "")
		}
	}
	n.expiring = slices.ContainsFunc(get, func(g reach.Grant) bool { return g.Ends != 0 })
	return n.expiring
}

func bootClock() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // cannot fail
	return uint64(ts.Nano())
}

// record writes down what became of a grant: made, revoked, ended (its time was over) or refused.
func (n *Network) record(what string, g reach.Grant, by By, why string) {
	detail, err := json.Marshal(struct {
		What    string    `json:"what"`
		UID     int       `json:"uid"` // who did it
		PID     int       `json:"pid,omitzero"`
		ID      int       `json:"id,omitzero"`
		Deny    bool      `json:"deny,omitzero"`
		Owner   int       `json:"owner"` // uid of whoever made it
		Until   time.Time `json:"until,omitzero"`
		Refused string    `json:"refused,omitempty"`
	}{what, by.UID, by.PID, g.ID, g.Deny, g.UID, g.Until, why})
	if err != nil {
		detail = []byte(err.Error()) // cannot happen
	}
	e := event.Event{Kind: event.Grant, Verdict: event.Allow, Name: g.Entry, Detail: string(detail)}
	if what == "refused" {
		e.Verdict = event.Deny
	}
	n.o.Record(e)
}
