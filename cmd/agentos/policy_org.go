package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail/organisation"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/orchestrator"
	"github.com/agentos/agentos/policy"
)

// expiresSoon is when the end of an organisation's file is worth a word.
const expiresSoon = 14 * 24 * time.Hour

func (p *program) policyEffective() *cobra.Command {
	asJSON, org := false, ""
	o := orchestrator.Options{}
	c := &cobra.Command{
		Use:   "effective [NAME|FILE]",
		Short: "print what holds here, all layers joined, each line with where it stands",
		Long: `Prints the policy that a session here would have: the organisation's files, yours, the project's and the profile (strict, if none
is named) as the helper joins them. Each line says which file, line and column it came from; what a layer asked for and did not get is named.
The organisation's files are checked as the helper checks them: whose they are, their signatures, their expiry. --org tries files that are
not in force yet, which may be yours.`,
		Example: "  agentos policy effective\n  agentos policy effective standard --workspace ~/src/app\n  agentos policy effective --org ./policy.d",
		Args:    count(0, 1, "at most one policy"),
		RunE: func(c *cobra.Command, args []string) error {
			o.Policy, o.Environ, o.Home = append(args, "strict")[0], p.environ, p.home
			if org != "" {
				o.OrgDir, o.OrgOwner = org, os.Geteuid()
			} else {
				var err error
				if o.Lifted, err = p.lifted(c.Context()); err != nil {
					return err
				}
			}
			rules, err := orchestrator.OrgRules(o.OrgDir, o.OrgOwner)
			if errors.Is(err, fs.ErrPermission) {
				p.err.note("the organisation's files are not yours to read: what they take away is not in this list")
			} else if err != nil {
				return err
			}
			r, err := orchestrator.Resolve(o)
			if err != nil {
				return err
			}
			if asJSON {
				return p.out.json(r)
			}
			p.signers(rules, o.Lifted)
			p.effective(r)
			return nil
		},
		ValidArgsFunction: p.completePolicies,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&org, "org", "", "`directory` of the organisation's files to try (default: "+orchestrator.OrgDir+", which is in force)")
	_ = c.MarkFlagDirname("org")
	p.groundFlags(c, &o)
	return c
}

// signers says of each file of the organisation what cannot be seen in its rules.
func (p *program) signers(rules *organisation.Rules, lifted []string) {
	if rules == nil {
		return
	}
	for _, f := range rules.Files {
		words := []string{"not signed"}
		if f.Signer != "" {
			words[0] = fmt.Sprintf("signed with key %s (%s)", f.Signer, f.Said)
		}
		if end, ok := f.Doc.Org.Deadline(); ok {
			text := "expires " + f.Doc.Org.Expires
			if left := time.Until(end); left < expiresSoon {
				text += fmt.Sprintf(", in %d days", int(left/(24*time.Hour)))
			}
			words = append(words, text)
		}
		if g := f.Doc.Org.BreakGlass; g.Allowed() {
			who := []string{"root"}
			for _, it := range g.Groups {
				who = append(who, "group "+it.Text)
			}
			words = append(words, fmt.Sprintf("break-glass for %s by %s", g.Longest, strings.Join(who, ", ")))
		}
		if slices.Contains(rules.Lifted(lifted), f.Path) {
			words = append(words, "NOT IN FORCE: you broke the glass")
		}
		p.out.linef("%s", p.out.dim(event.Printable("# "+f.Path+": "+strings.Join(words, "; "))))
	}
}

// orgRows are the lines of [org] in what holds.
func orgRows(t *table, r *policy.Resolved) {
	where := func(key string) string { return event.Printable(r.Where["org."+key]) }
	o := r.Org
	for _, x := range []struct {
		key  string
		text string
		set  bool
	}{
		{"signed", "require", o.Signed},
		{"expires", o.Expires, o.Expires != ""},
		{"sharing", "deny", o.NoSharing},
		{"keep", o.Keep.String(), o.Keep != 0},
		{"remove_after", o.RemoveAfter.String(), o.RemoveAfter != 0},
	} {
		if x.set {
			t.row("org."+x.key, where(x.key), event.Printable(x.text))
		}
	}
	for _, x := range o.Rules {
		t.row(string(x.Kind), event.Printable(x.Pos), event.Printable(x.Text))
	}
}

