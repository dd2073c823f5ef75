package view

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

// Told returns r as people are told of it: what is JSON for programs (a receipt, a change
// of policy, a grant) becomes a line, and pid 1 of a jail is called what it is. Times of
// day in such a line are those of loc.
func Told(r *segment.Record, loc *time.Location) segment.Record {
	said := *r
	switch r.Kind {
	case event.Receipt:
		said.Path, said.Detail = "", receipt(r.Detail)
	case event.Policy:
		said.Name, said.Detail = "", swapped(r.Detail)
	case event.Grant:
		said.Detail = granted(r.Detail, loc)
	}
	if r.JailPid == 1 {
		said.Comm = "init"
	}
	return said
}

// receipt says in a line what the jail check found; --json has all of it.
func receipt(detail string) string {
	var r struct {
		Tier, Policy string
		Checks       []struct {
			Name string
			Good bool
		}
		Missing []struct{ Guarantee string }
		Glass   struct{ Reason string } `json:"break_glass"`
	}
	if json.Unmarshal([]byte(detail), &r) != nil {
		return detail
	}
	var bad, gone []string
	for _, c := range r.Checks {
		if !c.Good {
			bad = append(bad, c.Name)
		}
	}
	for _, m := range r.Missing {
		gone = append(gone, m.Guarantee)
	}
	text := fmt.Sprintf("policy %s, tier %s, jail check: %d of %d held", r.Policy, r.Tier, len(r.Checks)-len(bad), len(r.Checks))
	if len(bad) > 0 {
		text += ", not: " + strings.Join(bad, ", ")
	}
	if len(gone) > 0 {
		text += "; without " + strings.Join(gone, ", ")
	}
	if r.Glass.Reason != "" {
		text += "; break-glass: " + r.Glass.Reason
	}
	return text
}

// swapped says in a line who changed a session's policy, or was not allowed to.
func swapped(detail string) string {
	type named struct{ Name, SHA256 string }
	if text := glassed(detail); text != "" {
		return text
	}
	var s struct {
		UID, Generation int
		From, To        named
		Refused         string
	}
	if json.Unmarshal([]byte(detail), &s) != nil {
		return detail
	}
	short := func(n named) string { return fmt.Sprintf("%s (%.12s)", n.Name, n.SHA256) }
	if s.Refused != "" {
		return fmt.Sprintf("uid %d was refused to change %s to %s: %s", s.UID, short(s.From), short(s.To), s.Refused)
	}
	return fmt.Sprintf("generation %d: uid %d changed %s to %s", s.Generation, s.UID, short(s.From), short(s.To))
}

// glassed says in a line what a record of a grant says, "" if it is none.
func glassed(detail string) string {
	var d rpc.GlassDetail
	switch {
	case json.Unmarshal([]byte(detail), &d) != nil || d.What == "":
		return ""
	case d.What == "end":
		return fmt.Sprintf("uid %d ended the breaking of the glass (%s)", d.UID, d.Reason)
	}
	return fmt.Sprintf("uid %d broke the glass for %s (%s), to do without %s", d.UID, policy.Span(time.Duration(d.Seconds)*time.Second), d.Reason, strings.Join(d.Files, ", "))
}

// granted says in a line who granted or forbade a session something, or was not allowed to.
func granted(detail string, loc *time.Location) string {
	var s struct {
		What           string
		UID, ID, Owner int
		Deny           bool
		Until          time.Time
		Refused        string
	}
	if json.Unmarshal([]byte(detail), &s) != nil {
		return detail
	}
	what := map[bool]string{true: "denial", false: "grant"}[s.Deny]
	switch s.What {
	case "refused":
		return fmt.Sprintf("uid %d was refused a %s: %s", s.UID, what, s.Refused)
	case "ended":
		return fmt.Sprintf("%s %d of uid %d: its time is over", what, s.ID, s.Owner)
	case "revoked":
		return fmt.Sprintf("uid %d took back %s %d of uid %d", s.UID, what, s.ID, s.Owner)
	}
	text := fmt.Sprintf("uid %d made %s %d", s.UID, what, s.ID)
	if !s.Until.IsZero() {
		text += ", until " + s.Until.In(loc).Format("15:04:05")
	}
	return text
}
