package policy

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// OrgSection is the [org] section: what only a file of the organisation may say. It is a
// mistake in any other layer.
type OrgSection struct {
	Signed      string     `json:"signed,omitzero" doc:"'require': each file of the organisation is signed by a key in trusted_keys" enum:"require"`
	Expires     string     `json:"expires,omitzero" doc:"last day, as 2027-03-31 (UTC), or moment, as 2027-03-31T12:00:00Z; afterwards nothing starts until the file is renewed"`
	Backends    []Item     `json:"forbid_backends,omitzero" item:"backend" doc:"ways of running an agent that are forbidden: native, rootless, docker, worktree, none"`
	Sharing     string     `json:"sharing,omitzero" doc:"'deny': no session is shared with anybody" enum:"deny"`
	AuditTo     []Item     `json:"audit_to,omitzero" item:"sink" doc:"where all records must go, too: syslog, file:/PATH or https://HOST/PATH"`
	Keep        Span       `json:"keep,omitzero" doc:"records are not removed before they are this old, such as 400d"`
	RemoveAfter Span       `json:"remove_after,omitzero" doc:"records are removed when they are this old"`
	BreakGlass  BreakGlass `json:"break_glass,omitzero" doc:"who may do without this file in an emergency; without this section nobody"`
}

// BreakGlass is the [org.break_glass] section.
type BreakGlass struct {
	Longest Span   `json:"longest,omitzero" doc:"how long at most, such as 1h; required, at most 7d"`
	Groups  []Item `json:"groups,omitzero" item:"group" doc:"unix groups whose members may; root always may"`
}

// zero reports whether nothing is said.
func (o *OrgSection) zero() bool {
	return o.Signed == "" && o.Expires == "" && o.Sharing == "" && o.Keep == 0 && o.RemoveAfter == 0 && o.Backends == nil && o.AuditTo == nil && !o.BreakGlass.Allowed()
}

// Allowed reports whether the file can be done without at all.
func (b *BreakGlass) Allowed() bool { return b.Longest > 0 || b.Groups != nil }

// Span is a length of time of whole seconds, in nanoseconds as [time.Duration]. Text forms:
// a number and s, m, h, d (24 hours) or w (7 days).
type Span time.Duration

var errSpan = errors.New(`want a number and a unit: "30m", "12h", "90d" (s, m, h, d, w)`)

// spanUnits from the largest.
var spanUnits = []struct {
	name string
	span time.Duration
}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}

// maxSpan is a hundred years.
const maxSpan = Span(100 * 365 * 24 * time.Hour)

// ParseSpan reads the text form of a length of time, from a second to a hundred years.
func ParseSpan(s string) (Span, error) {
	for _, u := range spanUnits {
		num, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(num, 10, 32)
		if err != nil || n == 0 || Span(n) > maxSpan/Span(u.span) {
			return 0, errSpan
		}
		return Span(n) * Span(u.span), nil
	}
	return 0, errSpan
}

// String is the text form in the largest unit that is exact.
func (s Span) String() string {
	for _, u := range spanUnits {
		if s >= Span(u.span) && s%Span(u.span) == 0 {
			return strconv.FormatInt(int64(s/Span(u.span)), 10) + u.name
		}
	}
	return "0s"
}

// MarshalText is [Span.String].
func (s Span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is [ParseSpan], and accepts "0s".
func (s *Span) UnmarshalText(t []byte) error {
	if string(t) == "0s" {
		*s = 0
		return nil
	}
	v, err := ParseSpan(string(t))
	if err == nil {
		*s = v
	}
	return err
}

// Deadline is the moment at which a document ends that says expires; ok is false if it
// says nothing. A day ends with itself, in UTC.
func (o *OrgSection) Deadline() (end time.Time, ok bool) {
	end, err := parseExpires(o.Expires)
	return end, err == nil && o.Expires != ""
}

func parseExpires(s string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, errors.New(`want a day such as "2027-03-31" or a moment such as "2027-03-31T12:00:00Z"`)
	}
	return at, nil
}

// Backends are the ways of running an agent that have a name.
func Backends() []string { return []string{"native", "rootless", "docker", "worktree", "none"} }

// checkOrgItem checks one entry of a list of [org].
func checkOrgItem(kind, text string) (hint string, err error) {
	switch kind {
	case "backend":
		if !slices.Contains(Backends(), text) {
			return didYouMean(text, Backends()), errors.New("is not a backend")
		}
	case "group":
		if text == "" || len(text) > 32 || strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" {
			return "", errors.New("is not the name of a unix group")
		}
	case "sink":
		const hint = "syslog, file:/PATH or https://HOST/PATH"
		if p, ok := strings.CutPrefix(text, "file:"); ok {
			if !strings.HasPrefix(p, "/") || path.Clean(p) != p {
				return hint, errors.New("is not an absolute path")
			}
			return "", nil
		}
		u, err := url.Parse(text)
		if text != "syslog" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "") {
			return hint, errors.New("is no place that records can go to")
		}
	}
	return "", nil
}

