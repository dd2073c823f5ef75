package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/audit/tree"
	"github.com/agentos/agentos/audit/view"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/orchestrator"
	"github.com/agentos/agentos/orchestrator/terminal"
)

// reviewing makes the RunE of a command that reads records: it reads the arguments,
// reaches the helper, and closes what was opened.
func (p *program) reviewing(s *selection, run func(ctx context.Context, v *review) error) func(c *cobra.Command, args []string) error {
	return func(c *cobra.Command, args []string) error {
		if err := s.prepare(p, args); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
		defer stop()
		g, err := p.gate(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = g.Close() }()
		v := &review{p: p, gate: g, sel: s}
		err = run(ctx, v)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil // the user's word
		}
		if bad := v.end(); err == nil {
			err = bad
		}
		return err
	}
}

// printing returns what prints a record: for people, with its session where there may be
// several, or as a line of JSON.
func (p *program) printing(asJSON, sessions bool) func(l *sessionLog, r *segment.Record) error {
	lay := p.record(sessions)
	var buf []byte
	return func(l *sessionLog, r *segment.Record) error {
		if asJSON {
			buf = view.AppendLine(buf[:0], r)
		} else {
			said := *r
			if sessions {
				said.Jail = l.Name
			}
			buf = lay(buf[:0], &said)
		}
		_, err := p.out.w.Write(buf)
		return err
	}
}

func (p *program) auditShow() *cobra.Command {
	var s selection
	var asJSON, follow bool
	c := &cobra.Command{
		Use:   "show [SESSION] [FILTER...]",
		Short: "print the record of a session: the newest one, or by name or id",
		Long: `Prints what a session did, one line each: time, process, what, verdict, object, and the rule that decided.
With --json every record is one JSON object on one line.

` + filterHelp(),
		Example: "  agentos audit show --denied\n  agentos audit show fix-login --kind exec,net\n  agentos audit show fix-login exe~node 'path=~/.ssh/**'\n  agentos audit show --path '~/.ssh/**' --follow",
		RunE: p.reviewing(&s, func(ctx context.Context, v *review) error {
			v.follow = follow
			return v.single(ctx, asJSON)
		}),
		ValidArgsFunction: p.completeFilter,
	}
	s.filterFlags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one record a line")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is recorded from now on, until the session ends")
	return c
}

// single prints what is chosen of one session, and goes on until its end if it follows.
func (v *review) single(ctx context.Context, asJSON bool) error {
	l, err := v.one(ctx)
	if err != nil {
		return err
	}
	print := v.p.printing(asJSON, false)
	for {
		if err := v.chosen(print); err != nil {
			return err
		}
		if !v.rest(ctx, l.Live) {
			return nil
		}
	}
}

func (p *program) auditQuery() *cobra.Command {
	var s selection
	var asJSON, onlyCount bool
	var limit int
	c := &cobra.Command{
		Use:   "query [SESSION] [FILTER...]",
		Short: "search the records of all your sessions, or of one",
		Long: `Prints the records that a filter chooses, of all your sessions (root: of everybody's) in the order of time, one line each or, with
--json, one JSON object a line.

` + filterHelp(),
		Example: `  agentos audit query kind=exec exe~node since=2h
  agentos audit query denied 'path=**/.env' session='fix-*'
  agentos audit query 'host=*.example.com (verdict=deny or port!=443)'
  agentos audit query altered 'path=~/.config/**' --json | jq -r .path`,
		RunE: p.reviewing(&s, func(ctx context.Context, v *review) error {
			if err := v.many(ctx, true); err != nil {
				return err
			}
			print, n := p.printing(asJSON, s.session == ""), 0
			err := v.chosen(func(l *sessionLog, r *segment.Record) error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if n++; !onlyCount {
					if err := print(l, r); err != nil {
						return err
					}
				}
				if n == limit {
					return enough
				}
				return nil
			})
			if err != nil && !errors.Is(err, enough) {
				return err
			}
			switch {
			case onlyCount && asJSON:
				return p.out.json(struct {
					Count int `json:"count"`
				}{n})
			case onlyCount:
				p.out.linef("%d", n)
			}
			return nil
		}),
		ValidArgsFunction: p.completeFilter,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one record a line")
	c.Flags().BoolVarP(&onlyCount, "count", "c", false, "print only how many there are")
	c.Flags().IntVarP(&limit, "limit", "n", 0, "end after `N` records (0: all)")
	return c
}

