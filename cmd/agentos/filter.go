package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/query"
	"github.com/agentos/agentos/orchestrator"
)

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
		flags = append(flags, struct{ name, text string }{"--kind", kindFilter(s.kinds)})
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

// kindFilter is the filter of --kind, where a class goes before a kind of its name.
func kindFilter(words []string) string {
	var any []string
	for _, w := range words {
		w = strings.TrimSpace(w)
		field := "kind="
		if _, err := event.ParseClass(w); err == nil {
			field = "class="
		}
		any = append(any, field+query.Quote(w))
	}
	return strings.Join(any, " or ")
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

// filterHelp is what the help of each command that takes a filter says about it.
func filterHelp() string {
	var b strings.Builder
	b.WriteString(`A filter is FIELD=VALUE words that must all hold; "or", "not" and parentheses combine them. Of several values (kind=open,exec) any will
do. "=" is the whole value, with globs for paths (path=.env is path=**/.env) and * and ? for other text; "~" is a regular expression found anywhere
in it; "!=" and "!~" are the opposite; numbers and times have <, <=, > and >=. A field alone says that it is set. Put values with spaces or
parentheses in quotes, and everything in quotes for your shell.

`)
	for _, f := range query.Fields() {
		fmt.Fprintf(&b, "  %-8s  %s\n", f.Name, f.Doc)
	}
	return strings.TrimRight(b.String(), "\n")
}

// filterFlags are the flags that are short for filters.
func (s *selection) filterFlags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&s.denied, "denied", false, "only what was denied, without what the jail check tried")
	f.StringSliceVar(&s.kinds, "kind", nil, "only these `kinds`: file, exec, net, session, system, or single ones such as open,connect")
	f.StringVar(&s.path, "path", "", "only records about paths that match `glob`")
	_ = c.RegisterFlagCompletionFunc("kind", completeKinds)
}

// completeFilter offers sessions as the first argument, fields, and the values of those
// that have few.
func (p *program) completeFilter(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	const stay = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	field, rest, hasValue := strings.Cut(word, "=")
	head := field + "=" + rest[:strings.LastIndexByte(rest, ',')+1]
	var out []string
	if hasValue {
		var values []string
		switch field {
		case "kind":
			for _, k := range event.Kinds()[1:] {
				values = append(values, k.String())
			}
		case "class":
			values = []string{"file", "exec", "net", "session", "system"}
		case "verdict":
			values = []string{"allow", "deny", "none"}
		case "access":
			values = []string{"read", "write", "exec"}
		case "session":
			values, _ = p.completeSessions(c, nil, "")
		}
		for _, v := range values {
			out = append(out, head+v)
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	if len(args) == 0 {
		out, _ = p.completeSessions(c, args, word)
	}
	for _, f := range query.Fields() {
		switch op, _, _ := strings.Cut(f.Operators, " "); {
		case slices.Contains([]string{"denied", "failed", "altered", "check", "cut"}, f.Name):
			out = append(out, f.Name+"\t"+f.Doc)
		default:
			out = append(out, f.Name+op+"\t"+f.Doc)
		}
	}
	return out, stay
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
