package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/audit/view"
	"github.com/agentos/agentos/orchestrator"
	"github.com/agentos/agentos/orchestrator/terminal"
)

// followEvery is how often a log that is followed is looked at.
const followEvery = 250 * time.Millisecond

func (p *program) auditCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "show and verify the record of a session",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.auditShow(), p.auditVerify())
	return c
}

// selection says which records are wanted.
type selection struct {
	view.Filter
	kinds []string
	path  string
	since time.Time // only what happened after
	tries orchestrator.Tries
}

// prepare parses kinds and path.
func (s *selection) prepare(home string) error {
	for _, list := range s.kinds {
		if err := s.ParseKinds(list); err != nil {
			return &orchestrator.Error{Err: err}
		}
	}
	if s.path == "" {
		return nil
	}
	g := s.path
	switch {
	case strings.HasPrefix(g, "~/"):
		g = home + g[1:]
	case !strings.HasPrefix(g, "/") && !strings.HasPrefix(g, "**/"):
		g = "**/" + strings.TrimPrefix(g, "./")
	}
	var err error
	if s.Path, err = view.PathGlob(g); err != nil {
		return &orchestrator.Error{Err: fmt.Errorf("--path: %w", err)}
	}
	return nil
}

// wants is shown every record in order.
func (s *selection) wants(r *segment.Record) bool {
	tried := s.tries.Has(r)
	return s.Match(r) && !(s.Denied && tried) && !r.Time.Before(s.since)
}

