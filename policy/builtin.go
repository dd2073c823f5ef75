package policy

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:generate go test -run TestBuiltinTables -update .

//go:embed builtin/*.toml
var builtins embed.FS

// BuiltinNames lists the builtin policies, most strict first after base.
func BuiltinNames() []string { return []string{"base", "strict", "standard", "permissive"} }

// builtinTable is a builtin policy as data of the program: parsing takes longer
// than all else that a command does before it reaches the helper. The tables are
// made from the TOML by a test, which fails when they differ from it. They have
// no maps, which would be filled at each start of each program.
type builtinTable struct {
	doc     Document // without lists and maps
	lists   []builtinList
	set     []builtinSet // env.set
	require []builtinRequire
	places  []builtinPlace // sorted by key
}

type (
	builtinList struct {
		kind  Kind
		items []placed
	}
	builtinSet     struct{ name, value string }
	builtinRequire struct {
		guarantee Guarantee
		level     Level
	}
	builtinPlace struct {
		key, pos string
		At
	}
)

func table(name string) *builtinTable {
	i := slices.Index(BuiltinNames(), name)
	if i < 0 {
		return nil
	}
	return &builtinTables[i]
}

func (t *builtinTable) where(key string) (string, bool) {
	i, ok := slices.BinarySearchFunc(t.places, key, func(p builtinPlace, key string) int { return strings.Compare(p.key, key) })
	if !ok {
		return "", false
	}
	return t.places[i].pos, true
}

// Builtin returns a fresh copy of the named builtin policy. Its File is
// "builtin:NAME".
func Builtin(name string) (*Document, error) {
	t := table(name)
	if t == nil {
		return nil, noBuiltin(name)
	}
	d := t.doc
	for _, p := range []**bool{&d.Files.AnyWorkspace, &d.Files.Live, &d.Syscalls.UserNamespaces, &d.Terminal.Title} {
		if *p != nil {
			b := **p
			*p = &b
		}
	}
	d.Extends = slices.Clone(d.Extends)
	for _, l := range t.lists {
		list := make([]Item, len(l.items))
		for i, p := range l.items {
			list[i] = p.Item
		}
		*d.list(l.kind) = list
	}
	for _, s := range t.set {
		if d.Env.Set == nil {
			d.Env.Set = map[string]string{}
		}
		d.Env.Set[s.name] = s.value
	}
	for _, r := range t.require {
		if d.Require == nil {
			d.Require = Require{}
		}
		d.Require[r.guarantee] = r.level
	}
	d.At = map[string]At{}
	for _, p := range t.places {
		d.At[p.key] = p.At
	}
	d.Tests = slices.Clone(d.Tests)
	for i := range d.Tests {
		x := &d.Tests[i]
		for _, list := range []*[]Item{&x.Read, &x.Write, &x.Exec, &x.Connect, &x.Syscall, &x.Env} {
			*list = slices.Clone(*list)
		}
	}
	return &d, nil
}

// BuiltinReference returns a small document that resolves as the named builtin
// policy does, but has no tests: it only extends it. It is what crosses the gate
// in its stead; see [PolicyDocument].
func BuiltinReference(name string) (*Document, error) {
	t := table(name)
	if t == nil {
		return nil, noBuiltin(name)
	}
	return &Document{File: t.doc.File, Version: 1, Name: t.doc.Name, Description: t.doc.Description, Extends: []Item{{Text: t.doc.File}}}, nil
}

// BuiltinDigest is the SHA-256, in hex, over the text of all builtin policies.
// Two programs with the same one mean the same by their names.
func BuiltinDigest() string { return builtinDigest }

func noBuiltin(name string) error {
	return fmt.Errorf("there is no builtin policy %q (%s)", name, strings.Join(BuiltinNames(), ", "))
}

// BuiltinText is the TOML of the named builtin policy, comments and all.
func BuiltinText(name string) ([]byte, error) {
	if !slices.Contains(BuiltinNames(), name) {
		return nil, noBuiltin(name)
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
	Rule string  `json:"rule,omitempty"` // that was to decide
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
// denied. It is an error if the document does not resolve or compile. What has
// an [org] section is checked by [CheckOrg].
func Check(doc *Document, v Vars) ([]TestResult, error) {
	return check(alone(doc), []*Document{doc}, v)
}

// Alone resolves doc with no other layer: as the profile, or, if it has an [org]
// section, above a profile that allows everything. The zero Vars mean [SampleVars].
func Alone(doc *Document, v Vars) (*Resolved, error) {
	if v.Workspace == "" && v.Home == "" {
		v = SampleVars()
	}
	return Resolve(alone(doc), v)
}

func alone(doc *Document) []Layer {
	if doc.Org.zero() {
		return []Layer{{Profile, doc}}
	}
	return []Layer{{Org, doc}, {Profile, everything()}}
}

// check runs the tests of docs on what layers come to.
func check(layers []Layer, docs []*Document, v Vars) ([]TestResult, error) {
	if v.Workspace == "" && v.Home == "" {
		v = SampleVars()
	}
	r, err := Resolve(layers, v)
	if err != nil {
		return nil, err
	}
	e, err := r.Explainer()
	if err != nil {
		return nil, err
	}
	var out []TestResult
	for _, doc := range docs {
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
			Op: op, Arg: arg, Want: t.Want == "allow", Rule: t.Rule, Got: e.Explain(op, arg),
		}
		res.OK = res.Got.Allow == res.Want && (t.Rule == "" || res.Got.Rule != nil && strings.Contains(res.Got.Rule.String(), t.Rule))
		out = append(out, res)
	}
	return out, nil
}
