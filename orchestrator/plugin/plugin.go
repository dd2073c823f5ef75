package plugin

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/agentos/agentos/policy"
)

// Plugin says how to run one agent.
type Plugin struct {
	File    string   `toml:"-" json:"file"`          // where it was read from; "builtin:NAME"
	Name    string   `toml:"name" json:"name"`       // what agentos run takes
	Title   string   `toml:"title" json:"title"`     // for people
	Command []string `toml:"command" json:"command"` // the program, looked up in PATH, and its first arguments
	Detect  []string `toml:"detect" json:"detect"`   // where else the program may lie, as "~/..." or absolute paths
	Install string   `toml:"install" json:"install"` // how to install it, one line
	State   []string `toml:"state" json:"state"`     // files and directories it keeps, as "~/..."
	Protect []string `toml:"protect" json:"protect"` // those of its settings that can start programs
	Hosts   []string `toml:"hosts" json:"hosts"`     // destinations it needs, as in [net] allow
	Env     Env      `toml:"env" json:"env"`
	Unless  []Unless `toml:"unless" json:"unless,omitempty"`
	Hint    Hint     `toml:"hint" json:"hint,omitzero"`
}

// Env is what a plugin wants in the environment.
type Env struct {
	Pass []string          `toml:"pass" json:"pass"` // names, '*' matches any run of characters
	Set  map[string]string `toml:"set" json:"set"`
}

//go:embed builtin/*.toml
var builtins embed.FS

// maxSize is the largest plugin file, in bytes.
const maxSize = 64 << 10

// Builtin lists the embedded plugins by name. It panics if one of them is
// broken, which a test rules out.
func Builtin() []Plugin {
	entries, err := builtins.ReadDir("builtin")
	if err != nil {
		panic(err)
	}
	var out []Plugin
	for _, e := range entries {
		data, err := builtins.ReadFile("builtin/" + e.Name())
		if err != nil {
			panic(err)
		}
		p, err := Parse("builtin:"+strings.TrimSuffix(e.Name(), ".toml"), data)
		if err != nil {
			panic(err)
		}
		out = append(out, p)
	}
	return out
}

// ErrUnknown says that there is no plugin of that name.
var ErrUnknown = errors.New("unknown agent")

// Find returns the plugin that [Load] has under that name, without reading
// embedded ones of other names. The error answers [ErrUnknown] if there is none.
func Find(name string, dirs ...string) (Plugin, error) {
	own, err := files(dirs)
	if err != nil {
		return Plugin{}, err
	}
	for _, p := range slices.Backward(own) {
		if p.Name == name {
			return p, nil
		}
	}
	if data, err := builtins.ReadFile("builtin/" + name + ".toml"); err == nil { // a test holds names to files
		return Parse("builtin:"+name, data)
	}
	var names []string
	for _, p := range own {
		names = append(names, p.Name)
	}
	entries, _ := builtins.ReadDir("builtin")
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".toml"))
	}
	slices.Sort(names)
	return Plugin{}, fmt.Errorf("%w %q (known: %s)", ErrUnknown, name, strings.Join(slices.Compact(names), ", "))
}

// Load returns the embedded plugins and those of the *.toml files in dirs,
// later ones replacing earlier ones of the same name, sorted by name. Missing
// directories are skipped; a file with a mistake is an error.
func Load(dirs ...string) ([]Plugin, error) {
	byName := map[string]Plugin{}
	for _, p := range Builtin() {
		byName[p.Name] = p
	}
	own, err := files(dirs)
	if err != nil {
		return nil, err
	}
	for _, p := range own {
		byName[p.Name] = p
	}
	var out []Plugin
	for _, p := range byName {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Plugin) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// files reads the plugins of dirs, in order.
func files(dirs []string) ([]Plugin, error) {
	var out []Plugin
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read plugins: %w", err)
		}
		for _, f := range entries {
			if f.IsDir() || filepath.Ext(f.Name()) != ".toml" {
				continue
			}
			file := filepath.Join(dir, f.Name())
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read plugins: %w", err)
			}
			p, err := Parse(file, data)
			if err != nil {
				return nil, err
			}
			out = append(out, p)
		}
	}
	return out, nil
}

// Parse reads one plugin file; file is how errors call it. Unknown keys are
// errors. The error is a [*policy.Error].
func Parse(file string, data []byte) (Plugin, error) {
	fault := func(line, col int, format string, args ...any) (Plugin, error) {
		return Plugin{}, &policy.Error{File: file, Line: line, Col: col, Msg: fmt.Sprintf(format, args...)}
	}
	if len(data) > maxSize {
		return fault(0, 0, "larger than %d KiB", maxSize>>10)
	}
	var p Plugin
	err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(&p)
	var strict *toml.StrictMissingError
	var wrong *toml.DecodeError
	switch {
	case errors.As(err, &strict) && len(strict.Errors) > 0:
		line, col := strict.Errors[0].Position()
		return fault(line, col, "unknown key %q", strings.Join(strict.Errors[0].Key(), "."))
	case errors.As(err, &wrong):
		line, col := wrong.Position()
		return fault(line, col, "%s", strings.TrimPrefix(wrong.Error(), "toml: "))
	case err != nil:
		return fault(0, 0, "%v", err)
	}
	if err := p.validate(); err != nil {
		return fault(0, 0, "%v", err)
	}
	p.File = file
	return p, nil
}

func (p *Plugin) validate() error {
	if p.Name == "" || len(p.Name) > 64 || strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" || p.Name[0] == '.' || p.Name[0] == '-' {
		return errors.New("name must be of a-z, 0-9, '.', '_' and '-'")
	}
	if err := p.Hint.validate(); err != nil {
		return err
	}
	if len(p.Command) == 0 || p.Command[0] == "" {
		return errors.New("command is missing")
	}
	for key, list := range map[string][]string{"state": p.State, "protect": p.Protect, "detect": p.Detect} {
		for _, s := range list {
			rest, inHome := strings.CutPrefix(s, "~/")
			if inHome {
				rest = "/" + rest
			}
			if path.Clean(rest) != rest || !path.IsAbs(rest) || rest == "/" {
				return fmt.Errorf("%s: %q wants a path below ~/ or an absolute one", key, s)
			}
			if key != "detect" && !inHome {
				return fmt.Errorf("%s: %q must lie below ~/", key, s)
			}
		}
	}
	for i := range p.Unless {
		if err := p.Unless[i].validate(); err != nil {
			return err
		}
	}
	for _, h := range p.Hosts {
		if _, err := policy.ParseDest(h); err != nil {
			return fmt.Errorf("hosts: %q: %w", h, err)
		}
	}
	return nil
}

// Vars are the values of a policy's variables for this agent. workspace and
// home are absolute, clean paths. Trees inside the workspace are left out: the
// policy decides about them already.
func (p *Plugin) Vars(workspace, home string, in Install) policy.Vars {
	v := policy.Vars{
		Workspace: workspace, Home: home,
		State: expand(p.State, home), Protect: expand(p.Protect, home),
		Hosts: p.Hosts, EnvPass: p.Env.Pass,
	}
	for _, t := range in.Tree {
		if !below(t, workspace) {
			v.Tool = append(v.Tool, t)
		}
	}
	return v
}

func expand(list []string, home string) []string {
	var out []string
	for _, s := range list {
		if rest, ok := strings.CutPrefix(s, "~/"); ok {
			s = filepath.Join(home, rest)
		}
		out = append(out, s)
	}
	return out
}
