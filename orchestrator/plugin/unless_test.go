package plugin

import (
	"os"
	"slices"
	"testing"
)

// A decision counts for the workspace and for what lies below it, in the form in which the agent itself writes it.
func TestUndecided(t *testing.T) {
	codex, err := Find("codex")
	if err != nil {
		t.Fatal(err)
	}
	gemini, err := Find("gemini")
	if err != nil {
		t.Fatal(err)
	}
	const odd = `/src/a "b" \c`
	untrusted := func(dir string) []string { return []string{"-c", `projects={"` + dir + `"={trust_level="untrusted"}}`} }
	for _, c := range []struct {
		name, toml, json, workspace string
		args                        []string // nil: decided
	}{
		{name: "no file", workspace: "/src/app", args: untrusted("/src/app")},
		{name: "another folder", toml: "[projects.\"/src/app2\"]\ntrust_level = \"trusted\"\n", json: `{"/src/app2": "TRUST_FOLDER"}`, workspace: "/src/app", args: untrusted("/src/app")},
		{name: "a folder below", toml: "[projects.\"/src/app/x\"]\n", json: `{"/src/app/x": "TRUST_FOLDER"}`, workspace: "/src/app", args: untrusted("/src/app")},
		{name: "this folder", toml: "model = \"m\"\n[projects.\"/src/app\"]\ntrust_level = \"trusted\"\n", json: `{"/src/app": "DO_NOT_TRUST"}`, workspace: "/src/app"},
		{name: "a folder above", toml: "[projects.\"/src\"]\n", json: `{"/src": "TRUST_FOLDER"}`, workspace: "/src/app/x"},
		{name: "the root", toml: "[projects.\"/\"]\n", json: `{"/": "TRUST_FOLDER"}`, workspace: "/src"},
		{name: "odd bytes, undecided", workspace: odd, args: untrusted(`/src/a \"b\" \\c`)},
		{name: "odd bytes, decided", toml: `[projects."/src/a \"b\" \\c"]`, json: `{"/src/a \"b\" \\c": "TRUST_FOLDER"}`, workspace: odd},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := makeHome(t)
			if c.toml != "" {
				write(t, home+"/.codex/config.toml", c.toml, 0o600)
				write(t, home+"/.gemini/trustedFolders.json", c.json, 0o600)
			}
			if args, _ := codex.Undecided(c.workspace, home); !slices.Equal(args, c.args) {
				t.Errorf("codex: %q, want %q", args, c.args)
			}
			if _, set := gemini.Undecided(c.workspace, home); (set["GEMINI_CLI_TRUST_WORKSPACE"] == "false") != (c.args != nil) {
				t.Errorf("gemini: %v", set)
			}
		})
	}
	home := makeHome(t) // what is no file knows no decision, and is not waited for
	if err := os.MkdirAll(home+"/.codex/config.toml", 0o755); err != nil {
		t.Fatal(err)
	}
	if args, _ := codex.Undecided("/src/app", home); len(args) == 0 {
		t.Error("a directory was taken for a decision")
	}
}
