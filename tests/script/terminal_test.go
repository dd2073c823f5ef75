//go:build root

package script

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// user is somebody at a shell with job control, on a terminal of their own.
type user struct {
	t    *testing.T
	f    *os.File
	cmd  *exec.Cmd
	ws   string
	mu   sync.Mutex
	out  bytes.Buffer
	seen int
}

// sitDown gives the user a workspace and a shell that knows the programs.
func sitDown(t *testing.T, bin, socket, root string) *user {
	t.Helper()
	u := &user{t: t, ws: filepath.Join(root, strings.NewReplacer("/", "-", "'", "").Replace(t.Name()))}
	for _, dir := range []string{u.ws, filepath.Join(root, "home")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	u.cmd = exec.Command("/bin/bash", "--norc", "--noediting", "-i")
	u.cmd.Dir = u.ws
	u.cmd.Env = []string{
		"PS1=prompt> ", "TERM=xterm", "LANG=C.UTF-8", "HOME=" + filepath.Join(root, "home"), "AGENTOS_SOCKET=" + socket, "AGENTOS_LIBEXEC=" + bin,
		"PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin",
	}
	f, err := pty.StartWithSize(u.cmd, &pty.Winsize{Rows: 30, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	u.f = f
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			u.mu.Lock()
			u.out.Write(buf[:n])
			u.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_, _ = f.WriteString("\x03\rkill -9 $(jobs -p) 2>/dev/null; exit\r")
		timer := time.AfterFunc(10*time.Second, func() { _ = u.cmd.Process.Kill() })
		_ = u.cmd.Wait()
		timer.Stop()
		_ = f.Close()
		<-done
	})
	u.expect("prompt> ")
	return u
}

// expect waits until text appears after what was expected before.
func (u *user) expect(text string) {
	u.t.Helper()
	u.await("screen shows "+text, func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		i := bytes.Index(u.out.Bytes()[u.seen:], []byte(text))
		if i >= 0 {
			u.seen += i + len(text)
		}
		return i >= 0
	})
}

func (u *user) await(what string, ok func() bool) {
	u.t.Helper()
	limit := 40 * time.Second
	if os.Getenv("AGENTOS_MACHINE") != "" { // emulated
		limit *= 12
	}
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.t.Fatalf("waited in vain until %s; after what was expected before: %q", what, u.out.Bytes()[u.seen:])
		}
	}
}

// taken waits until a program has taken the terminal: what is typed before that is
// shown by the terminal itself too, as it is with every program that draws.
func (u *user) taken() {
	u.t.Helper()
	u.await("the terminal is raw", func() bool {
		mode, err := unix.IoctlGetTermios(int(u.f.Fd()), unix.TCGETS)
		return err == nil && mode.Lflag&unix.ICANON == 0
	})
}

func (u *user) keys(k string) {
	u.t.Helper()
	if _, err := u.f.WriteString(k); err != nil {
		u.t.Fatal(err)
	}
}

// awaitSession waits until a session answers.
func (u *user) awaitSession(name string) {
	u.t.Helper()
	u.await("session "+name+" runs", func() bool {
		cmd := exec.Command("agentos", "exec", name, "--", "true")
		for _, v := range u.cmd.Env {
			if dirs, ok := strings.CutPrefix(v, "PATH="); ok {
				bin, _, _ := strings.Cut(dirs, ":")
				cmd.Path, cmd.Err = filepath.Join(bin, "agentos"), nil
			}
		}
		cmd.Env = u.cmd.Env
		return cmd.Run() == nil
	})
}

// cli is the pid of the agentos that the shell runs.
func (u *user) cli() int {
	u.t.Helper()
	var pid int
	u.await("agentos runs", func() bool {
		g, err := unix.IoctlGetInt(int(u.f.Fd()), unix.TIOCGPGRP)
		if err != nil {
			return false
		}
		name, err := os.Readlink("/proc/" + strconv.Itoa(g) + "/exe")
		pid = g
		return err == nil && filepath.Base(name) == "agentos"
	})
	return pid
}

