package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentos/agentos/policy/glob"
)

// denied are the twenty globs of the tree section.
var denied = []string{
	"**/.env", "**/.env.*", "**/*.pem", "**/*.key", "**/*.p12", "**/*.pfx", "**/*.kdbx", "**/id_rsa", "**/id_ed25519", "**/.netrc",
	"**/.npmrc", "**/.pypirc", "**/.*credentials*", "**/secrets.*", "**/secrets/**", "**/.aws/**", "**/.ssh/**", "**/*.tfstate", "**/.git-credentials", "**/service-account*.json",
}

const (
	treeDirs  = 3000
	treeFiles = 100 // in each; every tenth directory has a .env and a key besides
)

// trees measures the start of a jail in an empty workspace and in one of 300,000 files, under a policy with twenty deny globs; beside
// it bubblewrap, whose users walk the tree before each start and mask every file that a glob finds, because a mount knows no globs.
func (b *bench) trees(n int) error {
	empty, full := filepath.Join(b.dir, "empty"), filepath.Join(b.dir, "full")
	if err := os.Mkdir(empty, 0o755); err != nil {
		return err
	}
	if err := plantTree(full); err != nil {
		return err
	}
	var list strings.Builder
	for _, g := range denied {
		fmt.Fprintf(&list, "  %q,\n", "${workspace}/"+g)
	}
	policy := filepath.Join(b.dir, "twenty.toml")
	text := "version = 1\nname = \"twenty\"\nextends = [\"builtin:base\"]\n\n[files]\ndeny = [\n" + list.String() + "]\n"
	if err := os.WriteFile(policy, []byte(text), 0o644); err != nil {
		return err
	}
	ours := func(ws string) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			c := b.agentos("run", "--policy", policy, "--workspace", ws, "--", "/bin/true")
			c.Dir = ws
			return timed(c)
		}
	}
	theirs := func(ws string) func() (time.Duration, error) {
		return func() (time.Duration, error) { return b.bwrapMasked(ws) }
	}
	cs := []*contestant{
		{name: "agentos, empty workspace", once: ours(empty)},
		{name: "agentos, 300,000 files", once: ours(full), note: "goal 1.10"},
		{name: "bubblewrap, empty workspace", once: theirs(empty)},
		{name: "bubblewrap, 300,000 files", once: theirs(full), note: "with the walk that finds what to mask"},
	}
	rounds(n, cs)
	table("start under 20 deny globs", cs)
	return nil
}

// plantTree makes the large workspace.
func plantTree(dir string) error {
	for d := range treeDirs {
		sub := filepath.Join(dir, fmt.Sprintf("pkg%02d", d/100), fmt.Sprintf("mod%02d", d%100))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		names := make([]string, 0, treeFiles+2)
		for f := range treeFiles {
			names = append(names, fmt.Sprintf("file%02d.go", f))
		}
		if d%10 == 0 {
			names = append(names, ".env", "server.key")
		}
		for _, name := range names {
			f, err := os.Create(filepath.Join(sub, name))
			if err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// bwrapMasked walks the workspace for files that the globs deny, then starts bubblewrap with a mask over each.
func (b *bench) bwrapMasked(ws string) (time.Duration, error) {
	began := time.Now()
	a, err := glob.Compile(denied, func(matched []uint16) glob.Accept { return glob.Accept{Bits: uint8(min(len(matched), 1))} })
	if err != nil {
		return 0, err
	}
	args := []string{
		"--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
		"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", ws, ws, "--chdir", ws,
	}
	masks := 0
	err = filepath.WalkDir(ws, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !a.Match(path).Allows(glob.Read) {
			return err
		}
		masks++
		args = append(args, "--ro-bind", "/dev/null", path)
		return nil
	})
	if err != nil {
		return 0, err
	}
	list, err := argsFile(args)
	if err != nil {
		return 0, err
	}
	defer list.Close()
	c := exec.Command("bwrap", "--args", "3", "--", "/bin/true")
	c.Env, c.ExtraFiles = b.env, []*os.File{list}
	if _, err := timed(c); err != nil {
		return 0, fmt.Errorf("%d masks: %w", masks, err)
	}
	return time.Since(began), nil
}

// argsFile is a file for bwrap --args: 600 masks are more than a command line should have.
func argsFile(args []string) (*os.File, error) {
	f, err := os.CreateTemp("", "bwrap-args")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name())
	if _, err := f.WriteString(strings.Join(args, "\x00") + "\x00"); err != nil {
		return nil, err
	}
	_, err = f.Seek(0, 0)
	return f, err
}
