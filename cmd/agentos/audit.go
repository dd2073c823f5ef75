package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/query"
	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/audit/tree"
	"github.com/agentos/agentos/audit/view"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/orchestrator"
	"github.com/agentos/agentos/orchestrator/records"
	"github.com/agentos/agentos/orchestrator/terminal"
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

// selection says which records are wanted: a session, a filter, and flags that are short
// for filters.
type selection struct {
	session string // "" is the newest one, or all
	query   query.Query
	denied  bool
	kinds   []string
	path    string
}

// prepare reads the arguments [SESSION] [FILTER...] and the flags.
func (s *selection) prepare(p *program, args []string) error {
	if len(args) > 0 && plainWord(args[0]) && !query.Begins(args[0]) {
		s.session, args = args[0], args[1:]
	}
	var err error
	if s.query, err = p.filter("", strings.Join(args, " ")); err != nil {
		return err
	}
	flags := []struct{ name, text string }{}
	if s.denied {
		flags = append(flags, struct{ name, text string }{"--denied", "denied"})
	}
	if len(s.kinds) > 0 {
		flags = append(flags, struct{ name, text string }{"--kind", query.OfKinds(s.kinds)})
	}
	if s.path != "" {
		flags = append(flags, struct{ name, text string }{"--path", "path=" + query.Quote(s.path)})
	}
	for _, f := range flags {
		q, err := p.filter(f.name, f.text)
		if err != nil {
			return err
		}
		s.query = s.query.And(q)
	}
	return nil
}

// plainWord reports whether s can be the name of a session and is no condition.
func plainWord(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

// filter reads a filter; flag is where it comes from, "" for the arguments.
func (p *program) filter(flag, text string) (query.Query, error) {
	q, err := query.Parse(text, query.Env{Now: time.Now(), Location: time.Local, Home: p.home})
	var bad *query.SyntaxError
	if errors.As(err, &bad) {
		if flag != "" {
			return q, &orchestrator.Error{Err: fmt.Errorf("%s: %s", flag, bad.Msg), Hint: bad.Hint}
		}
		return q, &orchestrator.Error{Err: err, Hint: bad.Hint}
	}
	return q, err
}

// filterFlags are the flags that are short for filters.
func (s *selection) filterFlags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&s.denied, "denied", false, "only what was denied, without what the jail check tried")
	f.StringSliceVar(&s.kinds, "kind", nil, "only these `kinds`: file, exec, net, session, system, or single ones such as open,connect")
	f.StringVar(&s.path, "path", "", "only records about paths that match `glob`")
	_ = c.RegisterFlagCompletionFunc("kind", completeKinds)
}

