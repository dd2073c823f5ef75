package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/orchestrator"
	"github.com/agentos/agentos/orchestrator/trust"
	"github.com/agentos/agentos/policy"
)

// statusUntrusted is the status of trust --check when something is left.
const statusUntrusted = 3

// trustFlags say what to do with what was found.
type trustFlags struct {
	json, check, accept, quarantine, restore bool
}

func (p *program) trustCommand() *cobra.Command {
	var f trustFlags
	c := &cobra.Command{
		Use:   "trust [SESSION [PATH...]]",
		Short: "show what a session left that your tools will run or obey",
		Long: `Lists the files that a session made or changed and that a tool of yours executes or obeys later, outside of the jail: git hooks,
editor tasks, package scripts, build files, CI workflows, agent settings, executables and more, with who runs them and the difference
to what git had when the session began. SESSION is a name or id (default: the newest); PATH narrows the list to files or directories.

What was accepted is not shown again until it changes. Quarantine moves files to ~/.local/state/agentos/quarantine and puts the
earlier version back where it is known; --restore undoes that. No program runs to find this out, git neither.

The exit status is 0; with --check it is 3 when something is left to look at.`,
		Example: "  agentos trust\n  agentos trust fix-login package.json --accept\n  agentos trust fix-login .vscode --quarantine\n  agentos trust --check || echo look first",
		Args:    cobra.ArbitraryArgs,
		RunE:    func(c *cobra.Command, args []string) error { return p.trust(c.Context(), args, f) },
	}
	fl := c.Flags()
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.BoolVar(&f.check, "check", false, "exit with 3 when something is not accepted")
	fl.BoolVar(&f.accept, "accept", false, "remember what is listed as seen and good")
	fl.BoolVar(&f.quarantine, "quarantine", false, "move what is listed out of the workspace, and put back what was there")
	fl.BoolVar(&f.restore, "restore", false, "put back what was quarantined")
	c.MarkFlagsMutuallyExclusive("accept", "quarantine", "restore")
	c.ValidArgsFunction = func(c *cobra.Command, args []string, s string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return p.completeSessions(c, args, s)
	}
	return c
}

func (p *program) trustStore() trust.Store { return trust.In(p.home, p.getenv("XDG_STATE_HOME")) }

func (p *program) trust(ctx context.Context, args []string, f trustFlags) error {
	g, err := p.gate(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = g.Close() }()
	name, paths := "", []string(nil)
	if len(args) > 0 {
		name, paths = args[0], args[1:]
	}
	l, err := orchestrator.OpenLog(ctx, g, name)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	if l.Live && (f.accept || f.quarantine || f.restore) {
		return &orchestrator.Error{Err: fmt.Errorf("session %s is still running and may change what was looked at", l.Name), Hint: "agentos kill " + l.Name}
	}
	if f.restore {
		return p.restore(l)
	}
	r, s, err := p.untrusted(l)
	if err != nil {
		return err
	}
	if len(paths) > 0 {
		wd, err := os.Getwd()
		if err != nil {
			return err
		}
		var none []string
		if r.Items, none = trust.Only(r.Items, wd, paths); len(none) > 0 {
			return &orchestrator.Error{Err: fmt.Errorf("nothing is listed at %s", strings.Join(none, ", ")), Hint: "agentos trust " + l.Name + " lists what there is"}
		}
	}
	switch {
	case f.accept:
		return p.accept(&r)
	case f.quarantine:
		return p.quarantine(&s, &r)
	case f.json:
		err = p.out.json(r)
	default:
		p.showTrust(&r)
	}
	if err == nil && f.check && (len(r.Items) > 0 || r.Missed > 0) {
		return exitStatus(statusUntrusted)
	}
	return err
}

// untrusted finds what the session of l left, and how that began; nothing was kept
// of sessions that touched nothing that matters, or whose run was killed.
func (p *program) untrusted(l *orchestrator.Log) (trust.Report, trust.Session, error) {
	var c trust.Changes
	first, err := read(l, &c)
	if err != nil {
		return trust.Report{}, trust.Session{}, err
	}
	s, err := p.trustStore().Load(l.Session)
	if errors.Is(err, trust.ErrUnknown) {
		s, err = trust.Session{ID: l.Session, Name: l.Name, Began: first.Time, Workspace: first.Path, Roots: []string{first.Path}, Silent: c.Files == 0}, nil
	}
	if err != nil {
		return trust.Report{}, s, &orchestrator.Error{Err: err}
	}
	accepted, err := p.trustStore().Accepted()
	if err != nil {
		return trust.Report{}, s, &orchestrator.Error{Err: err, Hint: "move that file away: what was accepted is shown again"}
	}
	return s.Find(&c, accepted, trustWalk), s, nil
}