// org checks what the types of the section do not say.
func (d *Document) org() error {
	o := &d.Org
	if _, err := parseExpires(o.Expires); o.Expires != "" && err != nil {
		return d.fault("org.expires", "", "org.expires: %v", err)
	}
	for _, s := range []Span{o.Keep, o.RemoveAfter, o.BreakGlass.Longest} {
		if s < 0 || s > maxSpan {
			return d.fault("org", "", "a length of time of [org] is out of range")
		}
	}
	if o.RemoveAfter != 0 && o.RemoveAfter < o.Keep {
		return d.fault("org.remove_after", "", "records cannot be kept for %s and removed after %s", o.Keep, o.RemoveAfter)
	}
	if b := &o.BreakGlass; b.Allowed() && (b.Longest == 0 || b.Longest > Span(7*24*time.Hour)) {
		return d.fault("org.break_glass", `add: longest = "1h"`, "break_glass wants longest, at most 7d")
	}
	return nil
}

// Kinds of rules of [org].
const (
	NoBackend Kind = "forbid-backend"
	AuditTo   Kind = "audit-to"
)

// OrgRules is what the organisation's files demand together. Where has the place of each
// single value, by its key in the document.
type OrgRules struct {
	Signed      bool   `json:"signed,omitempty"`
	Expires     string `json:"expires,omitempty"` // the first of all
	NoSharing   bool   `json:"no_sharing,omitempty"`
	Keep        Span   `json:"keep,omitzero"`         // the longest
	RemoveAfter Span   `json:"remove_after,omitzero"` // the shortest
	Rules       []Rule `json:"rules,omitempty"`       // NoBackend and AuditTo
}

// joinOrg adds the [org] section of layer i, which is one of the organisation's.
func (r *Resolved) joinOrg(i int, m *merged, d *Document) error {
	o, t := &d.Org, &r.Org
	if o.zero() {
		return nil
	}
	if m.kind != Org {
		return d.fault("org", "only files in /etc/agentos/policy.d have it", "a %s policy has no [org] section", m.kind)
	}
	take := func(key string, stricter bool) bool {
		if stricter {
			r.Where["org."+key] = m.at("org." + key)
		}
		return stricter
	}
	if take("signed", o.Signed != "" && !t.Signed) {
		t.Signed = true
	}
	if take("sharing", o.Sharing != "" && !t.NoSharing) {
		t.NoSharing = true
	}
	if end, ok := o.Deadline(); ok {
		first, err := parseExpires(t.Expires)
		if take("expires", err != nil || end.Before(first)) {
			t.Expires = o.Expires
		}
	}
	if take("keep", o.Keep > t.Keep) {
		t.Keep = o.Keep
	}
	if take("remove_after", o.RemoveAfter != 0 && (t.RemoveAfter == 0 || o.RemoveAfter < t.RemoveAfter)) {
		t.RemoveAfter = o.RemoveAfter
	}
	if t.RemoveAfter != 0 && t.RemoveAfter < t.Keep {
		return &Error{File: d.File, Msg: fmt.Sprintf("records are to be kept for %s (%s) and removed after %s (%s)", t.Keep, r.Where["org.keep"], t.RemoveAfter, r.Where["org.remove_after"])}
	}
	for kind, list := range map[Kind][]Item{NoBackend: o.Backends, AuditTo: o.AuditTo} {
		for _, it := range list {
			t.Rules = append(t.Rules, Rule{Kind: kind, Glob: it.Text, Layer: i, Pos: place(d.File, it.At), Text: it.Text})
		}
	}
	slices.SortStableFunc(t.Rules, func(a, b Rule) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
	return nil
}

// everything is a profile that allows all that a rule can allow, so that what is left is
// what the layers above it take away.
func everything() *Document {
	all := func(texts ...string) (out []Item) {
		for _, t := range texts {
			out = append(out, Item{Text: t})
		}
		return out
	}
	yes := true
	return &Document{
		File: "everything", Version: 1, Name: "everything",
		Files: Files{Read: all("/**"), Write: all("/**"), Exec: all("/**"), AnyWorkspace: &yes},
		Net:   Net{Allow: all("*:*", "0.0.0.0/0:*", "[::/0]:*", "host:*")},
		Env:   Env{Pass: all("*")},
	}
}

// CheckOrg runs the [[tests]] of the organisation's files, all in force together, above a
// profile that allows everything: "allow" means that they take nothing away. The zero Vars
// mean [SampleVars].
func CheckOrg(docs []*Document, v Vars) ([]TestResult, error) {
	layers := make([]Layer, 0, len(docs)+1)
	for _, d := range docs {
		layers = append(layers, Layer{Org, d})
	}
	return check(append(layers, Layer{Profile, everything()}), docs, v)
}