func TestTerminal(t *testing.T) {
	bin, root, socket := stage(t)
	for _, c := range []struct {
		name string
		do   func(*user)
	}{
		{"a program alone stops and goes on", func(u *user) {
			u.keys("agentos run -- sh -c 'echo up; exec cat'\r")
			u.expect("up\r\n")
			u.keys("one\r")
			u.expect("one\r\none\r\n")
			u.keys("\x1a")
			u.expect("Stopped")
			u.expect("prompt> ")
			u.keys("fg\r")
			u.expect("exec cat'\r\n")
			u.taken()
			u.keys("two\r")
			u.expect("two\r\ntwo\r\n")
			u.keys("\x03")
			u.expect("prompt> ")
			u.keys("echo status $?\r")
			u.expect("status 130")
		}},
		{"a second program in the jail stops and goes on", secondStops},
		{"it repaints", func(u *user) {
			u.keys(`agentos run -- sh -c 'trap "stty size" WINCH; echo up; while :; do sleep 0.05; done'` + "\r")
			u.expect("up\r\n")
			u.keys("\x1a")
			u.expect("Stopped")
			u.keys("fg\r")
			u.expect("30 100\r\n")
			u.keys("\x03")
			u.expect("prompt> ")
		}},
		{"a shell keeps its own jobs", func(u *user) {
			u.keys("agentos run --env PS1='inside> ' -- bash --norc --noediting -i\r")
			u.expect("inside> ")
			u.keys("sh -c 'echo up; exec cat'\r")
			u.expect("up\r\n")
			u.keys("one\r")
			u.expect("one\r\none\r\n")
			u.keys("\x1a")
			u.expect("Stopped")
			u.expect("inside> ")
			u.keys("fg\r")
			u.expect("exec cat'\r\n")
			u.keys("two\r")
			u.expect("two\r\ntwo\r\n")
			u.keys("\x04")
			u.expect("inside> ")
			u.keys("exit 9\r")
			u.expect("prompt> ")
			u.keys("echo status $?\r")
			u.expect("status 9")
		}},
		{"signals find an agent that hides in init's group", func(u *user) {
			u.keys(`agentos run -- perl -e '$|=1; setpgrp(0, 1) or die; $SIG{TTOU}="IGNORE"; $SIG{TERM} = sub {exit 41}; print "hid","den\n"; sleep 1 while 1'` + "\r")
			pid := u.cli()
			u.expect("hidden\r\n")
			if err := unix.Kill(pid, unix.SIGTERM); err != nil {
				u.t.Fatal(err)
			}
			u.expect("prompt> ")
			u.keys("echo status $?\r")
			u.expect("status 41")
		}},
		{"what stays in the foreground is hung up", func(u *user) {
			u.keys("agentos run --name t-hup -- sleep 1000 < /dev/null > out 2>&1 &\r")
			u.awaitSession("t-hup")
			u.keys(`agentos exec t-hup -- sh -c '(trap "echo hup > hup; exit" HUP; echo go; : > going; while :; do sleep 0.05; done) & until [ -e going ]; do sleep 0.05; done; exit 5'; echo status $?` + "\r")
			u.expect("go\r\n")
			u.expect("status 5")
			u.await("the rest was hung up", func() bool {
				_, err := os.Stat(filepath.Join(u.ws, "hup"))
				return err == nil
			})
			u.keys("agentos kill t-hup\r")
			u.expect("prompt> ")
		}},
	} {
		t.Run(c.name, func(t *testing.T) { c.do(sitDown(t, bin, socket, root)) })
	}
}

// secondStops: Ctrl-Z and fg of what agentos exec started, on a jail's first terminal and on a further one.
func secondStops(u *user) {
	u.keys("agentos run --name t-second -- sleep 1000 < /dev/null > out 2>&1 &\r")
	u.awaitSession("t-second")
	u.keys("agentos run --name t-own -- sh -c 'echo first; exec sleep 1000'\r") // a terminal is not the other jail's
	u.expect("first\r\n")
	u.keys("\x1a")
	u.expect("Stopped")
	for _, session := range []string{"t-second", "t-own"} { // a jail's first terminal, and a further one
		u.keys("agentos exec " + session + " -- sh -c 'echo up; cat; exit 7'\r")
		u.expect("up\r\n")
		u.keys("one\r")
		u.expect("one\r\none\r\n")
		u.keys("\x1a")
		u.expect("Stopped")
		u.expect("prompt> ")
		u.keys("fg\r")
		u.expect("exit 7'\r\n")
		u.taken()
		u.keys("two\r")
		u.expect("two\r\ntwo\r\n")
		u.keys("\x04")
		u.expect("prompt> ")
		u.keys("echo status $?\r")
		u.expect("status 7")
	}
	u.keys("agentos exec t-own -- nosuch; echo status $?\r")
	u.expect("status 127")
	u.keys("agentos exec t-own -- sh -c 'kill -TERM $$'; echo status $?\r")
	u.expect("status 143")
	u.keys("agentos kill t-second t-own; fg; echo ended\r")
	u.expect("ended\r\n")
}
