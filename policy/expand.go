package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Vars are the values that a document's variables stand for. All paths are
// absolute, clean, UTF-8 and as the jail sees them.
type Vars struct {
	Workspace string   `json:"workspace"`         // ${workspace}; required
	Home      string   `json:"home"`              // ~; required
	State     []string `json:"state,omitzero"`    // ${agent.state}: files and directories the agent keeps
	Tool      []string `json:"tool,omitzero"`     // ${agent.tool}: the agent's installation trees
	Protect   []string `json:"protect,omitzero"`  // ${agent.protect}: settings of the agent that can start programs when it is run outside
	Git       []string `json:"git,omitzero"`      // ${workspace.git}: git directories of the workspace that lie outside of it
	Worktree  []string `json:"worktree,omitzero"` // ${workspace.worktree}: of those, the one that holds the workspace's own HEAD and index
	Hosts     []string `json:"hosts,omitzero"`    // ${agent.hosts}: destinations the agent needs, for [net]
	EnvPass   []string `json:"env,omitzero"`      // ${agent.env}: variables the agent needs, for [env]
}

// maxVar bounds the values of one variable; a plugin needs a handful.
const maxVar = 64

// Validate checks every value; [Resolve] calls it.
func (v Vars) Validate() error {
	if v.Workspace == "" || v.Home == "" {
		return errors.New("variables: workspace and home must be set")
	}
	for _, name := range pathVariables {
		list := v.values(name)
		if len(list) > maxVar {
			return fmt.Errorf("variable %s has over %d values", name, maxVar)
		}
		for _, p := range list {
			if err := cleanPath(p); err != nil {
				return fmt.Errorf("variable %s: path %q %w", name, p, err)
			}
		}
	}
	if len(v.Hosts) > maxVar || len(v.EnvPass) > maxVar {
		return fmt.Errorf("variables of the agent have over %d values", maxVar)
	}
	for _, h := range v.Hosts {
		if _, err := ParseDest(h); err != nil {
			return fmt.Errorf("variable ${agent.hosts}: %q: %w", h, err)
		}
	}
	for _, e := range v.EnvPass {
		if !validEnv(e) {
			return fmt.Errorf("variable ${agent.env}: %q is not a variable's name", e)
		}
	}
	return nil
}

// values are what the named variable of a path stands for.
func (v *Vars) values(name string) []string {
	switch name {
	case "~":
		return []string{v.Home}
	case "${workspace}":
		return []string{v.Workspace}
	case "${workspace.git}":
		return v.Git
	case "${workspace.worktree}":
		return v.Worktree
	case "${agent.state}":
		return v.State
	case "${agent.tool}":
		return v.Tool
	case "${agent.protect}":
		return v.Protect
	}
	return nil
}

// pathVariables are those that may begin a path, in the order to list them.
var pathVariables = [...]string{"~", "${workspace}", "${workspace.git}", "${workspace.worktree}", "${agent.state}", "${agent.tool}", "${agent.protect}"}

func cleanPath(p string) error {
	switch {
	case !strings.HasPrefix(p, "/"):
		return errors.New("is not absolute")
	case path.Clean(p) != p:
		return errors.New("is not clean")
	case !utf8.ValidString(p):
		return errors.New("is not UTF-8")
	case strings.ContainsRune(p, 0):
		return errors.New("has a zero byte")
	case len(p) > 4095:
		return errors.New("is longer than 4095 bytes")
	}
	return nil
}

// splitVariable cuts the variable off the head of a path or glob. name is ""
// for absolute and floating globs.
func splitVariable(s string) (name, rest string, err error) {
	switch {
	case s == "~" || strings.HasPrefix(s, "~/"):
		return "~", s[1:], nil
	case strings.HasPrefix(s, "~"):
		return "", "", errors.New("homes of other users have no name here")
	case strings.HasPrefix(s, "${"):
		end := strings.IndexByte(s, '}')
		if end < 0 {
			return "", "", errors.New("variable has no closing brace")
		}
		name, rest = s[:end+1], s[end+1:]
		if !slices.Contains(pathVariables[:], name) {
			return "", "", fmt.Errorf("unknown variable %s", name)
		}
		if rest != "" && rest[0] != '/' {
			return "", "", fmt.Errorf("%s must be followed by / or nothing", name)
		}
		return name, rest, nil
	case strings.Contains(s, "${"):
		return "", "", errors.New("a variable may only stand at the beginning")
	default:
		return "", s, nil
	}
}

// expandPath replaces the variable at the head of a plain path by its values,
// each once.
func (v *Vars) expandPath(s string) (out []string, err error) {
	err = v.expand(s, func(s string) string { return s }, func(p string) {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	})
	return out, err
}

