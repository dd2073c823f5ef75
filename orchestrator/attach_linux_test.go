package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/orchestrator/terminal"
)

// TestMain lets the test binary be the program under test: with
// ATTACH_TEST_ARGV it attaches that command to its own standard streams, through
// a fake helper, and exits as agentos would.
func TestMain(m *testing.M) {
	if argv := os.Getenv("ATTACH_TEST_ARGV"); argv != "" {
		os.Exit(attachMain(strings.Split(argv, "\x1f")))
	}
	// A runner may have been started with hang-ups ignored (nohup), and ignoring is
	// inherited: caught here, they are the default in what the tests start.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	os.Exit(m.Run())
}

func attachMain(argv []string) int {
	f, g, err := dialFake()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return StatusFailed
	}
	f.notice = os.Getenv("ATTACH_TEST_NOTICE")
	s := terminal.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	var tty *rpc.Terminal
	if s.Interactive() {
		tty = &rpc.Terminal{}
		tty.Rows, tty.Cols = terminal.Size(os.Stdout)
	}
	env := append(os.Environ(), "ATTACH_TEST_ARGV=", "PS1=$ ")
	p, err := Spawn(context.Background(), g, rpc.SpawnProc{Session: "s1", Argv: argv, Env: env, Cwd: "/"}, tty)
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentos:", err)
		return Status(err)
	}
	p.jail = true
	e, err := p.Attach(context.Background(), s, terminal.Filter{DenyClipboard: true})
	_ = g.Close()
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentos:", err)
		return StatusFailed
	}
	return e.Code
}

func attached(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ATTACH_TEST_ARGV="+strings.Join(argv, "\x1f"))
	return cmd
}

func sh(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	return attached(t, "/bin/sh", "-c", script)
}

func TestPipesKeepStreamsAndStatusApart(t *testing.T) {
	cmd := sh(t, "cat; echo err >&2; exit 7")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("in\n"), &out, &errs
	err := cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 7 || out.String() != "in\n" || errs.String() != "err\n" {
		t.Errorf("code %d, stdout %q, stderr %q, %v", code, &out, &errs, err)
	}
}

func TestPipesCarryMuchAndBinary(t *testing.T) {
	in := bytes.Repeat([]byte("\x00\x1b]52;c;eA==\x07\xff\r\n"), 200_000)
	cmd := attached(t, "/bin/cat")
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout = bytes.NewReader(in), &out
	if err := cmd.Run(); err != nil || !bytes.Equal(out.Bytes(), in) {
		t.Errorf("%d bytes of %d came back, %v", out.Len(), len(in), err)
	}
}

func TestPipesSignalStatus(t *testing.T) {
	cmd := sh(t, "kill -KILL $$")
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 128+9 {
		t.Errorf("exit status %d, want %d", code, 128+9)
	}
}

func TestPipesClosedStdoutReachesTheProcess(t *testing.T) {
	cmd := sh(t, "yes; exit 3") // yes dies of SIGPIPE, sh goes on
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	_ = waitFor(t, cmd)
	if code := cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("exit status %d, want 3", code)
	}
}

func TestPipesProcessThatDoesNotRead(t *testing.T) {
	cmd := sh(t, "exec <&-; sleep 0.2; exit 4")
	cmd.Stdin = bytes.NewReader(make([]byte, 1<<20))
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 4 {
		t.Errorf("exit status %d, want 4", code)
	}
}

func TestPipesStdinThatNeverEnds(t *testing.T) {
	cmd := sh(t, "exit 5")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	cmd.Stdin = r
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = waitFor(t, cmd)
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("exit status %d, want 5", code)
	}
}

func TestPipesOutputOfAProcessThatStays(t *testing.T) {
	cmd := sh(t, "echo done; sleep 60 & exit 0")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := waitFor(t, cmd); err != nil || out.String() != "done\n" {
		t.Errorf("%q, %v", &out, err)
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{unix.SIGTERM: 41, unix.SIGINT: 42, unix.SIGHUP: 43, unix.SIGQUIT: 44, unix.SIGUSR1: 45} {
		cmd := sh(t, "trap 'exit 41' TERM; trap 'exit 42' INT; trap 'exit 43' HUP; trap 'exit 44' QUIT; trap 'exit 45' USR1; echo ready; while :; do sleep 0.02; done")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Process.Signal(sig)
		_ = waitFor(t, cmd)
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Errorf("%v: exit status %d, want %d", sig, code, want)
		}
	}
}

