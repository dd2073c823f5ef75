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
	return out
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