// expand calls add with each text that s stands for; quote is applied to the
// values of variables.
func (v *Vars) expand(s string, quote func(string) string, add func(string)) error {
	name, rest, err := splitVariable(s)
	if err != nil {
		return err
	}
	if name == "" {
		add(s)
		return nil
	}
	for _, value := range v.values(name) {
		if value == "/" && rest != "" {
			add(rest)
		} else {
			add(quote(value) + rest)
		}
	}
	return nil
}

// QuoteGlob makes every byte of p stand for itself in a glob.
func QuoteGlob(p string) string {
	if !strings.ContainsAny(p, `*?[]{},\!`) {
		return p
	}
	var b strings.Builder
	for i := range len(p) {
		if strings.IndexByte(`*?[]{},\!`, p[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(p[i])
	}
	return b.String()
}

// literalPrefix is the deepest directory or file that every match of an
// absolute glob lies at or below, and whether the glob is that path alone.
// It is "/" for floating globs. Braces must have been expanded before.
func literalPrefix(g string) (prefix string, whole bool) {
	if !strings.HasPrefix(g, "/") {
		return "/", false
	}
	special := strings.IndexAny(g, `*?[{\`)
	if plain := special < 0 || g[special] != '\\'; plain && !strings.Contains(g, "//") { // nearly always: a part of g itself
		if special < 0 {
			return rooted(strings.TrimSuffix(g, "/")), true
		}
		return rooted(g[:strings.LastIndexByte(g[:special], '/')]), false
	}
	out := ""
	for _, c := range strings.Split(g[1:], "/") {
		lit, ok := unquote(c)
		if !ok {
			return rooted(out), false
		}
		if lit != "" {
			out += "/" + lit
		}
	}
	return rooted(out), true
}

func rooted(p string) string {
	if p == "" {
		return "/"
	}
	return p
}

// unquote removes the escapes of one component; false if it has wildcards.
func unquote(c string) (string, bool) {
	if !strings.ContainsAny(c, `*?[{\`) {
		return c, true
	}
	var b strings.Builder
	for i := 0; i < len(c); i++ {
		switch c[i] {
		case '*', '?', '[', '{':
			return "", false
		case '\\':
			i++
			if i == len(c) {
				return "", false
			}
		}
		b.WriteByte(c[i])
	}
	return b.String(), true
}

// braces expands {a,b} in a glob, at most 64 ways; a glob with more, or with
// nested braces, is returned cut before the first brace as "prefix*".
func braces(g string) []string {
	if !strings.Contains(g, "{") {
		return []string{g}
	}
	out := []string{""}
	for g != "" {
		i := strings.IndexAny(g, `{\`)
		switch {
		case i < 0 || i == len(g)-1 && g[i] == '\\':
			return appendAll(out, g)
		case g[i] == '\\':
			out, g = appendAll(out, g[:i+2]), g[i+2:]
			continue
		}
		end := closing(g, i)
		if end < 0 {
			return appendAll(out, g[:i]+"*")
		}
		alts := splitAlternatives(g[i+1 : end])
		if len(alts)*len(out) > 64 {
			return appendAll(out, g[:i]+"*")
		}
		next := make([]string, 0, len(alts)*len(out))
		for _, o := range out {
			for _, a := range alts {
				next = append(next, o+g[:i]+a)
			}
		}
		out, g = next, g[end+1:]
	}
	return out
}

func appendAll(list []string, s string) []string {
	for i := range list {
		list[i] += s
	}
	return list
}

// closing is the index of the brace that closes the one at i; -1 for nested or
// unclosed ones.
func closing(g string, i int) int {
	for j := i + 1; j < len(g); j++ {
		switch g[j] {
		case '\\':
			j++
		case '{':
			return -1
		case '}':
			return j
		}
	}
	return -1
}

func splitAlternatives(s string) []string {
	var out []string
	start := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ',':
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

// Sample is a path that a glob matches: wildcards become plausible names.
func Sample(g string) string {
	g = braces(g)[0]
	if strings.HasPrefix(g, "**") {
		g = "/" + g
	}
	var b strings.Builder
	for i := 0; i < len(g); i++ {
		switch c := g[i]; c {
		case '\\':
			if i+1 < len(g) {
				i++
			}
			b.WriteByte(g[i])
		case '*':
			if i == 0 || b.String()[b.Len()-1] != 's' {
				b.WriteByte('s')
			}
		case '?':
			b.WriteByte('s')
		case '[':
			end := strings.IndexByte(g[i+1:], ']')
			if end <= 0 {
				return b.String()
			}
			b.WriteByte(classSample(g[i+1 : i+1+end]))
			i += end + 1
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// classSample is a byte that the inside of [...] admits.
func classSample(class string) byte {
	if class[0] != '!' && class[0] != '^' {
		return class[0]
	}
	for c := byte('0'); c <= 'z'; c++ {
		if strings.IndexByte(class, c) < 0 {
			return c
		}
	}
	return '_'
}
