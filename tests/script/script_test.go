//go:build root

// Package script runs the command line as its users do: testdata/*.txtar, one file a subject, against the built programs and one helper.
package script

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// stage is where a test plays: the built programs, a directory that everybody may enter, and a helper.
func stage(t *testing.T) (bin, root, socket string) {
	t.Helper()
	bin = os.Getenv("AGENTOS_BIN")
	if bin == "" {
		bin = "../../bin"
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(bin, "agentos")); err != nil {
		t.Fatalf("%v; run make build", err)
	}
	if err := os.MkdirAll("/srv", 0o755); err != nil {
		t.Fatal(err)
	}
	if root, err = os.MkdirTemp("/srv", "agentos-script."); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	return bin, root, startHelper(t, bin, root)
}

func TestScript(t *testing.T) {
	bin, root, socket := stage(t)
	testscript.Run(t, testscript.Params{
		Dir:             "testdata",
		WorkdirRoot:     root,
		ContinueOnError: true,
		Setup: func(e *testscript.Env) error {
			if err := os.Chmod(e.WorkDir, 0o755); err != nil {
				return err
			}
			home := filepath.Join(e.WorkDir, "home")
			if err := os.MkdirAll(home, 0o755); err != nil {
				return err
			}
			e.Setenv("PATH", bin+":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
			e.Setenv("HOME", home)
			e.Setenv("AGENTOS_SOCKET", socket)
			e.Setenv("AGENTOS_LIBEXEC", bin)
			e.Setenv("LANG", "C.UTF-8")
			e.Setenv("TERM", "xterm")
			e.Setenv("TIER", cmp.Or(os.Getenv("AGENTOS_EXPECT_TIER"), "[A-D]")) // for receipts, as an expression
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"json":    checkJSON,
			"jsonl":   checkLines,
			"errline": checkError,
			"repo":    repository,

			"developer": asDeveloper,
		},
	})
}

// TestNamesAreApart: scripts run at the same time against one helper, which refuses a second session of one name.
func TestNamesAreApart(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	where := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`agentos run .*--name (\w[\w.-]*) .*-- `).FindAllStringSubmatch(string(text), -1) {
			if other := where[m[1]]; other != "" && other != f {
				t.Errorf("%s and %s both name a session %q", other, f, m[1])
			}
			where[m[1]] = f
		}
	}
}

// startHelper starts one helper for all scripts and ends it with the test. There is one helper a machine: one that is running can be used
// by its socket, AGENTOS_SOCKET.
func startHelper(t *testing.T, bin, root string) string {
	t.Helper()
	if s := os.Getenv("AGENTOS_SOCKET"); s != "" {
		return s
	}
	for _, d := range []string{"run", "state", "org"} {
		if err := os.Mkdir(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(root, "run", "helper.sock")
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		log, err := launchHelper(t, bin, root, socket)
		if err == nil {
			return socket
		}
		if !strings.Contains(log, "another agentos-helper is running") || time.Now().After(deadline) {
			t.Fatalf("%v\n%s", err, log)
		}
	}
}

// launchHelper starts the helper and waits until it listens; an error comes with what the helper wrote.
func launchHelper(t *testing.T, bin, root, socket string) (string, error) {
	var log bytes.Buffer
	cmd := exec.Command(filepath.Join(bin, "agentos-helper"), "--foreground", "--socket", socket, "--run", filepath.Join(root, "run"), "--state", filepath.Join(root, "state"), "--org", filepath.Join(root, "org"), "--group", "agentos-script")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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
	for range 2400 { // loading the kernel programs takes an emulated machine long
		if _, err := os.Stat(socket); err == nil {
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

// exits CODE COMMAND...: the command ends with exactly this status; its output can be matched afterwards.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// json: the last stdout is one JSON value.
func checkJSON(ts *testscript.TestScript, _ bool, _ []string) {
	if out := ts.ReadFile("stdout"); !json.Valid([]byte(out)) {
		ts.Fatalf("not JSON: %q", out)
	}
}

// jsonl: every line of the last stdout is one JSON object, and there is at least one.
func checkLines(ts *testscript.TestScript, _ bool, _ []string) {
	for _, l := range strings.Split(strings.TrimRight(ts.ReadFile("stdout"), "\n"), "\n") {
		var o map[string]any
		if err := json.Unmarshal([]byte(l), &o); err != nil {
			ts.Fatalf("not a JSON object: %q", l)
		}
	}
}

// developer COMMAND...: as exec, by an ordinary user.
func asDeveloper(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: developer COMMAND...")
	}
	id := strconv.Itoa(developer)
	ts.Check(ts.Exec("setpriv", append([]string{"--reuid", id, "--regid", id, "--clear-groups"}, args...)...))
}

var voice = regexp.MustCompile(`^agentos: [^A-Z\n][^\n]*[^.\n]\n(hint: [^\n]+\n)?$`)

// errline: the last stderr is one error in our voice: "agentos: ", lower case, no final period, and at most one hint; no control bytes.
func checkError(ts *testscript.TestScript, neg bool, _ []string) {
	got := ts.ReadFile("stderr")
	if voice.MatchString(got) == neg || strings.ContainsAny(got, "\033\a\r") {
		ts.Fatalf("not one error in our voice: %q", got)
	}
}

// repo DIR: a git repository with a file and a secret.
func repository(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: repo DIR")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	ts.Check(os.WriteFile(filepath.Join(dir, "README.md"), []byte("# project\n"), 0o644))
	ts.Check(os.WriteFile(filepath.Join(dir, ".env"), []byte("KEY=secret-of-the-repository\n"), 0o600))
	for _, a := range [][]string{{"init", "-q", "-b", "main"}, {"add", "README.md"}, {"-c", "user.name=d", "-c", "user.email=d@x", "commit", "-q", "-m", "first"}} {
		ts.Check(ts.Exec("git", append([]string{"-C", dir}, a...)...))
	}
}
