package orchestrator

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentos/agentos/jail/why"
	"github.com/agentos/agentos/orchestrator/plugin"
	"github.com/agentos/agentos/policy"
)

// agent is a program to run and what it needs.
type agent struct {
	name  string
	argv  []string
	path  []string // directories to put first into PATH
	vars  policy.Vars
	state []stateEntry
	set   map[string]string
	told  map[string]string // variables that tell it of the jail, unless the user has set them
}

// stateEntry is a file or directory of the user that an agent keeps.
type stateEntry struct {
	path string // absolute
	dir  bool
	make bool // worth making when it is missing
}

// stateEntries tells directories from files by their names: a directory's has no
// extension. Of missing files only JSON is made, because an empty object is a
// valid beginning of it; others the agent does without.
func stateEntries(paths []string) []stateEntry {
	var out []stateEntry
	for _, p := range paths {
		ext := filepath.Ext(strings.TrimPrefix(filepath.Base(p), "."))
		out = append(out, stateEntry{path: p, dir: ext == "", make: ext == "" || ext == ".json"})
	}
	return out
}

// pluginDirs are where a user's own plugins lie; later ones win.
func pluginDirs(home string) []string {
	return []string{"/etc/agentos/plugins", filepath.Join(home, ".agentos/plugins")}
}

// findAgent finds what o names: a plugin, else a command.
func findAgent(o Options, workspace, home string) (agent, error) {
	pathEnv := lookup(o.Environ)("PATH")
	if o.Agent == "" {
		return agent{}, &Error{Err: errors.New("no command"), Hint: "name an agent, or a command after --"}
	}
	if !o.Command && !strings.Contains(o.Agent, "/") {
		p, err := plugin.Find(o.Agent, pluginDirs(home)...)
		if err == nil {
			return pluginAgent(p, o.Args, pathEnv, workspace, home)
		}
		if !errors.Is(err, plugin.ErrUnknown) {
			return agent{}, err
		}
	}
	in, err := plugin.LocateCommand(o.Agent, pathEnv, home, workspace, workspace)
	if err != nil {
		err = located(err)
		var e *Error
		if errors.As(err, &e) && e.Status == StatusNotFound && !o.Command {
			return agent{}, missing(fmt.Errorf("%s is neither an agent nor a command", o.Agent), "agentos agents list shows the agents")
		}
		return agent{}, err
	}
	a := agent{name: filepath.Base(o.Agent), argv: append([]string{in.Argv0}, o.Args...), path: in.Path}
	a.vars = (&plugin.Plugin{}).Vars(workspace, home, in)
	return a, nil
}

func pluginAgent(p plugin.Plugin, args []string, pathEnv, workspace, home string) (agent, error) {
	in, err := plugin.Locate(p, pathEnv, home)
	if err != nil {
		return agent{}, located(err)
	}
	undecided, set := p.Undecided(workspace, home)
	maps.Copy(set, p.Env.Set)
	hint, told := p.Hint.For(args, home, why.Hint)
	a := agent{name: p.Name, argv: slices.Concat([]string{in.Argv0}, p.Command[1:], undecided, hint, args), path: in.Path, set: set, told: told}
	a.vars = p.Vars(workspace, home, in)
	a.state = stateEntries(a.vars.State)
	return a, nil
}

// located gives an error of package plugin its exit status and hint.
func located(err error) error {
	var e *plugin.Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Err == plugin.ErrNotFound:
		return missing(fmt.Errorf("command %s: not found", e.Path), e.Hint)
	case errors.Is(err, plugin.ErrNotFound): // what it needs is not
		return missing(fmt.Errorf("command %s: %w", e.Path, e.Err), e.Hint)
	}
	return refuse(fmt.Errorf("command %s: %w", e.Path, e.Err), e.Hint)
}

// Installed is one row of the list of agents.
type Installed struct {
	plugin.Plugin
	Argv0 string   `json:"argv0,omitempty"` // "" = not installed
	Tree  []string `json:"tree,omitempty"`
	Why   string   `json:"why,omitempty"` // why it cannot be started
}

// Agents lists the plugins and where each agent is installed.
func Agents(environ []string, home string) ([]Installed, error) {
	real, err := realHome(home)
	if err != nil {
		return nil, err
	}
	list, err := plugin.Load(pluginDirs(real)...)
	if err != nil {
		return nil, err
	}
	var out []Installed
	for _, p := range list {
		row := Installed{Plugin: p}
		if in, err := plugin.Locate(p, lookup(environ)("PATH"), real); err != nil {
			row.Why = err.Error()
			var e *plugin.Error
			if errors.As(err, &e) {
				row.Why = e.Err.Error()
			}
		} else {
			row.Argv0, row.Tree = in.Argv0, in.Tree
		}
		out = append(out, row)
	}
	return out, nil
}

// AgentNames lists the plugins' names, for completion.
func AgentNames(home string) []string {
	list, err := plugin.Load(pluginDirs(home)...)
	if err != nil {
		return nil
	}
	var out []string
	for _, p := range list {
		out = append(out, p.Name+"\t"+p.Title)
	}
	return out
}

// InJail makes a command line that is looked up in the jail's PATH, with env
// (K=V) set beyond what the agent has.
func InJail(argv, env []string) []string {
	if len(env) == 0 && strings.HasPrefix(argv[0], "/") {
		return argv
	}
	return append(append([]string{"/usr/bin/env"}, env...), argv...)
}
