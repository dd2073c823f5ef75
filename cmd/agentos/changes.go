package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/orchestrator"
	"github.com/agentos/agentos/orchestrator/changes"
)

// changesFlags are those of changes.
type changesFlags struct {
	json, all, persisted, remove bool
	keep                         []string
	order                        changes.Order
}

func (p *program) changesCommand() *cobra.Command {
	var f changesFlags
	c := &cobra.Command{
		Use:   "changes [flags] SESSION | --persisted [--remove [ID...]]",
		Short: "list what a session made in its home, and keep what you want of it",
		Long: `Lists what a running session made in its home: it goes with the session, except what is kept. Directories with many files are
one line each. In trees that the policy lays over yours (overlay), what differs from yours is listed.

--keep copies a file or a tree to the same place in your home, or with --to into a directory. It replaces nothing and takes no
name that the policy denies or protects, nor one that your shell, editor or desktop obeys; --force does both. Links out of the
tree, FIFOs, sockets and devices are left out; nothing gets set-id bits. agentos run --keep does the same when the agent ends.

--persisted lists what policies keep between the sessions of a workspace (persist); --remove removes it, or what is named.`,
		Example: `  agentos changes claude-3f2a
  agentos changes claude-3f2a --keep ~/.local/share/mkcert --keep ~/notes.md
  agentos changes claude-3f2a --keep ~/report --to /tmp
  agentos changes --persisted --remove`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case f.persisted && (len(f.keep) > 0 || f.order.To != "" || f.order.Force || f.all):
				return &orchestrator.Error{Err: errors.New("--persisted goes with --remove and --json alone"), Hint: c.CommandPath() + " --help"}
			case f.persisted && !f.remove && len(args) > 0:
				return &orchestrator.Error{Err: errors.New("--persisted lists everything"), Hint: "--remove takes what to remove"}
			case f.persisted:
				return nil
			case f.remove:
				return &orchestrator.Error{Err: errors.New("--remove goes with --persisted"), Hint: "what a session made goes with it"}
			case len(f.keep) == 0 && (f.order.To != "" || f.order.Force):
				return &orchestrator.Error{Err: errors.New("--to and --force go with --keep"), Hint: c.CommandPath() + " --help"}
			}
			return count(1, 1, "a session, or --persisted")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if f.persisted {
				return p.persisted(c.Context(), f, args)
			}
			return p.changes(c.Context(), f, args[0])
		},
		ValidArgsFunction: p.completeSessions,
	}
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	c.Flags().BoolVar(&f.all, "all", false, "list every name")
	c.Flags().StringArrayVar(&f.keep, "keep", nil, "copy this `path` of the session's home to yours; may be repeated")
	c.Flags().StringVar(&f.order.To, "to", "", "copy into this `directory` instead")
	c.Flags().BoolVar(&f.order.Force, "force", false, "replace files, and take names that are protected")
	c.Flags().BoolVar(&f.persisted, "persisted", false, "list what is kept between sessions")
	c.Flags().BoolVar(&f.remove, "remove", false, "with --persisted: remove it, or those whose IDs follow")
	_ = c.MarkFlagDirname("to")
	return c
}

func (p *program) changes(ctx context.Context, f changesFlags, session string) error {
	g, err := p.gate(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = g.Close() }()
	set, err := changes.Open(ctx, g, session)
	if err != nil {
		return err
	}
	defer func() { _ = set.Close() }()
	if len(f.keep) > 0 {
		return p.keep(set, f.keep, f.order)
	}
	rows, totals, err := set.List(changes.Limits{}, f.all)
	if err != nil {
		return err
	}
	if f.json {
		return p.out.json(struct {
			Session string           `json:"session"`
			Name    string           `json:"name"`
			Home    string           `json:"home"`
			Changes []changes.Change `json:"changes"`
			Totals  changes.Totals   `json:"totals"`
		}{set.Session, set.Name, set.Home, rows, totals})
	}
	t := table{head: []string{"KIND", "SIZE", "ON DISK", "PATH"}}
	for _, r := range rows {
		name := event.Printable(tilde(r.Path, set.Home))
		if r.Kind == changes.Dir {
			name += "/"
		}
		if r.Names > 0 {
			name += p.out.dim(fmt.Sprintf("  (%d names)", r.Names))
		}
		t.row(string(r.Kind), size(uint64(r.Size)), size(uint64(r.Disk)), name)
	}
	t.print(&p.out)
	if totals.More {
		p.err.note("there is more: only the first %d names were looked at", totals.Names)
	}
	if totals.Unread > 0 {
		p.err.note("%d directories could not be read, or lie too deep", totals.Unread)
	}
	return nil
}