func TestSecondTermKills(t *testing.T) {
	cmd := sh(t, "trap 'echo first' TERM; echo ready; while :; do sleep 0.02; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Signal(unix.SIGTERM)
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil { // it was taken: two at once are one signal
		t.Fatal(err)
	}
	_ = cmd.Process.Signal(unix.SIGTERM)
	_ = waitFor(t, cmd)
	if code := cmd.ProcessState.ExitCode(); code != 128+9 {
		t.Errorf("exit status %d, want %d", code, 128+9)
	}
}

// screen is a user at a real terminal.
type screen struct {
	t    *testing.T
	f    *os.File
	mu   sync.Mutex
	out  bytes.Buffer
	seen int
	cmd  *exec.Cmd
}

func onTerminal(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 30, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	if f, err = pollable(f); err != nil { // else Close waits for Read
		t.Fatal(err)
	}
	s := &screen{t: t, f: f, cmd: cmd}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			s.mu.Lock()
			s.out.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = f.Close()
		<-done
	})
	return s
}

// patience is when a test gives up what it waits for, on a machine that does other things as well.
const patience = time.Minute

// expect waits until text appears after what was expected before.
func (s *screen) expect(text string) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		i := bytes.Index(s.out.Bytes()[s.seen:], []byte(text))
		if i >= 0 {
			s.seen += i + len(text)
		}
		s.mu.Unlock()
		if i >= 0 {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.Fatalf("%q does not appear; after what was expected before: %q", text, s.out.Bytes()[s.seen:])
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

func (s *screen) send(keys string) {
	s.t.Helper()
	if _, err := s.f.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) raw() bool {
	c, err := s.f.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	var raw bool
	_ = c.Control(func(fd uintptr) {
		st, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		raw = err == nil && st.Lflag&unix.ICANON == 0
	})
	return raw
}

func waitFor(t *testing.T, cmd *exec.Cmd) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		t.Fatal("does not end")
		return nil
	}
}

func TestTerminalSizeResizeAndStatus(t *testing.T) {
	s := onTerminal(t, sh(t, `trap 'stty size; exit 9' WINCH; test -t 0 && test -t 1 && test -t 2 && stty size; while :; do sleep 0.02; done`))
	s.expect("30 100\r\n")
	if err := pty.Setsize(s.f, &pty.Winsize{Rows: 11, Cols: 47}); err != nil {
		t.Fatal(err)
	}
	s.expect("11 47\r\n")
	_ = waitFor(t, s.cmd)
	if code := s.cmd.ProcessState.ExitCode(); code != 9 {
		t.Errorf("exit status %d, want 9", code)
	}
}

func TestTerminalCtrlCIsAByte(t *testing.T) {
	s := onTerminal(t, sh(t, `trap 'echo got it; exit 6' INT; echo ready; while :; do sleep 0.02; done`))
	s.expect("ready")
	if !s.raw() {
		t.Error("terminal is not raw while the process runs")
	}
	s.send("\x03")
	s.expect("got it")
	_ = waitFor(t, s.cmd)
	if code := s.cmd.ProcessState.ExitCode(); code != 6 {
		t.Errorf("exit status %d, want 6", code)
	}
	if s.raw() {
		t.Error("terminal is still raw")
	}
}

func TestTerminalIsPutBack(t *testing.T) {
	for name, script := range map[string]string{
		"exit":   `printf '\033[?1049h\033[?1000h\033[?2004h\033[?25l\033[>1uready'; sleep 0.2; exit 0`,
		"killed": `printf '\033[?1049h\033[?1000h\033[?2004h\033[?25l\033[>1uready'; kill -9 $$`,
	} {
		t.Run(name, func(t *testing.T) {
			s := onTerminal(t, sh(t, script))
			s.expect("ready")
			_ = waitFor(t, s.cmd)
			s.expect("\x1b[?1000l\x1b[?2004l\x1b[<1u\x1b[?1049l\x1b[?25h")
			if s.raw() {
				t.Error("terminal is still raw")
			}
		})
	}
}

func TestTerminalWithoutNeedIsLeftAlone(t *testing.T) {
	s := onTerminal(t, sh(t, `echo hello`))
	_ = waitFor(t, s.cmd)
	s.expect("hello\r\n")
	if got := s.text(); got != "hello\r\n" {
		t.Errorf("terminal got %q", got)
	}
}

func TestTerminalClipboardIsDenied(t *testing.T) {
	s := onTerminal(t, sh(t, `printf 'a\033]52;c;c2VjcmV0\007b\n'`))
	_ = waitFor(t, s.cmd)
	s.expect("b\r\n")
	if got := s.text(); got != "ab\r\n" {
		t.Errorf("terminal got %q", got)
	}
}

