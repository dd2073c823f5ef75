package main

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail/seccomp"
	"github.com/agentos/agentos/orchestrator"
	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/lint"
)

func (p *program) policyExplain() *cobra.Command {
	asJSON := false
	o := orchestrator.Options{}
	c := &cobra.Command{
		Use:   "explain read|write|exec|connect|syscall|env ARG",
		Short: "say whether something is allowed, and which line decides",
		Long: `Says whether an operation is allowed, from the same code that the kernel's rules are compiled with.
Paths may begin with ~/ or be relative to the workspace. The exit status is 0 if it is allowed, or depends on the arguments of a system call; 126 if it is denied.`,
		Example: "  agentos policy explain read .env\n  agentos policy explain connect api.github.com:443 --policy standard",
		Args:    count(2, 2, "an operation and its object"),
		RunE: func(c *cobra.Command, args []string) error {
			if !slices.Contains(policy.Ops(), policy.Op(args[0])) {
				return &orchestrator.Error{Err: fmt.Errorf("there is no operation %q", args[0]), Hint: "one of read, write, exec, connect, syscall, env"}
			}
			op := policy.Op(args[0])
			if args[1] == "" {
				return &orchestrator.Error{Err: fmt.Errorf("%s what? its object is empty", op), Hint: c.CommandPath() + " --help"}
			}
			if _, _, err := net.SplitHostPort(args[1]); err != nil && op == policy.OpConnect {
				return &orchestrator.Error{Err: fmt.Errorf("%q is no destination", args[1]), Hint: "HOST:PORT or ADDRESS:PORT, such as api.github.com:443 or [2001:db8::1]:443"}
			}
			o.Environ, o.Home = p.environ, p.home
			r, err := orchestrator.Resolve(o)
			if err != nil {
				return err
			}
			var v policy.Verdict
			if op.File() {
				e, err := r.Explainer()
				if err != nil {
					return err
				}
				v = e.Explain(op, args[1])
			} else {
				v = r.Explain(op, args[1])
			}
			depends := v.Default && profiled(args[1], &v)
			if asJSON {
				if err := p.out.json(v); err != nil {
					return err
				}
			} else {
				p.verdict(v, depends)
				if op.File() && v.Allow {
					p.lies(r, args[1])
				}
			}
			if !v.Allow && !depends {
				return exitStatus(orchestrator.StatusRefused)
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				var out []string
				for _, op := range policy.Ops() {
					out = append(out, string(op))
				}
				return out, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&o.Policy, "policy", "strict", "`policy` to ask: a name or a file")
	_ = c.RegisterFlagCompletionFunc("policy", p.completePolicies)
	p.groundFlags(c, &o)
	return c
}

// profiled completes the verdict on a system call that the policy does not name,
// and reports whether it depends on the arguments of the call.
func profiled(name string, v *policy.Verdict) (depends bool) {
	const who = "the policy does not name it; the default seccomp profile "
	for _, c := range seccomp.Calls() {
		if c.Name != name {
			continue
		}
		switch c.Class {
		case seccomp.Allow:
			v.Allow, v.Why = true, who+"allows it ("+c.Why+")"
		case seccomp.Check:
			v.Why, depends = who+"looks at its arguments ("+c.Why+")", true
		case seccomp.Refuse:
			v.Why = who + "refuses it with EPERM (" + c.Why + ")"
		case seccomp.Never:
			v.Why = who + "refuses it with EPERM, whatever a policy says (" + c.Why + ")"
		default:
			v.Why = who + "answers ENOSYS, as if the kernel did not have it (" + c.Why + ")"
		}
		return depends
	}
	v.Why = who + "does not know it and answers ENOSYS, as if the kernel did not have it"
	return false
}

func (p *program) verdict(v policy.Verdict, depends bool) {
	word := p.out.red("deny")
	switch {
	case v.Allow:
		word = p.out.green("allow")
	case depends:
		word = "depends"
	}
	if v.Rule == nil {
		p.out.linef("%s: %s", word, event.Printable(v.Why))
		return
	}
	text := v.Rule.Text
	if v.Hidden {
		text += " (hidden: to the agent nothing of that name is there)"
	}
	p.out.linef("%s: %s %s", word, v.Rule.Kind, event.Printable(text))
	p.out.linef("  at %s", event.Printable(v.Rule.Pos))
}

// lies says whose a permitted file is when it is not the host's alone: that of a
// directory which sessions share or lay over yours, or of one that each makes for
// itself. The last holds when nothing of the host is shown nearer to the file.
func (p *program) lies(r *policy.Resolved, arg string) {
	switch kind, dir := r.Shares(arg); kind {
	case policy.Persist:
		p.out.linef("  in %s, which the sessions of this workspace share", event.Printable(dir))
		return
	case policy.Overlay:
		p.out.linef("  in %s, read from yours; what is written stays in the session", event.Printable(dir))
		return
	}
	switch {
	case arg == "~" || strings.HasPrefix(arg, "~/"):
		arg = r.Vars.Home + arg[1:]
	default:
		arg = absolute(arg, r.Vars.Workspace)
	}
	nearest := func(dir, path string) string {
		if len(path) > len(dir) && (arg == path || strings.HasPrefix(arg, path+"/")) {
			return path
		}
		return dir
	}
	own, shown := "", ""
	for _, d := range r.Private {
		own = nearest(own, d)
	}
	for _, m := range r.View() {
		shown = nearest(shown, m.Path)
	}
	if len(own) > len(shown) {
		p.out.linef("  in %s, of which the session has its own: nothing of yours is there, and it goes with the session", event.Printable(own))
	}
}

func (p *program) policyLint() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "lint FILE...",
		Short: "find what is probably not meant in policy files",
		Long: `Finds rules that another rule says already or leaves nothing to, rules that allow nearly everything, usual names of secrets that can be
read, and usual names of files that programs outside of the jail run or obey and that can be written. Each file is taken alone. A file with
findings is as valid as one without. The exit status is 0 if nothing was found, 1 if something was, 125 for a mistake.`,
		Args: count(1, 1<<20, "policy files"),
		RunE: func(_ *cobra.Command, args []string) error {
			all := []lint.Finding{}
			for _, file := range args {
				doc, err := orchestrator.Profile(file, p.home)
				if err != nil {
					return err
				}
				found, err := lint.Document(doc)
				if err != nil {
					return err
				}
				all = append(all, found...)
			}
			if asJSON {
				if err := p.out.json(all); err != nil {
					return err
				}
			} else {
				for _, f := range all {
					p.out.linef("%s: %s (%s)", event.Printable(f.Pos), event.Printable(f.Text), f.Check)
				}
			}
			if len(all) > 0 {
				return exitStatus(1)
			}
			return nil
		},
		ValidArgsFunction: p.completePolicies,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (p *program) policyTest() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "test FILE|DIRECTORY...",
		Short: "run the [[tests]] of policy files, or of a directory of the organisation's",
		Long: `Runs the [[tests]] of policy files: each act has the verdict that is wanted, and is decided by the rule that is named, if one is. A file is
tried alone; one with [org] above a profile that allows everything, so that its tests are about what it takes away. The files of a directory
are the organisation's: they are checked as the helper checks those in force (but may be yours), and are tried together.
The exit status is 0 if all tests hold, 1 if one does not or there are none, 125 or 126 for a mistake.`,
		Example: "  agentos policy test ./mine.toml\n  agentos policy test /etc/agentos/policy.d",
		Args:    count(1, 1<<20, "policy files or directories"),
		RunE: func(_ *cobra.Command, args []string) error {
			return p.runTests(args, asJSON, true, p.tests)
		},
		ValidArgsFunction: p.completePolicies,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// tests runs those of a policy, or of all files of a directory.
func (p *program) tests(arg string) ([]policy.TestResult, error) {
	if st, err := os.Stat(arg); err != nil || !st.IsDir() {
		return p.testsOf(arg)
	}
	rules, err := orchestrator.OrgRules(arg, os.Geteuid())
	if err != nil || rules == nil {
		return nil, err
	}
	var docs []*policy.Document
	for _, f := range rules.Files {
		docs = append(docs, f.Doc)
	}
	return policy.CheckOrg(docs, policy.Vars{})
}
