package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/orchestrator"
	"github.com/agentos/agentos/policy/glob"
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
	denied bool
	kinds  []string
	path   string
	wanted map[event.Kind]bool // nil = all
	match  *glob.Automaton     // nil = all
	tries  orchestrator.Tries
}

// prepare parses kinds and path.
func (s *selection) prepare(home string) error {
	for _, name := range s.kinds {
		if s.wanted == nil {
			s.wanted = map[event.Kind]bool{}
		}
		class, err := event.ParseClass(name)
		if err == nil {
			for _, k := range event.Kinds() {
				if k.Class() == class {
					s.wanted[k] = true
				}
			}
		}
		if k, kerr := event.ParseKind(name); kerr == nil {
			s.wanted[k] = true
		} else if err != nil {
			return &orchestrator.Error{Err: fmt.Errorf("there is no kind %q", name), Hint: "file, exec, net, session, system, or one kind such as open, rename, connect"}
		}
	}
	s.tries = orchestrator.Tries{}
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
	a, err := glob.Compile([]string{g}, func(matched []uint16) glob.Accept {
		if len(matched) == 0 {
			return glob.Accept{}
		}
		return glob.Accept{Bits: 1 << glob.Read}
	})
	if err != nil {
		return &orchestrator.Error{Err: fmt.Errorf("--path %s: %w", s.path, err)}
	}
	s.match = a
	return nil
}

func (s *selection) wants(r *segment.Record) bool {
	tried := s.tries.Has(r)
	if s.denied && (r.Verdict != event.Deny || r.Kind.Class() == event.Session || tried) {
		return false
	}
	if s.wanted != nil && !s.wanted[r.Kind] {
		return false
	}
	if s.match == nil {
		return true
	}
	for _, p := range []string{r.Path, r.Path2} {
		if strings.HasPrefix(p, "/") && s.match.Match(p).Allows(glob.Read) {
			return true
		}
	}
	return false
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
			print := p.record
			if asJSON {
				print = p.recordJSON
			}
			return p.show(ctx, g, l, &s, follow, print)
		},
		ValidArgsFunction: p.completeSessions,
	}
	f := c.Flags()
	f.BoolVar(&s.denied, "denied", false, "only what was denied")
	f.StringSliceVar(&s.kinds, "kind", nil, "only these `kinds`: file, exec, net, session, system, or single ones such as open,connect")
	f.StringVar(&s.path, "path", "", "only records about paths that match `glob`")
	f.BoolVar(&asJSON, "json", false, "print JSON, one record a line")
	f.BoolVarP(&follow, "follow", "f", false, "go on with what is recorded from now on, until the session ends")
	return c
}

func (p *program) show(ctx context.Context, g orchestrator.Gate, l *orchestrator.Log, s *selection, follow bool, print func(*segment.Record)) error {
	r, err := segment.Open(l.Files...)
	if err != nil {
		return err
	}
	damaged := 0
	for {
		rec, err := r.Next()
		var bad *segment.Problem
		switch {
		case err == nil:
			if s.wants(&rec) {
				print(&rec)
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

func (p *program) recordJSON(r *segment.Record) {
	_, _ = p.out.w.Write(append(r.AppendJSON(nil), '\n'))
}

// record prints one line: time, verdict, kind, process, object, rule.
func (p *program) record(r *segment.Record) {
	verdict := "      "
	switch {
	case r.Kind.Class() == event.Session:
	case r.Verdict == event.Deny:
		verdict = p.out.red("denied")
	default:
		verdict = p.out.green("ok    ")
	}
	line := fmt.Sprintf("%s  %s  %-8s %s  %s", p.out.dim(r.Time.Local().Format("15:04:05.000")), verdict, r.Kind, process(&r.Event), what(&r.Event))
	if r.Count > 1 {
		line += fmt.Sprintf(" (%d times)", r.Count)
	}
	if r.Rule != "" && r.Verdict == event.Deny {
		line += p.out.dim("  by " + event.Printable(r.Rule))
	}
	p.out.linef("%s", line)
}

func process(e *event.Event) string {
	pid := e.JailPid
	if pid == 0 {
		pid = e.Pid
	}
	name := e.Comm
	if e.JailPid == 1 {
		return "init[1]"
	}
	if e.Exe != "" {
		name = e.Exe[strings.LastIndexByte(e.Exe, '/')+1:]
	}
	if name == "" && pid == 0 {
		return "-"
	}
	return fmt.Sprintf("%s[%d]", event.Printable(name), pid)
}

// what describes the object of an event.
func what(e *event.Event) string {
	var parts []string
	add := func(s string) {
		if s != "" {
			parts = append(parts, event.Printable(s))
		}
	}
	switch e.Kind {
	case event.Exec, event.Start, event.Spawn:
		if len(e.Argv) == 0 {
			add(e.Path)
			break
		}
		add(e.Path)
		for _, a := range e.Argv[1:] {
			parts = append(parts, argument(a))
		}
	case event.Exit, event.End:
		add(e.Path)
		parts = append(parts, fmt.Sprintf("status %d", e.Code))
		add(e.Detail)
	case event.Receipt:
		parts = append(parts, receipt(e.Detail))
	case event.Rename, event.Link, event.Symlink:
		parts = append(parts, event.Printable(e.Path)+" -> "+event.Printable(e.Path2))
	case event.Loss:
		parts = append(parts, fmt.Sprintf("%d events were lost", e.Count))
		add(e.Detail)
	default:
		for _, s := range []string{e.Path, e.Path2, e.Addr, e.Name, e.Detail} {
			add(s)
		}
	}
	return strings.Join(parts, " ")
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
	}
	if json.Unmarshal([]byte(detail), &r) != nil {
		return event.Printable(detail)
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
	return event.Printable(text)
}

// argument quotes what a shell would split.
func argument(a string) string {
	s := event.Printable(a)
	if s == "" || strings.ContainsAny(s, " '\"$`&|;<>()*?") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
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
	p.out.linef("%s %s: %d records in %d segments, %d signed heads, signed up to record %d, %s", word, event.Printable(l.Name), rep.Records, rep.Segments, rep.Heads, rep.Signed, state)
	if rep.Losses > 0 || rep.Gaps > 0 {
		p.out.linef("%d events lost, %d gaps, as recorded", rep.Losses, rep.Gaps)
	}
}
