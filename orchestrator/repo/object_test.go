package repo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// project is a repository that git made: a program that grew over twenty commits (deltas, once packed), a link, a directory.
func project(t *testing.T, format string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skipf("wanted git, got %v", err)
	}
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main", "--object-format="+format)
	var text strings.Builder
	for i := range 20 {
		for j := range 50 {
			fmt.Fprintf(&text, "line %d of commit %d: %d\n", j, i, i*j*7919)
		}
		write(t, dir, "src/a/program.txt", text.String())
		if i == 0 {
			write(t, dir, "run.sh", "#!/bin/sh\n")
			if err := errors.Join(os.Chmod(filepath.Join(dir, "run.sh"), 0o755), os.Symlink("run.sh", filepath.Join(dir, "link"))); err != nil {
				t.Fatal(err)
			}
		}
		git(t, dir, "add", "-A")
		git(t, dir, "commit", "-q", "-m", "x")
	}
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=d", "-c", "user.email=d@x"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestStore compares with what git says, loose and packed, under both hashes.
func TestStore(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		dir := project(t, format)
		dot := filepath.Join(dir, ".git")
		for _, state := range []string{"loose", "packed", "two packs"} {
			switch state {
			case "packed":
				git(t, dir, "gc", "-q", "--aggressive", "--prune=now")
				git(t, dir, "pack-refs", "--all")
			case "two packs":
				git(t, dir, "commit", "-q", "--allow-empty", "-m", "y")
				git(t, dir, "repack", "-q")
			}
			head, err := Head(dot, dot)
			if want := git(t, dir, "rev-parse", "HEAD"); err != nil || head != want {
				t.Fatalf("%s %s: head %s %v, want %s", format, state, head, err, want)
			}
			s := Open(dot)
			for name, mode := range map[string]uint32{"src/a/program.txt": 0o100644, "run.sh": 0o100755, "link": 0o120000} {
				e, err := s.Find(head, name)
				if err != nil || e.Mode != mode || e.ID != git(t, dir, "rev-parse", "HEAD:"+name) {
					t.Errorf("%s %s %s: %+v %v", format, state, name, e, err)
					continue
				}
				data, err := s.Blob(e.ID)
				if want := git(t, dir, "cat-file", "blob", e.ID); err != nil || strings.TrimSpace(string(data)) != want || BlobID(head, data) != e.ID {
					t.Errorf("%s %s %s: %d bytes %v", format, state, name, len(data), err)
				}
			}
			first := git(t, dir, "rev-list", "--max-parents=0", "HEAD")
			if e, err := s.Find(first, "src/a/program.txt"); err != nil {
				t.Errorf("%s %s: first: %v", format, state, err)
			} else if data, err := s.Blob(e.ID); err != nil || bytes.Count(data, []byte("\n")) != 50 {
				t.Errorf("%s %s: first: %d bytes %v", format, state, len(data), err)
			}
			for _, name := range []string{"none", "src/none", "run.sh/below", "src/a/program.txt/x"} {
				if _, err := s.Find(head, name); !errors.Is(err, ErrNone) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestStoreIsNotFooled: an object that does not hash to its id is none, wherever it lies.
func TestStoreIsNotFooled(t *testing.T) {
	dir := project(t, "sha1")
	dot := filepath.Join(dir, ".git")
	head := git(t, dir, "rev-parse", "HEAD")
	id := git(t, dir, "rev-parse", "HEAD:run.sh")
	write(t, dir, "evil", "#!/bin/sh\nevil\n")
	evil := git(t, dir, "hash-object", "-w", "evil")
	loose := func(id string) string { return filepath.Join(dot, "objects", id[:2], id[2:]) }
	data, err := os.ReadFile(loose(evil))
	if err == nil {
		err = errors.Join(os.Remove(loose(id)), os.WriteFile(loose(id), data, 0o444))
	}
	if err != nil {
		t.Fatal(err)
	}
	s := Open(dot)
	if data, err := s.Blob(id); err == nil {
		t.Errorf("another object under its name: %q", data)
	}
	git(t, dir, "replace", head, git(t, dir, "rev-parse", "HEAD~5"))
	if e, err := s.Find(head, "src/a/program.txt"); err != nil || e.ID != git(t, dir, "--no-replace-objects", "rev-parse", "HEAD:src/a/program.txt") {
		t.Errorf("replaced: %+v %v", e, err)
	}
	for _, what := range []string{"fifo", "link", "empty"} {
		_ = os.Remove(loose(id))
		switch what {
		case "fifo":
			err = exec.Command("mkfifo", loose(id)).Run()
		case "link":
			err = os.Symlink(loose(evil), loose(id))
		case "empty":
			err = os.WriteFile(loose(id), nil, 0o444)
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, err := s.Blob(id); err == nil {
			t.Errorf("%s: %q", what, data)
		}
	}
	for _, ref := range []string{"ref: ../../secret", "ref: refs/../../x", "ref: refs/heads/none", "junk", ""} {
		write(t, dot, "HEAD", ref)
		if id, err := Head(dot, dot); err == nil {
			t.Errorf("HEAD %q: %s", ref, id)
		}
	}
}

func FuzzApply(f *testing.F) {
	f.Add([]byte("base"), []byte{4, 4, 0x90, 4})
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		if out, err := apply(base, delta); err == nil && len(out) > MaxObject {
			t.Fatal("too large")
		}
	})
}
