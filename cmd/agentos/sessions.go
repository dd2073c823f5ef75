package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/orchestrator"
)

func (p *program) psCommand() *cobra.Command {
	var all, asJSON bool
	c := &cobra.Command{
		Use:   "ps",
		Short: "list your sessions",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			g, err := p.gate(c.Context())
			if err != nil {
				return err
			}
			defer func() { _ = g.Close() }()
			list, err := orchestrator.List(c.Context(), g, all)
			if err != nil {
				return err
			}
			rows := []rpc.Session{}
			for _, s := range list {
				if all || s.State != "ended" {
					rows = append(rows, s)
				}
			}
			if asJSON {
				return p.out.json(rows)
			}
			p.sessions(rows)
			return nil
		},
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "also those that have ended and left a record")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (p *program) sessions(rows []rpc.Session) {
	t := table{head: []string{"NAME", "ID", "AGENT", "POLICY", "STATE", "STARTED", "TASKS", "MEMORY", "CPU", "DENIED", "WORKSPACE"}}
	for _, s := range rows {
		denied := strconv.FormatUint(s.Denied, 10)
		if s.Denied > 0 {
			denied = p.out.red(denied)
		}
		procs, memory, cpu := strconv.Itoa(s.Procs), size(s.Memory), fmt.Sprintf("%.1fs", s.CPU)
		if s.State == "ended" {
			procs, memory, cpu = "-", "-", "-"
		}
		policy := event.Printable(s.Policy)
		if s.Swaps > 0 {
			policy += fmt.Sprintf(" (change %d)", s.Swaps)
		}
		if !s.Glass.IsZero() {
			policy += " (break-glass until " + s.Glass.Local().Format(time.TimeOnly) + ")"
		}
		t.row(event.Printable(s.Name), event.Printable(s.ID), event.Printable(s.Agent), policy, event.Printable(s.State),
			ago(time.Since(s.Started)), procs, memory, cpu, denied, event.Printable(s.Workspace))
	}
	t.print(&p.out)
}

func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

func (p *program) killCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "kill SESSION...",
		Short: "end sessions with everything in them",
		Args:  count(1, 1<<20, "the name or id of a session"),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := p.gate(c.Context())
			if err != nil {
				return err
			}
			defer func() { _ = g.Close() }()
			var last error
			for _, s := range args {
				if last != nil {
					p.err.failure(last)
				}
				if err := orchestrator.Kill(c.Context(), g, s); err != nil {
					last = err
				}
			}
			return last
		},
	}
	c.ValidArgsFunction = p.completeSessions
	return c
}

// completeSessions offers running sessions; without a helper there are none.
func (p *program) completeSessions(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && c.Name() == "exec" {
		return nil, cobra.ShellCompDirectiveDefault
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	g, err := orchestrator.Connect(ctx, orchestrator.Connection{Socket: p.getenv("AGENTOS_SOCKET")})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer func() { _ = g.Close() }()
	past := c.Name() == "trust" || c.Parent() != nil && c.Parent().Name() == "audit"
	list, err := orchestrator.List(ctx, g, past)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, s := range list {
		if s.State != "ended" || past {
			out = append(out, s.Name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
