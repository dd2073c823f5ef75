package policy

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed builtin/*.toml
var builtins embed.FS

// BuiltinNames lists the builtin policies, most strict first after base.
func BuiltinNames() []string { return []string{"base", "strict", "standard", "permissive"} }

// Builtin returns a fresh copy of the named builtin policy. Its File is
// "builtin:NAME".
func Builtin(name string) (*Document, error) {
	data, err := BuiltinText(name)
	if err != nil {
		return nil, err
	}
	s := newSource("builtin:"+name, data)
	s.trusted = true
	return parseDocument(s)
}

// BuiltinText is the TOML of the named builtin policy, comments and all.
func BuiltinText(name string) ([]byte, error) {
	if !slices.Contains(BuiltinNames(), name) {
		return nil, fmt.Errorf("there is no builtin policy %q (%s)", name, strings.Join(BuiltinNames(), ", "))
	}
	return builtins.ReadFile("builtin/" + name + ".toml")
}

// TestResult is the outcome of one act of one [[tests]] entry.
type TestResult struct {
	Test string  `json:"test"` // name of the entry, or its position
	Pos  string  `json:"pos"`  // file:line:col of the act
	Op   Op      `json:"op"`
	Arg  string  `json:"arg"` // after replacing variables
	Want bool    `json:"want"`
	Got  Verdict `json:"got"`
	OK   bool    `json:"ok"`
}

// SampleVars are made-up values for checking a policy without an agent.
func SampleVars() Vars {
	return Vars{
		Workspace: "/home/alice/src/app", Home: "/home/alice",
		State: []string{"/home/alice/.agent"}, Tool: []string{"/home/alice/.local/share/agent"},
		Protect: []string{"/home/alice/.agent/settings.json"},
		Hosts:   []string{"api.agent.example:443"}, EnvPass: []string{"AGENT_API_KEY"},
	}
}

// Check resolves doc as the only layer and runs its [[tests]]; the zero Vars
// mean [SampleVars]. System calls that the policy does not name count as
// denied. It is an error if the document does not resolve or compile.
func Check(doc *Document, v Vars) ([]TestResult, error) {
	if v.Workspace == "" && v.Home == "" {
		v = SampleVars()
	}
	r, err := Resolve([]Layer{{Profile, doc}}, v)
	if err != nil {
		return nil, err
	}
	e, err := r.Explainer()
	if err != nil {
		return nil, err
	}
	var out []TestResult
	for i := range doc.Tests {
		t := &doc.Tests[i]
		acts := t.acts()
		for _, op := range Ops() {
			for _, it := range acts[op] {
				res, err := e.check(doc, t, op, it)
				if err != nil {
					return nil, err
				}
				out = append(out, res...)
			}
		}
	}
	return out, nil
}

// check tries one act; a variable with several values makes several results,
// one without values none.
func (e *Explainer) check(doc *Document, t *Test, op Op, it Item) ([]TestResult, error) {
	args := []string{it.Text}
	if op == OpRead || op == OpWrite || op == OpExec {
		paths, err := e.r.Vars.expandPath(it.Text)
		if err != nil {
			return nil, doc.itemError(it, "", "%q: %v", it.Text, err)
		}
		args = paths
	}
	name := t.Name
	if name == "" {
		name = fmt.Sprintf("line %d", t.Line)
	}
	var out []TestResult
	for _, arg := range args {
		res := TestResult{
			Test: name, Pos: fmt.Sprintf("%s:%d:%d", doc.File, it.Line, it.Col),
			Op: op, Arg: arg, Want: t.Want == "allow", Got: e.Explain(op, arg),
		}
		res.OK = res.Got.Allow == res.Want
		out = append(out, res)
	}
	return out, nil
}
