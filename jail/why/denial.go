package why

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/policy"
)

// Denial is one refused act.
type Denial struct {
	Time    time.Time
	Kind    event.Kind
	Op      policy.Op // of the file rules; "" when they were not asked
	Path    string    // or address, or name
	Path2   string
	Errno   int
	Process string // name and id in the jail
	Rule    string // as the record has it; "" if no rule names it
	Detail  string
	Count   uint64 // how often, one after the other
}

// Of makes a denial of an event; ok is false when it is none, or none that the policy is
// about.
func Of(e *event.Event) (d Denial, ok bool) {
	switch e.Kind.Class() {
	case event.File, event.Program, event.Net:
	default:
		if e.Kind != event.Syscall {
			return d, false
		}
	}
	if !e.Denied() {
		return d, false
	}
	d = Denial{
		Time: e.Time, Kind: e.Kind, Op: policy.Op(e.Asked()), Path: object(e), Path2: e.Path2,
		Errno: e.Errno, Rule: e.Rule, Detail: e.Detail, Count: max(1, e.Count),
	}
	name := e.Comm
	if name == "" {
		name = e.Exe[strings.LastIndexByte(e.Exe, '/')+1:]
	}
	if name != "" || e.JailPid != 0 {
		d.Process = name + "[" + strconv.Itoa(int(e.JailPid)) + "]"
	}
	return d, true
}

// object is what was acted on: of a connection its address, which Name only says the protocol or the asked name of.
func object(e *event.Event) string {
	if e.Kind != event.Resolve && e.Addr != "" {
		return first(e.Path, e.Addr)
	}
	return first(e.Path, e.Name, e.Addr)
}

func first(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

// same reports whether two denials differ in time only.
func (d *Denial) same(o *Denial) bool {
	return d.Kind == o.Kind && d.Op == o.Op && d.Path == o.Path && d.Path2 == o.Path2 && d.Errno == o.Errno && d.Rule == o.Rule
}

// About reports whether the denial is about path, or about something below it.
func (d *Denial) About(path string) bool {
	for _, p := range []string{d.Path, d.Path2} {
		if p == path || p != "" && strings.HasPrefix(p, strings.TrimSuffix(path, "/")+"/") {
			return true
		}
	}
	return false
}

// Ground is what the words depend on besides the denial.
type Ground struct {
	Session   string // name; for command lines that are shown
	Workspace string
	Home      string
	Layers    []policy.LayerInfo // of the policy that holds
}

// Append appends what there is to say about d, in lines.
func (d *Denial) Append(dst []byte, g *Ground, now time.Time) []byte {
	object := event.Printable(d.Path)
	if d.Path2 != "" {
		object += " -> " + event.Printable(d.Path2)
	}
	dst = fmt.Appendf(dst, "%s %s: denied with %s", act(d), object, errno(d.Errno))
	if !d.Time.IsZero() {
		dst = fmt.Appendf(dst, ", %s ago", ago(now.Sub(d.Time)))
	}
	if d.Process != "" {
		dst = fmt.Appendf(dst, ", by %s", event.Printable(d.Process))
	}
	if d.Count > 1 {
		dst = fmt.Appendf(dst, ", %d times", d.Count)
	}
	dst = append(dst, '\n')
	if d.Op == "" {
		return fmt.Appendf(dst, "  why: %s\n", event.Printable(first(d.Rule, d.Detail, "the walls around the session, which no rule about files lifts")))
	}
	path := d.Path
	if d.Path2 != "" && d.Kind != event.Symlink && d.Kind != event.Exec && d.Rule == "" {
		path = d.Path2 // the name that it was to have
	}
	return g.Advise(dst, d.Op, path, d.Rule)
}

func act(d *Denial) string {
	if d.Kind != event.Open {
		return d.Kind.String()
	}
	return "open to " + string(d.Op)
}

func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d h", int(d.Hours()))
}

// errno names the errors of denials.
func errno(n int) string {
	switch n {
	case 0:
		return "a signal" // an exec that was killed before its first instruction
	case 1:
		return "EPERM (operation not permitted)"
	case 2:
		return "ENOENT (no such file or directory)"
	case 13:
		return "EACCES (permission denied)"
	case 18:
		return "EXDEV (invalid cross-device link)"
	case 101:
		return "ENETUNREACH (network is unreachable)"
	case 104:
		return "ECONNRESET (connection reset by peer)"
	}
	return "errno " + strconv.Itoa(n)
}