// read takes the changes out of a record, and its receipt: that has the workspace.
func read(l *orchestrator.Log, c *trust.Changes) (receipt segment.Record, err error) {
	r, err := segment.Open(l.Files...)
	if err != nil {
		return receipt, err
	}
	for {
		rec, err := r.Next()
		var bad *segment.Problem
		switch {
		case errors.Is(err, io.EOF):
			return receipt, nil
		case errors.As(err, &bad):
			c.Missed++
			continue
		case err != nil:
			return receipt, err
		}
		if rec.Kind == event.Receipt && receipt.Path == "" {
			receipt.Path, receipt.Time = strings.Clone(rec.Path), rec.Time
		}
		c.Add(&rec)
	}
}

func (p *program) showTrust(r *trust.Report) {
	for i, it := range r.Items {
		if i > 0 {
			p.out.linef("")
		}
		p.out.linef("%s: %s, %s", p.out.paint("1", event.Printable(it.Name)), it.Kind, changeWord(it))
		p.out.linef("  %s", p.out.dim(it.Why))
		if it.Note != "" {
			p.out.linef("  (%s, %s, %s)", it.Note, it.Mode, size(uint64(it.Size)))
		}
		for line := range strings.Lines(it.Diff) {
			p.diffLine(strings.TrimSuffix(line, "\n"))
		}
	}
	if len(r.Items) == 0 && r.Missed == 0 {
		p.out.linef("nothing that your tools would run or obey")
	}
	p.missed(r)
}

func (p *program) diffLine(line string) {
	said := "  " + event.Printable(strings.ReplaceAll(line, "\t", "    "))
	switch {
	case strings.HasPrefix(line, "+"):
		said = p.out.green(said)
	case strings.HasPrefix(line, "-"):
		said = p.out.red(said)
	case strings.HasPrefix(line, "@@"):
		said = p.out.dim(said)
	}
	p.out.linef("%s", said)
}

// changeWord says what happened to an item, for people.
func changeWord(it trust.Item) string {
	switch it.Files {
	case 0:
	case 1:
		return "1 file below is new or changed"
	default:
		return fmt.Sprintf("%d files below are new or changed", it.Files)
	}
	switch it.Change {
	case trust.New:
		return "new"
	case trust.Changed:
		return "changed"
	case trust.Untracked:
		return "git did not have it"
	case trust.Mode:
		return "made executable"
	}
	return "new or changed, earlier content unknown"
}

func (p *program) missed(r *trust.Report) {
	if r.ByTime {
		p.err.note("the record names no files: these were found by their change times, and what others changed since the session began is among them")
	}
	if r.Missed > 0 {
		p.err.note("%d events or paths could not be looked at: there may be more", r.Missed)
	}
}

func (p *program) accept(r *trust.Report) error {
	if err := p.trustStore().Accept(r.Items); err != nil {
		return &orchestrator.Error{Err: fmt.Errorf("remember: %w", err)}
	}
	p.out.linef("accepted %d", len(r.Items))
	p.missed(r)
	return nil
}

func (p *program) quarantine(s *trust.Session, r *trust.Report) error {
	if len(r.Items) == 0 {
		p.out.linef("nothing to quarantine")
		return nil
	}
	dir, errs, err := p.trustStore().Quarantine(s, r.Items)
	if err != nil {
		return &orchestrator.Error{Err: fmt.Errorf("quarantine: %w", err)}
	}
	for _, e := range errs {
		p.err.note("%v", e)
	}
	p.out.linef("quarantined %d of %d in %s", len(r.Items)-len(errs), len(r.Items), event.Printable(dir))
	return p.someFailed(errs)
}

