package policy

import (
	"errors"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write golden files")

func parse(t *testing.T, name, text string) *Document {
	t.Helper()
	d, err := Parse(name, []byte("version = 1\nname = \""+name+"\"\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func resolve(t *testing.T, v Vars, layers ...Layer) *Resolved {
	t.Helper()
	if v.Workspace == "" {
		v = SampleVars()
	}
	r, err := Resolve(layers, v)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const profile = `
[files]
read = ["/usr/**", "${workspace}/**"]
write = ["${workspace}/**"]
exec = ["/usr/**"]
deny = ["${workspace}/**/*.pem", "!${workspace}/**/ca.pem", "${workspace}/vault/**"]
protect = ["${workspace}/.git/**"]
[net]
allow = ["a.example:443", "10.0.0.0/8:22", "*.b.example:80-90"]
deny = ["10.1.0.0/16:*"]
[env]
pass = ["A*", "TERM"]
[syscalls]
allow = ["ptrace", "bpf"]
`

func TestExplainLayers(t *testing.T) {
	p := parse(t, "prof", profile)
	org := parse(t, "org", `
[files]
read = ["/usr/**", "${workspace}/**", "/srv/**"]
deny = ["${workspace}/**/ca.pem"]
[net]
allow = ["a.example:443", "10.0.0.0/8:22"]
[syscalls]
deny = ["bpf"]
`)
	quiet := parse(t, "quiet", "[resources]\npids = 29\n")
	tests := []struct {
		op           Op
		arg          string
		alone, under bool
		rule         string // part of the deciding rule under org
	}{
		{OpRead, "/usr/bin/x", true, true, "prof:5:9: read /usr/**"},
		{OpRead, "/usr", true, true, "/usr/**"},
		{OpRead, "/usrx", false, false, ""},
		{OpRead, "/srv/x", false, false, ""},
		{OpRead, "a.txt", true, true, "${workspace}/**"},
		{OpRead, "./sub/../a.txt", true, true, ""},
		{OpRead, "k.pem", false, false, "deny ${workspace}/**/*.pem"},
		{OpRead, "x/ca.pem", true, false, "org:6:9: deny ${workspace}/**/ca.pem"},
		{OpRead, "vault/ca.pem", false, false, "ca.pem"}, // an exception undoes only what stands above it
		{OpRead, "~/x", false, false, ""},
		{OpWrite, "a.txt", true, true, "write ${workspace}/**"},
		{OpWrite, ".git/config", false, false, "protect ${workspace}/.git/**"},
		{OpRead, ".git/config", true, true, ""},
		{OpExec, "/usr/bin/x", true, true, ""},
		{OpExec, "run", false, false, ""},
		{OpExec, "k.pem", false, false, ""},
		{OpConnect, "a.example:443", true, true, "a.example:443"},
		{OpConnect, "A.example.:443", false, false, ""},
		{OpConnect, "a.example:444", false, false, ""},
		{OpConnect, "x.b.example:85", true, false, ""},
		{OpConnect, "b.example:85", false, false, ""},
		{OpConnect, "10.2.0.1:22", true, true, ""},
		{OpConnect, "[::ffff:10.2.0.1]:22", true, true, ""},
		{OpConnect, "10.1.0.1:22", false, false, "net-deny 10.1.0.0/16:*"},
		{OpConnect, "nonsense", false, false, ""},
		{OpSyscall, "ptrace", true, true, "syscall-allow ptrace"},
		{OpSyscall, "bpf", true, false, "org:10:9: syscall-deny bpf"},
		{OpSyscall, "mount", false, false, ""},
		{OpEnv, "ABC", true, true, ""},
		{OpEnv, "TERMX", false, false, ""},
		{Op("fly"), "x", false, false, ""},
	}
	alone := resolve(t, Vars{}, Layer{Profile, p})
	under := resolve(t, Vars{}, Layer{Org, org}, Layer{User, quiet}, Layer{Profile, p})
	ea, err := alone.Explainer()
	if err != nil {
		t.Fatal(err)
	}
	eu, err := under.Explainer()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		if got := ea.Explain(tt.op, tt.arg); got.Allow != tt.alone || got.Why == "" {
			t.Errorf("alone %s %s: %+v", tt.op, tt.arg, got)
		}
		got := eu.Explain(tt.op, tt.arg)
		if got.Allow != tt.under || !strings.Contains(got.Why, tt.rule) || tt.rule != "" && got.Rule == nil {
			t.Errorf("under org %s %s: %+v, want %v by %q", tt.op, tt.arg, got, tt.under, tt.rule)
		}
		if got.Allow && !ea.Explain(tt.op, tt.arg).Allow {
			t.Errorf("%s %s: a layer widened", tt.op, tt.arg)
		}
	}
	if v := eu.Explain(OpSyscall, "mount"); !v.Default {
		t.Errorf("mount is the profile's to decide: %+v", v)
	}
	if under.Resources.Pids != 29 {
		t.Errorf("pids %d", under.Resources.Pids)
	}
}

func TestRefused(t *testing.T) {
	org := parse(t, "org", "[files]\nread = [\"/usr/**\", \"${workspace}/**\"]\ndeny = [\"~/.ssh/**\"]\n[net]\nallow = [\"*.example:443\"]\n[env]\npass = [\"LC_*\"]\n")
	project := parse(t, "project", "[files]\nread = [\"/usr/**\", \"${workspace}/**\", \"~/.ssh/**\", \"/srv/data\"]\n[env]\nset = { ANTHROPIC_BASE_URL = \"https://evil.example\" }\n")
	prof := parse(t, "prof", "[files]\nread = [\"/usr/lib/**\", \"${workspace}/**\", \"/{etc,usr}/x\"]\n[net]\nallow = [\"a.example:443\", \"a.example:80\", \"*:443\"]\n[env]\npass = [\"LC_ALL\", \"L*\"]\n")
	r := resolve(t, Vars{}, Layer{Org, org}, Layer{Project, project}, Layer{Profile, prof})
	var got []string
	for _, f := range r.Refused {
		got = append(got, f.What)
	}
	slices.Sort(got)
	want := []string{"env-pass L*", "env.set ANTHROPIC_BASE_URL", "net-allow *:443", "net-allow a.example:80", "read /srv/data", "read /usr/**", "read /{etc,usr}/x", "read ~/.ssh/**"}
	if !slices.Equal(got, want) {
		t.Errorf("refused\n%v, want\n%v", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(r.Env.Set) != 0 {
		t.Errorf("a project set %v", r.Env.Set)
	}
	for _, f := range r.Refused {
		if f.Pos == "" || f.By == "" {
			t.Errorf("no position or nobody: %+v", f)
		}
	}
}

func TestMostStrictWins(t *testing.T) {
	a := parse(t, "a", "[resources]\nmemory = \"4GB\"\ncpu = \"80%\"\npids = 100\n[audit]\nfiles = \"denied\"\n[require]\naudit = \"require\"\n[terminal]\ntitle = false\n[net]\nlisten = \"jail\"\n")
	b := parse(t, "b", "[resources]\nmemory = \"8GB\"\nswap = \"1GB\"\ncpu = \"1.5\"\ntmp = \"1GB\"\n[audit]\nfiles = \"all\"\n[require]\naudit = \"prefer\"\nlandlock = \"prefer\"\n[terminal]\ntitle = true\nosc52 = \"write\"\n[net]\nlisten = \"host:80\"\n[syscalls]\nuser_namespaces = true\n")
	r := resolve(t, Vars{}, Layer{Org, a}, Layer{Profile, b})
	want := Resources{Memory: 4e9, CPU: CPU{800, 1500}, Pids: 100, Tmp: 1e9}
	if r.Resources != want {
		t.Errorf("resources %+v, want %+v", r.Resources, want)
	}
	if r.Audit != (Audit{"all", "hold"}) || r.Terminal != (TerminalRules{"write", false}) || r.Net.Listen != "jail" || !r.Syscalls.UserNamespaces {
		t.Errorf("%+v %+v %+v %+v", r.Audit, r.Terminal, r.Net, r.Syscalls)
	}
	if !reflect.DeepEqual(r.Require, Require{AuditRecord: Required, Landlock: Prefer}) || r.Where["require.audit"] != "a:10:9" {
		t.Errorf("require %v at %v", r.Require, r.Where)
	}
	empty := resolve(t, Vars{}, Layer{Profile, parse(t, "e", "")})
	if empty.Audit != (Audit{"all", "hold"}) || empty.Terminal != (TerminalRules{"deny", false}) || empty.Net.Listen != "jail" || len(empty.View()) != 0 {
		t.Errorf("zero means no: %+v", empty)
	}
	if v := empty.Explain(OpRead, "/usr"); v.Allow {
		t.Errorf("an empty profile grants: %+v", v)
	}
}

func TestResolveRefuses(t *testing.T) {
	p := parse(t, "p", profile)
	v := SampleVars()
	with := func(f func(*Vars)) Vars { c := v; f(&c); return c }
	tests := map[string]struct {
		layers []Layer
		vars   Vars
	}{
		"no profile":         {[]Layer{{Org, p}}, v},
		"two profiles":       {[]Layer{{Profile, p}, {Profile, p}}, v},
		"stands below":       {[]Layer{{Project, p}, {Org, p}, {Profile, p}}, v},
		"has no kind":        {[]Layer{{0, p}, {Profile, p}}, v},
		"has no document":    {[]Layer{{Profile, nil}}, v},
		"over 32 layers":     {slices.Repeat([]Layer{{Org, p}}, 33), v},
		"must be set":        {[]Layer{{Profile, p}}, Vars{Home: "/h"}},
		"is not absolute":    {[]Layer{{Profile, p}}, with(func(v *Vars) { v.Workspace = "w" })},
		"is not clean":       {[]Layer{{Profile, p}}, with(func(v *Vars) { v.Tool = []string{"/a/../etc"} })},
		"is not UTF-8":       {[]Layer{{Profile, p}}, with(func(v *Vars) { v.State = []string{"/a\xff"} })},
		"${agent.hosts}":     {[]Layer{{Profile, p}}, with(func(v *Vars) { v.Hosts = []string{"x"} })},
		"${agent.env}":       {[]Layer{{Profile, p}}, with(func(v *Vars) { v.EnvPass = []string{"A=B"} })},
		"over 64 values":     {[]Layer{{Profile, p}}, with(func(v *Vars) { v.State = slices.Repeat([]string{"/x"}, 65) })},
		"version 0 is not":   {[]Layer{{Profile, &Document{File: "f", Name: "x"}}}, v},
		"control characters": {[]Layer{{Profile, &Document{File: "f\x1b", Name: "x", Version: 1}}}, v},
		"is the home":        {[]Layer{{Profile, p}}, with(func(v *Vars) { v.Workspace = v.Home })},
	}
	for want, tt := range tests {
		if _, err := Resolve(tt.layers, tt.vars); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	strict, err := Builtin("strict")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"/", "/home", "/home/alice", "/tmp", "/etc", "/proc/1"} {
		if _, err := Resolve([]Layer{{Profile, strict}}, Vars{Workspace: w, Home: "/home/alice"}); !errors.Is(err, ErrWorkspace) {
			t.Errorf("workspace %s: %v", w, err)
		}
	}
	any := parse(t, "any", "extends = [\"builtin:strict\"]\nfiles.any_workspace = true\n")
	r, err := Resolve([]Layer{{Profile, any}}, Vars{Workspace: "/home/alice", Home: "/home/alice"})
	if err != nil || !slices.Contains(r.View(), Mount{"/home/alice", ReadWrite, true, false}) {
		t.Errorf("a policy may force it: %v", err)
	}
}

func TestQuotedVariables(t *testing.T) {
	v := Vars{Workspace: "/w/a*[b]{c,d}?!\\x", Home: "/h"}
	r := resolve(t, v, Layer{Profile, parse(t, "p", "[files]\nread = [\"${workspace}/**\"]\n")})
	e, err := r.Explainer()
	if err != nil {
		t.Fatal(err)
	}
	if got := e.Explain(OpRead, v.Workspace+"/f"); !got.Allow {
		t.Errorf("%+v", got)
	}
	if got := e.Explain(OpRead, "/w/azz[b]{c,d}?!\\x/f"); got.Allow {
		t.Errorf("a name became a pattern: %+v", got)
	}
	if m := r.View(); len(m) != 1 || m[0].Path != v.Workspace {
		t.Errorf("view %+v", m)
	}
}

func TestView(t *testing.T) {
	p := parse(t, "p", `
[files]
private = ["~", "/etc", "/tmp"]
read = ["/usr/**", "/usr/share/**", "/opt/*/lib", "~/**", "~/.gitconfig", "/etc/{a,b}", "/etc/c*", "/tmp/**", "**/x", "${workspace}/**", "/data/**", "/proc/1/root", "/dev/kvm", "${agent.tool}/**"]
write = ["~/**", "${workspace}/**", "/data/out/**", "/tmp/**"]
exec = ["/usr/**", "${workspace}/**", "/opt/x/**", "~/**"]
`)
	want := []Mount{
		{"/data", ReadOnly, false, true},
		{"/data/out", ReadWrite, false, true},
		{"/dev/kvm", ReadOnly, false, true},
		{"/etc/a", ReadOnly, false, true},
		{"/etc/b", ReadOnly, false, true},
		{"/home/alice/.gitconfig", ReadOnly, false, true},
		{"/home/alice/.local/share/agent", ReadOnly, false, true},
		{"/home/alice/src/app", ReadWrite, true, false},
		{"/opt", ReadOnly, false, true},
		{"/opt/x", ReadOnly, true, true},
		{"/usr", ReadOnly, true, true},
	}
	r := resolve(t, Vars{}, Layer{Profile, p})
	if got := r.View(); !reflect.DeepEqual(got, want) {
		t.Errorf("view\n%v, want\n%v", got, want)
	}
	org := parse(t, "org", "[files]\nread = [\"/usr/lib/**\", \"/data/**\", \"${workspace}/**\"]\nwrite = [\"${workspace}/src/**\"]\nexec = [\"/usr/lib/**\", \"${workspace}/**\", \"/opt/**\"]\n")
	r = resolve(t, Vars{}, Layer{Org, org}, Layer{Profile, p})
	got := r.View()
	for _, m := range []Mount{{"/usr/lib", ReadOnly, true, true}, {"/data", ReadOnly, false, true}, {"/home/alice/src/app", ReadOnly, true, false}, {"/home/alice/src/app/src", ReadWrite, true, true}} {
		if !slices.Contains(got, m) {
			t.Errorf("%v is not in %v", m, got)
		}
	}
}

// No builtin may show a directory that holds things of the user or secrets of
// the machine.
func TestBuiltinViews(t *testing.T) {
	for _, name := range BuiltinNames() {
		d, err := Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		r := resolve(t, Vars{}, Layer{Profile, d})
		for _, m := range r.View() {
			if slices.Contains([]string{"/", "/home", "/home/alice", "/root", "/tmp", "/run", "/var", "/proc", "/dev", "/sys", "/boot", "/mnt", "/etc/ssl", "/etc/ssh"}, m.Path) {
				t.Errorf("%s shows %s", name, m.Path)
			}
			if m.Path == "/etc" && (name == "base" || name == "strict") {
				t.Errorf("%s shows all of /etc", name)
			}
			writable := []string{"/home/alice/src/app", "/home/alice/.agent"}
			if m.Access == ReadWrite && !slices.Contains(writable, m.Path) {
				t.Errorf("%s shows %s writable", name, m.Path)
			}
		}
		if want := name == "strict" || name == "standard"; r.NeedsEngine() != want {
			t.Errorf("%s: NeedsEngine is %v", name, r.NeedsEngine())
		}
		if r.Hash() == "" || r.Hash() != resolve(t, Vars{}, Layer{Profile, d}).Hash() {
			t.Errorf("%s: hash is not stable", name)
		}
		if len(r.Refused) != 0 {
			t.Errorf("%s alone refuses itself: %v", name, r.Refused)
		}
	}
}

func TestEnviron(t *testing.T) {
	d, err := Builtin("strict")
	if err != nil {
		t.Fatal(err)
	}
	r := resolve(t, Vars{}, Layer{Profile, d})
	got := r.Environ([]string{"TERM=xterm", "LC_ALL=C", "AWS_SECRET_ACCESS_KEY=x", "AGENT_API_KEY=k", "GITHUB_TOKEN=x", "broken", "=x", "TERM=vt100", "PATH=/evil", "LANG=a=b"})
	want := []string{"AGENT_API_KEY=k", "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=branch.autoSetupMerge", "GIT_CONFIG_KEY_1=gc.worktreePruneExpire", "GIT_CONFIG_VALUE_0=false", "GIT_CONFIG_VALUE_1=never", "HUSKY=0", "LANG=a=b", "LC_ALL=C", "TERM=vt100"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDest(t *testing.T) {
	for _, s := range []string{"a.example:443", "*.a.example:1-65535", "*:80", "host:*", "1.2.3.4:5", "[::1]:8", "[2001:db8::/32]:443", "10.0.0.0/8:22", "_x.example:1"} {
		if _, err := ParseDest(s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []string{"", ":", "a", "a:", ":1", "a:0", "a:65536", "a:2-1", "a:x", "::1:80", "[a]:1", "*.*:1", "a*.b:1", "A.example:1", "0x7f.1:80", "1.2.3:80", "1.2.3.4.5:80", "127.1:80", "-a.b:1", "a..b:1", "a.b.:1", "x\x00y:1", "10.0.0.1/8:1", "[::1%lo]:80", "[::1]", strings.Repeat("a", 64) + ".b:1"} {
		if d, err := ParseDest(s); err == nil {
			t.Errorf("%q: got %+v, want an error", s, d)
		}
	}
}

func TestSamplesMatch(t *testing.T) {
	for _, g := range []string{"/a/**", "**/.env", "/a/*.pem", "/a/[!a-z]x?", "/a/{b,c}/*d*", "/a/[b]c", `/a/\*b`, "/s*s/**/x"} {
		if p := Sample(g); !matchGlob(g, p) {
			t.Errorf("%s: sample %s does not match", g, p)
		}
	}
}

func TestSchema(t *testing.T) {
	const file = "../docs/policy.schema.json"
	if *update {
		if err := os.WriteFile(file, Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil || string(data) != string(Schema()) {
		t.Errorf("%s is not what the types say (%v); run go test ./policy -update", file, err)
	}
}
