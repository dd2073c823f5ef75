//go:build root

// Package agents runs real agents in jails as a new user would: Claude Code, Codex, Gemini CLI and OpenCode, with a scripted model
// (tests/agents/model) in the place of their vendor's, in the same jail. What they did is judged from outside.
package agents

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// uid is the user's. Nobody else has it, so that what is theirs can be found.
const uid = 60241

// stage is what all agents share: the built programs, the agents' programs and a helper.
type stage struct {
	bin, agents, root, socket string
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newStage needs AGENTOS_AGENTS_BIN, where install.sh put the agents; without it this package has nothing to run. With flags for the helper it
// is this test's own, else AGENTOS_SOCKET may name one that runs.
func newStage(t testing.TB, flags ...string) *stage {
	t.Helper()
	s := &stage{bin: os.Getenv("AGENTOS_BIN"), agents: os.Getenv("AGENTOS_AGENTS_BIN")}
	if s.agents == "" {
		t.Skip("wanted installed agents (AGENTOS_AGENTS_BIN), got none: make test-agents installs them")
	}
	if s.bin == "" {
		s.bin = "../../bin"
	}
	var err error
	s.bin, err = filepath.Abs(s.bin)
	must(t, err)
	for _, p := range []string{"agentos", "agentos-helper", "agentos-init", "model"} {
		if _, err := os.Stat(filepath.Join(s.bin, p)); err != nil {
			t.Fatalf("%v; run make build bin/model", err)
		}
	}
	must(t, os.MkdirAll("/srv", 0o755))
	s.root, err = os.MkdirTemp("/srv", "agentos-agents.")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(s.root) })
	must(t, os.Chmod(s.root, 0o755))
	s.socket = filepath.Join(s.root, "run", "helper.sock")
	if own := os.Getenv("AGENTOS_SOCKET"); own != "" && len(flags) == 0 {
		s.socket = own
		return s
	}
	for _, d := range []string{"run", "state", "org"} {
		must(t, os.Mkdir(filepath.Join(s.root, d), 0o755))
	}
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		log, err := s.startHelper(t, flags)
		if err == nil {
			return s
		}
		if !strings.Contains(log, "another agentos-helper is running") || time.Now().After(deadline) {
			t.Fatalf("%v\n%s", err, log)
		}
	}
}

// startHelper starts a helper for this test alone and ends it with it; an error comes with what the helper wrote.
func (s *stage) startHelper(t testing.TB, flags []string) (string, error) {
	var log lines
	cmd := exec.Command(filepath.Join(s.bin, "agentos-helper"), append([]string{
		"--foreground", "--group", "agentos-agents", "--socket", s.socket,
		"--run", filepath.Join(s.root, "run"), "--state", filepath.Join(s.root, "state"), "--org", filepath.Join(s.root, "org"),
	}, flags...)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	end := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Error("the helper did not end within 30 s of SIGTERM")
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("helper's log:\n%s", log.String())
		}
	}
	for range 2400 {
		if _, err := os.Stat(s.socket); err == nil {
			t.Cleanup(end)
			return "", nil
		}
		select {
		case err := <-ended:
			return log.String(), fmt.Errorf("helper ended: %w", err)
		case <-time.After(25 * time.Millisecond):
		}
	}
	end()
	return log.String(), errors.New("helper did not listen within a minute")
}

// lines is output that is looked at while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// desk is one user at work with one agent: a home with a secret, and a repository with code, a test that fails, and a secret.
type desk struct {
	*stage
	t        testing.TB
	home, ws string
	secrets  []string // of .env and of the home: known to nobody who did not read them
	env      []string // of the user's shell
	before   []string // the user's files in scratch directories of the host
}

// The code of the repository: a typo, and the test that finds it. The test leaves a file, so that its run is seen from outside.
const (
	greet  = "echo \"helo $1\"\n"
	fixed  = "echo \"hello $1\"\n"
	tester = "#!/bin/sh\nif [ \"$(sh greet.sh world)\" = \"hello world\" ]; then echo 'ok: it greets'; else echo 'FAILED: it does not greet'; exit 1; fi | tee -a test.log\n"
)

func (s *stage) newDesk(t testing.TB, name string) *desk {
	t.Helper()
	d := &desk{stage: s, t: t, home: filepath.Join(s.root, name, "home"), ws: filepath.Join(s.root, name, "home", "src", "greeter")}
	d.env = []string{
		"HOME=" + d.home, "PATH=" + s.bin + ":" + s.agents + ":/usr/local/bin:/usr/bin:/bin", "SHELL=/bin/bash", "USER=dev", "LANG=C.UTF-8", "TERM=xterm-256color",
		"AGENTOS_SOCKET=" + s.socket, "AGENTOS_LIBEXEC=" + s.bin,
		"XDG_STATE_HOME=" + filepath.Join(filepath.Dir(d.home), "notes"), // what agentos run itself keeps: outside of the home that is compared
	}
	d.before = d.litter()
	d.put(d.home, ".gitconfig", "[init]\n\tdefaultBranch = main\n", 0o644)
	d.put(d.home, ".ssh/id_ed25519", d.secret(), 0o600)
	d.put(d.home, ".bashrc", "# rc\n", 0o644)
	d.put(d.ws, "greet.sh", greet, 0o644)
	d.put(d.ws, "test.sh", tester, 0o755)
	d.put(d.ws, ".gitignore", ".env\ntest.log\n/.model/\n", 0o644)
	d.put(d.ws, ".env", "GREETER_KEY="+d.secret()+"\n", 0o600)
	model, err := os.ReadFile(filepath.Join(s.bin, "model"))
	must(t, err)
	d.put(d.ws, ".model/model", string(model), 0o755)
	script, err := os.ReadFile(filepath.Join("testdata", name+".toml"))
	must(t, err)
	d.put(d.ws, ".model/script.toml", string(script), 0o644)
	d.own()
	d.git("init", "-q")
	d.git("config", "user.name", "Ada Dev") // in the repository: the jail does not show ~/.gitconfig
	d.git("config", "user.email", "ada@dev.example")
	d.git("add", "-A")
	d.git("commit", "-q", "-m", "a greeter")
	return d
}

// own gives everything to the user.
func (d *desk) own() {
	d.t.Helper()
	must(d.t, filepath.WalkDir(filepath.Dir(d.home), func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, uid, uid)
	}))
}

func (d *desk) put(dir, name, text string, mode fs.FileMode) {
	d.t.Helper()
	p := filepath.Join(dir, name)
	must(d.t, os.MkdirAll(filepath.Dir(p), 0o755))
	must(d.t, os.WriteFile(p, []byte(text), mode))
}

func (d *desk) secret() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b)
	s := "canary-" + hex.EncodeToString(b)
	d.secrets = append(d.secrets, s)
	return s
}

// command prepares a program as the user's shell would start it, in the repository.
func (d *desk) command(name string, args ...string) *exec.Cmd {
	d.t.Helper()
	for _, dir := range []string{d.bin, "/usr/bin", "/bin"} {
		if p := filepath.Join(dir, name); !filepath.IsAbs(name) {
			if _, err := os.Stat(p); err == nil {
				name = p
			}
		}
	}
	cmd := exec.CommandContext(d.t.Context(), name, args...)
	cmd.Dir, cmd.Env = d.ws, d.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Setsid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// output runs a command that must succeed.
func (d *desk) output(name string, args ...string) string {
	d.t.Helper()
	cmd := d.command(name, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("%s %s: %v\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

func (d *desk) git(args ...string) string {
	d.t.Helper()
	return d.output("git", args...)
}
