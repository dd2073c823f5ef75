package orchestrator

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/jail/why"
	"github.com/agentos/agentos/orchestrator/terminal"
	"github.com/agentos/agentos/policy"
)

// user is a home and a project to run things in.
type user struct{ home, project string }

func newUser(t *testing.T) user {
	t.Helper()
	u := user{home: t.TempDir()}
	u.project = filepath.Join(u.home, "src", "app")
	if err := os.MkdirAll(u.project, 0o755); err != nil {
		t.Fatal(err)
	}
	return u
}

func (u user) file(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	p := filepath.Join(u.home, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return p
}

func (u user) options(agent string, args ...string) Options {
	return Options{
		Policy: "strict", Workspace: u.project, Agent: agent, Args: args, Command: true, OrgDir: "-",
		Environ: []string{"HOME=" + u.home, "PATH=/usr/bin:/bin", "TERM=xterm", "USER=alice", "AWS_SECRET_ACCESS_KEY=hidden", "LANG=C.UTF-8", "SSH_AUTH_SOCK=/x"},
	}
}

func prepare(t *testing.T, o Options) *Plan {
	t.Helper()
	p, err := Prepare(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestEnvironment(t *testing.T) {
	u := newUser(t)
	o := u.options("true")
	o.Env = []string{"DEBUG=1", "TERM=dumb"}
	get := lookup(prepare(t, o).Env)
	for name, want := range map[string]string{
		"HOME": u.home, "USER": "alice", "LOGNAME": "alice", "TERM": "dumb", "LANG": "C.UTF-8", "DEBUG": "1", "AGENTOS": "1",
		"AWS_SECRET_ACCESS_KEY": "", "SSH_AUTH_SOCK": "", "PATH": "/run/agentos/bin:/usr/bin:/bin:/usr/local/bin", "AGENTOS_POLICY": "strict", "PWD": u.project, "SHELL": "/bin/sh",
	} {
		if got := get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	u.file(t, ".agentos/policy.toml", "version = 1\nname = \"mine\"\n[env]\ndeny = [\"LD_PRELOAD\"]\n", 0o644)
	o.Env = []string{"LD_PRELOAD=/x.so"}
	if _, err := Prepare(o); Status(err) != StatusRefused || !strings.Contains(err.Error(), "policy.toml:4:") {
		t.Errorf("a denied variable: %v", err)
	}
}

func TestRootIsNoLoginName(t *testing.T) {
	if got := userName(lookup([]string{"USER=root"})); got != "agent" {
		t.Error(got)
	}
}

func TestSearchPathKeepsWhatCanRun(t *testing.T) {
	view := []policy.Mount{{Path: "/usr", Exec: true}, {Path: "/home/a/.nvm/v22", Exec: true}, {Path: "/home/a/data"}}
	got := searchPath([]string{"/home/a/.nvm/v22/bin"}, "/home/a/bin:.::/home/a/.nvm/v22/bin:/usr/games:/home/a/data:/usr/bin", view)
	if want := "/run/agentos/bin:/home/a/.nvm/v22/bin:/usr/games:/usr/bin:/usr/local/bin:/bin"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMistakesHaveTheirStatus(t *testing.T) {
	u := newUser(t)
	u.file(t, "bad.toml", "version = 1\nname = \"x\"\n[files]\nraed = []\n", 0o644)
	plain := u.file(t, "src/app/plain.txt", "x", 0o644)
	for name, c := range map[string]struct {
		change func(*Options)
		status int
		text   string
	}{
		"no agent":            {func(o *Options) { o.Agent = "" }, StatusFailed, "no command"},
		"unknown agent":       {func(o *Options) { o.Agent, o.Command = "nosuch", false }, StatusNotFound, "neither an agent nor a command"},
		"missing command":     {func(o *Options) { o.Agent = "nosuch" }, StatusNotFound, "not found"},
		"not executable":      {func(o *Options) { o.Agent = plain }, StatusRefused, "not an executable"},
		"no workspace":        {func(o *Options) { o.Workspace = u.home + "/none" }, StatusFailed, "no such file"},
		"workspace is a file": {func(o *Options) { o.Workspace = plain }, StatusFailed, "not a directory"},
		"workspace is home":   {func(o *Options) { o.Workspace = u.home }, StatusRefused, "workspace " + u.home},
		"workspace is /":      {func(o *Options) { o.Workspace = "/" }, StatusRefused, "workspace /"},
		"above home":          {func(o *Options) { o.Workspace = filepath.Dir(u.home) }, StatusRefused, "workspace"},
		"workspace is /usr":   {func(o *Options) { o.Workspace = "/usr" }, StatusRefused, "workspace /usr"},
		"workspace is /tmp":   {func(o *Options) { o.Workspace = "/tmp" }, StatusRefused, "workspace /tmp"},
		"unknown policy":      {func(o *Options) { o.Policy = "lax" }, StatusFailed, `no policy is named "lax"`},
		"missing policy":      {func(o *Options) { o.Policy = "./none.toml" }, StatusFailed, "does not exist"},
		"policy mistake":      {func(o *Options) { o.Policy = u.home + "/bad.toml" }, StatusFailed, "bad.toml:4:1"},
		"no home":             {func(o *Options) { o.Environ = nil }, StatusFailed, "home directory"},
		"bad variable":        {func(o *Options) { o.Env = []string{"A"} }, StatusFailed, "NAME=VALUE"},
		"10 MB of arguments":  {func(o *Options) { o.Args = slices.Repeat([]string{strings.Repeat("x", 100_000)}, 100) }, StatusFailed, "more than the kernel takes"},
		"one long argument":   {func(o *Options) { o.Args = []string{strings.Repeat("x", 10<<20)} }, StatusFailed, "longer than the kernel takes"},
		"zero byte":           {func(o *Options) { o.Args = []string{"a\x00b"} }, StatusFailed, "zero byte"},
	} {
		o := u.options("true")
		c.change(&o)
		p, err := Prepare(o)
		if err == nil {
			_ = p.Close()
			t.Errorf("%s: no error", name)
			continue
		}
		if Status(err) != c.status || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: status %d, %v; want %d, %q", name, Status(err), err, c.status, c.text)
		}
	}
}

func TestLayers(t *testing.T) {
	u := newUser(t)
	u.file(t, ".agentos/policy.toml", "version = 1\nname = \"mine\"\n[files]\ndeny = [\"**/*.mine\"]\n", 0o644)
	u.file(t, "src/app/.agentos/policy.toml", "version = 1\nname = \"theirs\"\n[files]\nread = [\"~/.ssh/**\", \"${workspace}/**\", \"/usr/**\"]\n", 0o644)
	p := prepare(t, u.options("true"))
	var kinds []string
	for _, l := range p.Stack.Layers {
		kinds = append(kinds, l.Kind.String()+" "+l.Doc.Name)
	}
	if want := []string{"user mine", "project theirs", "profile strict"}; !slices.Equal(kinds, want) {
		t.Errorf("layers %v, want %v", kinds, want)
	}
	if v := p.Resolved.Explain(policy.OpRead, "a.mine"); v.Allow || !strings.Contains(v.Why, ".agentos/policy.toml:4:") {
		t.Errorf("%+v", v)
	}
	if len(p.Resolved.Refused) == 0 {
		t.Error("the project's wish for keys is not named as refused")
	}
	// What the helper gets is the same, through JSON.
	data, err := json.Marshal(p.Stack)
	if err != nil {
		t.Fatal(err)
	}
	var back policy.PolicyDocument
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	r, err := policy.Resolve(back.Layers, back.Vars)
	if err != nil || r.Hash() != p.Resolved.Hash() {
		t.Errorf("resolved again: %v", err)
	}
}

func TestProjectPolicyIsNotFollowedOut(t *testing.T) {
	u := newUser(t)
	out := u.file(t, "elsewhere.toml", "version = 1\nname = \"x\"\n", 0o644)
	if err := os.Mkdir(u.project+"/.agentos", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(out, u.project+"/.agentos/policy.toml"); err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare(u.options("true")); err == nil {
		t.Error("a project policy that links out of the workspace was taken")
	}
}

func TestWorkspaceIsWhatTheKernelSays(t *testing.T) {
	u := newUser(t)
	link := u.home + "/link"
	if err := os.Symlink(u.project, link); err != nil {
		t.Fatal(err)
	}
	o := u.options("true")
	o.Workspace = link
	p := prepare(t, o)
	if p.Stack.Vars.Workspace != u.project {
		t.Errorf("workspace %s, want %s", p.Stack.Vars.Workspace, u.project)
	}
	// Swapped for something else after it was opened: refused, not followed.
	if err := os.Rename(u.project, u.home+"/src/moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", u.project); err != nil {
		t.Fatal(err)
	}
	files, err := p.openView()
	closeShown(files)
	if Status(err) != StatusRefused {
		t.Errorf("a swapped workspace: %v", err)
	}
}

func TestGitWorktree(t *testing.T) {
	u := newUser(t)
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b", "-C", u.project}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "x")
	tree := u.home + "/src/tree"
	git("worktree", "add", "-q", tree)
	if got, _ := gitDirs(tree); !slices.Equal(got, []string{u.project + "/.git"}) {
		t.Errorf("git directories of a worktree: %v", got)
	}
	if got, _ := gitDirs(u.project); got != nil {
		t.Errorf("git directories of a plain clone: %v", got)
	}
	evil := u.home + "/src/evil"
	if err := os.Mkdir(evil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"gitdir: " + u.project + "/.git/worktrees/tree\n", "gitdir: " + u.home + "\n", "gitdir: /etc\n"} {
		if err := os.WriteFile(evil+"/.git", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, _ := gitDirs(evil); got != nil {
			t.Errorf("%q showed %v", text, got)
		}
	}
}

func TestStateIsMade(t *testing.T) {
	u := newUser(t)
	u.file(t, "bin/claude", "#!/bin/sh\n", 0o755)
	o := u.options("claude", "-p", "hi")
	o.Command = false
	o.Environ = append(o.Environ, "PATH="+u.home+"/bin:/usr/bin:/bin")
	p := prepare(t, o)
	if p.Agent != "claude" || !slices.Equal(p.Argv, []string{u.home + "/bin/claude", "--append-system-prompt", strings.Join(strings.Fields(why.Hint), " "), "-p", "hi"}) {
		t.Errorf("%s %q", p.Agent, p.Argv)
	}
	if err := p.makeState(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(u.home + "/.claude"); err != nil || !st.IsDir() || st.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", st, err)
	}
	if data, err := os.ReadFile(u.home + "/.claude.json"); err != nil || !json.Valid(data) {
		t.Errorf("%q %v", data, err)
	}
	if _, err := os.Stat(u.home + "/.claude.json.backup"); err == nil {
		t.Error("a backup was invented")
	}
}

func TestLaunchThroughTheGate(t *testing.T) {
	u := newUser(t)
	f, g, err := dialFake()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	p := prepare(t, u.options("sh", "-c", "cat; pwd; echo $AGENTOS; exit 3"))
	proc, err := Launch(t.Context(), g, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, inw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = inw.WriteString("hello\n")
	_ = inw.Close()
	exit, err := proc.Attach(t.Context(), terminal.Streams{In: in, Out: w, Err: w}, terminal.Filter{})
	_ = w.Close()
	out, _ := io.ReadAll(r)
	if err != nil || exit.Code != 3 || string(out) != "hello\n"+u.project+"\n1\n" {
		t.Errorf("%+v %v %q", exit, err, out)
	}
	if !slices.Contains(f.given, u.project) || !slices.Contains(f.given, "/usr") {
		t.Errorf("given: %v", f.given)
	}
	for _, x := range f.given {
		if within(u.home, x) || x == "/" || within(x, "/proc") {
			t.Errorf("%s was given", x)
		}
	}
}

func TestRefusalsComeThrough(t *testing.T) {
	f, g, err := dialFake()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	f.refuse = &rpc.Error{Code: rpc.Unsupported, Text: "policy strict requires seccomp", Hint: "another kernel"}
	_, err = Launch(t.Context(), g, prepare(t, newUser(t).options("true")), nil)
	if Status(err) != StatusRefused || Hint(err) != "another kernel" {
		t.Errorf("%v: status %d, hint %q", err, Status(err), Hint(err))
	}
	f.refuse = nil
	o := newUser(t).options("true")
	p := prepare(t, o)
	p.Argv[0] = "/nosuch"
	if _, err = Launch(t.Context(), g, p, nil); Status(err) != StatusNotFound {
		t.Errorf("%v: status %d", err, Status(err))
	}
}

func TestConnectSaysTwoWaysOut(t *testing.T) {
	_, err := Connect(t.Context(), Connection{Socket: t.TempDir() + "/none"})
	if err == nil || !strings.Contains(Hint(err), "agentos-helper") || !strings.Contains(Hint(err), "sudo") {
		t.Errorf("%v, hint %q", err, Hint(err))
	}
}

func TestErrorsKeepTheirChain(t *testing.T) {
	e := refuse(os.ErrExist, "h")
	if !errors.Is(e, os.ErrExist) || Status(e) != StatusRefused || Hint(e) != "h" || Status(errors.New("x")) != StatusFailed || Status(nil) != 0 {
		t.Error(e)
	}
}

func TestInJail(t *testing.T) {
	for _, c := range []struct {
		argv, env []string
		want      string
	}{
		{[]string{"/bin/ls", "-l"}, nil, "/bin/ls -l"},
		{[]string{"ls"}, nil, "/usr/bin/env ls"},
		{[]string{"/bin/ls"}, []string{"A=1"}, "/usr/bin/env A=1 /bin/ls"},
	} {
		if got := strings.Join(InJail(c.argv, c.env), " "); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestMemfdIsSealed(t *testing.T) {
	f, err := memfd("x", []byte("data"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt([]byte("X"), 0); err == nil {
		t.Error("a sealed file was written")
	}
	b := make([]byte, 4)
	if _, err := f.ReadAt(b, 0); err != nil || !bytes.Equal(b, []byte("data")) {
		t.Errorf("%q %v", b, err)
	}
}
