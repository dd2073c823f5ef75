package lint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/glob"
)

// Finding is something that is probably not meant.
type Finding struct {
	Pos   string `json:"pos"` // file:line:col
	Check string `json:"check"`
	Text  string `json:"text"`
}

// String is one line for a report.
func (f Finding) String() string { return f.Pos + ": " + f.Text + " (" + f.Check + ")" }

// Checks, by what a finding calls them.
const (
	Shadowed   = "shadowed"  // another rule says all that it says
	NoEffect   = "no-effect" // it can match nothing that another rule leaves to it
	TooWide    = "too-wide"  // it allows nearly everything
	Secret     = "secret"    // what usually is one can be read
	Executable = "runs-here" // what programs outside execute can be written
	Untested   = "no-tests"  // the document has no [[tests]]
)

// vars are values of which none lies in another, so that two rules that begin with
// different variables are not taken to meet by chance.
var vars = policy.Vars{
	Workspace: "/the-workspace", Home: "/the-home", State: []string{"/the-state"}, Tool: []string{"/the-tool"}, Protect: []string{"/the-settings"},
	Git: []string{"/the-git"}, Worktree: []string{"/the-worktree"}, Hosts: policy.SampleVars().Hosts, EnvPass: policy.SampleVars().EnvPass,
}

// variable is the one that a rule begins with, "" if none.
func variable(r policy.Rule) string {
	text := strings.TrimPrefix(r.Text, "!")
	if strings.HasPrefix(text, "~") {
		return "~"
	}
	if end := strings.IndexByte(text, '}'); end > 0 && strings.HasPrefix(text, "${") {
		return text[:end+1]
	}
	return ""
}

// linter is the work on one document.
type linter struct {
	doc *policy.Document
	r   *policy.Resolved
	e   *policy.Explainer
	out []Finding
	err error
}

// Document finds what it can in doc, taken alone; what it extends is looked at only where
// doc's own rules meet it. The findings are sorted by their places. The error is that of a
// document that does not resolve or compile.
func Document(doc *policy.Document) ([]Finding, error) {
	r, err := policy.Alone(doc, vars)
	if err != nil {
		return nil, err
	}
	e, err := r.Explainer()
	if err != nil {
		return nil, err
	}
	l := &linter{doc: doc, r: r, e: e}
	l.covered()
	l.exceptions()
	l.wide()
	l.names(policy.OpRead, Secret, secrets, "usually a secret, can be read")
	l.names(policy.OpWrite, Executable, executed, "which programs outside of the jail run or obey, can be written")
	if doc.Tests == nil {
		l.say(doc.File+":1:1", Untested, "there are no [[tests]]: nobody will notice when it stops to hold what it should")
	}
	slices.SortStableFunc(l.out, func(a, b Finding) int {
		return cmp.Or(compare(a.Pos, b.Pos), cmp.Compare(a.Check, b.Check))
	})
	return l.out, l.err
}

// compare sorts places of one file.
func compare(a, b string) int {
	number := func(pos string, fromEnd int) int {
		parts := strings.Split(pos, ":")
		n, _ := strconv.Atoi(parts[max(0, len(parts)-fromEnd)]) // 0 where there is none
		return n
	}
	return cmp.Or(cmp.Compare(number(a, 2), number(b, 2)), cmp.Compare(number(a, 1), number(b, 1)))
}

func (l *linter) say(pos, check, format string, a ...any) {
	l.out = append(l.out, Finding{pos, check, fmt.Sprintf(format, a...)})
}

// own reports whether a rule stands in the document itself.
func (l *linter) own(r policy.Rule) bool { return strings.HasPrefix(r.Pos, l.doc.File+":") }

