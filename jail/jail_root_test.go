//go:build root && linux

package jail_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/seccomp"
)

// hand makes a jail by hand, without policy, cgroup and kernel rules: what init
// does with a Spec.
type hand struct {
	*jail.Jail
	t       *testing.T
	command jail.Process
}

func goBuild(t *testing.T, bin string) {
	t.Helper()
	build := exec.Command("go", "build", "-o", bin, "github.com/agentos/agentos/cmd/agentos-init")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build init: %v\n%s", err, out)
	}
}

// initProgram is agentos-init as a sealed memfd, and its build id.
func initProgram(t *testing.T) (*os.File, string) {
	t.Helper()
	dir, build := os.Getenv("AGENTOS_BIN"), packet.Build()
	bin := filepath.Join(dir, "agentos-init")
	if dir == "" {
		bin = filepath.Join(t.TempDir(), "agentos-init")
		goBuild(t, bin)
	} else {
		out, err := exec.Command(filepath.Join(dir, "agentos-helper"), "--version").Output()
		if err != nil {
			t.Fatal(err)
		}
		build = strings.TrimSpace(string(out))
	}
	data, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	f, err := jail.Memfd("init", data, true)
	if err != nil {
		t.Fatal(err)
	}
	return f, build
}

func emptyFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(name, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

func makeJail(t *testing.T, workspace string) *hand {
	t.Helper()
	initFD, build := initProgram(t)
	ranges := jail.NewRanges("test")
	t.Cleanup(ranges.Close)
	base, err := ranges.Take()
	if err != nil {
		t.Fatal(err)
	}
	system, err := ranges.System(base)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := ranges.Owner(base, 0, 1000, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	in := jail.Input{Session: "test", Name: "test", Build: build, UID: 1000, GID: 1000, Home: "/home/agent", HomeBind: true}
	files := map[string]*os.File{}
	add := func(path string, a jail.Attach) {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		m, err := jail.Detach(fd, a)
		if err != nil {
			t.Fatalf("detach %s: %v", path, err)
		}
		t.Cleanup(func() { m.Close() })
		files[path] = m
	}
	for _, d := range jail.Devices {
		add("/dev/"+d, jail.Attach{})
		in.Devices = append(in.Devices, d)
	}
	for _, p := range []string{"/bin", "/lib", "/lib64", "/usr"} {
		g := jail.Given{Path: p, ReadOnly: true, Exec: true, Dir: true}
		if link, err := os.Readlink(p); err == nil {
			g.Link, g.Dir = link, false
		} else {
			add(p, jail.Attach{ReadOnly: true, IDMap: system})
		}
		in.Given = append(in.Given, g)
	}
	add(workspace, jail.Attach{IDMap: owner})
	in.Given = append(in.Given, jail.Given{Path: workspace, Dir: true, Exec: true, Own: true})
	home := t.TempDir()
	if err := os.Chown(home, int(base)+1000, int(base)+1000); err != nil {
		t.Fatal(err)
	}
	add(home, jail.Attach{})
	files["/home/agent"] = files[home]
	tool := emptyFile(t) // its place makes that of the socket where agents ask why
	add(tool, jail.Attach{ReadOnly: true})
	files[jail.ToolPath] = files[tool]
	in.System = append(in.System, jail.Given{Path: jail.ToolPath, ReadOnly: true, Exec: true, Own: true})
	plan, err := jail.Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	spec := plan.Spec
	command := jail.Process{Argv: []string{"/bin/sh", "-c", "id; ls -la " + workspace + "; echo hi > " + workspace + "/made; cat /proc/self/status | grep -E 'Cap|NoNew|Secc'; ls / /dev /proc | head -80; cat /etc/passwd; exit 7"}, Env: []string{"PATH=/usr/bin:/bin"}, Cwd: workspace}
	prog, err := seccomp.Build(seccomp.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	filter, err := seccomp.Memfd(prog)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := jail.Memfd("rules", []byte("x"), false)
	if err != nil {
		t.Fatal(err)
	}
	of := func(list []jail.Mount) (out []*os.File) {
		for _, target := range jail.Binds(list) {
			out = append(out, files[target])
		}
		return out
	}
	trees, err := jail.NewTrees()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { trees.Close() })
	tree, err := trees.Clone("test", jail.Ground{}, plan.Tree, base, 1000, func() ([]*os.File, error) { return of(plan.Tree), nil })
	if err != nil {
		t.Fatal(err)
	}
	j, err := jail.Start(jail.Birth{Init: initFD, Base: base, Cgroup: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	if err := j.Build(jail.Parts{Spec: spec, Filter: filter, Rules: rules, Tree: tree, Mounts: of(spec.Mounts)}); err != nil {
		t.Fatal(err)
	}
	return &hand{j, t, command}
}

func TestInitRunsAProcess(t *testing.T) {
	ws := t.TempDir()
	if err := os.Chmod(filepath.Dir(ws), 0o755); err != nil {
		t.Fatal(err)
	}
	j := makeJail(t, ws)
	var m jail.Message
	if _, err := j.Control.Receive(&m); err != nil {
		t.Fatalf("%v: init said %s", err, j.Said())
	}
	if m.Op != jail.OpReady {
		t.Fatalf("step %s: %s (%+v)", m.Step, m.Text, m.Checks)
	}
	t.Logf("%+v", m)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	process, err := j.command.Memfd()
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Control.Send(jail.Message{Op: jail.OpRun, ID: 1}, int(process.Fd()), int(r.Fd()), int(w.Fd()), int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Control.Receive(&m); err != nil || m.Op != jail.OpRunning {
		t.Fatalf("run: %v %+v", err, m)
	}
	if _, err := j.Control.Receive(&m); err != nil || m.What != "exited" || m.Code != 7 {
		t.Fatalf("end: %v %+v", err, m)
	}
	buf := make([]byte, 64<<10)
	n, _ := r.Read(buf)
	t.Logf("%s", buf[:n])
	st, err := os.Stat(filepath.Join(ws, "made"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := st.Sys().(*syscall.Stat_t); uid.Uid != 0 {
		t.Errorf("made by uid %d on disk, want the caller", uid.Uid)
	}
}
