//go:build root

package agents

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// screen is the terminal of a user: a pane of tmux, which draws what the agent sends.
type screen struct {
	d      *desk
	socket string
}

// open starts a command in a pane of a tmux of its own. The pane stays when the command ends.
func (d *desk) open(argv ...string) *screen {
	d.t.Helper()
	s := &screen{d: d, socket: filepath.Join(d.home, "..", "tmux")}
	cmd := d.tmux(s.socket, append([]string{"-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "-s", "user"}, argv...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		d.t.Fatalf("tmux: %v\n%s", err, out)
	}
	d.t.Cleanup(s.leave)
	if out, err := d.tmux(s.socket, "set-option", "-g", "remain-on-exit", "on").CombinedOutput(); err != nil {
		d.t.Fatalf("tmux: %v\n%s", err, out)
	}
	return s
}

// leave ends the terminal and waits until its programs have gone.
func (s *screen) leave() {
	pid, err := s.d.tmux(s.socket, "display-message", "-p", "-t", "user", "#{pane_pid}").Output()
	_ = exec.Command("tmux", "-S", s.socket, "kill-server").Run()
	for i := 0; err == nil && i < 1000; i++ {
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (d *desk) tmux(socket string, args ...string) *exec.Cmd {
	return d.command("tmux", append([]string{"-S", socket}, args...)...)
}

// shows is what the screen shows: lines without what is blank.
func (s *screen) shows() string {
	out, err := s.d.tmux(s.socket, "capture-pane", "-p", "-t", "user").Output()
	if err != nil {
		return ""
	}
	var lines []string
	for _, l := range strings.Split(strings.ReplaceAll(string(out), "\u00a0", " "), "\n") { // a space that does not break
		if l = strings.TrimRight(l, " "); l != "" {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines, "\n")
}

// keep adds the screen, as it is, to the agent's file in AGENTOS_SCREENS_DIR; unset, none is kept.
func (s *screen) keep(when string) { s.d.keep(when, s.shows()) }

// keep adds text to the same file.
func (d *desk) keep(title, text string) {
	d.t.Helper()
	dir := os.Getenv("AGENTOS_SCREENS_DIR")
	if dir == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(dir, filepath.Base(filepath.Dir(d.home))+".txt"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	must(d.t, err)
	_, err = fmt.Fprintf(f, "=== %s\n%s\n\n", title, strings.TrimRight(text, "\n"))
	must(d.t, errors.Join(err, f.Close()))
}

// await waits until the screen shows all of texts at once, and returns it.
func (s *screen) await(texts ...string) string {
	s.d.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		shown, missing := s.shows(), ""
		for _, text := range texts {
			if !strings.Contains(shown, text) {
				missing = text
			}
		}
		if missing == "" {
			return shown
		}
		if time.Now().After(deadline) || s.d.t.Context().Err() != nil {
			s.d.t.Fatalf("waited in vain until the screen shows %q:\n%s", missing, shown)
		}
	}
}

// keys presses keys, by tmux's names; typed types text.
func (s *screen) keys(names ...string) {
	s.d.t.Helper()
	if out, err := s.d.tmux(s.socket, append([]string{"send-keys", "-t", "user"}, names...)...).CombinedOutput(); err != nil {
		s.d.t.Fatalf("tmux send-keys: %v\n%s", err, out)
	}
}

func (s *screen) typed(text string) { s.keys("-l", text) }

// enter presses Enter until something has come of it, as a person would: an agent that has just drawn a question may not listen yet, and takes a
// key that follows others at once for a part of pasted text.
func (s *screen) enter(done func() bool) {
	s.d.t.Helper()
	for deadline := time.Now().Add(time.Minute); !done() && time.Now().Before(deadline); {
		s.keys("Enter")
		for i := 0; i < 200 && !done(); i++ {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// has says later whether the screen shows text.
func (s *screen) has(text string) func() bool {
	return func() bool { return strings.Contains(s.shows(), text) }
}

// ends waits until the command has ended with status 0.
func (s *screen) ends() {
	s.d.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		out, err := s.d.tmux(s.socket, "display-message", "-p", "-t", "user", "#{pane_dead} #{pane_dead_status}").Output()
		if got := strings.TrimSpace(string(out)); err != nil || time.Now().After(deadline) || strings.HasPrefix(got, "1") {
			if got != "1 0" {
				s.d.t.Errorf("the command on the screen: %q, %v; want it to end with status 0", got, err)
			}
			return
		}
	}
}

// seat is how a user sits down before one agent's screen.
type seat struct {
	agent
	script string // of testdata, without its extension
	drawn  string // on the first screen, in a jail and bare
	first  string // on the first screen, a question whose answer is Enter
	ready  string // on the screen that takes a prompt
	asks   bool   // before it runs a command; the answer is Enter
	prompt string // of the line where one types
	quit   string // the command that ends it
}

var seats = []seat{
	{
		agent: all[0], script: "claude-screen", drawn: "Quick safety check",
		first: "Yes, I trust this folder", ready: "? for shortcuts", prompt: "❯ ", quit: "/exit",
	},
	{
		agent: all[1], script: "codex-screen", drawn: "Folder access",
		first: "Open restricted", ready: "Ask Codex to do anything", prompt: "› ", quit: "/quit",
		asks: true,
	},
	{
		agent: all[2], script: "gemini-screen", drawn: "Tips for getting started",
		ready: "Type your message", prompt: "> ", quit: "/quit",
	},
	{
		agent: all[3], script: "opencode-screen", drawn: "Ask anything",
		ready: "Ask anything", prompt: "┃  ", quit: "/exit",
	},
}

// TestScreen: an agent on a terminal. The user answers its first question, types a prompt, and reads that the secret was refused; the
// end of the session leaves the terminal as it was, with one line about what was denied.
func TestScreen(t *testing.T) {
	if os.Getenv("AGENTOS_SCREENS") == "no" {
		t.Skip("wanted a machine that does nothing else, for programs that wait for keys only so long: make test-agents")
	}
	s := newStage(t)
	for _, a := range seats {
		t.Run(a.name, func(t *testing.T) {
			d := s.newDesk(t, a.script)
			d.sit(a.agent)
			m := d.startModel(a.script, a.api)
			term := d.open(append([]string{filepath.Join(d.bin, "agentos"), "run", "--policy", "strict", "--name", a.script, a.name}, a.flags...)...)
			m.awaitReady()
			if a.first != "" {
				term.await(a.first)
				term.enter(term.has(a.ready))
			}
			term.await(a.ready)
			term.keep("ready")
			term.typed("Tell me what is in .env.")
			term.await(a.prompt + "Tell me what is in .env.")
			term.enter(func() bool { return m.told("secret") != "" })
			if a.asks {
				term.enter(term.has("It stays a secret."))
			}
			shown := term.await("It stays a secret.")
			if !denial.MatchString(shown) {
				t.Error("the screen does not say that it was denied")
			}
			t.Logf("the screen:\n%s", shown)
			term.keep("says it was refused")
			term.typed(a.quit)
			term.await(a.prompt + a.quit)
			term.enter(term.has("agentos: session " + a.script))
			shown = term.await("agentos: session "+a.script, "denied")
			term.ends()
			m.judge("secret", "end")
			d.secretsStay(m, shown)
			term.keep("the session has ended")
			d.keep("agentos audit show --denied", d.output("agentos", "audit", "show", a.script, "--denied"))
			if out := d.output("agentos", "audit", "show", a.script, "--denied"); !strings.Contains(out, "deny ${workspace}/**/*.env") {
				t.Errorf("the record does not name the rule:\n%s", out)
			}
		})
	}
}
