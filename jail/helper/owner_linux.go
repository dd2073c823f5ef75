package helper

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/policy"
)

// idmapFor chooses whose ids a tree is shown with: its owner's for what is the
// caller's by its role, the system's for the rest.
func (b *build) idmapFor(g given, system *os.File) (*os.File, error) {
	// A caller with an ordinary uid has it inside too, and the system's map shows
	// it. Others (root) get the map that makes what is theirs the agent's.
	top := ownedTree(b.v.res, g.path)
	if b.uid == b.v.owner.uid && b.gid == b.v.owner.gid || top == "" {
		return system, nil
	}
	uid, gid, err := b.v.treeOwner(top)
	if err != nil {
		return nil, err
	}
	return b.v.s.ranges.Owner(b.base, uid, b.uid, gid, b.gid)
}

// treeOwner answers whose files the agent works on and makes below top: the
// caller's, except that root may work on another user's workspace, whose files
// stay that user's.
func (v *session) treeOwner(top string) (uid, gid int, err error) {
	if v.owner.uid != 0 || top != v.res.Vars.Workspace && !slices.Contains(v.res.Vars.Git, top) {
		return v.owner.uid, v.owner.gid, nil
	}
	for _, g := range v.given {
		if g.path != top {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(g.file.Fd()), &st); err != nil {
			return 0, 0, fmt.Errorf("owner of %s: %w", top, err)
		}
		return int(st.Uid), int(st.Gid), nil
	}
	return v.owner.uid, v.owner.gid, nil
}

// ownedTree returns the tree that makes a path the caller's by its role, ""
// if none does: the workspace or its repository, a state directory, the home.
func ownedTree(r *policy.Resolved, p string) string {
	for _, top := range slices.Concat([]string{r.Vars.Workspace}, r.Vars.Git, r.Vars.State, []string{r.Vars.Home}) {
		if p == top || strings.HasPrefix(p, strings.TrimSuffix(top, "/")+"/") {
			return top
		}
	}
	return ""
}

// openWays makes ways to what is root's by its role. The agent of root has an
// ordinary uid, so a directory that only root or its owner may search would bar
// it from a workspace below. The topmost such directory, of which the agent could
// see nothing anyway, is covered: only what is mounted below it shows. It returns
// in.Given without what is covered itself, and the covers.
func (b *build) openWays(in jail.Input) (given []jail.Given, covers []string) {
	shown := map[string]bool{in.Home: false} // whether a mount is the host's own directory
	for _, p := range in.Private {
		shown[p] = false
	}
	for _, g := range in.Given {
		if g.Link == "" && g.Path != in.Home {
			shown[g.Path] = g.Dir
		}
	}
	for _, g := range append([]jail.Given{{Path: in.Home}}, in.Given...) {
		if g.Link != "" || ownedTree(b.v.res, g.Path) == "" {
			continue
		}
		for _, dir := range ancestors(g.Path) {
			if hostDir(shown, dir) && !b.searchable(dir) {
				covers = append(covers, dir)
				shown[dir] = false
			}
		}
	}
	given = slices.DeleteFunc(slices.Clone(in.Given), func(g jail.Given) bool { return slices.Contains(covers, g.Path) })
	return given, covers
}

// ancestors are the directories above an absolute clean path, / left out.
func ancestors(p string) []string {
	var out []string
	for p = path.Dir(p); p != "/"; p = path.Dir(p) {
		out = append(out, p)
	}
	slices.Reverse(out)
	return out
}

// hostDir reports whether the nearest mount at or above dir shows the host's own.
func hostDir(shown map[string]bool, dir string) bool {
	for ; dir != "/"; dir = path.Dir(dir) {
		if host, mounted := shown[dir]; mounted {
			return host
		}
	}
	return false
}

// searchable reports whether the agent's ids may search a directory of the host.
// A path suffices: the caller is root, and the answer gives no right.
func (b *build) searchable(dir string) bool {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return true // nothing to cover
	}
	switch {
	case int(st.Uid) == b.uid:
		return st.Mode&0o100 != 0
	case int(st.Gid) == b.gid:
		return st.Mode&0o010 != 0
	}
	return st.Mode&0o001 != 0
}