// tilde shortens a path of the home.
func tilde(p, home string) string {
	if rest, ok := strings.CutPrefix(p, home+"/"); ok {
		return "~/" + rest
	}
	return p
}

// inHome is the path in the session's home that the user means: an absolute one,
// or one that begins with ~/ because no shell expanded it.
func (p *program) inHome(arg, home string) (string, error) {
	for _, prefix := range []string{"~/", p.home + "/"} { // the user's home may be a link to the session's
		if rest, ok := strings.CutPrefix(arg, prefix); ok && prefix != "/" {
			return path.Clean(home + "/" + rest), nil
		}
	}
	if !path.IsAbs(arg) {
		return "", &orchestrator.Error{Err: fmt.Errorf("--keep %s: which directory is meant?", event.Printable(arg)), Hint: "begin with ~/ or /"}
	}
	return path.Clean(arg), nil
}

// keep copies paths to the host, in order. One that fails does not keep the others
// from it: they may soon be gone. The last failure is the error.
func (p *program) keep(set *changes.Set, paths []string, o changes.Order) error {
	var last error
	for _, arg := range paths {
		err := p.keepOne(set, arg, o)
		if last != nil && err != nil {
			p.err.failure(last)
		}
		if err != nil {
			last = err
		}
	}
	return last
}

func (p *program) keepOne(set *changes.Set, arg string, o changes.Order) (err error) {
	if o.Path, err = p.inHome(arg, set.Home); err != nil {
		return err
	}
	r, err := set.Keep(o, changes.Limits{})
	var refusal *changes.Refusal
	if errors.As(err, &refusal) {
		return &orchestrator.Error{Err: err, Hint: refusal.Hint, Status: orchestrator.StatusRefused}
	}
	if err != nil {
		return err
	}
	p.err.note("kept %s: %s, %s", r.Path, countOf(r.Files, "file"), size(uint64(r.Bytes)))
	for _, l := range r.Left {
		p.err.note("left out %s", l)
	}
	if r.More > 0 {
		p.err.note("left out %d more", r.More)
	}
	return nil
}

// keepAtEnd copies paths out of a session whose agent has ended, before its layer goes.
func (p *program) keepAtEnd(ctx context.Context, g changes.Gate, session string, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	set, err := changes.Open(ctx, g, session)
	if err != nil {
		return fmt.Errorf("nothing was kept: %w", err)
	}
	defer func() { _ = set.Close() }()
	return p.keep(set, paths, changes.Order{})
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func (p *program) persisted(ctx context.Context, f changesFlags, ids []string) error {
	g, err := p.gate(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = g.Close() }()
	list, err := changes.ListKept(ctx, g, changes.Limits{})
	if err != nil {
		return err
	}
	if f.remove {
		return p.drop(ctx, g, list, ids)
	}
	if f.json {
		return p.out.json(list)
	}
	slices.SortStableFunc(list, func(a, b changes.Kept) int {
		return strings.Compare(a.Workspace+"\x00"+a.Path, b.Workspace+"\x00"+b.Path)
	})
	t := table{head: []string{"ID", "SIZE", "ON DISK", "NAMES", "IN USE", "PATH", "WORKSPACE"}}
	for _, k := range list {
		names := strconv.Itoa(k.Totals.Names)
		if k.Totals.More || k.Totals.Unread > 0 {
			names += "+"
		}
		use := "no"
		if k.InUse {
			use = "yes"
		}
		t.row(k.ID, size(uint64(k.Totals.Size)), size(uint64(k.Totals.Disk)), names, use, event.Printable("~/"+k.Path), event.Printable(k.Workspace))
	}
	t.print(&p.out)
	return nil
}

// drop removes the kept directories that ids name, or without any the caller's own.
func (p *program) drop(ctx context.Context, g changes.Gate, list []changes.Kept, ids []string) error {
	if len(ids) == 0 {
		for _, k := range list {
			if k.UID == os.Getuid() {
				ids = append(ids, k.ID)
			}
		}
	}
	var last error
	for _, id := range ids {
		err := changes.Drop(ctx, g, id)
		if err == nil {
			p.err.note("removed %s", id)
			continue
		}
		if last != nil {
			p.err.failure(last)
		}
		last = fmt.Errorf("remove %s: %w", event.Printable(id), err)
	}
	return last
}
