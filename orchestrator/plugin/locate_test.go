package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const elf = "\x7fELF rest"

// home makes an empty home whose path has no links.
func makeHome(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "home", "alice")
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	return home
}

// layout is one way to install an agent, made below a home H.
type layout struct {
	name  string
	make  func(t *testing.T, h string)
	path  string // PATH, H replaced
	argv0 string
	tree  []string
	dirs  []string
}

func nodeLayouts() []layout {
	return []layout{
		{
			name: "nvm: node and package in one version directory",
			make: func(t *testing.T, h string) {
				v := h + "/.nvm/versions/node/v22.1.0"
				write(t, v+"/bin/node", elf, 0o755)
				write(t, v+"/lib/node_modules/@scope/agent/cli.js", "#!/usr/bin/env node\n", 0o755)
				link(t, "../lib/node_modules/@scope/agent/cli.js", v+"/bin/agent")
			},
			path:  "H/.nvm/versions/node/v22.1.0/bin",
			argv0: ".nvm/versions/node/v22.1.0/lib/node_modules/@scope/agent/cli.js",
			tree:  []string{".nvm/versions/node/v22.1.0"},
			dirs:  []string{".nvm/versions/node/v22.1.0/bin"},
		},
		{
			name: "npm prefix of the user, node elsewhere in the home",
			make: func(t *testing.T, h string) {
				write(t, h+"/node-v22-linux-x64/bin/node", elf, 0o755)
				write(t, h+"/.npm-global/lib/node_modules/agent/bin/cli.js", "#!/usr/bin/env -S node --no-warnings\n", 0o755)
				write(t, h+"/.npm-global/lib/node_modules/other/index.js", "", 0o644)
				link(t, "../lib/node_modules/agent/bin/cli.js", h+"/.npm-global/bin/agent")
			},
			path:  "H/.npm-global/bin:H/node-v22-linux-x64/bin",
			argv0: ".npm-global/lib/node_modules/agent/bin/cli.js",
			tree:  []string{".npm-global/lib/node_modules/agent", "node-v22-linux-x64"},
			dirs:  []string{"node-v22-linux-x64/bin"},
		},
		{
			name: "native binary of a nested platform package",
			make: func(t *testing.T, h string) {
				p := h + "/n/lib/node_modules/@o/codex"
				write(t, p+"/node_modules/@o/codex-linux-x64/vendor/bin/codex", elf, 0o755)
				link(t, "../node_modules/@o/codex-linux-x64/vendor/bin/codex", p+"/bin/agent")
				link(t, "../lib/node_modules/@o/codex/bin/agent", h+"/n/bin/agent")
			},
			path:  "H/n/bin",
			argv0: "n/lib/node_modules/@o/codex/bin/agent",
			tree:  []string{"n/lib/node_modules/@o/codex"},
			dirs:  []string{"n/lib/node_modules/@o/codex/bin"},
		},
		{
			name: "node_modules/.bin of a project: hoisted siblings are needed",
			make: func(t *testing.T, h string) {
				write(t, h+"/p/node_modules/agent/cli.js", "#!/bin/sh\n", 0o755)
				link(t, "../agent/cli.js", h+"/p/node_modules/.bin/agent")
			},
			path:  "H/p/node_modules/.bin",
			argv0: "p/node_modules/.bin/agent",
			tree:  []string{"p/node_modules"},
			dirs:  []string{"p/node_modules/.bin"},
		},
	}
}

