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
func alwaysPrivate() []string { return []string{"/", "/dev", "/proc", "/sys"} }

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
	read, write, exec := r.trees(Read), r.trees(Write), r.trees(Exec)
	all := slices.Concat(read, write, exec)
	slices.Sort(all)
	all = slices.Compact(all)
	out := make([]Mount, 0, len(all))
	index := make(map[string]int, len(all))
	for _, p := range all {
		m := Mount{Path: p, Access: ReadOnly, Exec: covers(exec, p), Optional: p != r.Vars.Workspace}
		if covers(write, p) {
			m.Access = ReadWrite
		}
		if covered(out, index, m) {
			continue
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

// covered says whether the nearest parent of m in list, given by its index by
// path, gives m's rights already.
func covered(list []Mount, index map[string]int, m Mount) bool {
	for p := m.Path; p != "/"; {
		p = parent(p)
		if i, ok := index[p]; ok {
			return list[i].Access == m.Access && list[i].Exec == m.Exec && m.Optional
		}
	}
	return false
}

// trees is the intersection over layers of the literal prefixes of one kind.
func (r *Resolved) trees(kind Kind) []string {
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
	var out []string
	for own, trees := range byLayer {
		for _, p := range trees {
			if p != r.Vars.Workspace && r.private(p) {
				continue // grants the jail's own tree, and no right on the host's trees below it
			}
			if r.everyLayer(kind, func(l int) bool { return l == own || covers(byLayer[l], p) }) {
				out = append(out, p)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (r *Resolved) private(p string) bool {
	return below(p, "/proc") || slices.Contains(alwaysPrivate(), p) || slices.Contains(r.Private, p)
}

// covers says whether p lies at or below one of the trees.
func covers(trees []string, p string) bool {
	return slices.ContainsFunc(trees, func(t string) bool { return below(p, t) })
}

// below says whether p is dir or lies below it.
func below(p, dir string) bool {
	return dir == "/" || p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}
