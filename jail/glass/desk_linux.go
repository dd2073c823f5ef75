package glass

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail/organisation"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

// groupFile names the groups, see group(5).
const groupFile = "/etc/group"

// Desk is where users break the glass.
type Desk struct {
	Rules *organisation.Store
	Book  *Book
	// Record writes one record of the user uid into a log of its own, which is called id and
	// says hash of the policy, and returns when it is on disk.
	Record func(id string, uid int, hash string, e event.Event) error
}

// Caller is who asks. Groups are all that the process has, as the kernel knows them.
type Caller struct {
	UID, PID int
	Groups   func() ([]int, error)
}

// Break begins or ends a grant of the caller. It is recorded before it holds.
func (d *Desk) Break(c Caller, m rpc.BreakGlassAsk) (rpc.GlassBroken, error) {
	switch {
	case m.Show:
		g, _ := d.Book.Of(c.UID)
		return answer(g), nil
	case m.End:
		return d.end(c)
	}
	if m.Reason == "" || len(m.Reason) > rpc.MaxReason || !utf8.ValidString(m.Reason) || slices.ContainsFunc([]rune(m.Reason), unicode.IsControl) {
		return rpc.GlassBroken{}, &rpc.Error{Code: rpc.Invalid, Text: fmt.Sprintf("the reason must be printable and of 1 to %d bytes", rpc.MaxReason)}
	}
	rules, err := d.Rules.Read()
	if err != nil {
		return rpc.GlassBroken{}, Refused(err)
	}
	who := organisation.Breaker{UID: c.UID}
	if who.UID != 0 {
		if who.Groups, err = c.Groups(); err != nil {
			return rpc.GlassBroken{}, err
		}
		if who.Names, err = os.ReadFile(groupFile); err != nil {
			return rpc.GlassBroken{}, err
		}
	}
	paths, longest, err := rules.MayBreak(who)
	if err != nil {
		return rpc.GlassBroken{}, Refused(err)
	}
	if m.For == 0 {
		m.For = min(rpc.DefaultBreak, longest)
	}
	if m.For < time.Second || m.For > longest {
		return rpc.GlassBroken{}, &rpc.Error{Code: rpc.Refused, Text: fmt.Sprintf("the organisation's files permit it for a second to %s, not for %s", policy.Span(longest), m.For), Hint: "say --for"}
	}
	g := Grant{UID: c.UID, Reason: m.Reason, Files: paths}
	if g.ID, err = newID(); err == nil {
		err = d.record(c, g, "begin", m.For, hex.EncodeToString(rules.Sum(paths)))
	}
	if err != nil {
		return rpc.GlassBroken{}, fmt.Errorf("record the breaking of the glass: %w", err)
	}
	if g, err = d.Book.Begin(g, m.For); err != nil {
		return rpc.GlassBroken{}, err
	}
	return answer(g), nil
}

func answer(g Grant) rpc.GlassBroken {
	return rpc.GlassBroken{Session: g.ID, Reason: g.Reason, Files: g.Files, Until: g.Until}
}

// end ends the caller's grant; the sessions that live by it look every second.
func (d *Desk) end(c Caller) (rpc.GlassBroken, error) {
	g, was, err := d.Book.End(c.UID)
	if !was || err != nil {
		return rpc.GlassBroken{}, err
	}
	if g.ID, err = newID(); err == nil {
		err = d.record(c, g, "end", 0, "")
	}
	return rpc.GlassBroken{Session: g.ID}, err
}

func (d *Desk) record(c Caller, g Grant, what string, span time.Duration, hash string) error {
	detail, err := json.Marshal(rpc.GlassDetail{What: what, UID: c.UID, PID: c.PID, Reason: g.Reason, Files: g.Files, Seconds: int64(span / time.Second)})
	if err != nil {
		return err
	}
	return d.Record(g.ID, c.UID, hash, event.Event{Kind: event.Policy, Verdict: event.Allow, Name: "break-glass", Detail: string(detail)})
}

func newID() (string, error) {
	var b [6]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	return hex.EncodeToString(b[:]), nil
}

// Refused gives what is wrong with the organisation's rules the form that crosses the gate.
func Refused(err error) error {
	var e *organisation.Error
	if errors.As(err, &e) {
		return &rpc.Error{Code: rpc.Refused, Text: e.Error(), Hint: e.Hint}
	}
	return err
}