func TestTerminalLastOutputIsNotLost(t *testing.T) {
	s := onTerminal(t, sh(t, `seq 1 20000; printf 'the end'`))
	_ = waitFor(t, s.cmd)
	s.expect("20000\r\nthe end")
}

// What drain does to wake a pump may reach it after it knows that it drains.
func TestDrainReadsWhatIsThere(t *testing.T) {
	for range 200 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		a := &attachment{}
		a.draining.Store(true)
		woken := make(chan struct{})
		go func() {
			defer close(woken)
			for range 20 {
				_ = r.SetReadDeadline(time.Now())
				runtime.Gosched()
			}
		}()
		_, _ = w.WriteString("last words")
		_ = w.Close()
		var out bytes.Buffer
		if err, ours := a.output(r, &out)(); err != nil || ours || out.String() != "last words" {
			t.Fatalf("%q, %v, %v", &out, err, ours)
		}
		<-woken
		_ = r.Close()
	}
}

func TestTerminalBigPaste(t *testing.T) {
	s := onTerminal(t, sh(t, `stty raw -echo; echo ready; head -c 200000 | cksum`))
	s.expect("ready")
	paste := strings.Repeat("0123456789", 20_000)
	want := exec.Command("cksum")
	want.Stdin = strings.NewReader(paste)
	sum, err := want.Output()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = s.f.WriteString(paste) }() // in time with what is read
	s.expect(strings.TrimSpace(string(sum)))
}

func TestTerminalHangUpEndsTheRun(t *testing.T) {
	mark := t.TempDir() + "/hup"
	s := onTerminal(t, sh(t, `trap 'echo hup > `+mark+`; exit 0' HUP; echo ready; while :; do sleep 0.02; done`))
	s.expect("ready")
	_ = s.f.Close()
	_ = waitFor(t, s.cmd)
	if _, err := os.Stat(mark); err != nil {
		t.Error(err)
	}
}

func TestTerminalNotice(t *testing.T) {
	cmd := sh(t, `echo ready; sleep 0.3`)
	cmd.Env = append(cmd.Env, "ATTACH_TEST_NOTICE=held: \x1b[31mdisk full")
	s := onTerminal(t, cmd)
	s.expect("\x1b7\x1b[30;1H\x1b[0;7magentos: held: \\x1b[31mdisk full\x1b[0m\x1b[K\x1b8")
	_ = waitFor(t, s.cmd)
}

func TestTerminalStopAndContinue(t *testing.T) {
	// A shell with job control, as a user has.
	shell := exec.Command("/bin/bash", "--norc", "--noediting", "-i")
	script := `printf '\033[?1049h\033[?25l'; trap 'stty size' WINCH; echo up; kill -STOP $$; echo back; until read -t 0.1 x; do :; done; echo got $x; exit 12`
	shell.Env = append(os.Environ(), "PS1=prompt> ", "BIN="+os.Args[0], "CMD="+strings.Join([]string{"/bin/bash", "-c", script}, "\x1f"))
	s := onTerminal(t, shell)
	s.expect("prompt> ")
	s.send("ATTACH_TEST_ARGV=$CMD $BIN\r")
	s.expect("up")
	s.expect("\x1b[?1049l\x1b[?25h") // given back while stopped
	s.expect("Stopped")
	s.expect("prompt> ")
	if s.raw() {
		t.Error("terminal is raw at the shell's prompt")
	}
	s.send("fg\r")
	s.expect("\x1b[?1049h\x1b[?25l")                                                                                    // taken again
	for deadline := time.Now().Add(patience); !strings.Contains(s.text(), "30 100"); time.Sleep(5 * time.Millisecond) { // before or after "back"
		if time.Now().After(deadline) {
			t.Fatalf("it was not asked to repaint: %q", s.text())
		}
	}
	s.expect("back")
	s.send("word\r")
	s.expect("got word")
	s.expect("prompt> ")
	s.send("echo status $?\r")
	s.expect("status 12")
	s.send("exit\r")
	_ = waitFor(t, s.cmd)
}

func TestRequestsAreValidJSON(t *testing.T) {
	f, g, err := dialFake()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	list, err := List(t.Context(), g, false)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if b, err := json.Marshal(list); err != nil || !json.Valid(b) {
		t.Errorf("%s %v", b, err)
	}
	if f.calls[len(f.calls)-1] != rpc.List {
		t.Error(f.calls)
	}
}
