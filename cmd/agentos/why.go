package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/query"
	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/jail/why"
	"github.com/agentos/agentos/orchestrator"
	"github.com/agentos/agentos/policy"
)

// shownDenials is how many denials why tells about.
const shownDenials = 5

func (p *program) whyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "why [SESSION [PATH]]",
		Short: "say what was denied last, by which rule, and the line that would allow it",
		Long: `Says what a session was denied last, or about one path: what was tried, the error it got, the rule and where it stands, and the
line to add to which file, or who alone can. Without a session it is the newest one. Agents have the same command in their jail:
agentos why [PATH].`,
		Example: "  agentos why\n  agentos why fix-login .git/hooks",
		Args:    count(0, 2, "a session and a path"),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := p.gate(c.Context())
			if err != nil {
				return err
			}
			defer func() { _ = g.Close() }()
			args = append(args, "", "")
			l, err := orchestrator.OpenLog(c.Context(), g, args[0])
			if err != nil {
				return err
			}
			defer func() { _ = l.Close() }()
			return p.why(l, args[1])
		},
		ValidArgsFunction: p.completeSessions,
	}
	return c
}

// told is a denial and the policy that held then.
type told struct {
	why.Denial
	ground why.Ground
}

func (p *program) why(l *orchestrator.Log, path string) error {
	r, err := segment.Open(l.Files...)
	if err != nil {
		return err
	}
	var last []told
	var tries query.Tries
	g := why.Ground{Session: l.Name}
	damaged := 0
	for {
		rec, err := r.Next()
		var bad *segment.Problem
		if errors.As(err, &bad) {
			damaged++
			continue
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		p.ground(&g, &rec.Event)
		d, ok := why.Of(&rec.Event)
		if tries.Has(&rec) || !ok || path != "" && !d.About(absolute(path, g.Workspace)) {
			continue
		}
		if last = append(last, told{d, g}); len(last) > shownDenials {
			last = last[1:]
		}
	}
	if damaged > 0 {
		p.err.note("%d places of the record are damaged", damaged)
	}
	var text []byte
	for i := len(last) - 1; i >= 0; i-- {
		text = last[i].Append(text, &last[i].ground, time.Now())
	}
	if len(last) == 0 {
		about := ""
		if path != "" {
			about = " about " + event.Printable(absolute(path, g.Workspace))
		}
		text = fmt.Appendf(nil, "%s: nothing was denied%s\n", event.Printable(l.Name), about)
	}
	_, err = p.out.w.Write(text)
	return err
}

// ground follows which policy holds, from the receipt and from each change.
func (p *program) ground(g *why.Ground, e *event.Event) {
	if e.Kind != event.Receipt && (e.Kind != event.Policy || e.Verdict != event.Allow) {
		return
	}
	var said struct {
		Workspace string
		Layers    []policy.LayerInfo
	}
	if json.Unmarshal([]byte(e.Detail), &said) != nil {
		return
	}
	g.Layers = said.Layers
	if e.Kind == event.Receipt {
		g.Workspace, g.Home = said.Workspace, p.home
	}
}

// absolute is the path that a user means, in the jail.
func absolute(path, workspace string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(workspace, path)
	}
	return filepath.Clean(path)
}
