package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/orchestrator"
	"github.com/agentos/agentos/policy"
)

func (p *program) policyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "list, show, check, test, explain and change policies",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.policyList(), p.policyShow(), p.policyCheck(), p.policyExplain(), p.policySet(), p.policySchema(), p.policyEffective(), p.policyBreakGlass(), p.policyLint(), p.policyTest())
	return c
}

// policyRow is one row of policy list.
type policyRow struct {
	Name        string `json:"name"`
	Layer       string `json:"layer"` // what it can be or is: "profile", "user", "project", "org"
	File        string `json:"file"`
	Description string `json:"description,omitempty"`
	Error       string `json:"error,omitempty"`
}

func (p *program) policyList() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "list",
		Short: "list the policies there are, and the layers that hold here",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			rows := p.policies()
			if asJSON {
				return p.out.json(rows)
			}
			t := table{head: []string{"NAME", "LAYER", "FILE", "DESCRIPTION"}}
			for _, r := range rows {
				text := event.Printable(r.Description)
				if r.Error != "" {
					text = p.out.red(clean(r.Error))
				}
				t.row(event.Printable(r.Name), r.Layer, event.Printable(r.File), text)
			}
			t.print(&p.out)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (p *program) policies() []policyRow {
	var rows []policyRow
	for _, name := range policy.BuiltinNames() {
		row := policyRow{Name: name, Layer: "profile", File: "builtin:" + name}
		if doc, err := policy.Builtin(name); err != nil {
			row.Error = err.Error()
		} else {
			row.Description = doc.Description
		}
		rows = append(rows, row)
	}
	add := func(layer string, files ...string) {
		for _, f := range files {
			doc, err := policy.Load(f)
			row := policyRow{Name: strings.TrimSuffix(filepath.Base(f), ".toml"), Layer: layer, File: f}
			switch {
			case errors.Is(err, os.ErrNotExist):
				continue
			case err != nil:
				row.Error = err.Error()
			default:
				row.Name, row.Description = doc.Name, doc.Description
			}
			rows = append(rows, row)
		}
	}
	own, _ := filepath.Glob(filepath.Join(p.home, ".agentos/policies/*.toml"))
	add("profile", own...)
	org, _ := filepath.Glob(filepath.Join(orchestrator.OrgDir, "*.toml"))
	add("org", org...)
	add("user", filepath.Join(p.home, ".agentos/policy.toml"))
	if wd, err := os.Getwd(); err == nil && wd != p.home {
		add("project", filepath.Join(wd, ".agentos/policy.toml"))
	}
	return rows
}

func (p *program) policyShow() *cobra.Command {
	var asJSON, effective bool
	o := orchestrator.Options{}
	c := &cobra.Command{
		Use:   "show [NAME|FILE]",
		Short: "print a policy, or with --effective what holds here",
		Args:  count(0, 1, "at most one policy"),
		RunE: func(_ *cobra.Command, args []string) error {
			o.Policy, o.Environ, o.Home = append(args, "strict")[0], p.environ, p.home
			if effective {
				r, err := orchestrator.Resolve(o)
				if err != nil {
					return err
				}
				if asJSON {
					return p.out.json(r)
				}
				p.effective(r)
				return nil
			}
			doc, err := orchestrator.Profile(o.Policy, p.home)
			if err != nil {
				return err
			}
			if asJSON {
				return p.out.json(doc)
			}
			text, err := policyText(doc.File)
			if err != nil {
				return err
			}
			_, err = p.out.w.Write(text)
			return err
		},
		ValidArgsFunction: p.completePolicies,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&effective, "effective", false, "print the rules of all layers together, each with where it stands")
	p.groundFlags(c, &o)
	return c
}

// groundFlags are what a policy is resolved on.
func (p *program) groundFlags(c *cobra.Command, o *orchestrator.Options) {
	c.Flags().StringVar(&o.Workspace, "workspace", "", "`directory` that ${workspace} stands for (default: the current one)")
	c.Flags().StringVar(&o.Agent, "agent", "", "`agent` whose state and hosts the variables stand for")
}

func policyText(file string) ([]byte, error) {
	if name, ok := strings.CutPrefix(file, "builtin:"); ok {
		return policy.BuiltinText(name)
	}
	return os.ReadFile(file)
}

func (p *program) effective(r *policy.Resolved) {
	for _, l := range r.Layers {
		p.out.linef("%s", p.out.dim(fmt.Sprintf("# layer %s: %s (%s)", l.Kind, event.Printable(l.Name), event.Printable(l.File))))
	}
	t := table{head: []string{"RULE", "WHERE", "WHAT"}}
	where := func(key string) string { return event.Printable(r.Where[key]) }
	for _, rules := range [][]policy.Rule{r.Files, r.Home.Rules, r.Net.Rules, r.Syscalls.Rules, r.Env.Rules} {
		for _, x := range rules {
			what := x.Glob
			if x.Except {
				what = "!" + what
			}
			if x.Hide {
				what += " (hidden)"
			}
			t.row(string(x.Kind), event.Printable(x.Pos), event.Printable(what))
		}
	}
	for _, x := range r.Private {
		t.row("private", "-", event.Printable(x))
	}
	res := r.Resources
	for _, x := range []struct {
		key   string
		value any
		set   bool
	}{
		{"resources.memory", res.Memory, res.Memory != 0},
		{"resources.swap", res.Swap, res.Swap != 0},
		{"resources.cpu", res.CPU, res.CPU != policy.CPU{}},
		{"resources.pids", res.Pids, res.Pids != 0},
		{"resources.disk_write", res.DiskWrite, res.DiskWrite != 0},
		{"resources.tmp", res.Tmp, res.Tmp != 0},
		{"resources.open_files", res.OpenFiles, res.OpenFiles != 0},
		{"audit.files", r.Audit.Files, true},
		{"audit.on_overload", r.Audit.OnOverload, true},
		{"net.listen", r.Net.Listen, true},
		{"terminal.osc52", r.Terminal.OSC52, true},
	} {
		if x.set {
			t.row(x.key, where(x.key), event.Printable(fmt.Sprint(x.value)))
		}
	}
	for _, g := range policy.Guarantees() {
		if level, ok := r.Require[g]; ok {
			t.row("require", where("require."+string(g)), fmt.Sprintf("%s: %s", g, level))
		}
	}
	orgRows(&t, r)
	for _, x := range r.Refused {
		t.row(p.out.red("refused"), event.Printable(x.Pos), event.Printable(x.What+" (by "+x.By+")"))
	}
	t.print(&p.out)
}

