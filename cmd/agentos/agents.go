package main

import (
	"github.com/spf13/cobra"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/orchestrator"
)

func (p *program) agentsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "agents",
		Short: "show the agents that can be run by name",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	asJSON := false
	list := &cobra.Command{
		Use:   "list",
		Short: "list agents, where each is installed, and how to install it",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			rows, err := orchestrator.Agents(p.environ, p.home)
			if err != nil {
				return err
			}
			if asJSON {
				return p.out.json(rows)
			}
			t := table{head: []string{"NAME", "TITLE", "PROGRAM"}}
			for _, r := range rows {
				program := event.Printable(r.Argv0)
				if r.Argv0 == "" {
					program = p.out.dim(clean(r.Why))
					if r.Install != "" {
						program += p.out.dim("; install: " + clean(r.Install))
					}
				}
				t.row(event.Printable(r.Name), event.Printable(r.Title), program)
			}
			t.print(&p.out)
			return nil
		},
	}
	list.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(list)
	return c
}
