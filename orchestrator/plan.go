package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

// Options say what to run and as what. All of the caller's world comes in here.
type Options struct {
	Policy    string   // see [Profile]
	Workspace string   // directory; relative to the current one
	Name      string   // of the session; "" = the helper chooses
	Env       []string // K=V beyond what the policy passes
	Agent     string   // plugin or command; with Command only a command
	Args      []string
	Command   bool
	Environ   []string // of the caller, K=V
	Home      string   // of the caller; "" = $HOME
	OrgDir    string   // "" = [OrgDir]; "-" = none
	OrgOwner  int      // whose its files may be besides root's
	Lifted    []string // of those files: what the glass is broken for
}

// Plan is what would run: resolved, checked, with nothing made yet except the
// agent's missing state.
type Plan struct {
	Name     string // "" = the helper chooses
	Agent    string
	Argv     []string // Argv[0] is absolute
	Env      []string
	Stack    policy.PolicyDocument // for the helper, which adds its organisation layer
	Resolved *policy.Resolved      // with the organisation layer, as far as the user may read it

	workspace *os.File // opened before its path was looked at
	state     []stateEntry
	view      []policy.Mount
}

// Close releases the workspace.
func (p *Plan) Close() error {
	if p.workspace == nil {
		return nil
	}
	return p.workspace.Close()
}

// Prepare finds the agent, opens the workspace, joins the policy layers and
// checks them. It changes nothing. The user's mistakes are [*Error] or
// [*policy.Error].
func Prepare(o Options) (*Plan, error) {
	getenv := lookup(o.Environ)
	if o.Home == "" {
		o.Home = getenv("HOME")
	}
	home, err := realHome(o.Home)
	if err != nil {
		return nil, err
	}
	ws, dir, err := openWorkspace(o.Workspace)
	if err != nil {
		return nil, err
	}
	p := &Plan{Name: o.Name, workspace: ws}
	ok := false
	defer func() {
		if !ok {
			_ = p.Close()
		}
	}()
	a, err := findAgent(o, dir, home)
	if err != nil {
		return nil, err
	}
	p.Agent, p.Argv, p.state = a.name, a.argv, a.state
	profile, err := grantor(o.Policy, home)
	if err != nil {
		return nil, err
	}
	if err := p.resolve(o, a, profile, dir, home); err != nil {
		return nil, err
	}
	if err := checkWorkspace(dir, p.Resolved); err != nil {
		return nil, err
	}
	if err := owned(ws, dir); err != nil {
		return nil, err
	}
	p.view = p.Resolved.View()
	if p.Env, err = environ(p.view, p.Resolved, o.Environ, a, o.Env, userName(getenv), author(p.Stack.Vars, home, getenv("XDG_CONFIG_HOME"))); err != nil {
		return nil, err
	}
	if err := checkSize(p.Argv, p.Env); err != nil {
		return nil, err
	}
	ok = true
	return p, nil
}

// Resolve joins the layers for a workspace without an agent, for explanations.
func Resolve(o Options) (*policy.Resolved, error) {
	if o.Home == "" {
		o.Home = lookup(o.Environ)("HOME")
	}
	home, err := realHome(o.Home)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Workspace)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, &Error{Err: fmt.Errorf("open workspace: %w", err)}
	}
	a := agent{}
	if o.Agent != "" {
		if a, err = findAgent(o, dir, home); err != nil {
			return nil, err
		}
	}
	profile, err := Profile(o.Policy, home)
	if err != nil {
		return nil, err
	}
	p := &Plan{}
	if err := p.resolve(o, a, profile, dir, home); err != nil {
		return nil, err
	}
	return p.Resolved, nil
}

func (p *Plan) resolve(o Options, a agent, profile *policy.Document, dir, home string) (err error) {
	p.Stack.Builtins = policy.BuiltinDigest()
	p.Stack.Vars = a.vars
	p.Stack.Vars.Workspace, p.Stack.Vars.Home = dir, home
	p.Stack.Vars.Git, p.Stack.Vars.Worktree = gitDirs(dir)
	if p.Stack.Layers, err = Layers(profile, home, dir); err != nil {
		return err
	}
	all := p.Stack.Layers
	if o.OrgDir != "-" {
		org, err := orgLayers(o)
		if err != nil && !errors.Is(err, fs.ErrPermission) { // the helper can read it
			return err
		}
		all = append(org, all...)
	}
	p.Resolved, err = policy.Resolve(all, p.Stack.Vars)
	if errors.Is(err, policy.ErrWorkspace) {
		return refuse(fmt.Errorf("workspace %s %w", dir, policy.ErrWorkspace), elsewhere+"; `any_workspace = true` under [files] of a policy permits it")
	}
	return err
}

func orDefault(s, d string) string {
	if s == "" {
		return d
	}
	return s
}

func realHome(home string) (string, error) {
	if !filepath.IsAbs(home) {
		return "", &Error{Err: fmt.Errorf("home directory %q is not an absolute path", home), Hint: "set HOME"}
	}
	real, err := filepath.EvalSymlinks(home)
	if err != nil {
		return "", &Error{Err: fmt.Errorf("open home directory: %w", err), Hint: "set HOME"}
	}
	if real == "/" { // rules about ~ would be about everything
		return "", &Error{Err: errors.New("home directory is /"), Hint: "set HOME to a directory of your own"}
	}
	return real, nil
}

// userName is the agent's login name: the caller's, unless that is root, which
// no agent is.
func userName(getenv func(string) string) string {
	for _, name := range []string{getenv("USER"), getenv("LOGNAME")} {
		if name != "" && name != "root" && !strings.ContainsAny(name, ":/\n\x00") {
			return name
		}
	}
	return "agent"
}

// maxString is the longest argument or variable the kernel takes (MAX_ARG_STRLEN, execve(2)).
const maxString = 128 << 10

func checkSize(argv, env []string) error {
	total := 0
	for i, list := range [][]string{argv, env} {
		for _, s := range list {
			what := "argument"
			if i == 1 {
				name, _, _ := strings.Cut(s, "=")
				what = "variable " + name
			}
			if strings.ContainsRune(s, 0) {
				return &Error{Err: fmt.Errorf("%s contains a zero byte", what)}
			}
			if total += len(s) + 9; len(s) >= maxString {
				return &Error{Err: fmt.Errorf("%s of %d bytes is longer than the kernel takes (%d)", what, len(s), maxString-1), Hint: "pass long texts in a file or on stdin"}
			}
		}
	}
	if total > rpc.MaxArgs {
		return &Error{Err: fmt.Errorf("arguments and environment of %d bytes are more than the kernel takes (%d)", total, rpc.MaxArgs), Hint: "pass long texts in a file or on stdin"}
	}
	return nil
}

// document is what the helper is sent.
func (p *Plan) document() ([]byte, error) {
	stack, err := json.Marshal(p.Stack)
	if err != nil {
		return nil, fmt.Errorf("encode policy: %w", err)
	}
	data, err := json.Marshal(rpc.Document{
		Name: p.Name, Agent: p.Agent, Policy: stack, Argv: p.Argv, Env: p.Env, Cwd: p.Stack.Vars.Workspace,
	})
	if err != nil {
		return nil, fmt.Errorf("encode document: %w", err)
	}
	if len(data) > rpc.MaxDocument {
		return nil, &Error{Err: fmt.Errorf("policy, arguments and environment take %d bytes, the helper takes %d", len(data), rpc.MaxDocument)}
	}
	return data, nil
}
