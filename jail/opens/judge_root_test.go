//go:build root && linux

package opens

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/policy/glob"
)

// The test binary is three processes: the test, which has the part of the helper; pid 1 of a
// pid and mount namespace of its own, which has the part of init and makes the checks; and
// an opener, the agent.

const (
	roleEnv = "OPENS_TEST_ROLE"
	dir     = "/mnt"
	agent   = 60311
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "init":
		initMain()
	case "opener":
		openerMain()
	default:
		os.Exit(m.Run())
	}
}

// TestJudge runs initMain and reports what it says.
func TestJudge(t *testing.T) {
	group, err := NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	toInit, fromTest, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"=init")
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = toInit, os.Stderr, []*os.File{group}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer end.Stop()
	marked := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch line := lines.Text(); {
		case line == "mounted":
			need := func(target string) uint64 {
				if target == dir {
					return Marks(testRules(), target)
				}
				return 0
			}
			if err := Mark(group, cmd.Process.Pid, need); err != nil {
				t.Fatal(err)
			}
			marked = true
			fmt.Fprintln(fromTest, "marked")
		case strings.HasPrefix(line, "ok "):
			t.Log(line)
		default:
			t.Error(line)
		}
	}
	if err := cmd.Wait(); err != nil || !marked {
		t.Errorf("init: %v, marked %t", err, marked)
	}
}

// TestTry: this machine's kernel answers as the package needs it.
func TestTry(t *testing.T) {
	if err := Try(t.TempDir()); err != nil {
		t.Error(err)
	}
}

func testRules() *glob.Automaton {
	globs := []string{"/**", "**/.env", "/mnt/**/*.nox", "**/secrets/**"}
	a, err := glob.Compile(globs, func(set []uint16) glob.Accept {
		acc := glob.Accept{Bits: 1<<glob.Read | 1<<glob.Write | 1<<glob.Exec}
		for i := range acc.Rule {
			acc.Rule[i] = glob.NoRule
		}
		for _, g := range set {
			switch g {
			case 1, 3:
				acc.Bits, acc.Rule[glob.Read], acc.Rule[glob.Exec] = 0, g, g
			case 2:
				acc.Bits, acc.Rule[glob.Exec] = acc.Bits&^(1<<glob.Exec), g
			}
		}
		return acc
	})
	if err != nil {
		panic(err)
	}
	return a
}

// counted counts the questions about files, not those of the scout.
type counted struct {
	*glob.Automaton
	n atomic.Int64
}

func (c *counted) Match(path string) glob.Accept {
	c.n.Add(1)
	return c.Automaton.Match(path)
}

// Text names no rule: nobody asks here.
func (c *counted) Text(uint16) string { return "" }

// Enter answers the rules of now.
func (w *world) Enter() Rules { return w.rules }

// Leave ends what Enter began.
func (w *world) Leave(Rules) {}

// world is what initMain checks with.
type world struct {
	j      *Judge
	rules  *counted
	denied atomic.Int64
	opener *exec.Cmd
	in     *bufio.Scanner
	say    *os.File
}

func initMain() {
	w := &world{rules: &counted{Automaton: testRules()}}
	must := func(err error) {
		if err != nil {
			fmt.Println("init:", err)
			os.Exit(1)
		}
	}
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(unix.Mount("proc", "/proc", "proc", 0, ""))
	must(unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0777"))
	self, err := os.ReadFile("/proc/self/exe")
	must(err)
	must(os.WriteFile("/mnt/opener", self, 0o755))
	// Each in a directory of its own: the second file of one sends the scout there.
	files := []string{"1/a", "2/.env", "3/b", "secrets/k", "4/tool.nox", "5/log", "6/x (deleted)", "8/none", "9/none", "10/none"}
	for i := range 20 {
		files = append(files, fmt.Sprintf("many/%d", i))
	}
	for _, f := range files {
		must(os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755))
		must(os.WriteFile(filepath.Join(dir, f), []byte("#!/bin/true\n"), 0o755))
		must(os.Chown(filepath.Join(dir, f), agent, agent))
	}
	fmt.Println("mounted")
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	must(err)
	if line != "marked\n" {
		must(errors.New(line))
	}
	w.j, err = New(Config{Group: os.NewFile(3, "group"), Rules: w, UID: agent, GID: agent, Emit: func(e event.Event) {
		if e.Verdict == event.Deny && e.Errno == int(unix.EPERM) && e.Path != "" {
			w.denied.Add(1)
		}
	}})
	must(err)
	go func() { must(w.j.Serve()) }()
	w.j.Trust()
	must(w.startOpener())
	w.checks()
	_ = w.say.Close()
	_ = w.opener.Wait()
}

