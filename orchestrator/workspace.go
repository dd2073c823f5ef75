package orchestrator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentos/agentos/orchestrator/repo"
	"github.com/agentos/agentos/policy"
)

// elsewhere is what to do about a workspace that is refused.
const elsewhere = "change to a project's directory, or name it with --workspace"

// checkWorkspace refuses directories that no session should own, beyond those
// that [policy.Resolve] refuses. dir is a real path. AnyWorkspace of the policy
// permits what the jail has no own of. A policy that shows nothing of dir is a
// mistake: the agent could not even be there.
func checkWorkspace(dir string, r *policy.Resolved) error {
	own := []string{"/dev", "/proc", "/sys", "/run", "/tmp", "/var/tmp"}
	system := []string{"/bin", "/boot", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/srv", "/usr", "/var"}
	switch {
	case slices.Contains(own, dir), within(dir, "/proc"), within(dir, "/sys"), within(dir, "/dev"):
		return refuse(fmt.Errorf("workspace %s: every jail has its own", dir), elsewhere)
	case !r.AnyWorkspace && slices.Contains(system, dir):
		return refuse(fmt.Errorf("workspace %s: an agent would own far more than a project", dir), elsewhere)
	case !slices.ContainsFunc(r.View(), func(m policy.Mount) bool { return within(dir, m.Path) || within(m.Path, dir) }):
		return refuse(fmt.Errorf("workspace %s: the policy lets nothing of it be read", dir), `extends = ["builtin:base"] in a policy gives it the workspace and the system's software`)
	}
	return nil
}

// gitDirs are the git directories of workspace that lie outside of it, when its
// .git is a file: all, which is a worktree's repository or a submodule's part of
// one, and of it the worktree's own (the same for a submodule). That file may
// have been written by anyone, so both must name each other.
func gitDirs(workspace string) (all, own []string) {
	link, err := readSmall(filepath.Join(workspace, ".git"))
	if err != nil {
		return nil, nil
	}
	dir, ok := strings.CutPrefix(link, "gitdir: ")
	if !ok {
		return nil, nil
	}
	if !path.IsAbs(dir) {
		dir = path.Join(workspace, dir)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil || within(dir, workspace) {
		return nil, nil
	}
	common := dir // REPO/.git/modules/NAME
	switch {
	case worktreeOf(dir, workspace):
		common = filepath.Dir(filepath.Dir(dir)) // REPO/.git/worktrees/NAME
	case !moduleOf(dir, workspace):
		return nil, nil
	}
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Lstat(filepath.Join(common, name)); err != nil {
			return nil, nil
		}
	}
	return []string{common}, []string{dir}
}

// worktreeOf reports whether dir is the git directory of a worktree that is at
// workspace, by dir's own account.
func worktreeOf(dir, workspace string) bool {
	back, err := readSmall(filepath.Join(dir, "gitdir"))
	if err != nil || filepath.Base(filepath.Dir(dir)) != "worktrees" {
		return false
	}
	if !path.IsAbs(back) {
		back = path.Join(dir, back)
	}
	real, err := filepath.EvalSymlinks(filepath.Dir(back))
	return err == nil && real == workspace && filepath.Base(back) == ".git"
}

// moduleOf reports whether dir is the git directory of a submodule that is at
// workspace, by dir's own account: core.worktree of its configuration.
func moduleOf(dir, workspace string) bool {
	if !strings.Contains(dir, "/.git/modules/") {
		return false
	}
	tree, ok := repo.Last(repo.Settings(filepath.Join(dir, "config")), "core", "worktree")
	if !ok {
		return false
	}
	if !path.IsAbs(tree) {
		tree = path.Join(dir, tree)
	}
	real, err := filepath.EvalSymlinks(tree)
	return err == nil && real == workspace
}

// readSmall reads the one line of a small regular file.
func readSmall(name string) (string, error) {
	st, err := os.Lstat(name)
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() || st.Size() > 8<<10 {
		return "", errors.New("not a small file")
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, 8<<10))
	return string(bytes.TrimRight(data, "\r\n")), err
}