// relation asks the automaton of two globs which paths there are: some that only a
// matches, some that both match.
func (l *linter) relation(a, b string) (onlyA, both bool) {
	_, err := glob.Compile([]string{a, b}, func(matched []uint16) glob.Accept {
		switch {
		case len(matched) == 2:
			both = true
		case len(matched) == 1 && matched[0] == 0:
			onlyA = true
		}
		return glob.Accept{}
	})
	if err != nil && l.err == nil {
		l.err = err
	}
	return onlyA, both
}

// covers reports whether each path that a matches is matched by b. Most pairs are told
// apart by one path.
func (l *linter) covers(b, a string) bool {
	if len(glob.Reference([]string{b}, policy.Sample(a))) == 0 && len(glob.Reference([]string{a}, policy.Sample(a))) > 0 {
		return false
	}
	onlyA, both := l.relation(a, b)
	return both && !onlyA
}

// meet reports whether there may be a path that both match. Where that is for the values
// of variables to say, there may be.
func (l *linter) meet(a, b policy.Rule) bool {
	if variable(a) != variable(b) {
		return true
	}
	_, both := l.relation(a.Glob, b.Glob)
	return both
}

// ownTree reports whether a grant is of a tree that the jail makes for itself: it then
// gives no right on trees of the host below.
func (l *linter) ownTree(r policy.Rule) bool {
	tree, ok := strings.CutSuffix(r.Glob, "/**")
	return ok && (tree == "" || slices.Contains(l.r.Private, tree))
}

// written joins the rules that one entry of the document makes: a variable can have several values.
func (l *linter) written() [][]int {
	var out [][]int
	for i, r := range l.r.Files {
		if n := len(out); n > 0 && l.r.Files[out[n-1][0]].Pos == r.Pos && l.r.Files[out[n-1][0]].Kind == r.Kind {
			out[n-1] = append(out[n-1], i)
		} else if l.own(r) {
			out = append(out, []int{i})
		}
	}
	return out
}

// covered finds rules whose every path another rule decides in the same way, and grants of
// what is denied.
func (l *linter) covered() {
	for _, entry := range l.written() {
		first := l.r.Files[entry[0]]
		if first.Except {
			continue
		}
		by := policy.Rule{}
		check := ""
		for _, i := range entry {
			b, c := l.coverOf(i)
			if c == "" {
				check = ""
				break
			}
			by, check = b, c
		}
		switch check {
		case Shadowed:
			l.say(first.Pos, check, "%s %s says nothing that %s does not say (%s)", first.Kind, first.Text, by.Text, by.Pos)
		case NoEffect:
			l.say(first.Pos, check, "%s %s never allows anything: %s %s covers it (%s)", first.Kind, first.Text, by.Kind, by.Text, by.Pos)
		}
	}
}

// coverOf names the rule that covers rule i and in which way; "" if none does.
func (l *linter) coverOf(i int) (by policy.Rule, check string) {
	a := l.r.Files[i]
	grant := a.Kind != policy.Deny && a.Kind != policy.Protect
	for j, b := range l.r.Files {
		denies := b.Kind == policy.Deny || b.Kind == policy.Protect && a.Kind == policy.Write
		if grant && denies && !b.Except && b.Layer == a.Layer && l.covers(b.Glob, a.Glob) && !l.excepted(j, len(l.r.Files), a) {
			return b, NoEffect
		}
	}
	for j, b := range l.r.Files {
		switch {
		case i == j || b.Except || b.Layer != a.Layer || b.Kind != a.Kind || b.Pos == a.Pos || b.Hide != a.Hide:
		case grant && l.ownTree(b) && !l.ownTree(a):
		case !l.covers(b.Glob, a.Glob):
		case l.covers(a.Glob, b.Glob) && (j > i && l.own(b)): // the same twice: the later one is too much
		case grant || j < i && !l.excepted(j, i, a) || j > i && !l.excepted(i, j, a):
			return b, Shadowed
		}
	}
	return policy.Rule{}, ""
}

