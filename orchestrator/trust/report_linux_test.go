package trust

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

// stage is a workspace with a repository, and a session that began on it.
type stage struct {
	t       *testing.T
	dir     string
	s       Session
	store   Store
	changes Changes
}

func newStage(t *testing.T) *stage {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skipf("wanted git, got %v", err)
	}
	top := t.TempDir()
	g := &stage{t: t, dir: filepath.Join(top, "ws"), store: In(filepath.Join(top, "home"), "")}
	g.write("package.json", "{\n  \"scripts\": {}\n}\n")
	g.write("Makefile", "all:\n")
	g.write("run.sh", "#!/bin/sh\n")
	g.write("crlf.mk", "a\nb\n")
	g.write("templates/tasks.json", "{}\n")
	g.git("init", "-q", "-b", "main")
	g.write(".git/hooks/pre-push", "#!/bin/sh\n")
	g.git("add", "-A")
	g.git("commit", "-q", "-m", "first")
	g.s = Begin(g.dir, "", "", []string{g.dir})
	g.s.ID, g.s.Name = "id1", "one"
	if g.s.Head != g.git("rev-parse", "HEAD") {
		t.Fatalf("head %q", g.s.Head)
	}
	return g
}

func (g *stage) path(name string) string { return filepath.Join(g.dir, name) }

// age is the change time of a file.
func (g *stage) age(name string) time.Time {
	var st unix.Stat_t
	g.must(unix.Lstat(g.path(name), &st))
	return time.Unix(st.Ctim.Unix())
}

func (g *stage) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *stage) write(name, text string) {
	g.t.Helper()
	g.must(errors.Join(os.MkdirAll(filepath.Dir(g.path(name)), 0o755), os.WriteFile(g.path(name), []byte(text), 0o644)))
}

