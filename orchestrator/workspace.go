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

	"github.com/agentos/agentos/policy"
)

// elsewhere is what to do about a workspace that is refused.
const elsewhere = "change to a project's directory, or name it with --workspace"

// checkWorkspace refuses directories that no session should own, beyond those
// that [policy.Resolve] refuses. dir is a real path. AnyWorkspace of the policy
// permits what the jail has no own of.
func checkWorkspace(dir string, r *policy.Resolved) error {
	own := []string{"/dev", "/proc", "/sys", "/run", "/tmp", "/var/tmp"}
	system := []string{"/bin", "/boot", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/srv", "/usr", "/var"}
	switch {
	case slices.Contains(own, dir), within(dir, "/proc"), within(dir, "/sys"), within(dir, "/dev"):
		return refuse(fmt.Errorf("workspace %s: every jail has its own", dir), elsewhere)
	case !r.AnyWorkspace && slices.Contains(system, dir):
		return refuse(fmt.Errorf("workspace %s: an agent would own far more than a project", dir), elsewhere)
	}
	return nil
}

// gitDirs are the git directories of a worktree that lie outside of it: where
// the file .git of workspace points, and the repository's common directory. The
// file may have been written by anyone, so both must name each other.
func gitDirs(workspace string) []string {
	link, err := readSmall(filepath.Join(workspace, ".git"))
	if err != nil {
		return nil
	}
	dir, ok := strings.CutPrefix(link, "gitdir: ")
	if !ok {
		return nil
	}
	if !path.IsAbs(dir) {
		dir = path.Join(workspace, dir)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil || within(dir, workspace) {
		return nil
	}
	back, err := readSmall(filepath.Join(dir, "gitdir"))
	if err != nil {
		return nil
	}
	if !path.IsAbs(back) {
		back = path.Join(dir, back)
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(back)); err != nil || real != workspace || filepath.Base(back) != ".git" {
		return nil
	}
	common := filepath.Dir(filepath.Dir(dir)) // REPO/.git/worktrees/NAME
	if filepath.Base(filepath.Dir(dir)) != "worktrees" {
		return nil
	}
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Lstat(filepath.Join(common, name)); err != nil {
			return nil
		}
	}
	return []string{common}
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
