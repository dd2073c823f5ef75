package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Refusal is something a layer asked for and did not get.
//
// For file rules it is found by trying a sample path of the rule (wildcards
// replaced by a plausible name) on the other layers: a rule that is refused
// only in part, such as "/usr/**" below an org rule that denies "/usr/lib/x",
// is not reported.
type Refusal struct {
	Layer int    `json:"layer"` // who asked; index into Resolved.Layers
	Pos   string `json:"pos"`   // file:line:col of what was asked
	What  string `json:"what"`  // kind and text, such as "read ~/.ssh/**"
	By    string `json:"by"`    // who refused: a rule with its position, or a layer
}

// String is one line for a report.
func (f Refusal) String() string { return f.Pos + ": " + f.What + ": refused by " + f.By }

// maxRefuseWork bounds the globs tried, because layers may come from a stranger.
const maxRefuseWork = 100_000

// refuse compares what each layer asks for with the layers above it and, for a
// project, with the profile too: it is the one layer whose author the user may
// not know.
func (r *Resolved) refuse() []Refusal {
	if len(r.Layers) < 2 {
		return nil
	}
	var out []Refusal
	seen := map[string]bool{}
	add := func(rule *Rule, by string) {
		f := Refusal{Layer: rule.Layer, Pos: rule.Pos, What: string(rule.Kind) + " " + rule.Text, By: by}
		if !seen[f.Pos+f.What] {
			seen[f.Pos+f.What] = true
			out = append(out, f)
		}
	}
	index := newPrefixIndex(r.Files)
	for i := range r.Files {
		rule := &r.Files[i]
		if rule.Kind != Read && rule.Kind != Write && rule.Kind != Exec {
			continue
		}
		for _, g := range braces(rule.Glob) {
			if index.work > maxRefuseWork {
				return append(out, Refusal{Layer: rule.Layer, Pos: rule.Pos, What: "this and later rules", By: "nobody yet: too many rules to examine"})
			}
			if by := r.refusedFile(index, rule, Sample(g)); by != "" {
				add(rule, by)
				break
			}
		}
	}
	for _, list := range [][]Rule{r.Home.Rules, r.Net.Rules, r.Syscalls.Rules, r.Env.Rules} {
		for i := range list {
			rule := &list[i]
			if slices.Contains(grants(), rule.Kind) {
				if by := r.refusedOther(list, rule); by != "" {
					add(rule, by)
				}
			}
		}
	}
	return out
}

// judges are the layers that a rule of the given layer is compared with.
func (r *Resolved) judges(layer int) []int {
	var out []int
	for i, l := range r.Layers {
		if i < layer || l.Kind == Profile && r.Layers[layer].Kind == Project {
			out = append(out, i)
		}
	}
	return out
}

func (r *Resolved) refusedFile(index *prefixIndex, rule *Rule, path string) string {
	judges := r.judges(rule.Layer)
	if len(judges) == 0 {
		return ""
	}
	matched := index.match(path)
	for _, l := range judges {
		ok, by := r.judge(rule.Kind, matched, []int{l})
		switch {
		case ok:
		case by != noRule:
			return r.Files[by].String()
		case slices.Contains(r.Layers[l].Lists, rule.Kind):
			return r.layerName(l)
		}
	}
	return ""
}

func (r *Resolved) refusedOther(list []Rule, rule *Rule) string {
	for _, l := range r.judges(rule.Layer) {
		if !slices.Contains(r.Layers[l].Lists, rule.Kind) {
			continue
		}
		covered := slices.ContainsFunc(list, func(o Rule) bool {
			return o.Layer == l && o.Kind == rule.Kind && coversEntry(rule.Kind, o.Glob, rule.Glob)
		})
		if !covered {
			return r.layerName(l)
		}
	}
	return ""
}

// coversEntry says whether the entry wide grants all that the entry narrow asks.
func coversEntry(kind Kind, wide, narrow string) bool {
	switch kind {
	case NetAllow:
		w, errW := ParseNetRule(wide)
		n, errN := ParseNetRule(narrow)
		return errW == nil && errN == nil && w.covers(n)
	case Persist, Overlay:
		return below(narrow, wide)
	case EnvPass:
		return matchStar(wide, strings.ReplaceAll(narrow, "*", "_"))
	default:
		return wide == narrow
	}
}

func (r *Resolved) layerName(i int) string {
	l := r.Layers[i]
	return l.Kind.String() + " layer " + l.Name + " (" + l.File + ")"
}

// matchStar matches a pattern in which '*' stands for any run of bytes.
func matchStar(pattern, s string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == s
	}
	parts := strings.Split(pattern, "*")
	s, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(s, p)
		if i < 0 {
			return false
		}
		s = s[i+len(p):]
	}
	return strings.HasSuffix(s, parts[len(parts)-1])
}

// prefixIndex finds the file rules that match one path without trying all.
type prefixIndex struct {
	rules []Rule
	under map[string][]int // literal prefix of an alternative to rules
	work  int              // globs tried
}

func newPrefixIndex(rules []Rule) *prefixIndex {
	x := &prefixIndex{rules: rules, under: map[string][]int{}}
	for i, r := range rules {
		for _, g := range braces(r.Glob) {
			p, _ := literalPrefix(g)
			if list := x.under[p]; len(list) == 0 || list[len(list)-1] != i {
				x.under[p] = append(list, i)
			}
		}
	}
	return x
}

// match returns the numbers of the rules whose glob matches path, ascending.
func (x *prefixIndex) match(path string) []uint16 {
	var out []uint16
	for p := path; ; p = parent(p) {
		for _, i := range x.under[p] {
			x.work++
			if matchGlob(x.rules[i].Glob, path) {
				out = append(out, uint16(i))
			}
		}
		if p == "/" {
			break
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func parent(p string) string {
	i := strings.LastIndexByte(p, '/')
	if i <= 0 {
		return "/"
	}
	return p[:i]
}

// CheckGrant says whether entry, one of [net] allow, may be granted to a jail that runs under r: every list of the
// organisation's covers it, and no layer denies all of it. What a layer denies in part stays denied. The other layers'
// lists do not count: they are the user's own, who grants. by is the rule or layer that refuses, "" for none.
func (r *Resolved) CheckGrant(entry string) (by string, err error) {
	want, err := ParseNetRule(entry)
	if err != nil {
		return "", err
	}
	for l, info := range r.Layers {
		covers := func(rule *Rule) bool {
			has, err := ParseNetRule(rule.Glob)
			if err != nil {
				return false
			}
			return rule.Layer == l && (rule.Kind == NetAllow && has.covers(want) || rule.Kind == NetDeny && has.Dest.Covers(want.Dest))
		}
		var denial *Rule
		allowed := false
		for i := range r.Net.Rules {
			switch rule := &r.Net.Rules[i]; {
			case !covers(rule):
			case rule.Kind == NetDeny:
				denial = rule
			case rule.Kind == NetAllow:
				allowed = true
			}
		}
		if denial != nil && !denial.Except {
			return denial.String(), nil
		}
		if info.Kind == Org && slices.Contains(info.Lists, NetAllow) && !allowed {
			return fmt.Sprintf("the %s, which does not allow it", r.layerName(l)), nil
		}
	}
	return "", nil
}