// completeFilter offers sessions as the first argument, and what a filter may have.
func (p *program) completeFilter(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	sessions, _ := p.completeSessions(c, nil, "")
	out := query.Complete(word, sessions)
	if strings.Contains(word, "=") {
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	if len(args) == 0 {
		out = append(sessions, out...)
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeKinds offers classes of events, and after a comma more of them.
func completeKinds(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	head := word[:strings.LastIndexByte(word, ',')+1]
	var out []string
	for _, class := range []event.Class{event.File, event.Program, event.Net, event.Session, event.System} {
		out = append(out, head+class.String())
	}
	for _, k := range event.Kinds() {
		if name := head + k.String(); k != event.Unknown && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// reviewing makes the RunE of a command that reads records: it reads the arguments,
// reaches the helper, and closes what was opened.
func (p *program) reviewing(s *selection, run func(ctx context.Context, v *records.Reader) error) func(c *cobra.Command, args []string) error {
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
		v := p.reader(g, s)
		err = run(ctx, v)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil // the user's word
		}
		if bad := v.Close(); err == nil {
			err = bad
		}
		return err
	}
}

// reader reads what s chooses.
func (p *program) reader(g orchestrator.Gate, s *selection) *records.Reader {
	return &records.Reader{Gate: g, Session: s.session, Query: s.query, Note: p.err.note}
}

// laid lays records out for people.
func (p *program) laid(sessions bool) func([]byte, *segment.Record) []byte {
	t := &view.Table{Color: p.out.color, Width: p.width(), Location: time.Local, Session: sessions}
	return func(dst []byte, r *segment.Record) []byte {
		said := view.Told(r, time.Local)
		return t.Append(dst, &said)
	}
}

// errEnough ends a search early.
var errEnough = errors.New("enough")

// printing returns what prints a record: for people, with its session where there may be
// several, or as a line of JSON.
func (p *program) printing(asJSON, sessions bool) func(l *records.Log, r *segment.Record) error {
	lay := p.laid(sessions)
	var buf []byte
	return func(l *records.Log, r *segment.Record) error {
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

` + query.Help(),
		Example: "  agentos audit show --denied\n  agentos audit show fix-login --kind exec,net\n  agentos audit show fix-login exe~node 'path=~/.ssh/**'\n  agentos audit show --path '~/.ssh/**' --follow",
		RunE: p.reviewing(&s, func(ctx context.Context, v *records.Reader) error {
			v.Follow = follow
			return p.single(ctx, v, asJSON)
		}),
		ValidArgsFunction: p.completeFilter,
	}
	s.filterFlags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one record a line")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is recorded from now on, until the session ends")
	return c
}

// single prints what is chosen of one session, and goes on until its end if it follows.
func (p *program) single(ctx context.Context, v *records.Reader, asJSON bool) error {
	if err := v.One(ctx); err != nil {
		return err
	}
	return p.printAll(ctx, v, p.printing(asJSON, false))
}

// printAll prints what is chosen, and goes on with what is followed.
func (p *program) printAll(ctx context.Context, v *records.Reader, print func(*records.Log, *segment.Record) error) error {
	for {
		if err := v.Chosen(print); err != nil {
			return err
		}
		if err := p.out.flush(); err != nil {
			return err
		}
		if more, err := v.Wait(ctx); err != nil || !more {
			return err
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

` + query.Help(),
		Example: `  agentos audit query kind=exec exe~node since=2h
  agentos audit query denied 'path=**/.env' session='fix-*'
  agentos audit query 'host=*.example.com (verdict=deny or port!=443)'
  agentos audit query altered 'path=~/.config/**' --json | jq -r .path`,
		RunE: p.reviewing(&s, func(ctx context.Context, v *records.Reader) error {
			if err := v.All(ctx, true); err != nil {
				return err
			}
			print, n := p.printing(asJSON, s.session == ""), 0
			err := v.Chosen(func(l *records.Log, r *segment.Record) error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if n++; !onlyCount {
					if err := print(l, r); err != nil {
						return err
					}
				}
				if n == limit {
					return errEnough
				}
				return nil
			})
			if err != nil && !errors.Is(err, errEnough) {
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

` + query.Help(),
		Example: "  agentos audit tail -f denied\n  agentos audit tail fix-login -n 50\n  agentos audit tail -f class=net --json",
		RunE: p.reviewing(&s, func(ctx context.Context, v *records.Reader) error {
			if last < 0 {
				return &orchestrator.Error{Err: fmt.Errorf("--lines %d: want a number from 0", last)}
			}
			v.Follow = follow
			if s.query.String() == "" { // then the numbers say where the last ones begin
				v.From = func(r rpc.Session) uint64 { return r.Records - min(r.Records, uint64(last)+100) }
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
	log *records.Log
	rec segment.Record
}

func (p *program) tail(ctx context.Context, v *records.Reader, last int, print func(*records.Log, *segment.Record) error) error {
	if err := v.All(ctx, !v.Follow); err != nil {
		return err
	}
	var ring []kept
	n := 0
	err := v.Chosen(func(l *records.Log, r *segment.Record) error {
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
	if err := p.out.flush(); err != nil {
		return err
	}
	if more, err := v.Wait(ctx); err != nil || !more {
		return err
	}
	return p.printAll(ctx, v, print)
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

` + query.Help(),
		Example: "  agentos audit stats since=1d\n  agentos audit stats fix-login exe~node --top 30",
		RunE: p.reviewing(&s, func(ctx context.Context, v *records.Reader) error {
			own, err := p.filter("", "check=no")
			if err != nil {
				return err
			}
			v.Query = v.Query.And(own)
			if err := v.All(ctx, true); err != nil {
				return err
			}
			var sum view.Summary
			if err := v.Chosen(func(_ *records.Log, r *segment.Record) error { sum.Add(r); return ctx.Err() }); err != nil {
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

` + query.Help(),
		Example: "  agentos audit tree\n  agentos audit tree fix-login denied",
		RunE: p.reviewing(&s, func(ctx context.Context, v *records.Reader) error {
			own, err := p.filter("", "check=no")
			if err != nil {
				return err
			}
			v.Query = v.Query.And(own)
			if err := v.One(ctx); err != nil {
				return err
			}
			var b tree.Builder
			err = v.Each(func(l *records.Log, r *segment.Record) error { b.Add(r, l.Match(r)); return ctx.Err() })
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
