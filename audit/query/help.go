package query

import (
	"fmt"
	"strings"

	"github.com/agentos/agentos/audit/event"
)

// Help is what the help text of each command that takes a filter says about it.
func Help() string {
	var b strings.Builder
	b.WriteString(`A filter is FIELD=VALUE words that must all hold; "or", "not" and parentheses combine them. Of several values (kind=open,exec) any will
do. "=" is the whole value, with globs for paths (path=.env is path=**/.env) and * and ? for other text; "~" is a regular expression found anywhere
in it; "!=" and "!~" are the opposite; numbers and times have <, <=, > and >=. A field alone says that it is set. Put values with spaces or
parentheses in quotes, and everything in quotes for your shell.

`)
	for _, f := range Fields() {
		fmt.Fprintf(&b, "  %-8s  %s\n", f.Name, f.Doc)
	}
	return strings.TrimRight(b.String(), "\n")
}

// OfKinds is the filter of a list of classes and kinds, where a class goes before a kind
// of its name.
func OfKinds(words []string) string {
	var any []string
	for _, w := range words {
		w = strings.TrimSpace(w)
		field := "kind="
		if _, err := event.ParseClass(w); err == nil {
			field = "class="
		}
		any = append(any, field+quote(w))
	}
	return strings.Join(any, " or ")
}

// Complete returns what the word of a filter that is being written may become, with a tab
// and a description where that helps; sessions are the names of those that there are.
func Complete(word string, sessions []string) []string {
	var out []string
	if name, rest, ok := strings.Cut(word, "="); ok {
		head := name + "=" + rest[:strings.LastIndexByte(rest, ',')+1]
		values := map[string][]string{
			"kind": kindNames(), "class": {"file", "exec", "net", "session", "system"}, "verdict": {"allow", "deny", "none"},
			"access": {"read", "write", "exec"}, "session": sessions,
		}
		for _, v := range values[name] {
			out = append(out, head+v)
		}
		return out
	}
	for _, f := range fields {
		op, _, _ := strings.Cut(takes[f.kind], " ")
		if f.kind == flagValue {
			op = ""
		}
		out = append(out, f.name+op+"\t"+f.doc)
	}
	return out
}
