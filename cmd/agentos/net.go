package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/signal"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/orchestrator"
	"github.com/agentos/agentos/orchestrator/network"
	"github.com/agentos/agentos/orchestrator/terminal"
)

// refreshEvery is how often a table that is followed is drawn.
const refreshEvery = time.Second

func (p *program) netCommand() *cobra.Command {
	var asJSON, follow bool
	c := &cobra.Command{
		Use:   "net [SESSION]",
		Short: "show a session's connections; grant or forbid it more while it runs",
		Long: `Shows what a running session has to do with the network: its open connections, by process, with the bytes that went through and the rule
that allows them; what each destination came to since the start; and what is left of budgets. Without a session it is the newest one that runs.

With --follow the table is drawn again every second. Where the output is no terminal, or with --json, each connection that is opened, refused
or ended is one line, as it happens.`,
		Example: `  agentos net
  agentos net fix-login --follow
  agentos net allow fix-login db.example.org:5432 --for 10m
  agentos net deny fix-login telemetry.example.org
  agentos net rules fix-login`,
		Args: count(0, 1, "at most one session"),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			g, err := p.gate(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = g.Close() }()
			session, err := newest(ctx, g, args)
			if err != nil {
				return err
			}
			switch {
			case !follow:
				return p.showNet(ctx, g, session, asJSON)
			case asJSON || !p.out.terminal():
				return p.followNet(ctx, g, session, asJSON)
			}
			return p.watchNet(ctx, g, session)
		},
		ValidArgsFunction: p.completeSessions,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the session ends")
	c.AddCommand(p.netAllow(), p.netDeny(), p.netRevoke(), p.netRules())
	return c
}

// newest is the session that args name, or the newest one that runs.
func newest(ctx context.Context, g orchestrator.Gate, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	list, err := orchestrator.List(ctx, g, false)
	if err != nil {
		return "", err
	}
	for _, s := range list {
		if s.State == "running" || s.State == "held" {
			return s.ID, nil
		}
	}
	return "", &orchestrator.Error{Status: orchestrator.StatusNotFound, Err: errors.New("no session is running"), Hint: "agentos audit show --kind net shows what the last one did"}
}

func (p *program) showNet(ctx context.Context, g orchestrator.Gate, session string, asJSON bool) error {
	n, err := network.State(ctx, g, session)
	if err != nil {
		return err
	}
	if asJSON {
		return p.out.json(n)
	}
	p.network(&n, time.Now())
	return nil
}

// followNet prints the network's records from now on.
func (p *program) followNet(ctx context.Context, g orchestrator.Gate, session string, asJSON bool) error {
	q, err := p.filter("", "kind=connect,disconnect,resolve,limit,grant since=now")
	if err != nil {
		return err
	}
	v := p.reader(g, &selection{session: session, query: q})
	v.Follow = true
	err = p.single(ctx, v, asJSON)
	if bad := v.Close(); err == nil {
		err = bad
	}
	return err
}

