package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/orchestrator"
	"github.com/agentos/agentos/orchestrator/terminal"
)

func (p *program) runCommand() *cobra.Command {
	o := orchestrator.Options{}
	report := false
	var keep []string
	c := &cobra.Command{
		Use:   "run [flags] AGENT [ARGS...] | -- COMMAND [ARGS...]",
		Short: "run an agent, or any command, in a jail",
		Long: `Runs an agent in a jail on the current directory. AGENT is one that 'agentos agents list' shows, or a command of yours;
after -- stands a command in any case. Everything after the agent's name is the agent's own.

The exit status is the agent's; 125 if AgentOS failed, 126 if the policy refused, 127 if there is no such command.`,
		Example: `  agentos run claude
  agentos run --policy standard --workspace ~/src/app codex --model o4
  agentos run --env DEBUG=1 -- npm test
  echo "fix the tests" | agentos run claude -p > answer.txt`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &orchestrator.Error{Err: errors.New("no agent and no command"), Hint: "agentos run claude, or agentos run -- make test; agentos agents list shows what is installed"}
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return orchestrator.AgentNames(p.home), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			o.Environ, o.Command = p.environ, c.ArgsLenAtDash() == 0
			o.Agent, o.Args = args[0], args[1:]
			return p.runAgent(c.Context(), o, keep, report)
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVar(&o.Policy, "policy", "strict", "`policy` to run under: a name or a file")
	f.StringVar(&o.Workspace, "workspace", "", "`directory` the agent works in (default: the current one)")
	f.StringVar(&o.Name, "name", "", "`name` of the session (default: made from the agent's)")
	f.StringArrayVar(&o.Env, "env", nil, "set a `variable` in the jail, K=V; may be repeated")
	f.StringArrayVar(&keep, "keep", nil, "copy this `path` of the jail's home to yours when the agent ends, as 'agentos changes --keep' does; may be repeated")
	f.BoolVar(&report, "report", false, "say at the end what was recorded, even if nothing was denied")
	_ = c.RegisterFlagCompletionFunc("policy", p.completePolicies)
	_ = c.MarkFlagDirname("workspace")
	return c
}

func (p *program) runAgent(ctx context.Context, o orchestrator.Options, keep []string, report bool) error {
	var err error
	if o.Lifted, err = p.lifted(ctx); err != nil {
		return err
	}
	plan, err := orchestrator.Prepare(o)
	if err != nil {
		return err
	}
	defer func() { _ = plan.Close() }()
	home := plan.Resolved.Vars.Home
	for _, k := range keep {
		if at, err := p.inHome(k, home); err != nil {
			return err
		} else if !strings.HasPrefix(at, home+"/") {
			return &orchestrator.Error{Err: fmt.Errorf("--keep %s: it is not in the home %s", k, home), Hint: "what is written elsewhere is on the host already, or the jail's scratch space"}
		}
	}
	for _, r := range plan.Resolved.Refused {
		p.err.note("not granted: %s", r)
	}
	// Until the agent runs, a signal ends the attempt; what was made of the jail
	// goes with the conversation.
	early, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	g, err := p.gate(early)
	if err != nil {
		return err
	}
	defer func() { _ = g.Close() }()
	before := began(plan)
	proc, exit, err := p.attach(ctx, plan.Resolved.Terminal.OSC52 != "write", !plan.Resolved.Terminal.Title, func(tty *rpc.Terminal) (*orchestrator.Proc, error) {
		proc, err := orchestrator.Launch(early, g, plan, tty)
		if err != nil {
			if early.Err() != nil {
				return nil, errors.New("interrupted before the agent was started")
			}
			return nil, err
		}
		proc.Caught = func() { // stop after Attach's Notify gives no signal back to the runtime
			if early.Err() != nil { // one came in between: Attach passes it on
				_ = unix.Kill(unix.Getpid(), unix.SIGTERM)
			}
			stop()
		}
		p.lacking(proc.Started.Report.Missing, report)
		if b := proc.Started.Report.Glass; b != nil {
			p.err.note("break-glass (%s): without %s; the session is ended at %s", b.Reason, strings.Join(b.Files, ", "), b.Until.Local().Format(time.TimeOnly))
		}
		before.ID, before.Name, before.Silent = proc.Session, proc.Name, silent(plan.Resolved, proc.Started.Report.Tier)
		return proc, nil
	})
	if proc != nil {
		p.summary(proc, exit, report)
		p.leaves(ctx, g, &before, exit)
	}
	if err != nil {
		return err
	}
	err = p.keepAtEnd(ctx, g, proc.Session, keep)
	if exit.Code != 0 {
		if err != nil {
			p.err.failure(err)
		}
		return exitStatus(exit.Code)
	}
	return err
}

// lacking names the guarantees that the policy prefers and this machine does not
// give; why, when a report is wanted.
func (p *program) lacking(missing []rpc.Missing, report bool) {
	var names []string
	for _, m := range missing {
		if report {
			p.err.note("not enforced here: %s: %s", m.Guarantee, m.Why)
		}
		names = append(names, m.Guarantee)
	}
	if len(names) > 0 && !report {
		p.err.note("not enforced here: %s (agentos doctor says why)", strings.Join(names, ", "))
	}
}

// attach starts a process with our terminal or with pipes and stays with it.
func (p *program) attach(ctx context.Context, denyClipboard, denyTitle bool, start func(*rpc.Terminal) (*orchestrator.Proc, error)) (*orchestrator.Proc, orchestrator.Exit, error) {
	s := terminal.Streams{In: p.in, Out: p.out.file, Err: p.err.file}
	var tty *rpc.Terminal
	if s.Interactive() {
		tty = &rpc.Terminal{}
		tty.Rows, tty.Cols = terminal.Size(s.Out)
	}
	proc, err := start(tty)
	if err != nil {
		return nil, orchestrator.Exit{}, err
	}
	exit, err := proc.Attach(ctx, s, terminal.Filter{DenyClipboard: denyClipboard, DenyTitle: denyTitle})
	return proc, exit, err
}

// summary says what was refused, when something was, or when a report is wanted.
func (p *program) summary(proc *orchestrator.Proc, exit orchestrator.Exit, report bool) {
	if proc.Terminal() {
		for _, n := range exit.Notices { // on the screen they were drawn over
			p.err.note("%s", n)
		}
	}
	t := exit.Totals
	if t == nil { // the helper has gone, which is an error already
		return
	}
	if !report && t.Denied == 0 && len(t.Limits) == 0 && t.Lost == 0 && t.Escapes == 0 {
		return
	}
	parts := []string{fmt.Sprintf("%d records", t.Records)}
	if t.Denied > 0 {
		parts = append(parts, p.err.red(fmt.Sprintf("%d denied", t.Denied)))
	}
	if len(t.Limits) > 0 {
		parts = append(parts, "limits hit: "+clean(strings.Join(t.Limits, ", ")))
	}
	if t.Lost > 0 {
		parts = append(parts, p.err.red(fmt.Sprintf("%d events lost", t.Lost)))
	}
	if t.Escapes > 0 {
		parts = append(parts, p.err.red(fmt.Sprintf("%d escape events", t.Escapes)))
	}
	_, _ = fmt.Fprintf(p.err.w, "agentos: session %s: %s\n", clean(proc.Name), strings.Join(parts, ", "))
	switch {
	case t.Denied > 0:
		p.err.hint("agentos audit show " + proc.Name + " --denied")
	case report:
		p.err.hint("agentos audit show " + proc.Name)
	default:
		_ = p.err.flush()
	}
}

func (p *program) execCommand() *cobra.Command {
	var dir string
	var env []string
	c := &cobra.Command{
		Use:     "exec [flags] SESSION [--] COMMAND [ARGS...]",
		Short:   "run a second command in a running session's jail",
		Long:    "Runs a command in the jail of a running session: under the same policy, seen by the same record, started by the jail's own init.",
		Example: "  agentos exec claude-3f2a -- git status\n  agentos exec claude-3f2a bash",
		Args:    count(2, 1<<20, "a session and a command"),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			session, argv := args[0], args[1:]
			if argv[0] == "--" {
				argv = argv[1:]
			}
			if len(argv) == 0 {
				return &orchestrator.Error{Err: errors.New("no command"), Hint: c.CommandPath() + " --help"}
			}
			g, err := p.gate(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = g.Close() }()
			_, exit, err := p.attach(ctx, true, false, func(tty *rpc.Terminal) (*orchestrator.Proc, error) {
				if t := p.getenv("TERM"); tty != nil && t != "" {
					env = append([]string{"TERM=" + t}, env...)
				}
				return orchestrator.Spawn(ctx, g, rpc.SpawnProc{Session: session, Argv: orchestrator.InJail(argv, env), Cwd: dir}, tty)
			})
			if err != nil {
				return err
			}
			if exit.Code != 0 {
				return exitStatus(exit.Code)
			}
			return nil
		},
	}
	c.Flags().SetInterspersed(false)
	c.Flags().StringVar(&dir, "workdir", "", "`directory` in the jail (default: the workspace)")
	c.Flags().StringArrayVar(&env, "env", nil, "set a `variable`, K=V; may be repeated")
	c.ValidArgsFunction = p.completeSessions
	return c
}
