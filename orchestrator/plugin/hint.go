package plugin

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Hint says how an agent is told that it runs in a jail, for this run alone: nothing
// of the user's is written. The zero Hint leaves it to the environment that every
// agent has (AGENTOS_HINT).
type Hint struct {
	Args   []string          `toml:"args" json:"args,omitempty"`     // before the user's; "${hint}" stands for the text
	Env    map[string]string `toml:"env" json:"env,omitempty"`       // set unless the user has
	Skip   []string          `toml:"skip" json:"skip,omitempty"`     // commands of the agent, as first argument, that take no Args
	Unless map[string]string `toml:"unless" json:"unless,omitempty"` // file below ~/ and a text in it that Args would replace
}

// textVariable stands for the text of the hint.
const textVariable = "${hint}"

func (h *Hint) validate() error {
	if len(h.Args) > 0 && !strings.HasPrefix(h.Args[0], "-") {
		return errors.New("hint: args must begin with an option")
	}
	for f := range h.Unless {
		if !strings.HasPrefix(f, "~/") {
			return errors.New("hint: unless names files below ~/")
		}
	}
	return nil
}

// For answers the arguments to put before the user's and the variables, for an agent
// that is run with args. Whoever says the same option on the command line, or has said
// it in the agent's settings, knows better.
func (h *Hint) For(args []string, home, text string) (before []string, env map[string]string) {
	env = maps.Clone(h.Env)
	if len(h.Args) == 0 || len(args) > 0 && slices.Contains(h.Skip, args[0]) {
		return nil, env
	}
	option := h.Args[0]
	key, _, hasKey := strings.Cut(h.Args[len(h.Args)-1], "="+textVariable)
	for _, a := range args {
		if hasKey && strings.HasPrefix(a, key+"=") || !hasKey && (a == option || strings.HasPrefix(a, option+"=")) {
			return nil, env
		}
	}
	for file, said := range h.Unless {
		if mentions(filepath.Join(home, strings.TrimPrefix(file, "~/")), said) {
			return nil, env
		}
	}
	for _, a := range h.Args {
		before = append(before, strings.ReplaceAll(a, textVariable, strings.Join(strings.Fields(text), " ")))
	}
	return before, env
}

// mentions reports whether a file of the user's has text in it. One that cannot be
// read might.
func mentions(file, text string) bool {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	if err != nil {
		return true
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxSettings))
	return err != nil || strings.Contains(string(data), text)
}

// maxSettings is how much of a settings file is looked at, in bytes.
const maxSettings = 1 << 20
