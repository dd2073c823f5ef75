package why

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/policy"
)

// Advise appends which rule denies op on path, and how to ask for it: the line to add,
// to which file, or who alone can. rule is as records have it, "FILE:LINE:COL: KIND TEXT";
// "" says that nothing grants it.
func (g *Ground) Advise(dst []byte, op policy.Op, path, rule string) []byte {
	pos, kind, text := parts(rule)
	profile := g.layer(policy.Profile)
	if rule == "" {
		dst = append(dst, "  why: no rule allows it\n"...)
		return g.grant(dst, op, path, profile)
	}
	dst = fmt.Appendf(dst, "  why: %s %s\n   at: %s\n", event.Printable(kind), event.Printable(text), event.Printable(pos))
	who := g.owner(pos)
	switch who.Kind {
	case policy.Org:
		return fmt.Appendf(dst, "  ask: the organisation's policy forbids it; only who administers %s can allow it\n", event.Printable(who.File))
	case policy.User:
		return fmt.Appendf(dst, "  ask: the user's own policy forbids it; change that line of %s\n", event.Printable(who.File))
	case policy.Project:
		return fmt.Appendf(dst, "  ask: the policy of this project forbids it; a person can change that line of %s\n", event.Printable(who.File))
	}
	if kind != string(policy.Deny) && kind != string(policy.Protect) {
		return g.grant(dst, op, path, profile)
	}
	return g.line(dst, profile, kind, "!"+g.short(path), "an exception, below the entry that denies")
}

// grant says how to allow what nothing allows.
func (g *Ground) grant(dst []byte, op policy.Op, path string, profile policy.LayerInfo) []byte {
	dst = g.line(dst, profile, string(op), g.short(path), "")
	var say []string
	for _, l := range g.Layers {
		if l.Kind != policy.Profile && slices.Contains(l.Lists, policy.Kind(op)) {
			say = append(say, event.Printable(l.File))
		}
	}
	if len(say) > 0 {
		dst = fmt.Appendf(dst, "       and these have a %s list, too, which must name it: %s\n", op, strings.Join(say, ", "))
	}
	return dst
}

// line shows the line to write, into the profile's file or, for a builtin, into one of
// the user's own that begins with it.
func (g *Ground) line(dst []byte, profile policy.LayerInfo, key, entry, note string) []byte {
	if note != "" {
		note = " (" + note + ")"
	}
	session := g.Session
	if session == "" {
		session = "SESSION"
	}
	file := event.Printable(profile.File)
	if strings.HasPrefix(profile.File, "builtin:") {
		dst = fmt.Appendf(dst, "  ask: a person can allow it with a policy of their own%s, say ~/.agentos/policies/mine.toml:\n", note)
		dst = fmt.Appendf(dst, "         version = 1\n         name = \"mine\"\n         extends = [\"%s\"]\n         [files]\n", file)
		file = "mine"
	} else {
		dst = fmt.Appendf(dst, "  ask: a person can allow it by an entry under [files] of %s%s:\n", file, note)
	}
	dst = fmt.Appendf(dst, "         %s = [%s]\n", key, quoteTOML(entry))
	return fmt.Appendf(dst, "       and, if the session has that path, at once by: agentos policy set %s %s\n", event.Printable(session), file)
}

// short writes a path as a glob, below a variable where there is one.
func (g *Ground) short(path string) string {
	for _, v := range []struct{ name, path string }{{"${workspace}", g.Workspace}, {"~", g.Home}} {
		if v.path != "" && v.path != "/" && (path == v.path || strings.HasPrefix(path, v.path+"/")) {
			return v.name + policy.QuoteGlob(path[len(v.path):])
		}
	}
	return policy.QuoteGlob(path)
}

// quoteTOML writes a TOML string: literal where that is possible, so that a glob's
// backslashes stay what they are.
func quoteTOML(s string) string {
	shown := event.Printable(s)
	if shown == s && !strings.Contains(s, "'") {
		if !strings.Contains(s, `\`) {
			return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"`
		}
		return "'" + s + "'"
	}
	if strings.ReplaceAll(shown, `\\`, `\`) == s && !strings.Contains(s, "'") {
		return "'" + s + "'"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(shown) + `"`
}

func (g *Ground) layer(k policy.LayerKind) policy.LayerInfo {
	for _, l := range g.Layers {
		if l.Kind == k {
			return l
		}
	}
	return policy.LayerInfo{Kind: k, File: "the policy of this session"}
}

// owner is the layer that a rule stands in: by its file; a builtin that is no layer of
// its own is extended by one, which is the profile's business.
func (g *Ground) owner(pos string) policy.LayerInfo {
	for _, l := range g.Layers {
		if strings.HasPrefix(pos, l.File+":") {
			return l
		}
	}
	return g.layer(policy.Profile)
}

// parts splits a rule as records have it.
func parts(rule string) (pos, kind, text string) {
	pos, rest, _ := strings.Cut(rule, ": ")
	kind, text, _ = strings.Cut(rest, " ")
	return pos, kind, text
}
