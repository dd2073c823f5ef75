package changes

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/policy"
)

// stage makes a session's home and a home of the host, which is what the session
// calls its home, too.
func stage(t *testing.T) (s *Set, layer, home string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	layer, home = filepath.Join(base, "layer"), filepath.Join(base, "home")
	for _, d := range []string{layer, home} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.OpenFile(layer, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	bars := &policy.Bars{Rules: []policy.Rule{
		{Kind: policy.Deny, Glob: home + "/.secret/**", Pos: "p:1:1", Text: "~/.secret/**"},
		{Kind: policy.Protect, Glob: "**/.git/hooks/**", Pos: "p:2:2", Text: "**/.git/hooks/**"},
	}}
	bars.Add(startup(home)...)
	s = &Set{Home: home, Trees: []Tree{{Path: home, dir: dir}}, Bars: bars}
	t.Cleanup(func() { _ = s.Close() })
	return s, layer, home
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func do(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestListNamesWithoutFollowing(t *testing.T) {
	s, layer, home := stage(t)
	secret := filepath.Join(filepath.Dir(home), "outside")
	write(t, secret+"/a/b/c", "secret")
	write(t, layer+"/one", "12345")
	write(t, layer+"/new\nline\x1b[31m\xff", "")
	do(t, os.Symlink(secret, layer+"/link"), unix.Mkfifo(layer+"/fifo", 0o600), os.Link(layer+"/one", layer+"/two"))
	f, err := os.Create(layer + "/sparse")
	do(t, err, f.Truncate(1<<40), f.Close())
	rows, totals, err := s.List(Limits{}, true)
	do(t, err)
	got := map[string]Change{}
	for _, r := range rows {
		got[strings.TrimPrefix(r.Path, home+"/")] = r
	}
	if len(got) != 6 || got["link"].Kind != Link || got["fifo"].Kind != FIFO || got["one"].Size != 5 || got["sparse"].Size != 1<<40 || got["sparse"].Disk > 1<<20 {
		t.Errorf("got %v", rows)
	}
	if got["one"].Disk != 0 && got["two"].Disk != 0 {
		t.Error("the blocks of a hard link count twice")
	}
	if totals.Names != 6 || totals.Unread != 0 || totals.More {
		t.Errorf("totals %+v", totals)
	}
	data, err := json.Marshal(got["new\nline\x1b[31m\xff"])
	var back struct {
		Path string `json:"path"`
		B64  string `json:"path_b64"`
	}
	do(t, err, json.Unmarshal(data, &back))
	if raw, err := base64.StdEncoding.DecodeString(back.B64); err != nil || string(raw) != home+"/new\nline\x1b[31m\xff" {
		t.Errorf("bytes of the name: %q, %v", raw, err)
	}
}

func TestListFoldsAndIsBounded(t *testing.T) {
	s, layer, home := stage(t)
	for i := range 50 {
		write(t, fmt.Sprintf("%s/.cache/npm/%d/f", layer, i), "xx")
	}
	write(t, layer+"/.cache/pip/f", "1")
	rows, _, err := s.List(Limits{}, false)
	do(t, err)
	want := []string{home + "/.cache/npm", home + "/.cache/pip/f"}
	var got []string
	for _, r := range rows {
		got = append(got, r.Path)
	}
	if !slices.Equal(got, want) || rows[0].Names != 100 || rows[0].Size != 100 {
		t.Errorf("got %v", rows)
	}
	_, totals, err := s.List(Limits{Names: 10}, true)
	do(t, err)
	if !totals.More || totals.Names > 10 {
		t.Errorf("not bounded: %+v", totals)
	}
}

// Deeper than a path may be long: counted, neither walked nor an error.
func TestListDeep(t *testing.T) {
	s, layer, _ := stage(t)
	fd, err := unix.Open(layer, unix.O_PATH|unix.O_DIRECTORY, 0)
	do(t, err)
	name := strings.Repeat("d", 200)
	for range 60 {
		do(t, unix.Mkdirat(fd, name, 0o700))
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		do(t, err, unix.Close(fd))
		fd = next
	}
	_, totals, err := s.List(Limits{}, true)
	do(t, err, unix.Close(fd))
	if totals.Unread != 1 || totals.Names != 20 {
		t.Errorf("%+v", totals)
	}
	if os.RemoveAll(layer) != nil {
		t.Skip("cannot clean up")
	}
}

func TestKeep(t *testing.T) {
	s, layer, home := stage(t)
	write(t, layer+"/report/a/b.txt", "text")
	do(t, os.Chmod(layer+"/report/a/b.txt", 0o755|os.ModeSetuid|os.ModeSetgid|os.ModeSticky))
	f, err := os.Create(layer + "/report/sparse")
	do(t, err, f.Truncate(1<<30))
	_, err = f.WriteAt([]byte("end"), 1<<29)
	do(t, err, f.Close())
	do(t, unix.Mkfifo(layer+"/report/fifo", 0o600))
	links := map[string]string{
		"in": "a/b.txt", "a/up": "../a/b.txt", "dot": "./a",
		"abs": "/etc/passwd", "out": "../x", "a/out": "../../x", "tricky": "a/in/../../../x", "deep": "a/../../x",
	}
	for name, to := range links {
		do(t, os.Symlink(to, layer+"/report/"+name))
	}
	r, err := s.Keep(Order{Path: home + "/report"}, Limits{})
	do(t, err)
	if len(r.Left) != 6 || r.Files != 5 || r.Bytes > 1<<20 {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"in", "a/up", "dot"} {
		if to, err := os.Readlink(home + "/report/" + name); err != nil || to != links[name] {
			t.Errorf("%s: %q, %v", name, to, err)
		}
	}
	for _, name := range []string{"abs", "out", "a/out", "tricky", "deep", "fifo"} {
		if _, err := os.Lstat(home + "/report/" + name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was kept", name)
		}
	}
	st, err := os.Stat(home + "/report/a/b.txt")
	do(t, err)
	if st.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeSticky) != 0 || st.Mode().Perm()&0o700 != 0o700 || st.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		t.Errorf("mode %v", st.Mode())
	}
	st, err = os.Stat(home + "/report/sparse")
	do(t, err)
	if st.Size() != 1<<30 || st.Sys().(*syscall.Stat_t).Blocks*512 > 1<<20 {
		t.Errorf("sparse file: %d bytes, %d blocks", st.Size(), st.Sys().(*syscall.Stat_t).Blocks)
	}
	names, err := os.ReadDir(home + "/report")
	do(t, err)
	for _, n := range names {
		if strings.HasPrefix(n.Name(), ".agentos") {
			t.Errorf("left: %s", n)
		}
	}
}

func TestKeepRefuses(t *testing.T) {
	s, layer, home := stage(t)
	outside := filepath.Join(filepath.Dir(home), "outside")
	do(t, os.Mkdir(outside, 0o755), os.Symlink(outside, home+"/gate"), os.Symlink(outside, home+"/via"))
	for _, p := range []string{"taken", "gate/x", ".secret/x", ".bashrc", ".local/bin/tool", "repo/.git/hooks/pre-commit", "isdir", "free", "tree/a", "tree/taken", ".config/systemd/user/x.service"} {
		write(t, layer+"/"+p, "from the session")
	}
	write(t, home+"/taken", "from the host")
	write(t, home+"/tree/taken", "from the host")
	do(t, os.Mkdir(home+"/isdir", 0o755), os.Symlink(outside+"/pwned", home+"/dangling"))
	write(t, layer+"/dangling", "x")
	tests := []struct {
		o     Order
		want  string
		force bool // force keeps it
	}{
		{Order{Path: home + "/taken"}, "the host has one already", true},
		{Order{Path: home + "/tree"}, "tree/taken is not kept: the host has one already", true},
		{Order{Path: home + "/gate"}, "where the session has none", false},
		{Order{Path: home + "/gate/x"}, "in the way on the host", false},
		{Order{Path: home + "/isdir"}, "where the session has none", false},
		{Order{Path: home + "/dangling"}, "the host has one already", true},
		{Order{Path: home + "/.secret"}, "p:1:1 says deny ~/.secret/**", true},
		{Order{Path: home + "/.bashrc"}, "your host would obey it: shells run it", true},
		{Order{Path: home + "/.local"}, "it is in PATH", true},
		{Order{Path: home + "/.config"}, "a login runs it", true},
		{Order{Path: home + "/repo"}, "p:2:2 says protect **/.git/hooks/**", true},
		{Order{Path: home + "/repo", To: outside}, "p:2:2 says protect", true},
		{Order{Path: home + "/free", To: home + "/via"}, "a link leads there", true},
		{Order{Path: home + "/none"}, "the session has no such file", false},
		{Order{Path: "/etc/passwd"}, "not in the session's home", false},
		{Order{Path: home}, "not in the session's home", false},
	}
	for _, tt := range tests {
		_, err := s.Keep(tt.o, Limits{})
		var r *Refusal
		if !errors.As(err, &r) || !strings.Contains(r.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt.o, err, tt.want)
		}
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 0 {
		t.Errorf("something was written: %v, %v", names, err)
	}
	if _, err := os.Lstat(home + "/tree/a"); !errors.Is(err, os.ErrNotExist) {
		t.Error("half of a refused tree was kept")
	}
	for _, tt := range tests {
		o := tt.o
		o.Force = true
		if _, err := s.Keep(o, Limits{}); (err == nil) != tt.force {
			t.Errorf("forced %+v: %v", o, err)
		}
	}
	if _, err := os.Lstat(outside + "/pwned"); !errors.Is(err, os.ErrNotExist) {
		t.Error("a link of the host was written through")
	}
	if data, err := os.ReadFile(home + "/tree/taken"); err != nil || string(data) != "from the session" {
		t.Errorf("%q, %v", data, err)
	}
}

// A thread swaps a file for a link while it is kept: never is what the link leads to read.
func TestKeepRace(t *testing.T) {
	s, layer, home := stage(t)
	secret := filepath.Join(filepath.Dir(home), "outside")
	write(t, secret, "secret")
	write(t, layer+"/d/real", "fine")
	do(t, os.Symlink(secret, layer+"/d/fake"))
	write(t, layer+"/d/f", "fine")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, layer+"/d/f", unix.AT_FDCWD, layer+"/d/fake", unix.RENAME_EXCHANGE)
			}
		}
	}()
	for i := range 300 {
		to := fmt.Sprintf("%s/%d", filepath.Dir(home), i)
		do(t, os.Mkdir(to, 0o755))
		_, _ = s.Keep(Order{Path: home + "/d/f", To: to}, Limits{})
		if data, err := os.ReadFile(to + "/f"); err == nil && string(data) != "fine" {
			t.Errorf("round %d: read %q", i, data)
		}
		if to, err := os.Readlink(to + "/f"); err == nil {
			t.Errorf("round %d: a link to %s was kept", i, to)
		}
	}
	close(stop)
	<-done
}
