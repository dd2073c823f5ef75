package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/agentos/agentos/policy/glob"
)

// Op is an operation that can be explained.
type Op string

// Operations.
const (
	OpRead    Op = "read"    // path
	OpWrite   Op = "write"   // path
	OpExec    Op = "exec"    // path
	OpConnect Op = "connect" // HOST:PORT, or "HOST:PORT udp" for datagrams
	OpSyscall Op = "syscall" // name
	OpEnv     Op = "env"     // name of a variable
)

// Ops lists them all.
func Ops() []Op { return []Op{OpRead, OpWrite, OpExec, OpConnect, OpSyscall, OpEnv} }

// File reports whether o is an operation on files, which the automaton decides.
func (o Op) File() bool { return o == OpRead || o == OpWrite || o == OpExec }

// Verdict is the answer to one question. The zero Verdict denies.
type Verdict struct {
	Allow bool   `json:"allow"`
	Rule  *Rule  `json:"rule,omitempty"` // the deciding rule, nil when none decided
	Why   string `json:"why"`            // one sentence
	// Hidden is true when the agent is told that nothing of that name is there.
	Hidden bool `json:"hidden,omitempty"`
	// Default is true when the policy does not name the system call: the
	// seccomp profile decides, which package jail/seccomp knows. Allow is false then.
	Default bool `json:"default,omitempty"`
}

// Explainer answers many questions about one policy; it holds the automaton.
type Explainer struct {
	r     *Resolved
	a     *glob.Automaton
	index *prefixIndex
}

// Explainer compiles the automaton once.
func (r *Resolved) Explainer() (*Explainer, error) {
	a, err := r.Automaton()
	if err != nil {
		return nil, err
	}
	return &Explainer{r: r, a: a, index: newPrefixIndex(r.Files)}, nil
}

// Automaton is the one that answers; the kernel and the broker get the same.
func (e *Explainer) Automaton() *glob.Automaton { return e.a }

// Explain says whether op on arg is allowed and by which rule. Paths may begin
// with ~/ or be relative to the workspace; they are taken as text: symbolic
// links are the caller's to resolve. A policy that does not compile denies.
// Only what is asked about files is compiled for.
func (r *Resolved) Explain(op Op, arg string) Verdict {
	if !op.File() {
		return (&Explainer{r: r}).Explain(op, arg)
	}
	e, err := r.Explainer()
	if err != nil {
		return Verdict{Why: err.Error()}
	}
	return e.file(op, arg)
}

// Shows reports whether no rule hides an absolute clean path, or a directory above it.
func (e *Explainer) Shows(path string) bool { return e.a.Along(path, glob.See) }

// Explain is [Resolved.Explain].
func (e *Explainer) Explain(op Op, arg string) Verdict {
	if op == OpRead || op == OpWrite || op == OpExec {
		return e.file(op, arg)
	}
	return e.r.other(op, arg)
}

// other explains what needs no automaton.
func (r *Resolved) other(op Op, arg string) Verdict {
	switch op {
	case OpConnect:
		return r.connect(arg)
	case OpSyscall:
		return r.syscall(arg)
	case OpEnv:
		return r.env(arg)
	default:
		return Verdict{Why: fmt.Sprintf("operation %q does not exist", op)}
	}
}

func (e *Explainer) file(op Op, arg string) Verdict {
	p := e.r.absolute(arg)
	bit := map[Op]glob.Op{OpRead: glob.Read, OpWrite: glob.Write, OpExec: glob.Exec}[op]
	v := Verdict{Allow: e.a.Match(p).Allows(bit)}
	ok, rule := e.r.decide(op, e.index.match(p))
	if ok != v.Allow { // cannot happen; the automaton is what holds
		v.Why = "the automaton and the rules disagree; please report this policy and path"
		return v
	}
	v.Rule = rule
	hidden, by := e.r.hides(e.index.match(p))
	if v.Hidden = !e.a.Match(p).Allows(glob.See); v.Hidden != hidden {
		v.Why = "the automaton and the rules disagree about hiding; please report this policy and path"
		return v
	}
	switch {
	case v.Hidden:
		v.Rule, v.Why = by, "denied and hidden by "+by.String()
	case v.Allow && v.Rule != nil:
		v.Why = "allowed by " + v.Rule.String()
	case v.Allow:
		v.Why = "allowed"
	case v.Rule != nil:
		v.Why = "denied by " + v.Rule.String()
	default:
		v.Why = e.r.whyNot(Kind(op), p)
	}
	return v
}

// Decide answers one file operation from the rules themselves, without the
// automaton, and names the deciding rule exactly: a deny or protect rule, else
// the grant of the profile, nil when nothing grants. path is absolute and clean. It is slow, for records
// and explanations; an automaton names some rule of the same kind.
func (r *Resolved) Decide(op Op, path string) (bool, *Rule) {
	return r.decide(op, newPrefixIndex(r.Files).match(path))
}

func (r *Resolved) decide(op Op, matched []uint16) (bool, *Rule) {
	layers := make([]int, len(r.Layers))
	for i := range layers {
		layers[i] = i
	}
	ok, n := r.judge(Kind(op), matched, layers)
	if n == noRule {
		return ok, nil
	}
	return ok, &r.Files[n]
}

