package plugin

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestHint: who runs an agent gets its hint before their own arguments, unless they
// have said the same or run one of its other commands.
func TestHint(t *testing.T) {
	home := t.TempDir()
	claude, codex := named(t, "claude").Hint, named(t, "codex").Hint
	for _, c := range []struct {
		name string
		hint Hint
		args []string
		want []string
	}{
		{"nothing", Hint{}, nil, nil},
		{"claude", claude, nil, []string{"--append-system-prompt", "text"}},
		{"claude with a prompt", claude, []string{"-p", "fix it"}, []string{"--append-system-prompt", "text"}},
		{"claude with its own", claude, []string{"-p", "x", "--append-system-prompt", "mine"}, nil},
		{"claude with its own, in one", claude, []string{"--append-system-prompt=mine"}, nil},
		{"claude mcp", claude, []string{"mcp", "list"}, nil},
		{"codex", codex, []string{"exec", "x"}, []string{"-c", "developer_instructions=text"}},
		{"codex with other settings", codex, []string{"-c", "model=o"}, []string{"-c", "developer_instructions=text"}},
		{"codex with its own", codex, []string{"-c", "developer_instructions=mine"}, nil},
		{"codex login", codex, []string{"login"}, nil},
	} {
		if got, _ := c.hint.For(c.args, home, "text\n"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if err := os.Mkdir(filepath.Join(home, ".codex"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(home, ".codex/config.toml")
	for text, want := range map[string]int{"model = 'o'\n": 2, "developer_instructions = 'be brief'\n": 0} {
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _ := codex.For(nil, home, "text"); len(got) != want {
			t.Errorf("with %q: %q", text, got)
		}
		if data, err := os.ReadFile(config); err != nil || string(data) != text {
			t.Errorf("the user's file is now %q, %v", data, err)
		}
	}
	opencode := named(t, "opencode").Hint
	if _, env := opencode.For(nil, home, "text"); env["OPENCODE_CONFIG_CONTENT"] == "" {
		t.Error("opencode is told nothing")
	}
}

func named(t *testing.T, name string) Plugin {
	t.Helper()
	p, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestHintMistakes(t *testing.T) {
	for _, h := range []Hint{{Args: []string{"mcp"}}, {Unless: map[string]string{"/etc/x": "y"}}} {
		if h.validate() == nil {
			t.Errorf("%+v was taken", h)
		}
	}
}