// checks are in an order: later ones use what earlier ones left.
func (w *world) checks() {
	w.opens("a file that is allowed asks", "r 1/a", "ok", 1)
	w.opens("and is remembered", "r 1/a", "ok", 0)
	w.opens("for running too", "x 1/a", "ok", 0)
	w.opens("a denied file", "r 2/.env", "EPERM", 1)
	w.opens("asks each time", "r 2/.env", "EPERM", 1)
	w.opens("below a denied directory", "r secrets/k", "EPERM", 1)
	w.opens("a denied directory", "r secrets", "EPERM", 1)
	w.opens("a directory", "r 3", "ok", 1)
	w.opens("is remembered too", "r 3", "ok", 0)
	w.opens("a denied program may be read", "r 4/tool.nox", "ok", 1)
	w.opens("and not run", "x 4/tool.nox", "EPERM", 1)
	w.opens("by a descriptor neither", "f 4/tool.nox", "EPERM", 1)
	w.opens("a name like the kernel's mark", "r 6/x (deleted)", "ok", 2)

	w.do("write to the file", os.WriteFile("/mnt/1/a", []byte("new"), 0o755))
	w.opens("what was written to asks again", "r 1/a", "ok", 1)
	w.do("move it to a denied name", os.Rename("/mnt/1/a", "/mnt/8/.env"))
	w.opens("what could be read before still can", "r 8/.env", "ok", 0)
	w.do("write to it there", os.WriteFile("/mnt/8/.env", []byte("secret"), 0o755))
	w.opens("until it is written to", "r 8/.env", "EPERM", 1)

	w.do("link a denied file", os.Link("/mnt/2/.env", "/mnt/9/alias"))
	w.opens("met under its denied name", "r 2/.env", "EPERM", 1)
	w.opens("its other name is denied too", "r 9/alias", "EPERM", 1)
	w.do("link a file", os.Link("/mnt/3/b", "/mnt/10/c"))
	w.opens("a file with two links asks", "r 3/b", "ok", 1)
	w.opens("each time", "r 10/c", "ok", 1)

	log, err := os.OpenFile("/mnt/5/log", os.O_WRONLY, 0)
	w.do("hold a file for writing", err)
	w.opens("a file that is open for writing asks", "r 5/log", "ok", 1)
	w.opens("each time", "r 5/log", "ok", 1)
	w.do("let go", log.Close())
	w.opens("then no more", "r 5/log", "ok", 1)
	w.opens("no more", "r 5/log", "ok", 0)
	w.do("forget", w.j.Changed())
	w.opens("new rules ask again", "r 5/log", "ok", 1)

	w.opens("the first file of a directory", "r many/0", "ok", 1)
	w.opens("and the second ask", "r many/1", "ok", -1)
	time.Sleep(200 * time.Millisecond) // the scout
	for i := 2; i < 20; i++ {
		w.opens("the others do not", fmt.Sprintf("r many/%d", i), "ok", 0)
	}
	if n := w.denied.Load(); n < 9 {
		fmt.Printf("%d denials were reported\n", n)
	}
}

func (w *world) do(what string, err error) {
	if err != nil {
		fmt.Println(what+":", err)
	}
}

// opens has the opener act and compares its result and how many questions that took: none,
// or at least so many (the scout asks the rules too); -1 is any.
func (w *world) opens(what, act, want string, questions int64) {
	if questions == 0 {
		time.Sleep(20 * time.Millisecond) // the scout has done by then
	}
	before := w.rules.n.Load()
	fmt.Fprintln(w.say, act)
	if !w.in.Scan() {
		fmt.Println("the opener is gone")
		os.Exit(1)
	}
	got, asked := w.in.Text(), w.rules.n.Load()-before
	if got != want || asked < questions || questions == 0 && asked != 0 {
		fmt.Printf("%s (%s): %s with %d questions, want %s with %d\n", what, act, got, asked, want, questions)
		return
	}
	fmt.Println("ok", what)
}

func (w *world) startOpener() error {
	r, say, err := os.Pipe()
	if err != nil {
		return err
	}
	w.say = say
	w.opener = exec.Command("/proc/self/exe")
	w.opener.Env = append(os.Environ(), roleEnv+"=opener")
	w.opener.Stdin, w.opener.Dir = r, dir
	w.opener.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: agent, Gid: agent}}
	out, err := w.opener.StdoutPipe()
	if err != nil {
		return err
	}
	w.in = bufio.NewScanner(out)
	return w.opener.Start()
}

// openerMain opens for reading ("r PATH"), executes by path ("x PATH") or by descriptor
// ("f PATH"), and says how that went.
func openerMain() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		op, path, _ := strings.Cut(lines.Text(), " ")
		var err error
		switch op {
		case "r":
			var f *os.File
			if f, err = os.Open(path); err == nil {
				_ = f.Close()
			}
		case "x":
			err = exec.Command("./" + path).Run()
		case "f":
			var f *os.File
			if f, err = os.Open(path); err == nil {
				err = exec.Command(fmt.Sprintf("/proc/self/fd/%d", f.Fd())).Run()
				_ = f.Close()
			}
		}
		var errno unix.Errno
		switch {
		case errors.As(err, &errno):
			fmt.Println(unix.ErrnoName(errno))
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println("ok")
		}
	}
}