// hides is hidden over all layers, with the rule.
func (r *Resolved) hides(matched []uint16) (bool, *Rule) {
	layers := make([]int, len(r.Layers))
	for i := range layers {
		layers[i] = i
	}
	ok, n := r.hidden(matched, layers)
	if !ok {
		return false, nil
	}
	return true, &r.Files[n]
}

// absolute is the path that arg means in the jail.
func (r *Resolved) absolute(arg string) string {
	switch {
	case arg == "~" || strings.HasPrefix(arg, "~/"):
		arg = r.Vars.Home + arg[1:]
	case !strings.HasPrefix(arg, "/"):
		arg = r.Vars.Workspace + "/" + arg
	}
	return path.Clean(arg)
}

// whyNot names the layers that have a list for op in which p is missing.
func (r *Resolved) whyNot(op Kind, p string) string {
	matched := newPrefixIndex(r.Files).match(p)
	var who []string
	for i, l := range r.Layers {
		if !slices.Contains(l.Lists, op) {
			continue
		}
		if !slices.ContainsFunc(matched, func(m uint16) bool { return r.Files[m].Layer == i && r.Files[m].Kind == op }) {
			who = append(who, r.layerName(i))
		}
	}
	return fmt.Sprintf("nothing allows it: the %s rules of %s do not name it", op, strings.Join(who, " and of "))
}

func (r *Resolved) connect(arg string) Verdict {
	arg, udp := strings.CutSuffix(arg, " udp")
	host, port, err := splitHostPort(strings.ToLower(strings.TrimSuffix(arg, ".")))
	if err != nil {
		return Verdict{Why: err.Error()}
	}
	return r.judgeOther(r.Net.Rules, NetAllow, NetDeny, func(rule *Rule) bool {
		d, err := ParseNetRule(rule.Glob)
		return err == nil && (d.UDP || !udp || rule.Kind == NetDeny) && d.Matches(host, port)
	})
}

func (r *Resolved) syscall(name string) Verdict {
	same := func(rule *Rule) bool { return rule.Glob == name }
	for i := range r.Syscalls.Rules {
		if rule := &r.Syscalls.Rules[i]; rule.Kind == SyscallDeny && same(rule) {
			return Verdict{Rule: rule, Why: "denied by " + rule.String()}
		}
	}
	if !slices.Contains(r.Syscalls.Allow, name) {
		return Verdict{Default: true, Why: fmt.Sprintf("the policy does not name it: the %s seccomp profile decides", r.Syscalls.Profile)}
	}
	return r.judgeOther(r.Syscalls.Rules, SyscallAllow, SyscallDeny, same)
}

func (r *Resolved) env(name string) Verdict {
	if _, ok := r.Env.Set[name]; ok {
		return Verdict{Allow: true, Why: "set by " + r.Where["env.set."+name]}
	}
	return r.judgeOther(r.Env.Rules, EnvPass, EnvDeny, func(rule *Rule) bool { return matchStar(rule.Glob, name) })
}

// judgeOther is judge for rules that are not about files, in words.
func (r *Resolved) judgeOther(rules []Rule, allow, deny Kind, match func(*Rule) bool) Verdict {
	ok, rule, layer := r.decideOther(rules, allow, deny, match)
	switch {
	case ok:
		return Verdict{Allow: true, Rule: rule, Why: "allowed by " + rule.String()}
	case rule != nil:
		return Verdict{Rule: rule, Why: "denied by " + rule.String()}
	case layer < 0:
		return Verdict{Why: "no layer grants anything"}
	}
	return Verdict{Why: fmt.Sprintf("nothing allows it: the %s rules of %s do not name it", allow, r.layerName(layer))}
}

// decideOther returns the rule that denies or, if ok, the one that grants;
// without either the layer in which no rule grants, -1 if none has such rules.
func (r *Resolved) decideOther(rules []Rule, allow, deny Kind, match func(*Rule) bool) (ok bool, rule *Rule, layer int) {
	for l := range r.Layers {
		var last *Rule
		for i := range rules {
			if rule := &rules[i]; rule.Layer == l && rule.Kind == deny && match(rule) {
				last = rule
			}
		}
		if last != nil && !last.Except {
			return false, last, l
		}
	}
	layer = -1
	for l, info := range r.Layers {
		if !slices.Contains(info.Lists, allow) {
			continue
		}
		i := 0
		for i < len(rules) && (rules[i].Layer != l || rules[i].Kind != allow || !match(&rules[i])) {
			i++
		}
		if i == len(rules) {
			return false, nil, l
		}
		rule, layer = &rules[i], l
	}
	return rule != nil, rule, layer
}

// Environ is the environment of the jail: what passes of parent ("K=V"
// entries, as [os.Environ] gives) and what the policy sets, sorted by name.
// Entries without '=' are dropped; of duplicates the last one counts.
func (r *Resolved) Environ(parent []string) []string {
	vars := map[string]string{}
	for _, kv := range parent {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			continue
		}
		if ok, _, _ := r.decideOther(r.Env.Rules, EnvPass, EnvDeny, func(rule *Rule) bool { return matchStar(rule.Glob, k) }); ok {
			vars[k] = v
		}
	}
	for k, v := range r.Env.Set {
		vars[k] = v
	}
	out := make([]string, 0, len(vars))
	for k, v := range vars {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}
