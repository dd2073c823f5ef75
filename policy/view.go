package policy

import (
	"slices"
	"strings"
)

// Access is how a tree of the host is shown.
type Access string

// Accesses.
const (
	ReadOnly  Access = "ro"
	ReadWrite Access = "rw"
	Layered   Access = "overlay" // read from the host, written to the session's own layer
)

// Mount is one file or tree of the host that the jail shows at the same path.
type Mount struct {
	Path     string `json:"path"`
	Access   Access `json:"access"`
	Exec     bool   `json:"exec"`     // programs may be started from it; else mount it noexec
	Optional bool   `json:"optional"` // may be missing on this host; only the workspace may not
}

// alwaysPrivate is never shown from the host, whatever a document says: the
// jail cannot do without its own.
var alwaysPrivate = [...]string{"/", "/dev", "/proc", "/sys"}

// View lists the trees of the host to show, sorted by path, parents first. A
// tree is the literal prefix of a read, write or exec rule that all layers
// with such a list cover. A prefix that is itself a private path belongs to
// the jail and is not shown; one below it is ("~" is private, "~/.gitconfig"
// shows that file). Nothing below /proc is ever shown. Floating rules ("**/x")
// show nothing; they hold inside trees that other rules show. Braces are
// expanded. An entry that a parent with the same rights covers is left out.
// Overlays are in it, in place of what other rules would show there.
func (r *Resolved) View() []Mount {
	if r.memo == nil {
		return r.view()
	}
	r.memo.viewed.Do(func() { r.memo.view = r.view() })
	return slices.Clone(r.memo.view)
}