func (p *program) restore(l *orchestrator.Log) error {
	paths, errs, err := p.trustStore().Restore(l.Session)
	if err != nil {
		return &orchestrator.Error{Err: fmt.Errorf("restore: %w", err)}
	}
	for _, e := range errs {
		p.err.note("%v", e)
	}
	p.out.linef("restored %d", len(paths))
	return p.someFailed(errs)
}

func (p *program) someFailed(errs []error) error {
	if len(errs) > 0 {
		return exitStatus(orchestrator.StatusFailed)
	}
	return nil
}

// began notes how the workspace of a plan is, before the agent runs.
func began(plan *orchestrator.Plan) trust.Session {
	v := &plan.Resolved.Vars
	var roots []string
	for _, m := range plan.Resolved.View() {
		if m.Access == policy.ReadWrite {
			roots = append(roots, m.Path)
		}
	}
	s := trust.Begin(v.Workspace, append(v.Git, "")[0], append(v.Worktree, "")[0], roots)
	s.State, s.Settings = v.State, v.Protect
	return s
}

// silent reports whether the record of a session says nothing of the files that
// it writes: the policy wants denied acts only, or the kernel tells nothing and no
// rule needs the broker, which would.
func silent(r *policy.Resolved, tier string) bool {
	return r.Audit.Files == "denied" || tier != "A" && tier != "B" && !r.NeedsEngine()
}

// trustWalk is how many entries of the workspace are looked at when the record is
// silent; at the end of a run a tenth, which takes less than a second.
const trustWalk = 2_000_000

// trustShown is how many items a run names at its end, and trustRecords the
// length of a record that it does not read for that: it takes seconds.
const (
	trustShown   = 5
	trustRecords = 1_000_000
)

// leaves says at the end of a run what its session leaves, if anything. How the
// workspace was is kept when the session touched a file that matters: homes stay
// clean of sessions that did not.
func (p *program) leaves(ctx context.Context, g orchestrator.Gate, s *trust.Session, exit orchestrator.Exit) {
	hint := "agentos trust " + s.Name
	if exit.Totals == nil {
		return
	}
	if !s.Silent && exit.Totals.Altered == 0 && exit.Totals.Lost == 0 {
		return // the record says of no file that it was altered
	}
	if exit.Totals.Records > trustRecords {
		p.keepNote(s)
		p.err.note("a record of %d events was not searched for files that your tools will run or obey", exit.Totals.Records)
		p.err.hint(hint)
		return
	}
	r, err := p.left(ctx, g, s)
	if err != nil || r.Compared > 0 || r.Missed > 0 {
		p.keepNote(s)
	}
	if err != nil {
		p.err.note("what the session left for your tools to run or obey is not known: %v", err)
		p.err.hint(hint)
		return
	}
	p.leftover(&r, hint)
}

func (p *program) keepNote(s *trust.Session) {
	if err := p.trustStore().Save(*s); err != nil {
		p.err.note("how the workspace was before the session was not kept for agentos trust: %v", err)
	}
}

// left finds what a session that has ended just now left.
func (p *program) left(ctx context.Context, g orchestrator.Gate, s *trust.Session) (r trust.Report, err error) {
	l, err := orchestrator.OpenLog(ctx, g, s.ID)
	if err != nil {
		return r, err
	}
	defer func() { _ = l.Close() }()
	var c trust.Changes
	if _, err = read(l, &c); err != nil {
		return r, err
	}
	accepted, err := p.trustStore().Accepted()
	if err != nil {
		return r, err
	}
	return s.Find(&c, accepted, trustWalk/10), nil
}

func (p *program) leftover(r *trust.Report, hint string) {
	n := len(r.Items)
	if n == 0 {
		return
	}
	what := fmt.Sprintf("%d files that your tools will run or obey are", n)
	if n == 1 {
		what = "1 file that your tools will run or obey is"
	}
	p.err.linef("agentos: %s new or changed:", what)
	for _, it := range r.Items[:min(n, trustShown)] {
		p.err.linef("  %s (%s)", event.Printable(it.Name), it.Kind)
	}
	if n > trustShown {
		p.err.linef("  and %d more", n-trustShown)
	}
	if r.ByTime {
		p.err.note("found by change times, because the record names no files: what you changed meanwhile is among them")
	}
	p.err.hint(hint + " shows the differences")
}
