//go:build root

package escape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// binDir is where the built programs are: AGENTOS_BIN, or bin/ at the top of the tree.
func binDir(t *testing.T) string {
	t.Helper()
	d := os.Getenv("AGENTOS_BIN")
	if d == "" {
		d = "../../bin"
	}
	d, err := filepath.Abs(d)
	must(t, err)
	for _, p := range []string{"agentos", "agentos-helper", "agentos-init", "act"} {
		if _, err := os.Stat(filepath.Join(d, p)); err != nil {
			t.Fatalf("%v; run make build bin/act", err)
		}
	}
	return d
}

func actPath(t *testing.T) string { return filepath.Join(binDir(t), "act") }

// acts lists the acts as the program itself does: id, need, what.
func acts(t *testing.T) [][3]string {
	t.Helper()
	out, err := exec.Command(actPath(t), "--list").Output()
	must(t, err)
	var all [][3]string
	for _, l := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		f := strings.Split(l, "\t")
		if len(f) != 3 {
			t.Fatalf("act --list: %q", l)
		}
		all = append(all, [3]string(f))
	}
	return all
}

// startHelper starts a helper for this world alone, with folders of its own, and ends it with the test. There is one helper a machine:
// one that is running can be used by its socket, AGENTOS_SOCKET.
func (w *world) startHelper() {
	w.t.Helper()
	if os.Getenv("AGENTOS_SOCKET") != "" {
		return
	}
	bin := binDir(w.t)
	for _, d := range []string{"run", "state", "org"} {
		must(w.t, os.MkdirAll(w.path(d), 0o755))
	}
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		log, err := w.launchHelper(bin)
		if err == nil {
			return
		}
		if !strings.Contains(log, "another agentos-helper is running") || time.Now().After(deadline) {
			w.t.Fatalf("%v\n%s", err, log)
		}
	}
}

// launchHelper starts the helper and waits until it listens; an error comes with what the helper wrote.
func (w *world) launchHelper(bin string) (string, error) {
	var log lockedBuffer
	cmd := exec.Command(filepath.Join(bin, "agentos-helper"), "--foreground", "--socket", w.socket(), "--run", w.path("run"), "--state", w.path("state"), "--org", w.path("org"), "--group", "agentos-escape")
	cmd.Stderr, cmd.Stdout = &log, &log
	must(w.t, cmd.Start())
	w.helper = cmd
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	end := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			w.t.Error("the helper did not end within 30 s of SIGTERM")
			_ = cmd.Process.Kill()
		}
		if w.t.Failed() {
			w.t.Logf("helper's log:\n%s", log.String())
		}
	}
	for range 2400 { // loading the kernel programs takes an emulated machine long
		if _, err := os.Stat(w.socket()); err == nil {
			w.t.Cleanup(end)
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

func (w *world) socket() string {
	if s := os.Getenv("AGENTOS_SOCKET"); s != "" {
		return s
	}
	return w.path("run", "helper.sock")
}

// result is what came out of one run.
type result struct {
	out  string
	code int
	dead bool // had to be killed from outside
}

// command prepares agentos as the user of this world would call it.
func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(binDir(w.t), "agentos"), args...)
	cmd.Dir = w.path("ws")
	cmd.Env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + w.path("home"), "XDG_STATE_HOME=" + w.path("notes"), "USER=dev", "LANG=C.UTF-8", "TERM=xterm", "AGENTOS_SOCKET=" + w.socket(),
		"AGENTOS_LIBEXEC=" + binDir(w.t), "AWS_SECRET_ACCESS_KEY=" + w.canary("AWS_SECRET_ACCESS_KEY"), "SSH_AUTH_SOCK=" + w.path("out/sock"), "GITHUB_TOKEN=" + w.canary("GITHUB_TOKEN"),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.uid)}, Setsid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run runs a command in a jail of this world; need is the act's.
func (w *world) run(need string, argv ...string) result {
	limit := 2 * time.Minute
	if os.Getenv("AGENTOS_MACHINE") != "" { // emulated: the denials of a race are recorded thirty times slower, and the jail is held meanwhile
		limit = 6 * time.Minute
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	args := []string{"run", "--policy", w.policy(), "--workspace", w.path("ws")}
	for k, v := range map[string]string{
		"WS": w.path("ws"), "HOME": w.path("home"), "OUT": w.path("out"), "TOKEN": w.token, "PID": fmt.Sprint(w.victim.Process.Pid), "TCP": fmt.Sprint(w.tcp), "UDP": fmt.Sprint(w.udp),
		"UNIX": w.path("out/sock"), "ABSTRACT": "agentos-escape-" + filepath.Base(w.base), "SHM": fmt.Sprint(w.shm), "LISTEN": fmt.Sprint(w.listen), "HELPER": w.socket(),
		"ADDR": hostAddr(), "PIDS": "128", "MEMORY": fmt.Sprint(512 << 20), "TMP": fmt.Sprint(64 << 20), "FILES": "256", "MARK": w.path("mark", "ran"),
	} {
		args = append(args, "--env", "ACT_"+k+"="+v)
	}
	cmd := w.command(ctx, append(append(args, "--"), argv...)...)
	if need == "fds" {
		for _, p := range []string{"out", "out/secret.txt", "home/.ssh/id_rsa"} {
			f, err := os.Open(w.path(p))
			must(w.t, err)
			defer f.Close()
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
	}
	var out lockedBuffer
	var err error
	if need == "tty" {
		cmd.SysProcAttr.Setctty = true
		f, perr := pty.Start(cmd)
		must(w.t, perr)
		copied := make(chan struct{})
		go func() { b := make([]byte, 4096); pump(f, &out, b); close(copied) }()
		err = cmd.Wait()
		<-copied
		_ = f.Close()
	} else {
		cmd.Stdout, cmd.Stderr = &out, &out
		err = cmd.Run()
	}
	r := result{out: out.String(), dead: ctx.Err() != nil}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.code = exit.ExitCode()
	case err != nil && !r.dead:
		w.t.Fatalf("agentos run: %v\n%s", err, r.out)
	}
	return r
}

func pump(f *os.File, to *lockedBuffer, b []byte) {
	for {
		n, err := f.Read(b)
		_, _ = to.Write(bytes.ReplaceAll(b[:n], []byte{'\r'}, nil))
		if err != nil {
			return
		}
	}
}

// policy puts the policy where the user can read it.
func (w *world) policy() string {
	p := w.path("out/escape.toml")
	if _, err := os.Stat(p); err != nil {
		b, err := os.ReadFile("testdata/escape.toml")
		must(w.t, err)
		must(w.t, os.WriteFile(p, b, 0o644))
	}
	return p
}