func (p *program) auditShow() *cobra.Command {
	var s selection
	var asJSON, follow bool
	c := &cobra.Command{
		Use:   "show [SESSION]",
		Short: "print the record of a session: the newest one, or by name or id",
		Long: `Prints what a session did, one line each: time, process, what, verdict, object, and the rule that decided.
With --json every record is one JSON object on one line.`,
		Example: "  agentos audit show --denied\n  agentos audit show fix-login --kind exec,net\n  agentos audit show --path '~/.ssh/**' --follow",
		Args:    count(0, 1, "at most one session"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.prepare(p.home); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			g, err := p.gate(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = g.Close() }()
			l, err := orchestrator.OpenLog(ctx, g, append(args, "")[0])
			if err != nil {
				return err
			}
			defer func() { _ = l.Close() }()
			print := p.record()
			if asJSON {
				print = view.AppendLine
			}
			return p.show(ctx, g, l, &s, follow, print)
		},
		ValidArgsFunction: p.completeSessions,
	}
	f := c.Flags()
	f.BoolVar(&s.Denied, "denied", false, "only what was denied, without what the jail check tried")
	f.StringSliceVar(&s.kinds, "kind", nil, "only these `kinds`: file, exec, net, session, system, or single ones such as open,connect")
	f.StringVar(&s.path, "path", "", "only records about paths that match `glob`")
	f.BoolVar(&asJSON, "json", false, "print JSON, one record a line")
	_ = c.RegisterFlagCompletionFunc("kind", completeKinds)
	f.BoolVarP(&follow, "follow", "f", false, "go on with what is recorded from now on, until the session ends")
	return c
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

func (p *program) show(ctx context.Context, g orchestrator.Gate, l *orchestrator.Log, s *selection, follow bool, print func([]byte, *segment.Record) []byte) error {
	r, err := segment.Open(l.Files...)
	if err != nil {
		return err
	}
	damaged := 0
	var buf []byte
	for {
		rec, err := r.Next()
		var bad *segment.Problem
		switch {
		case err == nil:
			if s.wants(&rec) {
				buf = print(buf[:0], &rec)
				_, _ = p.out.w.Write(buf) // flush tells
			}
			continue
		case errors.As(err, &bad):
			if damaged++; damaged <= 3 {
				p.err.note("the record is damaged: %v", bad)
			}
			continue
		case !errors.Is(err, io.EOF):
			return err
		}
		if err := p.out.flush(); err != nil {
			return err
		}
		if !follow || !l.Live {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
		added, err := l.Newer(ctx, g)
		if err != nil {
			return err
		}
		r.Add(added...)
	}
	if damaged > 0 {
		return &orchestrator.Error{Err: fmt.Errorf("%d places of the record are damaged", damaged), Hint: "agentos audit verify " + l.Name}
	}
	return nil
}

// record lays records out for people: the receipt, which is JSON, becomes a line,
// and pid 1 of a jail is called what it is.
func (p *program) record() func([]byte, *segment.Record) []byte {
	t := &view.Table{Color: p.out.color, Location: time.Local}
	if p.out.color {
		_, cols := terminal.Size(p.out.file)
		t.Width = int(cols)
	}
	return func(dst []byte, r *segment.Record) []byte {
		said := *r
		if r.Kind == event.Receipt {
			said.Path, said.Detail = "", receipt(r.Detail)
		}
		if r.Kind == event.Policy {
			said.Name, said.Detail = "", swapped(r.Detail)
		}
		if r.Kind == event.Grant {
			said.Detail = granted(r.Detail)
		}
		if r.JailPid == 1 {
			said.Comm = "init"
		}
		return t.Append(dst, &said)
	}
}

// receipt says in a line what the jail check found; --json has all of it.
func receipt(detail string) string {
	var r struct {
		Tier, Policy string
		Checks       []struct {
			Name string
			Good bool
		}
		Missing []struct{ Guarantee string }
		Glass   struct{ Reason string } `json:"break_glass"`
	}
	if json.Unmarshal([]byte(detail), &r) != nil {
		return detail
	}
	var bad, gone []string
	for _, c := range r.Checks {
		if !c.Good {
			bad = append(bad, c.Name)
		}
	}
	for _, m := range r.Missing {
		gone = append(gone, m.Guarantee)
	}
	text := fmt.Sprintf("policy %s, tier %s, jail check: %d of %d held", r.Policy, r.Tier, len(r.Checks)-len(bad), len(r.Checks))
	if len(bad) > 0 {
		text += ", not: " + strings.Join(bad, ", ")
	}
	if len(gone) > 0 {
		text += "; without " + strings.Join(gone, ", ")
	}
	if r.Glass.Reason != "" {
		text += "; break-glass: " + r.Glass.Reason
	}
	return text
}

// swapped says in a line who changed a session's policy, or was not allowed to.
func swapped(detail string) string {
	type named struct{ Name, SHA256 string }
	if text := glassed(detail); text != "" {
		return text
	}
	var s struct {
		UID, Generation int
		From, To        named
		Refused         string
	}
	if json.Unmarshal([]byte(detail), &s) != nil {
		return detail
	}
	short := func(n named) string { return fmt.Sprintf("%s (%.12s)", n.Name, n.SHA256) }
	if s.Refused != "" {
		return fmt.Sprintf("uid %d was refused to change %s to %s: %s", s.UID, short(s.From), short(s.To), s.Refused)
	}
	return fmt.Sprintf("generation %d: uid %d changed %s to %s", s.Generation, s.UID, short(s.From), short(s.To))
}

// granted says in a line who granted or forbade a session something, or was not allowed to.
func granted(detail string) string {
	var s struct {
		What           string
		UID, ID, Owner int
		Deny           bool
		Until          time.Time
		Refused        string
	}
	if json.Unmarshal([]byte(detail), &s) != nil {
		return detail
	}
	what := map[bool]string{true: "denial", false: "grant"}[s.Deny]
	switch s.What {
	case "refused":
		return fmt.Sprintf("uid %d was refused a %s: %s", s.UID, what, s.Refused)
	case "ended":
		return fmt.Sprintf("%s %d of uid %d: its time is over", what, s.ID, s.Owner)
	case "revoked":
		return fmt.Sprintf("uid %d took back %s %d of uid %d", s.UID, what, s.ID, s.Owner)
	}
	text := fmt.Sprintf("uid %d made %s %d", s.UID, what, s.ID)
	if !s.Until.IsZero() {
		text += ", until " + s.Until.Local().Format("15:04:05")
	}
	return text
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