// watchNet draws the table again and again, until the session or the user ends it.
func (p *program) watchNet(ctx context.Context, g orchestrator.Gate, session string) error {
	const enter, leave, home, rest = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H", "\x1b[J"
	shown := false
	defer func() {
		if shown {
			_, _ = p.out.w.WriteString(leave)
		}
	}()
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	for {
		n, err := network.State(ctx, g, session)
		var gone *rpc.Error
		switch {
		case err == nil:
		case ctx.Err() != nil, shown && errors.As(err, &gone) && gone.Code == rpc.NotFound:
			return nil
		default:
			return err
		}
		if !shown {
			shown = true
			_, _ = p.out.w.WriteString(enter)
		}
		_, _ = p.out.w.WriteString(home)
		p.out.fit = p.fitScreen()
		p.network(&n, time.Now())
		p.out.fit = nil
		_, _ = p.out.w.WriteString(rest)
		if err := p.out.flush(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// fitScreen cuts lines to the screen: it says what of a line fits, and false when there is no room for another one.
func (p *program) fitScreen() func(string) (string, bool) {
	rows, cols := terminal.Size(p.out.file)
	left := int(rows) - 1
	return func(line string) (string, bool) {
		if left--; left < 0 {
			return "", false
		}
		return cutCells(line, int(cols)) + "\x1b[K", true
	}
}

func (p *program) network(n *rpc.Network, now time.Time) {
	name := event.Printable(n.Name)
	if !n.Served {
		p.out.linef("%s has its own loopback only: its policy lets it reach nothing", name)
		return
	}
	if len(n.Connections) == 0 {
		p.out.linef("%s has no open connection", name)
	} else {
		t := table{head: []string{"PROCESS", "NAME", "ADDRESS", "SENT", "RECEIVED", "AGE", "STATE", "RULE"}}
		for _, c := range n.Connections {
			t.row(process(&c), event.Printable(hostPort(c.Host, c.Port)), or(c.Address, "-"), size(c.Sent), size(c.Received),
				strings.TrimSuffix(ago(now.Sub(c.Opened)), " ago"), event.Printable(c.State), event.Printable(c.Rule))
		}
		t.print(&p.out)
	}
	if len(n.Destinations) > 0 {
		p.out.linef("")
		t := table{head: []string{"DESTINATION", "OPEN", "OPENED", "DENIED", "FAILED", "SENT", "RECEIVED"}}
		for _, d := range n.Destinations {
			to := "(others)"
			if d.Host != "" {
				to = event.Printable(hostPort(d.Host, d.Port))
			}
			denied := strconv.FormatUint(d.Denied, 10)
			if d.Denied > 0 {
				denied = p.out.red(denied)
			}
			t.row(to, strconv.Itoa(d.Open), strconv.FormatUint(d.Opened, 10), denied, strconv.FormatUint(d.Failed, 10), size(d.Sent), size(d.Received))
		}
		t.print(&p.out)
	}
	if len(n.Budgets) > 0 {
		p.out.linef("")
		t := table{head: []string{"BUDGET", "USED", "LEFT", "RULE"}}
		for _, b := range n.Budgets {
			t.row(size(b.Bytes), size(b.Used), size(b.Bytes-min(b.Used, b.Bytes)), event.Printable(b.Rule))
		}
		t.print(&p.out)
	}
	if len(n.Grants) > 0 {
		p.out.linef("")
		p.grants(n.Grants, now)
	}
}

// grants lists grants and denials that hold.
func (p *program) grants(list []rpc.Grant, now time.Time) {
	t := table{head: []string{"GRANT", "WHAT", "ENTRY", "BY", "UNTIL"}}
	for _, g := range list {
		t.row(strconv.Itoa(g.ID), g.What(), event.Printable(g.Entry), "uid "+strconv.Itoa(g.UID), until(g.Until, now))
	}
	t.print(&p.out)
}

// until says when a grant ends.
func until(t, now time.Time) string {
	if t.IsZero() {
		return "the session ends"
	}
	return fmt.Sprintf("%s (%s)", t.Local().Format("15:04:05"), max(0, t.Sub(now)).Round(time.Second))
}

func process(c *rpc.Connection) string {
	if c.Pid == 0 {
		return "?"
	}
	return fmt.Sprintf("%s (%d)", event.Printable(or(path.Base(c.Exe), c.Comm)), c.Pid)
}

func hostPort(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func or(a, b string) string {
	if a == "" || a == "." {
		return b
	}
	return a
}

func (p *program) netAllow() *cobra.Command {
	var length time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use:   "allow SESSION HOST:PORTS [OPTION...]",
		Short: "let a running session reach something, for a time",
		Long: `Lets a running session reach a destination that its policy does not: HOST:PORTS and options as in an entry of [net] allow. That holds until the
time given with --for is over, it is taken back (agentos net revoke), or the session ends; then connections that are open are cut.

A grant adds to the lists of your own layers: the user's, the project's and the profile. What the organisation's policy does not allow, and
what any layer denies, is refused. The record names you, and until when.`,
		Example: `  agentos net allow fix-login db.example.org:5432 --for 10m
  agentos net allow fix-login '*.debian.org:80,443'
  agentos net allow fix-login db.internal:5432 private budget=50MB`,
		Args: count(2, 32, "a session and HOST:PORTS"),
		RunE: func(c *cobra.Command, args []string) error {
			return p.grant(c.Context(), rpc.SetGrant{Session: args[0], Entry: strings.Join(args[1:], " ")}, c, length, asJSON)
		},
		ValidArgsFunction: p.completeSessions,
	}
	grantFlags(c, &length, &asJSON)
	return c
}

func (p *program) netDeny() *cobra.Command {
	var length time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use:   "deny SESSION HOST[:PORTS]",
		Short: "forbid a running session a destination, and cut what is open",
		Long: `Forbids a running session a destination that its policy allows: HOST:PORTS as in an entry of [net] deny, all ports where none is said. Open
connections to it are cut. It holds until the time given with --for is over, it is taken back (agentos net revoke), or the session ends.`,
		Example: "  agentos net deny fix-login telemetry.example.org\n  agentos net deny fix-login '*:25'",
		Args:    count(2, 2, "a session and HOST"),
		RunE: func(c *cobra.Command, args []string) error {
			entry := args[1]
			if i := strings.LastIndexByte(entry, ':'); i < 0 || strings.HasSuffix(entry, "]") {
				entry += ":*"
			}
			return p.grant(c.Context(), rpc.SetGrant{Session: args[0], Entry: entry, Deny: true}, c, length, asJSON)
		},
		ValidArgsFunction: p.completeSessions,
	}
	grantFlags(c, &length, &asJSON)
	return c
}

func grantFlags(c *cobra.Command, length *time.Duration, asJSON *bool) {
	c.Flags().DurationVar(length, "for", 0, "how `long` it holds, such as 30s, 10m or 2h (default: as long as the session)")
	c.Flags().BoolVar(asJSON, "json", false, "print JSON")
}

func (p *program) netRevoke() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "revoke SESSION GRANT|HOST:PORTS|all",
		Short: "take back what was granted or forbidden to a running session",
		Long: `Takes back grants and denials of 'agentos net allow' and 'agentos net deny': one by its number or its text, or all of yours. Connections that are
not allowed any more are cut. What root said only root takes back.`,
		Example: "  agentos net revoke fix-login 1\n  agentos net revoke fix-login db.example.org:5432",
		Args:    count(2, 32, "a session and a grant"),
		RunE: func(c *cobra.Command, args []string) error {
			return p.grant(c.Context(), rpc.SetGrant{Session: args[0], Revoke: strings.Join(args[1:], " ")}, c, 0, asJSON)
		},
		ValidArgsFunction: p.completeSessions,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (p *program) grant(ctx context.Context, m rpc.SetGrant, c *cobra.Command, length time.Duration, asJSON bool) error {
	if m.Seconds = int64(length / time.Second); c.Flags().Changed("for") && (m.Seconds < 1 || length%time.Second != 0) {
		return &orchestrator.Error{Err: fmt.Errorf("--for %s: want whole seconds, one at least", length), Hint: c.CommandPath() + " --help"}
	}
	g, err := p.gate(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = g.Close() }()
	set, err := network.Grant(ctx, g, m)
	if err != nil {
		return err
	}
	if asJSON {
		return p.out.json(set)
	}
	for _, g := range set.Grants {
		if m.Revoke != "" {
			p.out.linef("%s: grant %d taken back: %s %s", event.Printable(set.Session), g.ID, g.What(), event.Printable(g.Entry))
			continue
		}
		p.out.linef("%s: grant %d: %s %s until %s", event.Printable(set.Session), g.ID, g.What(), event.Printable(g.Entry), until(g.Until, time.Now()))
	}
	return nil
}

func (p *program) netRules() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "rules [SESSION]",
		Short: "list the network rules that hold for a running session",
		Long: `Lists the entries of [net] that hold for a running session, of all layers, and what was granted or forbidden meanwhile. What is reached has an
allow entry in each layer that has such a list (a grant stands in all but the organisation's), and a deny entry in none.`,
		Args: count(0, 1, "at most one session"),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := p.gate(c.Context())
			if err != nil {
				return err
			}
			defer func() { _ = g.Close() }()
			session, err := newest(c.Context(), g, args)
			if err != nil {
				return err
			}
			r, err := network.Rules(c.Context(), g, session)
			if err != nil {
				return err
			}
			if asJSON {
				return p.out.json(r)
			}
			if len(r.Rules) == 0 {
				p.out.linef("%s has no rules of [net]", event.Printable(r.Name))
				return nil
			}
			t := table{head: []string{"LAYER", "WHAT", "ENTRY", "FROM", "UNTIL"}}
			for _, l := range r.Rules {
				t.row(l.Layer, l.Kind, event.Printable(l.Entry), event.Printable(l.From), or(l.Until, "-"))
			}
			t.print(&p.out)
			return nil
		},
		ValidArgsFunction: p.completeSessions,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
