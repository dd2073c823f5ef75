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
	OpConnect Op = "connect" // HOST:PORT
	OpSyscall Op = "syscall" // name
	OpEnv     Op = "env"     // name of a variable
)

// Ops lists them all.
func Ops() []Op { return []Op{OpRead, OpWrite, OpExec, OpConnect, OpSyscall, OpEnv} }

// Verdict is the answer to one question. The zero Verdict denies.
type Verdict struct {
	Allow bool   `json:"allow"`
	Rule  *Rule  `json:"rule,omitempty"` // the deciding rule, nil when none decided
	Why   string `json:"why"`            // one sentence
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
// links are the caller's to resolve. File rules that do not compile deny. Each
// call about a file compiles them: for many, make an [Explainer].
func (r *Resolved) Explain(op Op, arg string) Verdict {
	if op != OpRead && op != OpWrite && op != OpExec {
		return r.other(op, arg)
	}
	e, err := r.Explainer()
	if err != nil {
		return Verdict{Why: err.Error()}
	}
	return e.file(op, arg)
}

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
	switch {
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
	return fmt.Sprintf("no %s rule matches in %s", op, strings.Join(who, ", "))
}

func (r *Resolved) connect(arg string) Verdict {
	host, port, err := splitHostPort(strings.ToLower(strings.TrimSuffix(arg, ".")))
	if err != nil {
		return Verdict{Why: err.Error()}
	}
	return r.judgeOther(r.Net.Rules, NetAllow, NetDeny, func(rule *Rule) bool {
		d, err := ParseDest(rule.Glob)
		return err == nil && d.Matches(host, port)
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
		return Verdict{Default: true, Why: fmt.Sprintf("the %s seccomp profile decides", r.Syscalls.Profile)}
	}
	return r.judgeOther(r.Syscalls.Rules, SyscallAllow, SyscallDeny, same)
}

func (r *Resolved) env(name string) Verdict {
	if _, ok := r.Env.Set[name]; ok {
		return Verdict{Allow: true, Why: "set by " + r.Where["env.set."+name]}
	}
	return r.judgeOther(r.Env.Rules, EnvPass, EnvDeny, func(rule *Rule) bool { return matchStar(rule.Glob, name) })
}

// judgeOther is judge for rules that are not about files.
func (r *Resolved) judgeOther(rules []Rule, allow, deny Kind, match func(*Rule) bool) Verdict {
	for l := range r.Layers {
		var last *Rule
		for i := range rules {
			if rule := &rules[i]; rule.Layer == l && rule.Kind == deny && match(rule) {
				last = rule
			}
		}
		if last != nil && !last.Except {
			return Verdict{Rule: last, Why: "denied by " + last.String()}
		}
	}
	var grant *Rule
	for l, info := range r.Layers {
		if !slices.Contains(info.Lists, allow) {
			continue
		}
		grant = nil
		for i := range rules {
			if rule := &rules[i]; rule.Layer == l && rule.Kind == allow && match(rule) {
				grant = rule
				break
			}
		}
		if grant == nil {
			return Verdict{Why: fmt.Sprintf("no %s rule matches in %s", allow, r.layerName(l))}
		}
	}
	if grant == nil {
		return Verdict{Why: "no layer grants anything"}
	}
	return Verdict{Allow: true, Rule: grant, Why: "allowed by " + grant.String()}
}

// Environ is the environment of the jail: what passes of parent ("K=V"
// entries, as [os.Environ] gives) and what the policy sets, sorted by name.
// Entries without '=' are dropped; of duplicates the last one counts.
func (r *Resolved) Environ(parent []string) []string {
	vars := map[string]string{}
	for _, kv := range parent {
		if k, v, ok := strings.Cut(kv, "="); ok && r.env(k).Allow {
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
