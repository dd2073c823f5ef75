package trust

import (
	"path"
	"strings"
	"testing"
)

func TestKinds(t *testing.T) {
	table := newKinds(Table)
	for name, want := range map[string]string{
		".git/hooks/pre-commit": "git hook", ".git/hooks/pre-commit.sample": "", "sub/.git/hooks/x": "git hook", ".husky/_/husky.sh": "git hook",
		".git/config": "git configuration", ".git/modules/sub/config": "git configuration", ".git/worktrees/w/config.worktree": "git configuration",
		".git": "git directory", "deep/.git": "git directory", ".git/worktrees/w/commondir": "git directory", ".git/objects/info/alternates": "git directory",
		".gitattributes": "git attributes", ".gitmodules": "git submodule", ".git/rebase-merge/git-rebase-todo": "unfinished rebase",
		"evil/HEAD": "bare repository", ".git/HEAD": "", ".git/logs/HEAD": "", ".git/refs/remotes/origin/HEAD": "", ".git/worktrees/w/HEAD": "",
		".git/index": "", ".git/objects/ab/cdef": "", ".git/refs/heads/package.json": "package script",
		".claude": "agent settings", ".claude/settings.json": "agent settings", "x/.mcp.json": "agent settings", "CLAUDE.md": "agent instructions", "docs/AGENTS.md": "agent instructions",
		".vscode/tasks.json": "editor task or setting", ".idea/workspace.xml": "editor task or setting", "p.code-workspace": "editor task or setting",
		".exrc": "editor startup file", ".devcontainer/devcontainer.json": "development container",
		".envrc": "directory environment", "mise.toml": "directory environment", ".bashrc": "shell startup file", "x.desktop": "login, service or schedule", "a/b.service": "login, service or schedule",
		"package.json": "package script", "web/package.json": "package script", ".npmrc": "package source", ".cargo/config.toml": "package source", "Cargo.lock": "locked dependency", "requirements-dev.txt": "locked dependency",
		"setup.py": "Python build", "pyproject.toml": "Python build", "conftest.py": "test configuration", "tests/unit/conftest.py": "test configuration", "x.pth": "Python startup",
		"build.rs": "Rust build", "Makefile": "make file", "sub/rules.mk": "make file", "justfile": "make file", "Taskfile.yml": "make file", "CMakeLists.txt": "CMake or configure",
		"gradlew": "JVM build", "gradle/wrapper/gradle-wrapper.properties": "JVM build", "mvnw": "JVM build", "pom.xml": "JVM build", "vite.config.ts": "JavaScript tool configuration",
		".github/workflows/ci.yml": "CI workflow", ".gitlab-ci.yml": "CI workflow", "Jenkinsfile": "CI workflow", "Dockerfile": "container build", "Dockerfile.dev": "container build", "docker-compose.prod.yml": "container build",
		"main.tf": "infrastructure", "a.ipynb": "notebook", "x.jar": "macro or shortcut",
		"node_modules/x/package.json": "installed packages", "web/node_modules/.bin/tsc": "installed packages", ".venv/bin/activate": "Python environment", "target/release/build/x/build.rs": "build output",
		"main.go": "", "README.md": "", "src/makefile.go": "", "package.jsonx": "", "docs/config": "", "notes.txt": "",
	} {
		kind, item := table.of(name)
		got := ""
		if kind != nil {
			got = kind.Name
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if kind != nil && kind.Whole != (item != name) && name != item {
			t.Errorf("%s: item %s", name, item)
		}
	}
	if _, item := table.of("web/node_modules/x/node_modules/y/package.json"); item != "web/node_modules" {
		t.Errorf("the outermost is the whole: %s", item)
	}
}

// TestTable: every row says who executes, no pattern is broken or written twice.
func TestTable(t *testing.T) {
	seen := map[string]string{}
	for _, k := range Table {
		if k.Name == "" || k.Why == "" || len(k.Match) == 0 {
			t.Errorf("%q lacks its name, why or patterns", k.Name)
		}
		for _, p := range append(k.Match, k.Not...) {
			if _, err := path.Match(p, "x"); err != nil || strings.HasPrefix(p, "/") || strings.Contains(p, "**") || strings.Contains(p, "//") {
				t.Errorf("%s: pattern %q: %v", k.Name, p, err)
			}
		}
		for _, p := range k.Match {
			if other, ok := seen[p]; ok {
				t.Errorf("%s: %q is in %s already", k.Name, p, other)
			}
			seen[p] = k.Name
		}
	}
}

func TestUnified(t *testing.T) {
	long := strings.Repeat("same\n", 20)
	for name, c := range map[string]struct{ before, after, want string }{
		"same":    {"a\nb\n", "a\nb\n", ""},
		"new":     {"", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"},
		"gone":    {"a\n", "", "@@ -1,1 +0,0 @@\n-a\n"},
		"changed": {"a\nb\nc\n", "a\nX\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+X\n c\n"},
		"far":     {long + "x\n", "y\n" + long + "x\n", "@@ -1,3 +1,4 @@\n+y\n same\n same\n same\n"},
		"two":     {"a\n" + long + "b\n", "A\n" + long + "B\n", "@@ -1,4 +1,4 @@\n-a\n+A\n same\n same\n same\n@@ -19,4 +19,4 @@\n same\n same\n same\n-b\n+B\n"},
	} {
		if got := unified(c.before, c.after); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
	huge := unified("", strings.Repeat("x\n", 100_000))
	if n := strings.Count(huge, "\n"); n > maxShown+2 {
		t.Errorf("%d lines", n)
	}
}

// FuzzUnified: what a difference says leads from one text to the other.
func FuzzUnified(f *testing.F) {
	f.Add("a\nb\nc\nd\ne\nf\ng\nh\n", "a\nX\nc\nd\ne\nf\ng\nY\n")
	f.Fuzz(func(t *testing.T, before, after string) {
		var a, b []string
		for _, e := range edits(lines(before), lines(after)) {
			if e.op != '+' {
				a = append(a, e.text)
			}
			if e.op != '-' {
				b = append(b, e.text)
			}
		}
		if strings.Join(a, "\n") != strings.Join(lines(before), "\n") || strings.Join(b, "\n") != strings.Join(lines(after), "\n") {
			t.Fatalf("%q %q: %q %q", before, after, a, b)
		}
		_ = unified(before, after)
	})
}