func otherLayouts() []layout {
	return []layout{
		{
			name: "pnpm store: the outermost node_modules",
			make: func(t *testing.T, h string) {
				g := h + "/.local/share/pnpm/global/5/node_modules"
				write(t, g+"/.pnpm/agent@1/node_modules/agent/cli.js", "#!/bin/sh\n", 0o755)
				link(t, "global/5/node_modules/.pnpm/agent@1/node_modules/agent/cli.js", h+"/.local/share/pnpm/agent")
			},
			path:  "H/.local/share/pnpm",
			argv0: ".local/share/pnpm/global/5/node_modules/.pnpm/agent@1/node_modules/agent/cli.js",
			tree:  []string{".local/share/pnpm/global/5/node_modules"},
		},
		{
			name: "~/.local/bin link to ~/.local/share/NAME",
			make: func(t *testing.T, h string) {
				write(t, h+"/.local/share/agent/versions/1.2", elf, 0o755)
				link(t, h+"/.local/share/agent/versions/1.2", h+"/.local/bin/agent")
			},
			path:  "H/.local/bin",
			argv0: ".local/share/agent/versions/1.2",
			tree:  []string{".local/share/agent"},
		},
		{
			name: "one file in ~/.local/bin, ~/.cargo/bin: that file",
			make: func(t *testing.T, h string) {
				write(t, h+"/.cargo/credentials.toml", "secret", 0o600)
				write(t, h+"/.cargo/bin/agent", elf, 0o755)
			},
			path:  "H/.local/bin:H/.cargo/bin",
			argv0: ".cargo/bin/agent",
			tree:  []string{".cargo/bin/agent"},
			dirs:  []string{".cargo/bin"},
		},
		{
			name: "pipx: the environment and the Python behind it",
			make: func(t *testing.T, h string) {
				v := h + "/.local/share/pipx/venvs/agent"
				py := h + "/.local/share/uv/python/cpython-3.12"
				write(t, py+"/bin/python3.12", elf, 0o755)
				write(t, v+"/pyvenv.cfg", "", 0o644)
				link(t, py+"/bin/python3.12", v+"/bin/python")
				write(t, v+"/bin/agent", "#!"+v+"/bin/python\n", 0o755)
				link(t, v+"/bin/agent", h+"/.local/bin/agent")
			},
			path:  "H/.local/bin",
			argv0: ".local/share/pipx/venvs/agent/bin/agent",
			tree:  []string{".local/share/pipx/venvs/agent", ".local/share/uv/python/cpython-3.12"},
			dirs:  []string{".local/share/pipx/venvs/agent/bin"},
		},
		{
			name: "fnm: PATH goes through a link that is made for each shell",
			make: func(t *testing.T, h string) {
				v := h + "/.local/share/fnm/node-versions/v22/installation"
				write(t, v+"/bin/node", elf, 0o755)
				write(t, v+"/lib/node_modules/agent/cli.js", "#!/usr/bin/env node\n", 0o755)
				link(t, "../lib/node_modules/agent/cli.js", v+"/bin/agent")
				link(t, v, h+"/.local/state/fnm_multishells/1_2")
			},
			path:  "H/.local/state/fnm_multishells/1_2/bin",
			argv0: ".local/share/fnm/node-versions/v22/installation/lib/node_modules/agent/cli.js",
			tree:  []string{".local/share/fnm/node-versions/v22/installation"},
			dirs:  []string{".local/share/fnm/node-versions/v22/installation/bin"},
		},
		{
			name: "a shim of pyenv gives way to its version; relative PATH entries are skipped",
			make: func(t *testing.T, h string) {
				write(t, h+"/.pyenv/shims/agent", "#!/bin/sh\n", 0o755)
				write(t, h+"/.pyenv/version", "3.12.1\n", 0o644)
				write(t, h+"/.pyenv/versions/3.12.1/bin/agent", elf, 0o755)
			},
			path:  ".:bin::H/.pyenv/shims",
			argv0: ".pyenv/versions/3.12.1/bin/agent",
			tree:  []string{".pyenv/versions/3.12.1"},
			dirs:  []string{".pyenv/versions/3.12.1/bin"},
		},
		{
			name:  "a program of the distribution needs nothing",
			make:  func(*testing.T, string) {},
			path:  "/usr/bin:/bin",
			argv0: "",
		},
	}
}

// Names in argv0, tree and dirs are relative to the home.
func TestLayouts(t *testing.T) {
	for _, tt := range append(nodeLayouts(), otherLayouts()...) {
		t.Run(tt.name, func(t *testing.T) {
			h := makeHome(t)
			tt.make(t, h)
			command := "agent"
			if tt.argv0 == "" {
				command = "sh"
			}
			in, err := Locate(Plugin{Command: []string{command}}, strings.ReplaceAll(tt.path, "H", h), h)
			if err != nil {
				t.Fatal(err)
			}
			rel := func(list []string) []string {
				var out []string
				for _, p := range list {
					out = append(out, strings.TrimPrefix(p, h+"/"))
				}
				return out
			}
			if tt.argv0 == "" {
				if len(in.Tree) != 0 || len(in.Path) != 0 {
					t.Errorf("got %+v", in)
				}
				return
			}
			if got := rel([]string{in.Argv0})[0]; got != tt.argv0 {
				t.Errorf("argv0 %s, want %s", got, tt.argv0)
			}
			if got := rel(in.Tree); !slices.Equal(got, tt.tree) {
				t.Errorf("tree %v, want %v", got, tt.tree)
			}
			if got := rel(in.Path); !slices.Equal(got, tt.dirs) {
				t.Errorf("path %v, want %v", got, tt.dirs)
			}
		})
	}
}

