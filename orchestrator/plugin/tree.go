package plugin

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// systemDirs are shown by every builtin policy: base.toml.
func systemDirs() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/libexec", "/opt", "/nix/store", "/snap", "/home/linuxbrew/.linuxbrew", "/etc/alternatives"}
}

func (l *locator) system(path string) bool {
	if l.workspace != "" && below(path, l.workspace) {
		return true
	}
	return slices.ContainsFunc(systemDirs(), func(d string) bool { return below(path, d) })
}

// shared are directories of a home that hold more than one program. A DIR/bin
// in them is shown as the one file.
func shared() []string {
	return []string{".local", ".cargo", ".config", ".cache", ".bun", ".deno", "go", ".go", ".npm", ".yarn", ".pnpm", ".nix-profile", ".dotnet", ".gem", ".composer", "Library", ".local/share", ".local/state", ".local/lib"}
}

// tree is the smallest tree that the real program file at path needs, "" if
// every policy shows it.
func (l *locator) tree(path string) (string, error) {
	if l.system(path) {
		return "", nil
	}
	tree := l.choose(path)
	if tree == "/" || below(l.home, tree) || l.workspace != "" && below(l.workspace, tree) || l.secret(tree) {
		return "", fail(path, ErrBroad, "copy or link the program to a directory of its own")
	}
	return tree, nil
}

// choose applies the table in the package comment.
func (l *locator) choose(path string) string {
	if root, rest, ok := outermostModules(path); ok {
		if filepath.Base(filepath.Dir(root)) == "lib" { // npm install -g: dependencies nest in the package
			return filepath.Join(root, packageName(rest))
		}
		return root
	}
	if env := l.virtualEnv(path); env != "" {
		return env
	}
	if rest, ok := strings.CutPrefix(path, filepath.Join(l.home, ".local/share")+"/"); ok {
		if name, _, deep := strings.Cut(rest, "/"); deep && !slices.Contains([]string{"uv", "pipx", "mise", "fnm", "pnpm", "rtx"}, name) {
			return filepath.Join(l.home, ".local/share", name)
		}
	}
	if dir := filepath.Dir(path); filepath.Base(dir) == "bin" {
		if prefix := filepath.Dir(dir); !l.common(prefix) {
			return prefix
		}
	}
	return path
}

// common says whether a prefix holds more than one program: the home, what is
// above it, its shared directories, and directories that look like a root.
func (l *locator) common(prefix string) bool {
	if prefix == "/" || below(l.home, prefix) || prefix == "/home" || prefix == "/root" {
		return true
	}
	if slices.ContainsFunc(shared(), func(s string) bool { return prefix == filepath.Join(l.home, s) }) {
		return true
	}
	_, err := os.Stat(filepath.Join(prefix, "etc"))
	return err == nil // somebody's own /usr/local
}

// secret says whether a tree is, or lies in, a directory of credentials.
func (l *locator) secret(tree string) bool {
	for _, s := range []string{".ssh", ".gnupg", ".aws", ".kube", ".azure", ".docker", ".password-store", ".mozilla"} {
		if dir := filepath.Join(l.home, s); below(tree, dir) {
			return true
		}
	}
	return false
}

// outermostModules cuts a path at its first node_modules directory.
func outermostModules(path string) (root, rest string, ok bool) {
	const name = "/node_modules/"
	i := strings.Index(path, name)
	if i < 0 {
		return "", "", false
	}
	return path[:i+len(name)-1], path[i+len(name):], true
}

// packageName is the first one or, below a @scope, two components.
func packageName(rest string) string {
	words := strings.SplitN(rest, "/", 3)
	if strings.HasPrefix(words[0], "@") && len(words) > 1 {
		return words[0] + "/" + words[1]
	}
	return words[0]
}

// virtualEnv is the Python environment that path lies in, at most 4 levels up.
func (l *locator) virtualEnv(path string) string {
	dir := filepath.Dir(path)
	for range 4 {
		if dir == "/" || below(l.home, dir) {
			return ""
		}
		if _, err := os.Stat(filepath.Join(dir, "pyvenv.cfg")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// shim recognises the stand-ins of version managers by where they lie and by
// the program that all of them link to.
func shim(path string) (hint string, is bool) {
	dir, name := filepath.Split(path)
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	advice := func(ask string) (string, bool) {
		return "put the directory of the real program first in PATH: dirname $(" + ask + " " + name + ")", true
	}
	if filepath.Base(real) == "volta-shim" {
		return advice("volta which")
	}
	for _, m := range []struct{ dir, ask string }{
		{"/.asdf/shims/", "asdf which"},
		{"/.local/share/asdf/shims/", "asdf which"},
		{"/mise/shims/", "mise which"},
		{"/rtx/shims/", "mise which"},
		{"/.pyenv/shims/", "pyenv which"},
		{"/.rbenv/shims/", "rbenv which"},
		{"/.nodenv/shims/", "nodenv which"},
		{"/.goenv/shims/", "goenv which"},
	} {
		if strings.HasSuffix(dir, m.dir) {
			return advice(m.ask)
		}
	}
	return "", false
}

// behindShim is the program that a shim of pyenv, rbenv or nodenv starts by
// default: that of the version in its "version" file. "" if there is none.
func behindShim(path string) string {
	root := filepath.Dir(filepath.Dir(path))
	data, err := os.ReadFile(filepath.Join(root, "version"))
	if err != nil {
		return ""
	}
	for _, v := range strings.Fields(string(data)) {
		if p := filepath.Join(root, "versions", v, "bin", filepath.Base(path)); filepath.Base(v) == v && program(p) {
			return p
		}
	}
	return ""
}

// below says whether p is dir or lies below it.
func below(p, dir string) bool {
	return dir == "/" || p == dir || strings.HasPrefix(p, dir+"/")
}