func (r *Resolved) view() []Mount {
	kinds := [...]Kind{Read, Write, Exec}
	grants := map[string]uint8{} // bit i: a tree of kinds[i] begins here
	for i, kind := range kinds {
		r.trees(kind, func(p string) { grants[p] |= 1 << i })
	}
	paths := make([]string, 0, len(grants))
	for p := range grants {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	out := make([]Mount, 0, len(paths))
	index := make(map[string]int, len(paths)) // into out
	for _, p := range paths {
		bits, nearest := grants[p], -1
		for dir := p; dir != "/"; {
			dir = parent(dir)
			bits |= grants[dir]
			if i, ok := index[dir]; ok && nearest < 0 {
				nearest = i
			}
		}
		m := Mount{Path: p, Access: ReadOnly, Exec: bits&(1<<2) != 0, Optional: p != r.Vars.Workspace}
		if bits&(1<<1) != 0 {
			m.Access = ReadWrite
		}
		if nearest >= 0 && m.Optional && out[nearest].Access == m.Access && out[nearest].Exec == m.Exec {
			continue // what is above it shows it with the same rights
		}
		index[p] = len(out)
		out = append(out, m)
	}
	return r.layered(out)
}

// layered adds the overlays to a view, or puts them in place of what it had there.
// Programs may be started from them, as from the rest of the home's layer.
func (r *Resolved) layered(view []Mount) []Mount {
	for _, p := range r.Home.Overlay {
		i, found := slices.BinarySearchFunc(view, p, func(m Mount, p string) int { return strings.Compare(m.Path, p) })
		m := Mount{Path: p, Access: Layered, Exec: true, Optional: true}
		if found {
			view[i] = m
		} else {
			view = slices.Insert(view, i, m)
		}
	}
	return view
}

// NeedsEngine says whether some rule decides about single files inside what
// [Resolved.View] shows: deny and protect rules, and grants that are not whole
// trees. Without, mounts alone enforce the policy.
func (r *Resolved) NeedsEngine() bool {
	if r.memo == nil {
		return r.needsEngine()
	}
	r.memo.judged.Do(func() { r.memo.engine = r.needsEngine() })
	return r.memo.engine
}

func (r *Resolved) needsEngine() bool {
	for i := range r.Files {
		rule := &r.Files[i]
		if rule.Kind == Deny || rule.Kind == Protect {
			return true
		}
		for _, g := range braces(rule.Glob) {
			if tree, ok := strings.CutSuffix(g, "/**"); ok {
				g = rooted(tree)
			}
			if _, whole := literalPrefix(g); !whole {
				return true
			}
		}
	}
	return false
}

// trees gives the intersection over layers of the literal prefixes of one kind,
// some of them several times.
func (r *Resolved) trees(kind Kind, add func(string)) {
	byLayer := make([][]string, len(r.Layers))
	for i := range r.Files {
		rule := &r.Files[i]
		if rule.Kind != kind || strings.HasPrefix(rule.Glob, "**") {
			continue
		}
		for _, g := range braces(rule.Glob) {
			p, _ := literalPrefix(g)
			byLayer[rule.Layer] = append(byLayer[rule.Layer], p)
		}
	}
	for own, trees := range byLayer {
		for _, p := range trees {
			if p != r.Vars.Workspace && r.private(p) {
				continue // grants the jail's own tree, and no right on the host's trees below it
			}
			if r.everyLayer(kind, func(l int) bool { return l == own || covers(byLayer[l], p) }) {
				add(p)
			}
		}
	}
}

func (r *Resolved) private(p string) bool {
	if slices.Contains(alwaysPrivate[:], p) || below(p, "/proc") {
		return true
	}
	_, own := slices.BinarySearch(r.Private, p) // sorted
	return own
}

// covers says whether p lies at or below one of the trees.
func covers(trees []string, p string) bool {
	return slices.ContainsFunc(trees, func(t string) bool { return below(p, t) })
}

// below says whether p is dir or lies below it.
func below(p, dir string) bool {
	return dir == "/" || p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// Bounds of one policy: each overlay is a descriptor of one answer of the gate
// (jail/packet), each kept directory a mount of every jail.
const (
	maxOverlay = 12
	maxPersist = 32
)

// joinHome decides which persist and overlay entries hold: those of the profile
// that every other layer with such a list names too, itself or by a directory
// above it. One that a rule of its own layer denies is a mistake; one that
// another layer denies is refused.
func (r *Resolved) joinHome(all []*merged) error {
	var asked []placed // of r.Home.Rules
	for i, m := range all {
		for _, kind := range []Kind{Persist, Overlay} {
			for _, p := range m.lists[kind] {
				paths, err := r.Vars.expandPath(p.Text)
				if err != nil {
					return p.fault("%v", err)
				}
				for _, q := range paths {
					r.Home.Rules = append(r.Home.Rules, Rule{Kind: kind, Glob: q, Layer: i, Pos: p.pos, Text: p.Text})
					asked = append(asked, p)
				}
			}
		}
	}
	if len(asked) == 0 {
		return nil
	}
	index := newPrefixIndex(r.Files)
	var held []placed
	for i := range r.Home.Rules {
		rule := &r.Home.Rules[i]
		to, limit := &r.Home.Persist, maxPersist
		if rule.Kind == Overlay {
			to, limit = &r.Home.Overlay, maxOverlay
		}
		if r.Layers[rule.Layer].Kind != Profile || slices.Contains(*to, rule.Glob) || r.refusedOther(r.Home.Rules, rule) != "" {
			continue // what is refused so is reported with the rest
		}
		by, own := r.deniedHome(index, rule)
		switch {
		case own:
			return asked[i].fault("%s %s: %s covers it", rule.Kind, rule.Text, by)
		case by != "":
			r.Refused = append(r.Refused, Refusal{Layer: rule.Layer, Pos: rule.Pos, What: string(rule.Kind) + " " + rule.Text, By: by})
			continue
		case len(*to) == limit:
			return asked[i].fault("over %d %s entries", limit, rule.Kind)
		}
		*to = append(*to, rule.Glob)
		held = append(held, placed{Item{Text: rule.Glob, At: asked[i].At}, asked[i].pos})
	}
	slices.Sort(r.Home.Persist)
	slices.Sort(r.Home.Overlay)
	return r.apartHome(held)
}

// deniedHome says what keeps the agent from using a directory of the home, ""
// if nothing does; own, that it is a deny or protect rule of the same layer.
func (r *Resolved) deniedHome(index *prefixIndex, rule *Rule) (by string, own bool) {
	layers := make([]int, len(r.Layers))
	for i := range layers {
		layers[i] = i
	}
	for _, p := range []string{rule.Glob, rule.Glob + "/s"} {
		for _, op := range []Kind{Read, Write} {
			switch ok, n := r.judge(op, index.match(p), layers); {
			case ok:
			case n == noRule:
				return r.whyNot(op, p), false
			default:
				return r.Files[n].String(), r.Files[n].Layer == rule.Layer
			}
		}
	}
	return "", false
}

// apartHome refuses directories that lie in each other or in what the host shows:
// a mount inside another would leave its mount point behind.
func (r *Resolved) apartHome(held []placed) error {
	view := r.view()
	for i, p := range held {
		for j, o := range held {
			if i != j && below(p.Text, o.Text) {
				return p.fault("%s lies in %s, which %s names", p.Text, o.Text, o.pos)
			}
		}
	}
	for _, p := range held {
		if slices.Contains(r.Home.Overlay, p.Text) {
			if below(r.Vars.Workspace, p.Text) {
				return p.fault("%s holds the workspace %s", p.Text, r.Vars.Workspace)
			}
			continue
		}
		for _, m := range view {
			if m.Path != r.Vars.Home && below(r.Vars.Home, m.Path) {
				continue // the home's layer covers it
			}
			if below(p.Text, m.Path) || below(m.Path, p.Text) {
				return p.fault("%s cannot be kept: %s is shown from the host", p.Text, m.Path)
			}
		}
	}
	return nil
}

// Shares says whether a path, given as to [Resolved.Explain], lies in a directory
// that is Persist or Overlay, and in which; "" if in none.
func (r *Resolved) Shares(arg string) (kind Kind, dir string) {
	p := r.absolute(arg)
	for _, list := range []struct {
		kind Kind
		dirs []string
	}{{Persist, r.Home.Persist}, {Overlay, r.Home.Overlay}} {
		if i := slices.IndexFunc(list.dirs, func(d string) bool { return below(p, d) }); i >= 0 {
			return list.kind, list.dirs[i]
		}
	}
	return "", ""
}

// Bars are the rules of a policy that keep an agent from a name: what they say
// about a path on the host too is asked before anything of a jail is put there.
type Bars struct {
	Rules []Rule `json:"rules"` // Deny and Protect, in their order

	index *prefixIndex
}

// Bars returns the deny and protect rules of all layers.
func (r *Resolved) Bars() *Bars {
	b := &Bars{Rules: []Rule{}}
	for _, rule := range r.Files {
		if rule.Kind == Deny || rule.Kind == Protect {
			b.Rules = append(b.Rules, rule)
		}
	}
	return b
}

// Add puts further rules behind the others, as a layer of their own.
func (b *Bars) Add(rules ...Rule) {
	b.Rules = append(b.Rules, rules...)
	b.index = nil
}

// Named returns the rule that denies or protects an absolute clean path, nil if
// none does. In each layer and list the last rule that matches counts; of several
// that name it, one with a place is returned.
func (b *Bars) Named(path string) *Rule {
	if b.index == nil {
		b.index = newPrefixIndex(b.Rules)
	}
	type list struct {
		layer int
		kind  Kind
	}
	last := map[list]*Rule{}
	for _, n := range b.index.match(path) {
		rule := &b.Rules[n]
		last[list{rule.Layer, rule.Kind}] = rule
	}
	var found *Rule
	for _, rule := range last {
		if !rule.Except && (found == nil || rule.Pos != "" && (found.Pos == "" || rule.Pos < found.Pos)) {
			found = rule
		}
	}
	return found
}
