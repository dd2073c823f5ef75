package main

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail/seccomp"
	"github.com/agentos/agentos/orchestrator"
	"github.com/agentos/agentos/policy"
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
