package orchestrator

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agentos/agentos/orchestrator/repo"
	"github.com/agentos/agentos/policy"
)

// toolDir is where a jail has the `agentos` for those inside; its init answers it
// (jail.ToolPath, which is on the other side of the gate).
const toolDir = "/run/agentos/bin"

// hint is what every program of a jail can find out about it, in its environment.
const hint = "files are limited by a policy: `agentos why` tells what was denied and how to ask for it, /run/agentos/AGENTS.md more"

// standardPath are the directories of programs that every jail has.
var standardPath = []string{"/usr/local/bin", "/usr/bin", "/bin"}

// environ makes the environment of the agent, sorted by name. Later sources win:
// what the policy passes and sets, what the plugin sets, our own, then extra
// (--env). who is how git is told who the user is, unless a layer denies that. parent and extra are K=V; the result has every name once.
// An extra variable that a layer denies is refused.
func environ(view []policy.Mount, r *policy.Resolved, parent []string, a agent, extra []string, user string, who []repo.Setting) ([]string, error) {
	vars := map[string]string{}
	put := func(entries []string) {
		for _, kv := range entries {
			k, v, _ := strings.Cut(kv, "=")
			vars[k] = v
		}
	}
	put(r.Environ(parent))
	for k, v := range a.set {
		vars[k] = v
	}
	had := lookup(parent)
	vars["HOME"] = r.Vars.Home
	vars["PATH"] = searchPath(a.path, had("PATH"), view)
	vars["USER"], vars["LOGNAME"] = user, user
	vars["SHELL"] = shell(had("SHELL"))
	vars["AGENTOS"] = "1"
	vars["AGENTOS_POLICY"] = r.Name
	vars["AGENTOS_HINT"] = hint
	for k, v := range a.told {
		if _, own := vars[k]; !own && had(k) == "" {
			vars[k] = v
		}
	}
	vars["PWD"] = r.Vars.Workspace
	if t := had("TERM"); t != "" {
		vars["TERM"] = t
	}
	if r.Explain(policy.OpEnv, gitCount).Rule == nil || r.Explain(policy.OpEnv, gitCount).Allow {
		gitSettings(vars, who)
	}
	for _, kv := range extra {
		k, _, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, &Error{Err: fmt.Errorf("--env %q is not NAME=VALUE", kv)}
		}
		if v := r.Explain(policy.OpEnv, k); !v.Allow && v.Rule != nil {
			return nil, refuse(fmt.Errorf("variable %s is %s", k, v.Why), "")
		}
	}
	put(extra)
	out := make([]string, 0, len(vars))
	for k, v := range vars {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out, nil
}

// lookup returns a getter over K=V entries; the last of duplicates counts.
func lookup(env []string) func(string) string {
	return func(name string) string {
		for i := len(env) - 1; i >= 0; i-- {
			if v, ok := strings.CutPrefix(env[i], name+"="); ok {
				return v
			}
		}
		return ""
	}
}

// searchPath begins with what is ours, and first, keeps of the user's PATH, in order, the
// directories from which the jail may execute, and ends with the standard ones.
func searchPath(first []string, parent string, view []policy.Mount) string {
	var out []string
	add := func(dir string) {
		if !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	for _, dir := range append([]string{toolDir}, first...) {
		add(dir)
	}
	for _, dir := range strings.Split(parent, ":") {
		if !path.IsAbs(dir) {
			continue // relative entries of PATH run what a repository brings
		}
		dir = path.Clean(dir)
		if slices.Contains(standardPath, dir) || slices.ContainsFunc(view, func(m policy.Mount) bool { return m.Exec && within(dir, m.Path) }) {
			add(dir)
		}
	}
	for _, dir := range standardPath {
		add(dir)
	}
	return strings.Join(out, ":")
}

// shell keeps the user's shell when every jail has it.
func shell(parent string) string {
	if strings.HasPrefix(parent, "/bin/") || strings.HasPrefix(parent, "/usr/bin/") {
		return parent
	}
	return "/bin/sh"
}

// within reports whether p is dir or lies below it; both are clean.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// gitCount is the variable that says how many settings git finds in others:
// GIT_CONFIG_KEY_0, GIT_CONFIG_VALUE_0 and so on (git-config(1), ENVIRONMENT).
const gitCount = "GIT_CONFIG_COUNT"

// gitSettings adds settings for git to those that are in vars.
func gitSettings(vars map[string]string, add []repo.Setting) {
	n, err := strconv.Atoi(orDefault(vars[gitCount], "0"))
	if err != nil || n < 0 || n > 1000 || len(add) == 0 {
		return // git says what is wrong with it
	}
	for _, s := range add {
		vars[fmt.Sprintf("GIT_CONFIG_KEY_%d", n)] = s.Section + "." + s.Name
		vars[fmt.Sprintf("GIT_CONFIG_VALUE_%d", n)] = s.Value
		n++
	}
	vars[gitCount] = strconv.Itoa(n)
}

// author is who the user is to git: see [repo.Identity].
func author(v policy.Vars, home, xdg string) []repo.Setting {
	var theirs []string
	for _, dir := range slices.Concat([]string{filepath.Join(v.Workspace, ".git")}, v.Git, v.Worktree) {
		theirs = append(theirs, filepath.Join(dir, "config"), filepath.Join(dir, "config.worktree"))
	}
	return repo.Identity(repo.UserFiles(home, xdg), theirs)
}