func (p *program) auditTail() *cobra.Command {
	var s selection
	var asJSON, follow bool
	last := 10
	c := &cobra.Command{
		Use:   "tail [SESSION] [FILTER...]",
		Short: "print the last records of all your sessions, or of one, and follow them",
		Long: `Prints the last records that a filter chooses, of one session or of all (with --follow: of all that run, and of those that are
started later). With --follow it goes on with what is recorded, until the session ends or, without one, until it is interrupted.

` + filterHelp(),
		Example: "  agentos audit tail -f denied\n  agentos audit tail fix-login -n 50\n  agentos audit tail -f class=net --json",
		RunE: p.reviewing(&s, func(ctx context.Context, v *review) error {
			if last < 0 {
				return &orchestrator.Error{Err: fmt.Errorf("--lines %d: want a number from 0", last)}
			}
			v.follow = follow
			if s.query.String() == "" { // then the numbers say where the last ones begin
				v.from = func(r rpc.Session) uint64 { return r.Records - min(r.Records, uint64(last)+100) }
			}
			return p.tail(ctx, v, last, p.printing(asJSON, s.session == ""))
		}),
		ValidArgsFunction: p.completeFilter,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one record a line")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is recorded from now on")
	c.Flags().IntVarP(&last, "lines", "n", last, "how many of the last records to print first")
	return c
}

// kept is a record that may be among the last.
type kept struct {
	log *sessionLog
	rec segment.Record
}

func (p *program) tail(ctx context.Context, v *review, last int, print func(*sessionLog, *segment.Record) error) error {
	if err := v.many(ctx, !v.follow); err != nil {
		return err
	}
	var ring []kept
	n := 0
	err := v.chosen(func(l *sessionLog, r *segment.Record) error {
		switch {
		case len(ring) < last:
			ring = append(ring, kept{l, *r})
		case last > 0:
			ring[n%last] = kept{l, *r}
		}
		n++
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	for i := range ring {
		k := &ring[(n+i)%len(ring)]
		if n <= len(ring) {
			k = &ring[i]
		}
		if err := print(k.log, &k.rec); err != nil {
			return err
		}
	}
	ring = nil
	listed := time.Now()
	more := func() bool { return v.sel.session == "" || v.lines.Alive() }
	for v.rest(ctx, more) {
		if time.Since(listed) >= listEvery {
			if err := v.many(ctx, false); err != nil {
				return err
			}
			listed = time.Now()
		}
		if err := v.chosen(print); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) auditStats() *cobra.Command {
	var s selection
	var asJSON bool
	top := 10
	c := &cobra.Command{
		Use:   "stats [SESSION] [FILTER...]",
		Short: "count what your sessions did: files, hosts, programs, denials by rule",
		Long: `Sums up the records that a filter chooses, of all your sessions or of one: what was denied, by which rule; the programs, files and hosts
that were used most; what was changed. What the jail check tried is left out.

` + filterHelp(),
		Example: "  agentos audit stats since=1d\n  agentos audit stats fix-login exe~node --top 30",
		RunE: p.reviewing(&s, func(ctx context.Context, v *review) error {
			own, err := p.filter("", "check=no")
			if err != nil {
				return err
			}
			s.query = s.query.And(own)
			if err := v.many(ctx, true); err != nil {
				return err
			}
			var sum view.Summary
			if err := v.chosen(func(_ *sessionLog, r *segment.Record) error { sum.Add(r); return ctx.Err() }); err != nil {
				return err
			}
			res := sum.Result()
			if asJSON {
				return p.out.json(&res)
			}
			_, err = p.out.w.Write(view.Report{Color: p.out.color, Width: p.width(), Top: top}.Append(nil, &res))
			return err
		}),
		ValidArgsFunction: p.completeFilter,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, with all entries")
	c.Flags().IntVar(&top, "top", top, "how many `entries` of each list (0: all)")
	return c
}

func (p *program) auditTree() *cobra.Command {
	var s selection
	var asJSON, short bool
	c := &cobra.Command{
		Use:   "tree [SESSION] [FILTER...]",
		Short: "print the processes of a session as a tree, with what each did",
		Long: `Prints who started what in a session (the newest one, or by name or id) and what each process did: how many files it read and altered,
what it was refused, where it connected to. A filter chooses what is counted; all processes are there. With --json the processes are a list in
which each names its parent.

` + filterHelp(),
		Example: "  agentos audit tree\n  agentos audit tree fix-login denied",
		RunE: p.reviewing(&s, func(ctx context.Context, v *review) error {
			own, err := p.filter("", "check=no")
			if err != nil {
				return err
			}
			s.query = s.query.And(own)
			if _, err := v.one(ctx); err != nil {
				return err
			}
			var b tree.Builder
			err = v.each(func(l *sessionLog, r *segment.Record) error { b.Add(r, l.match.Match(r)); return ctx.Err() })
			if err != nil {
				return err
			}
			t := b.Result()
			if asJSON {
				return p.out.json(&t)
			}
			_, err = p.out.w.Write(tree.Text{Color: p.out.color, Width: p.width(), Short: short}.Append(nil, &t))
			return err
		}),
		ValidArgsFunction: p.completeFilter,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&short, "short", false, "only the processes and the counts")
	return c
}

// width is how wide lines may be, 0 where they need not be cut.
func (p *program) width() int {
	if !p.out.color {
		return 0
	}
	_, cols := terminal.Size(p.out.file)
	return int(cols)
}
