package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/orchestrator"
)

func (p *program) auditCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "show, search and verify the records of sessions",
		Long: `Shows what sessions did, from their records.

  show SESSION    everything that one session did, in order
  query FILTER    what any session did: kind=exec exe~node denied since=2h
  tail -f         what happens now
  stats           the most used files, hosts and programs; denials by rule
  tree SESSION    the processes, with what each did
  verify SESSION  whether the record is whole and unchanged`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.auditShow(), p.auditQuery(), p.auditTail(), p.auditStats(), p.auditTree(), p.auditVerify())
	return c
}

func (p *program) auditVerify() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "verify [SESSION]",
		Short: "prove that a session's record is whole and unchanged",
		Long: `Checks the hash chain, every signature and the sequence numbers of a session's record.
The exit status is 0 if all is well, 1 if something is wrong with the record.`,
		Args: count(0, 1, "at most one session"),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := p.gate(c.Context())
			if err != nil {
				return err
			}
			defer func() { _ = g.Close() }()
			l, err := orchestrator.OpenLog(c.Context(), g, append(args, "")[0])
			if err != nil {
				return err
			}
			defer func() { _ = l.Close() }()
			rep, err := segment.Verify(l.Files, l.Public)
			if err != nil {
				return err
			}
			if rep.OK() && rep.Session != l.Session {
				rep.Problems = append(rep.Problems, segment.Problem{What: fmt.Sprintf("the log is of session %s, not of %s", rep.Session, l.Session)})
			}
			good := rep.OK() && (l.Live || rep.Complete())
			if asJSON {
				if err := p.out.json(rep); err != nil {
					return err
				}
			} else {
				p.verified(l, &rep, good)
			}
			if !good {
				return exitStatus(1)
			}
			return nil
		},
		ValidArgsFunction: p.completeSessions,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (p *program) verified(l *orchestrator.Log, rep *segment.Report, good bool) {
	for _, x := range rep.Problems {
		p.out.linef("%s %s", p.out.red("problem"), clean(x.Error()))
	}
	if rep.More > 0 {
		p.out.linef("%s and %d more", p.out.red("problem"), rep.More)
	}
	word := p.out.green("ok")
	if !good {
		word = p.out.red("NOT OK")
	}
	state := "closed"
	switch {
	case !rep.Closed && l.Live:
		state = "still being written"
	case !rep.Closed:
		state = p.out.red("not closed: its end may be missing")
	}
	p.out.linef("%s %s: %s in %s, %s, signed up to record %d, %s", word, event.Printable(l.Name),
		countOf(int(rep.Records), "record"), countOf(rep.Segments, "segment"), countOf(rep.Heads, "signed head"), rep.Signed, state)
	if rep.Losses > 0 || rep.Gaps > 0 {
		p.out.linef("%d events lost, %d gaps, as recorded", rep.Losses, rep.Gaps)
	}
}
