package seccomp

import (
	"maps"
	"slices"
)

// resolver finds the number of a call on the target architecture. ok is false
// for a name that exists on no architecture; nr is negative for one that exists
// elsewhere only.
type resolver func(name string) (nr int, ok bool)

// rule is one rule of the libseccomp filter, whose default is to allow.
type rule struct {
	nr     int
	notify bool
	errno  errno // when not notify
	conds  []cond
}

// span is a range of numbers [from, to) that the guard answers with ENOSYS.
type span struct{ from, to int }

// plan is a filter before it is compiled.
type plan struct {
	spans []span // ascending; everything from limit up comes on top
	rules []rule // ascending by nr
}

// gapMin is the least length of an unused range that is worth two instructions
// in the guard.
const gapMin = 16

// decision is the answer to one call, after the policy had its say.
type decision struct {
	class  Class
	notify bool
	report bool // of a refusal: the broker answers it
	name   string

	refusals []refusal // of a checked call, instead of the default profile's
}

// newPlan decides every number below limit.
func newPlan(s Spec, number resolver) (*plan, error) {
	decisions, err := decide(s, number)
	if err != nil {
		return nil, err
	}
	return compiled(decisions, s), nil
}

// compiled makes the rules of decisions.
func compiled(decisions map[int]decision, s Spec) *plan {
	p := &plan{spans: gaps(decisions)}
	for nr := range limit {
		if inside(p.spans, nr) {
			continue
		}
		p.rules = append(p.rules, rulesFor(nr, decisions[nr], s)...)
	}
	return p
}

// decide applies the policy's names to the profile. Numbers that are missing
// in the result are absent.
func decide(s Spec, number resolver) (map[int]decision, error) {
	if s.Profile != "" && s.Profile != Default {
		return nil, &Error{"profile", s.Profile, ErrUnknownProfile}
	}
	byName := make(map[string]decision)
	for _, call := range Calls() {
		byName[call.Name] = decision{class: call.Class, name: call.Name}
	}
	steps := []struct {
		op    string
		names []string
		apply func(decision) (decision, error)
	}{
		{"allow", s.Allow, allow(len(s.Notify) > 0)},
		{"notify", s.Notify, notify},
		{"deny", s.Deny, deny},
		{"report", s.Report, report},
	}
	for _, step := range steps {
		for _, name := range set(step.names) {
			d, known := byName[name]
			if _, ok := number(name); !ok && !known {
				return nil, &Error{step.op, name, ErrUnknownCall}
			}
			d.name = name
			d, err := step.apply(d)
			if err != nil {
				return nil, &Error{step.op, name, err}
			}
			byName[name] = d
		}
	}
	out := make(map[int]decision)
	for name, d := range byName {
		if nr, ok := number(name); ok && nr >= 0 && nr < limit {
			out[nr] = d
		}
	}
	return out, nil
}

// allow returns the step for names that the policy allows. A checked call keeps
// its checks, except personality, where lifting them concerns the caller alone.
func allow(asking bool) func(decision) (decision, error) {
	return func(d decision) (decision, error) {
		if d.class == Never || d.class == Hide {
			return d, ErrNever
		}
		if asking && slices.Contains([]string{"io_uring_setup", "io_uring_enter", "io_uring_register"}, d.name) {
			return d, ErrNever
		}
		if d.class != Check || d.name == "personality" {
			d.class = Allow
		}
		return d, nil
	}
}

// notify marks a call that the broker answers. What the profile refuses stays
// refused: asking about it would widen the jail.
func notify(d decision) (decision, error) {
	if d.class == Check && complement(d.name) == nil {
		return d, ErrChecked
	}
	d.notify = d.class == Allow || d.class == Check
	return d, nil
}

// deny refuses a call, whatever was said before. What is hidden stays so.
func deny(d decision) (decision, error) {
	if slices.Contains(essential(), d.name) {
		return d, ErrEssential
	}
	d.notify = false
	if d.class != Hide {
		d.class = Never
	}
	return d, nil
}

// report marks a call whose refusal the broker speaks. Who is allowed a call is not asked about.
func report(d decision) (decision, error) {
	d.report = d.class == Never || d.class == Refuse || d.name == "unshare" && d.class == Check
	return d, nil
}

// rulesFor compiles one decision.
func rulesFor(nr int, d decision, s Spec) []rule {
	switch d.class {
	case Allow:
		if d.notify {
			return asking(nr, d.name, s.Changes)
		}
		return nil
	case Check:
		var out []rule
		refused := d.refusals
		if refused == nil {
			refused = refusals(d.name, s.Userns)
		}
		for _, r := range refused {
			out = append(out, rule{nr: nr, notify: d.report, errno: r.errno, conds: r.conds})
		}
		if d.notify {
			for _, c := range complement(d.name) {
				out = append(out, rule{nr: nr, notify: true, conds: []cond{c}})
			}
		}
		return out
	case Never, Refuse:
		return []rule{{nr: nr, notify: d.report, errno: eperm}}
	default:
		return []rule{{nr: nr, errno: enosys}}
	}
}

// asking notifies a call, or with changes that part of open and openat whose flags, which
// are in a register, do not say that the file is only read (open(2)). O_PATH stays with
// those that say nothing.
func asking(nr int, name string, changes bool) []rule {
	arg, ok := map[string]uint{"open": 1, "openat": 2}[name]
	if !changes || !ok {
		return []rule{{nr: nr, notify: true}}
	}
	const (
		writeOnly = 1
		readWrite = 2
		create    = 0o100
		truncate  = 0o1000
		tmpfile   = 0o20000000 // __O_TMPFILE
	)
	var out []rule
	for _, flag := range []uint64{writeOnly, readWrite, create, truncate, tmpfile} {
		out = append(out, rule{nr: nr, notify: true, conds: []cond{bits(arg, flag, flag)}})
	}
	return out
}

// complement returns conditions that hold exactly when no refusal of a checked
// call holds, or nil where that cannot be said with one condition per rule.
func complement(name string) []cond {
	mode := map[string]uint{"mknod": 1, "mknodat": 2}
	arg, ok := mode[name]
	if !ok {
		return nil
	}
	var out []cond
	for format := uint64(0); format < 0x10000; format += 0x1000 {
		if format != 0x2000 && format != 0x6000 {
			out = append(out, bits(arg, 0xf000, format))
		}
	}
	return out
}

// gaps returns the long runs of numbers that are absent.
func gaps(decisions map[int]decision) []span {
	named := slices.Sorted(maps.Keys(decisions))
	var out []span
	from := 0
	for _, nr := range append(named, limit) {
		if nr-from >= gapMin {
			out = append(out, span{from, nr})
		}
		from = nr + 1
	}
	return out
}

func inside(spans []span, nr int) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.from <= nr && nr < s.to })
}