func (p *program) policyCheck() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "check policy files and run their [[tests]]",
		Long:  "Checks policy files for mistakes and runs the [[tests]] in them. The exit status is 0 if all is well, 1 if a test failed, 125 for a mistake.",
		Args:  count(1, 1<<20, "policy files"),
		RunE: func(_ *cobra.Command, args []string) error {
			return p.runTests(args, asJSON, false, p.testsOf)
		},
		ValidArgsFunction: p.completePolicies,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// testsOf runs the tests of one policy.
func (p *program) testsOf(file string) ([]policy.TestResult, error) {
	doc, err := orchestrator.Profile(file, p.home)
	if err != nil {
		return nil, err
	}
	return policy.Check(doc, policy.Vars{})
}

// runTests runs the tests of each of args and prints what came of them. The status is 1 if
// one failed, or if some are wanted and there are none.
func (p *program) runTests(args []string, asJSON, wanted bool, of func(string) ([]policy.TestResult, error)) error {
	failed := false
	all := []policy.TestResult{}
	for _, arg := range args {
		results, err := of(arg)
		if err != nil {
			return err
		}
		all = append(all, results...)
		bad := slices.DeleteFunc(slices.Clone(results), func(r policy.TestResult) bool { return r.OK })
		failed = failed || len(bad) > 0 || wanted && len(results) == 0
		if !asJSON {
			p.checked(arg, results, bad)
		}
	}
	if asJSON {
		if err := p.out.json(all); err != nil {
			return err
		}
	}
	if failed {
		return exitStatus(1)
	}
	return nil
}

func (p *program) checked(file string, results, bad []policy.TestResult) {
	for _, r := range bad {
		want := map[bool]string{true: "allow", false: "deny"}[r.Want]
		if r.Got.Allow == r.Want { // the verdict is right, the rule is not
			want += " by " + r.Rule
		}
		p.out.linef("%s %s: %s %s: want %s, but %s", p.out.red("FAIL"), event.Printable(r.Pos), r.Op, event.Printable(r.Arg), event.Printable(want), event.Printable(r.Got.Why))
	}
	word := p.out.green("ok")
	if len(bad) > 0 {
		word = p.out.red("FAIL")
	}
	p.out.linef("%s %s: %d of %d tests hold", word, event.Printable(file), len(results)-len(bad), len(results))
}

func (p *program) policySet() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "set SESSION FILE|NAME",
		Short: "change the file and network rules of a running session",
		Long: `Puts the file rules of a policy in the place of those of a running session: the read, write, exec, deny and protect lists of
[files], joined with the other layers as at a start. From then on every new act is judged by them; what is open stays open, and what
is mapped stays mapped. Of a session that has a network [net] is replaced, too, and connections that are not allowed any more are cut. Everything else of the policy must be as it was, and nothing may be granted that the session was not given at its start.`,
		Example: "  agentos policy set fix-login ./tighter.toml\n  agentos audit show fix-login --kind session   # who changed what",
		Args:    count(2, 2, "a session and a policy"),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := p.gate(c.Context())
			if err != nil {
				return err
			}
			defer func() { _ = g.Close() }()
			set, err := orchestrator.SetPolicy(c.Context(), g, args[0], args[1], p.home)
			if err != nil {
				return err
			}
			if asJSON {
				return p.out.json(set)
			}
			for _, r := range set.Refused {
				p.err.note("not granted: %s", r)
			}
			if set.Remaining != "" {
				p.err.note("%s", set.Remaining)
			}
			if !set.Changed {
				p.out.linef("%s has these rules already", event.Printable(set.Session))
				return nil
			}
			p.out.linef("%s: %s holds, generation %d, put in place in %.1f ms", event.Printable(set.Session), event.Printable(set.Policy), set.Generation, float64(set.Took)/1000)
			return nil
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return p.completeSessions(c, args, word)
			}
			return p.completePolicies(c, args, word)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (p *program) policySchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "print the JSON Schema of policy files, for editors",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := p.out.w.Write(policy.Schema())
			return err
		},
	}
}

func (p *program) completePolicies(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, r := range p.policies() {
		if r.Layer == "profile" {
			out = append(out, r.Name+"\t"+r.Description)
		}
	}
	return out, cobra.ShellCompDirectiveDefault
}