func TestLocateErrors(t *testing.T) {
	h := makeHome(t)
	write(t, h+"/.asdf/shims/agent", "#!/bin/sh\n", 0o755)
	write(t, h+"/.volta/bin/volta-shim", elf, 0o755)
	link(t, "volta-shim", h+"/.volta/bin/agent")
	write(t, h+"/.ssh/agent", elf, 0o755)
	write(t, h+"/loop/agent", "#!"+h+"/loop/agent\n", 0o755)
	write(t, h+"/noint/agent", "#!/usr/bin/env no-such-interpreter\n", 0o755)
	write(t, h+"/noexec/agent", elf, 0o644)
	if err := os.MkdirAll(h+"/dir/agent", 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]error{
		h + "/.asdf/shims": ErrShim, h + "/.volta/bin": ErrShim, h + "/.ssh": ErrBroad,
		h + "/noint": ErrNotFound, h + "/noexec": ErrNotFound, h + "/dir": ErrNotFound, "": ErrNotFound,
	} {
		_, err := Locate(Plugin{Command: []string{"agent"}, Install: "x"}, dir, h)
		var e *Error
		if !errors.Is(err, want) || !errors.As(err, &e) {
			t.Errorf("%s: got %v, want %v", dir, err, want)
		}
	}
	if _, err := Locate(Plugin{Command: []string{"agent"}}, h+"/loop", h); err == nil || !strings.Contains(err.Error(), "nest deeper") {
		t.Errorf("a script that is its own interpreter: %v", err)
	}
	in, err := Locate(Plugin{Command: []string{"agent"}, Detect: []string{"~/tools/agent"}}, "", h)
	if err == nil {
		t.Errorf("found what is not there: %+v", in)
	}
	write(t, h+"/tools/agent", elf, 0o755)
	if in, err = Locate(Plugin{Command: []string{"agent"}, Detect: []string{"~/tools/agent"}}, "", h); err != nil || in.Argv0 != h+"/tools/agent" {
		t.Errorf("detect: %+v %v", in, err)
	}
}

func TestLocateCommand(t *testing.T) {
	h := makeHome(t)
	ws := h + "/w"
	write(t, h+"/lang/bin/python3", elf, 0o755)
	write(t, ws+"/build.sh", "#!/usr/bin/env python3\n", 0o755)
	write(t, ws+"/plain.sh", "#!/bin/sh\n", 0o755)
	write(t, ws+"/data", "x", 0o644)
	write(t, h+"/bin/outside", elf, 0o755)
	link(t, "../../bin/outside", ws+"/sub/out")

	in, err := LocateCommand("./build.sh", h+"/lang/bin", h, ws, ws)
	if err != nil || in.Argv0 != ws+"/build.sh" || !slices.Equal(in.Tree, []string{h + "/lang"}) || !slices.Equal(in.Path, []string{h + "/lang/bin"}) {
		t.Errorf("script with a found interpreter: %+v %v", in, err)
	}
	in, err = LocateCommand("../plain.sh", "", h, ws, ws+"/sub")
	if err != nil || in.Argv0 != ws+"/plain.sh" || len(in.Tree) != 0 {
		t.Errorf("script from a subdirectory: %+v %v", in, err)
	}
	in, err = LocateCommand("sub/out", "", h, ws, ws)
	if err != nil || !slices.Equal(in.Tree, []string{h + "/bin/outside"}) {
		t.Errorf("link out of the workspace: %+v %v", in, err)
	}
	if _, err = LocateCommand("./data", "", h, ws, ws); !errors.Is(err, ErrNotExecutable) {
		t.Errorf("file without x: %v", err)
	}
	if _, err = LocateCommand("./none", "", h, ws, ws); !errors.Is(err, ErrNotFound) {
		t.Errorf("missing file: %v", err)
	}
	if _, err = LocateCommand("none", "/usr/bin", h, ws, ws); !errors.Is(err, ErrNotFound) {
		t.Errorf("missing command: %v", err)
	}
}

func TestShebang(t *testing.T) {
	dir := t.TempDir()
	for line, want := range map[string]string{
		"#!/bin/sh\n": "/bin/sh", "#! /bin/bash -e\n": "/bin/bash", "#!/usr/bin/env node\n": "node",
		"#!/usr/bin/env -S node --x\n": "node", "#!/usr/bin/env -Snode\n": "node", "#!/usr/bin/env -S A=b deno run\n": "deno",
		"#!\n": "", elf: "", "": "", "#!/bin/sh": "/bin/sh", "#!/usr/bin/env\n": "",
		"#!" + strings.Repeat("a", 9000): strings.Repeat("a", 4094),
	} {
		p := filepath.Join(dir, "f")
		write(t, p, line, 0o755)
		if got, err := shebang(p); err != nil || got != want {
			t.Errorf("%.30q: got %.30q %v, want %.30q", line, got, err, want)
		}
	}
}