func (g *stage) git(args ...string) string {
	g.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=d", "-c", "user.email=d@x"}, args...)...)
	cmd.Dir, cmd.Env = g.dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// did records an act; paths are below the workspace.
func (g *stage) did(kind event.Kind, paths ...string) {
	e := event.Event{Kind: kind, Verdict: event.Allow, Path: g.path(paths[0])}
	if len(paths) > 1 {
		e.Path2 = g.path(paths[1])
	}
	if kind == event.Open {
		e.Flags = 0o1
	}
	g.changes.Add(&segment.Record{Event: e})
}

func (g *stage) find() Report {
	g.t.Helper()
	a, err := g.store.Accepted()
	g.must(err)
	return g.s.Find(&g.changes, a, 1_000_000)
}

// said is a report in short.
func said(r Report) (out []string) {
	for _, it := range r.Items {
		out = append(out, it.Name+": "+it.Change)
	}
	return out
}

func (g *stage) want(r Report, want ...string) {
	g.t.Helper()
	if got := said(r); !slices.Equal(got, want) {
		g.t.Errorf("got %q, want %q (%d missed)", got, want, r.Missed)
	}
}

func TestFind(t *testing.T) {
	g := newStage(t)
	g.want(g.find())
	g.write("package.json", "{\n  \"scripts\": {\"test\": \"evil\"}\n}\n")
	g.did(event.Open, "package.json")
	g.write("Makefile", "all:\n") // as before
	g.did(event.Open, "Makefile")
	g.write("crlf.mk", "a\r\nb\r\n") // as before, but for line ends
	g.did(event.Open, "crlf.mk")
	g.must(os.Chmod(g.path("run.sh"), 0o755))
	g.did(event.Chmod, "run.sh")
	g.write("conftest.py", "x\n")
	g.did(event.Create, "conftest.py")
	g.write("main.go", "package main\n") // of no kind
	g.did(event.Create, "main.go")
	g.must(os.Rename(g.path("templates"), g.path(".vscode"))) // files that nobody wrote to
	g.did(event.Rename, "templates", ".vscode")
	g.write(".git/hooks/pre-push", "#!/bin/sh\nevil\n")
	g.did(event.Open, ".git/hooks/pre-push")
	g.write(".git/hooks/pre-commit", "#!/bin/sh\nevil\n")
	g.did(event.Create, ".git/hooks/pre-commit")
	for i := range 3 {
		name := fmt.Sprintf("node_modules/p%d/package.json", i)
		g.write(name, "{}")
		g.did(event.Create, name)
	}
	g.did(event.Create, "gone.mk") // and removed
	want := []string{".git/hooks/pre-commit: new", ".git/hooks/pre-push: changed", ".vscode/tasks.json: untracked", "conftest.py: new", "node_modules: unknown", "package.json: changed", "run.sh: mode"}
	g.want(g.find(), want...)

	// The agent commits all of it: that is no excuse.
	g.git("add", "-A")
	g.git("commit", "-q", "--no-verify", "-m", "innocent")
	r := g.find()
	g.want(r, want...)
	if d := r.Items[5].Diff; !strings.Contains(d, "-  \"scripts\": {}\n+  \"scripts\": {\"test\": \"evil\"}\n") {
		t.Errorf("difference:\n%s", d)
	}
	if r.Items[4].Files != 3 {
		t.Errorf("%+v", r.Items[4])
	}

	// Nobody recorded files: change times tell the same.
	g.changes, g.s.Silent = Changes{}, true
	g.s.Began = time.Now().Add(-time.Hour)
	for _, line := range want {
		if !strings.Contains(line, "new") && !slices.Contains(said(g.find()), line) {
			t.Errorf("by change times: no %q in %q", line, said(g.find()))
		}
	}

	// Change times of what was there before do not count, in a directory that changed either; git's version does.
	g.s.Head = g.git("rev-parse", "HEAD")
	g.write("old/Makefile", "old:\n")
	g.write("src/Makefile", "all:\n")
	g.git("add", "src")
	g.git("commit", "-q", "--no-verify", "-m", "src")
	g.s.Head = g.git("rev-parse", "HEAD")
	g.write("src/sub.mk", "ignored by git\n")
	for time.Since(g.age("src/sub.mk")) < 30*time.Millisecond {
		time.Sleep(time.Millisecond)
	}
	g.s.Began = time.Now()
	for time.Since(g.s.Began) < 30*time.Millisecond {
		time.Sleep(time.Millisecond)
	}
	g.write("src/main.go", "package main\n") // changes the directory
	g.want(g.find())
	g.must(os.Rename(g.path("old"), g.path("new")))
	g.write("src/Makefile", "all: evil\n")
	g.want(g.find(), "new/Makefile: untracked", "src/Makefile: changed")

	g.s.Began = time.Now().Add(time.Hour)
	g.want(g.find())
}

// TestFindHostile: what lies at the paths that a session wrote is the agent's choice.
func TestFindHostile(t *testing.T) {
	g := newStage(t)
	secret := filepath.Join(filepath.Dir(g.dir), "secret")
	g.must(os.WriteFile(secret, []byte("top secret\n"), 0o600))
	g.must(os.Mkdir(filepath.Join(filepath.Dir(g.dir), "outside"), 0o755))
	g.must(os.WriteFile(filepath.Join(filepath.Dir(g.dir), "outside", "Makefile"), []byte("top secret\n"), 0o600))

	g.must(unix.Mkfifo(g.path("justfile"), 0o644)) // opening it would wait for ever
	g.must(os.Symlink(secret, g.path("Dockerfile")))
	g.must(os.Symlink("../outside", g.path("dir"))) // a directory on the way that leads out
	g.must(os.Symlink("/proc/self", g.path(".husky")))
	g.must(os.WriteFile(g.path("big.mk"), nil, 0o644))
	g.must(os.Truncate(g.path("big.mk"), 1<<40)) // sparse
	g.write("bin.mk", "a\x00b")
	g.write("esc\x1b[2J.mk", "x\x1b[2J\n")
	for _, n := range []string{"justfile", "Dockerfile", "dir/Makefile", ".husky", "big.mk", "bin.mk", "esc\x1b[2J.mk", "../secret", "x/../../secret", "."} {
		g.did(event.Create, n)
	}
	g.changes.Add(&segment.Record{Event: event.Event{Kind: event.Create, Verdict: event.Allow, Path: secret}})
	g.changes.Add(&segment.Record{Event: event.Event{Kind: event.Create, Verdict: event.Allow, Path: g.dir + "/../outside/Makefile"}})
	g.changes.Add(&segment.Record{Event: event.Event{Kind: event.Create, Verdict: event.Allow, Path: "relative/Makefile"}})
	done := make(chan Report, 1)
	go func() { done <- g.find() }()
	var r Report
	select {
	case r = <-done:
	case <-time.After(time.Minute):
		t.Fatal("it waits for something that the agent made")
	}
	g.want(r, ".husky: new", "Dockerfile: new", "big.mk: new", "bin.mk: new", "esc\x1b[2J.mk: new", "justfile: new")
	for _, it := range r.Items {
		if strings.Contains(it.Diff, "top secret") {
			t.Errorf("%s shows what lies outside: %s", it.Name, it.Diff)
		}
	}
	if r.Missed == 0 {
		t.Error("a path through a link was left out without a word")
	}
	for i, note := range map[int]string{0: "a link", 1: "a link", 2: "too large to compare", 3: "binary", 5: "no regular file"} {
		if r.Items[i].Note != note {
			t.Errorf("%s: note %q, want %q", r.Items[i].Name, r.Items[i].Note, note)
		}
	}
}

// TestNothingRuns: whatever the repository configures, finding out what changed executes none of it.
func TestNothingRuns(t *testing.T) {
	g := newStage(t)
	mark := filepath.Join(filepath.Dir(g.dir), "ran")
	run := "touch " + mark
	g.write("package.json", "{\"evil\": 1}\n")
	g.git("config", "core.fsmonitor", run)
	g.git("config", "core.hooksPath", g.path("hooks"))
	g.git("config", "core.pager", run)
	g.git("config", "diff.external", run)
	g.git("config", "diff.x.textconv", run)
	g.git("config", "filter.x.clean", run)
	g.git("config", "filter.x.smudge", run)
	g.git("config", "extensions.partialClone", "origin")
	g.git("config", "remote.origin.url", "ext::sh -c "+strings.ReplaceAll(run, " ", "% "))
	g.git("config", "remote.origin.promisor", "true")
	g.git("config", "protocol.ext.allow", "always")
	g.write(".gitattributes", "* filter=x diff=x\n")
	g.write("hooks/post-index-change", "#!/bin/sh\n"+run+"\n")
	g.must(os.Chmod(g.path("hooks/post-index-change"), 0o755))
	blob := g.git("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "rev-parse", "HEAD:package.json")
	_ = os.Remove(mark)
	g.must(os.Remove(g.path(".git/objects/" + blob[:2] + "/" + blob[2:]))) // git would fetch it
	for _, n := range []string{"package.json", ".git/config", ".gitattributes", "hooks/post-index-change"} {
		g.did(event.Open, n)
	}
	r := g.find()
	g.want(r, ".git/config: changed", ".gitattributes: untracked", "hooks/post-index-change: untracked", "package.json: changed")
	if r.Items[3].Note != "git's version cannot be read" {
		t.Errorf("%+v", r.Items[3])
	}
	_, errs, err := g.store.Quarantine(&g.s, r.Items)
	g.must(err)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "package.json: moved, but the earlier version was not put back") {
		t.Errorf("quarantine: %v", errs)
	}
	if config, err := os.ReadFile(g.path(".git/config")); err != nil || strings.Contains(string(config), "fsmonitor") {
		t.Errorf("the configuration that was: %v\n%s", err, config)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("something that the repository configures ran")
	}
}

func TestAccept(t *testing.T) {
	g := newStage(t)
	g.write("package.json", "{}\n")
	g.write("conftest.py", "x\n")
	g.did(event.Open, "package.json")
	g.did(event.Create, "conftest.py")
	r := g.find()
	some, none := Only(r.Items, g.dir, []string{"package.json", "nothing"})
	if len(some) != 1 || !slices.Equal(none, []string{"nothing"}) {
		t.Fatalf("%v %v", some, none)
	}
	g.must(g.store.Accept(some))
	r = g.find()
	g.want(r, "conftest.py: new")
	if r.Accepted != 1 {
		t.Errorf("accepted %d", r.Accepted)
	}
	g.write("package.json", "{\"next\": 1}\n")
	g.want(g.find(), "conftest.py: new", "package.json: changed")
	if st, err := os.Stat(filepath.Join(g.store.dir, acceptedFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
}

func TestQuarantine(t *testing.T) {
	g := newStage(t)
	g.write("package.json", "{}\n")
	g.write("sub/conftest.py", "x\n")
	g.must(os.Chmod(g.path("run.sh"), 0o755))
	g.write("node_modules/p/package.json", "{}")
	g.must(os.Symlink("/etc/passwd", g.path("Dockerfile")))
	for _, n := range []string{"package.json", "sub/conftest.py", "run.sh", "node_modules/p/package.json", "Dockerfile"} {
		g.did(event.Create, n)
	}
	r := g.find()
	if len(r.Items) != 5 {
		t.Fatal(said(r))
	}
	dir, errs, err := g.store.Quarantine(&g.s, r.Items)
	g.must(errors.Join(append(errs, err)...))
	g.want(g.find())
	if out := g.git("status", "--short"); out != "" {
		t.Errorf("git status: %s", out)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 || strings.HasPrefix(dir, g.dir) {
		t.Errorf("%s %v %v", dir, st, err)
	}

	// Back again, but not over what came since.
	g.write("Dockerfile", "mine\n")
	paths, errs, err := g.store.Restore("id1")
	g.must(err)
	if len(paths) != 4 || len(errs) != 1 || !strings.Contains(errs[0].Error(), "something else lies there now") {
		t.Errorf("%v %v", paths, errs)
	}
	g.must(os.Remove(g.path("Dockerfile")))
	paths, errs, err = g.store.Restore("id1")
	g.must(errors.Join(append(errs, err)...))
	if len(paths) != 1 {
		t.Errorf("%v", paths)
	}
	again := g.find()
	for i, it := range r.Items {
		if i >= len(again.Items) || again.Items[i].Change != it.Change || it.Files == 0 && again.Items[i].Digest != it.Digest {
			t.Errorf("after all: %q", said(again))
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("an empty quarantine is left")
	}
}

// TestQuarantineHostile: a link that came between looking and moving is not followed.
func TestQuarantineHostile(t *testing.T) {
	g := newStage(t)
	outside := filepath.Join(filepath.Dir(g.dir), "outside")
	g.must(os.Mkdir(outside, 0o755))
	g.must(os.WriteFile(filepath.Join(outside, "Makefile"), []byte("mine\n"), 0o644))
	g.write("sub/Makefile", "evil:\n")
	g.did(event.Create, "sub/Makefile")
	r := g.find()
	g.want(r, "sub/Makefile: new")
	g.must(os.RemoveAll(g.path("sub")))
	g.must(os.Symlink(outside, g.path("sub")))
	_, errs, err := g.store.Quarantine(&g.s, r.Items)
	g.must(err)
	if len(errs) != 1 {
		t.Errorf("moved through a link: %v", errs)
	}
	if data, err := os.ReadFile(filepath.Join(outside, "Makefile")); err != nil || string(data) != "mine\n" {
		t.Errorf("what lay outside: %q %v", data, err)
	}
	for _, id := range []string{"", "..", "a/b", strings.Repeat("x", 65)} {
		if err := g.store.Save(Session{ID: id}); err == nil {
			t.Errorf("id %q", id)
		}
		if _, err := g.store.Load(id); !errors.Is(err, ErrUnknown) {
			t.Errorf("id %q: %v", id, err)
		}
	}
}