// excepted reports whether an exception between two rules of the list of rule j may meet a.
func (l *linter) excepted(j, until int, a policy.Rule) bool {
	of := l.r.Files[j]
	for k := j + 1; k < until; k++ {
		x := l.r.Files[k]
		if x.Except && x.Kind == of.Kind && x.Layer == of.Layer && l.meet(x, a) {
			return true
		}
	}
	return false
}

// exceptions finds those that are exceptions to nothing above them.
func (l *linter) exceptions() {
	for _, entry := range l.written() {
		first := l.r.Files[entry[0]]
		if !first.Except {
			continue
		}
		used := slices.ContainsFunc(entry, func(i int) bool {
			return slices.ContainsFunc(l.r.Files[:i], func(b policy.Rule) bool {
				return !b.Except && b.Kind == first.Kind && b.Layer == first.Layer && l.meet(l.r.Files[i], b)
			})
		})
		if !used {
			l.say(first.Pos, NoEffect, "%s %s is an exception to nothing: no %s rule above it meets it", first.Kind, first.Text, first.Kind)
		}
	}
}

// everywhere are globs of nearly all files, after variables were replaced by samples.
var everywhere = []string{"/**", "**/*", "**/**", "/*/**", "/home/**", "/root/**"}

// wide finds grants that leave little to be denied.
func (l *linter) wide() {
	for _, r := range l.r.Files {
		grant := r.Kind == policy.Read || r.Kind == policy.Write || r.Kind == policy.Exec
		if grant && l.own(r) && slices.Contains(everywhere, r.Glob) {
			l.say(r.Pos, TooWide, "%s %s allows all of what any rule shows of the host; name what is needed", r.Kind, r.Text)
		}
	}
	for _, r := range l.r.Net.Rules {
		if r.Kind != policy.NetAllow || !l.own(r) {
			continue
		}
		host := strings.Fields(r.Glob)[0]
		host = host[:strings.LastIndexByte(host, ':')+1]
		if host == "*:" || host == "0.0.0.0/0:" || host == "[::/0]:" {
			l.say(r.Pos, TooWide, "net allow %s lets anything be sent to anybody", r.Text)
		}
	}
	for _, r := range l.r.Env.Rules {
		if r.Kind == policy.EnvPass && l.own(r) && r.Glob == "*" {
			l.say(r.Pos, TooWide, "env pass * hands over every token that your shell has")
		}
	}
}

// maxNamed bounds the examples of one finding.
const maxNamed = 3

// names finds rules by which op is allowed on usual names: those of the document, else of
// what it extends.
func (l *linter) names(op policy.Op, check string, list []string, text string) {
	found := map[string][]string{}
	for _, name := range list {
		path := strings.Replace(strings.Replace(name, "~", vars.Home, 1), "${workspace}", vars.Workspace, 1)
		if v := l.e.Explain(op, path); v.Allow && l.shown(path) {
			pos := l.granted(op, path)
			found[pos] = append(found[pos], name)
		}
	}
	for _, pos := range slices.Sorted(maps.Keys(found)) {
		names, more := found[pos], ""
		if len(names) > maxNamed {
			more = fmt.Sprintf(" and %d more", len(names)-maxNamed)
		}
		l.say(pos, check, "%s%s: %s", strings.Join(names[:min(maxNamed, len(names))], ", "), more, text)
	}
}

// granted is the place in the document by which a path is allowed.
func (l *linter) granted(op policy.Op, path string) string {
	for _, r := range l.r.Files {
		if l.own(r) && r.Kind == policy.Kind(op) && len(glob.Reference([]string{r.Glob}, path)) > 0 {
			return r.Pos
		}
	}
	at := l.doc.At["extends"]
	return fmt.Sprintf("%s:%d:%d", l.doc.File, at.Line, at.Col)
}

// shown reports whether the host's own file of that path is there for the agent at all.
func (l *linter) shown(path string) bool {
	return slices.ContainsFunc(l.r.View(), func(m policy.Mount) bool { return path == m.Path || strings.HasPrefix(path, m.Path+"/") })
}
