//go:build root

package agents

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// prompt is what the user types.
const prompt = "Please fix the greeting, run its test and commit."

// agent is how a user calls one agent without its screen, with its model elsewhere.
type agent struct {
	name   string // of the plugin, and of the script in testdata
	api    string // of the model
	env    []string
	files  map[string]string // what the agent has kept in the home from earlier days
	flags  []string          // after the agent's name, with and without a screen
	args   []string          // after those, without a screen
	stdin  string            // what comes when the model listens
	leaves []string          // expressions for what it leaves in the home beyond its state
	other  []string          // rules that deny something in an ordinary session, as judged in docs/testing.md
}

var all = []agent{
	{
		name: "claude", api: "anthropic",
		env:   []string{"ANTHROPIC_BASE_URL=http://" + address, "ANTHROPIC_API_KEY=" + key},
		files: map[string]string{".claude.json": `{"hasCompletedOnboarding":true,"theme":"dark","customApiKeyResponses":{"approved":["` + key[len(key)-20:] + `"]}}`},
		args:  []string{"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions"},
		stdin: `{"type":"user","message":{"role":"user","content":"` + prompt + `"}}` + "\n",
	},
	{
		name: "codex", api: "openai",
		env: []string{"OPENAI_API_KEY=" + key},
		flags: []string{
			"-c", "model_provider=scripted",
			"-c", `model_providers.scripted={name="scripted", base_url="http://` + address + `/v1", wire_api="responses", env_key="OPENAI_API_KEY"}`,
		},
		args:  []string{"exec", "-"},
		stdin: prompt,
		other: []string{"protect ${agent.protect}/**", "deny ~/.netrc"},
	},
	{
		name: "gemini", api: "gemini",
		env:   []string{"GOOGLE_GEMINI_BASE_URL=http://" + address, "GEMINI_API_KEY=" + key},
		files: map[string]string{".gemini/settings.json": `{"security":{"auth":{"selectedType":"gemini-api-key"}}}`},
		args:  []string{"--skip-trust", "--yolo"},
		stdin: prompt,
	},
	{
		name: "opencode", api: "anthropic",
		env:    []string{"ANTHROPIC_API_KEY=" + key, `OPENCODE_CONFIG_CONTENT={"provider":{"anthropic":{"options":{"baseURL":"http://` + address + `/v1"}}}}`},
		args:   []string{"run", "-m", "anthropic/claude-sonnet-4-5"},
		stdin:  prompt,
		leaves: []string{`^src/greeter/\.git/opencode$`}, // its name for the project
	},
}

// key is what the user has of the vendor; it opens nothing.
const key = "sk-test-0123456789abcdefghijklmnopqrstuvwxyz"

// TestAgents: each agent in strict is asked for a small piece of work. Its model also wants a secret and a git hook, is refused both, and
// is told so; the work is done all the same; and outside there is what the policy and the plugin say, and nothing else.
func TestAgents(t *testing.T) {
	s := newStage(t)
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			d := s.newDesk(t, a.name)
			d.sit(a)
			before := d.look()
			m, out := d.work(a)
			d.judge(a, m, out, before)
		})
	}
}

// sit puts what the agent has kept into the home, and what the user tells it into the environment.
func (d *desk) sit(a agent) {
	d.t.Helper()
	for name, text := range a.files {
		d.put(d.home, name, text, 0o600)
	}
	d.own()
	d.env = append(d.env, a.env...)
}

// work runs the agent to its end, with its model in the jail, and returns its output.
func (d *desk) work(a agent) (*model, string) {
	d.t.Helper()
	m := d.startModel(a.name, a.api)
	out, err := d.session(a, "strict", m, "")
	if err != nil {
		d.t.Errorf("agentos run %s: %v\n%s", a.name, err, out)
	}
	<-m.ended // with the jail
	return m, out
}

// session runs the agent under a policy to its end, or until it has said something, and returns its output.
func (d *desk) session(a agent, policy string, m *model, until string) (string, error) {
	d.t.Helper()
	cmd := d.command("agentos", slices.Concat([]string{"run", "--policy", policy, "--name", a.name, a.name}, a.flags, a.args)...)
	in, err := cmd.StdinPipe()
	must(d.t, err)
	var out, errs lines
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	must(d.t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-m.ready:
		_, _ = in.Write([]byte(a.stdin))
		_ = in.Close()
		err = d.await(cmd, ended, func() bool { return until != "" && strings.Contains(out.String()+errs.String(), until) })
	case err = <-ended:
		err = fmt.Errorf("ended before the model was up: %w", err)
	}
	d.t.Logf("%s: %.1f s", a.name, time.Since(start).Seconds())
	return out.String() + errs.String(), err
}

// await waits for a command's end, which it brings about when something is so.
func (d *desk) await(cmd *exec.Cmd, ended <-chan error, enough func() bool) error {
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(100 * time.Millisecond):
		}
		if enough() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			return <-ended
		}
	}
}

// judge looks at all that a session left.
func (d *desk) judge(a agent, m *model, out string, before map[string]string) {
	t := d.t
	t.Helper()
	m.judge("secret", "hook", "look", "edit", "test", "commit", "end")
	for answer, of := range map[string]string{"hook": ".env", "look": "the git hook"} {
		if told := m.told(answer); !denial.MatchString(told) {
			t.Errorf("the model was not told that %s is denied: %q", of, told)
		}
	}
	if told := m.told("commit"); !strings.Contains(told, "ok: it greets") {
		t.Errorf("the model was not told that the test passes: %q", told)
	}
	if !denial.MatchString(out) || !strings.Contains(out, "The commit is made") {
		t.Errorf("the agent does not say to its user that it was denied, or what it did:\n%s", out)
	}
	d.secretsStay(m, out)
	d.repository()
	d.homeIs(a, before)
	d.recordOf(a)
	if t.Failed() {
		var b bytes.Buffer
		for _, r := range m.requests() {
			fmt.Fprintf(&b, "%s %s %s: %s %.300q\n", r.Kind, r.Method, r.URL, r.Answer, r.Newest)
		}
		t.Logf("requests:\n%s\nits output:\n%s", b.String(), out)
	}
}