// lifted asks the helper which files of the organisation the caller does without, if some
// of them permit that at all.
func (p *program) lifted(ctx context.Context) ([]string, error) {
	rules, err := orchestrator.OrgRules("", 0)
	if err != nil || rules == nil || !slices.ContainsFunc(rules.Files, func(f organisation.File) bool { return f.Doc.Org.BreakGlass.Allowed() }) {
		return nil, nil // what is wrong is said by who resolves
	}
	g, err := p.gate(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = g.Close() }()
	now, err := orchestrator.BreakGlass(ctx, g, rpc.BreakGlassAsk{Show: true})
	return now.Files, err
}

func (p *program) policyBreakGlass() *cobra.Command {
	var ask rpc.BreakGlassAsk
	span, asJSON := "", false
	c := &cobra.Command{
		Use:   "break-glass",
		Short: "in an emergency, do without organisation rules that permit it, for a time",
		Long: `Lets the sessions that you start from now on do without those files of the organisation that permit it to you ([org.break_glass]).
All other files and layers hold as before. It is recorded, with your reason, before it holds: in a log of its own and in the receipt of each
session; agentos ps shows it. At the end of its time, and at --end, the sessions that were started under it are ended.
Without --reason and --end it says what there is.`,
		Example: "  agentos policy break-glass --reason 'INC-1234: registry rules block the fix' --for 30m\n  agentos policy break-glass --end\n  agentos audit show break-glass",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case ask.End && (ask.Reason != "" || span != ""):
				return &orchestrator.Error{Err: errors.New("--end goes alone"), Hint: c.CommandPath() + " --help"}
			case span != "" && ask.Reason == "":
				return &orchestrator.Error{Err: errors.New("break the glass why? there is no reason"), Hint: "add --reason TEXT; it is recorded"}
			case c.Flags().Changed("reason") && ask.Reason == "":
				return &orchestrator.Error{Err: errors.New("the reason is empty"), Hint: "it is recorded, and read by others"}
			}
			if span != "" {
				d, err := policy.ParseSpan(span)
				if err != nil {
					return &orchestrator.Error{Err: fmt.Errorf("--for %q: %w", span, err)}
				}
				ask.For = time.Duration(d)
			}
			ask.Show = !ask.End && ask.Reason == ""
			g, err := p.gate(c.Context())
			if err != nil {
				return err
			}
			defer func() { _ = g.Close() }()
			out, err := orchestrator.BreakGlass(c.Context(), g, ask)
			if err != nil {
				return err
			}
			if asJSON {
				return p.out.json(out)
			}
			p.broken(ask, out)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&ask.Reason, "reason", "", "`why`; others will read it in the record")
	f.StringVar(&span, "for", "", "how `long`, such as 45m (default: 30m, or as long as is permitted)")
	f.BoolVar(&ask.End, "end", false, "end it now, with the sessions that were started under it")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (p *program) broken(ask rpc.BreakGlassAsk, out rpc.GlassBroken) {
	switch {
	case ask.End && out.Session != "":
		p.out.linef("all rules of the organisation hold again; the record is %s", event.Printable(out.Session))
	case out.Until.IsZero():
		p.out.linef("the glass is whole: all rules of the organisation hold")
	default:
		p.out.linef("until %s sessions that you start do without %s", out.Until.Local().Format(time.DateTime), event.Printable(strings.Join(out.Files, ", ")))
		p.out.linef("the reason is on record (%s): %s", event.Printable(out.Session), event.Printable(out.Reason))
	}
}
