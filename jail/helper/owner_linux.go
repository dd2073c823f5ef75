package helper

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

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
