package plugin

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Unless is what an agent is told about something that its user has not decided
// yet, and whose decision the agent could not keep: its settings are protected, and some
// agents end when they cannot save an answer. It is the answer that gives the least.
type Unless struct {
	File string            `toml:"file" json:"file"` // where the agent keeps decisions, as "~/..."
	Has  string            `toml:"has" json:"has"`   // what stands in it for a decision; ${workspace}, escaped as in JSON and TOML, may also be a directory above
	Args []string          `toml:"args" json:"args"` // put after the command's own
	Set  map[string]string `toml:"set" json:"set"`   // into the environment
}

func (u *Unless) validate() error {
	switch {
	case !strings.HasPrefix(u.File, "~/") || path.Clean(u.File) != u.File:
		return fmt.Errorf("unless: file %q wants a path below ~/", u.File)
	case u.Has == "":
		return errors.New("unless: has is missing")
	case len(u.Args) == 0 && len(u.Set) == 0:
		return errors.New("unless: args and set are missing")
	}
	return nil
}

// maxDecisions is how much of a file of decisions is looked at, in bytes.
const maxDecisions = 4 << 20

// Undecided returns the arguments and variables of each [Unless] of which the
// user's files know no decision. A file that cannot be read knows none. It reads
// with the caller's rights; workspace and home are absolute, clean paths.
func (p *Plugin) Undecided(workspace, home string) (args []string, set map[string]string) {
	set = map[string]string{}
	for _, u := range p.Unless {
		if decided(filepath.Join(home, u.File[2:]), u.Has, workspace) {
			continue
		}
		for _, a := range u.Args {
			args = append(args, name(a, workspace))
		}
		for k, v := range u.Set {
			set[k] = name(v, workspace)
		}
	}
	return args, set
}

func decided(file, has, workspace string) bool {
	if st, err := os.Stat(file); err != nil || !st.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDecisions))
	if err != nil {
		return false
	}
	for dir := workspace; ; dir = path.Dir(dir) {
		if strings.Contains(string(text), name(has, dir)) {
			return true
		}
		if dir == "/" {
			return false
		}
	}
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// name puts dir in the place of ${workspace}, as inside a quoted string.
func name(s, dir string) string { return strings.ReplaceAll(s, "${workspace}", escape.Replace(dir)) }
