//go:build root

package escape

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHomeAsUser and TestHomeAsRoot try what an agent can do with its home against those who look at it, copy of it and come after it.
func TestHomeAsUser(t *testing.T) { home(t, 60217) }

func TestHomeAsRoot(t *testing.T) { home(t, 0) }

func home(t *testing.T, uid int) {
	w := newWorld(t, uid)
	w.startHelper()
	w.reset()
	w.put("home/over/lower.txt", "of the host\n", 0o644)
	w.put("home/over/dir/deep.txt", "of the host\n", 0o644)
	w.put("home/over/key.pem", w.canary("a denied file of an overlay"), 0o644)
	w.put("home/over/fixed/hook", "of the host\n", 0o755)
	w.own("home")
	text, err := os.ReadFile("testdata/home.toml")
	must(t, err)
	must(t, os.WriteFile(w.path("out/home.toml"), text, 0o644))
	t.Run("overlay", func(t *testing.T) { w.overlay(t) })
	t.Run("layer", func(t *testing.T) { w.hostileLayer(t) })
	t.Run("persist", func(t *testing.T) { w.shared(t) })
	if os.Getenv("AGENTOS_SOCKET") == "" { // the helper, and with it its state, is ours
		w.leftOnDisk(t)
	}
}

// shell runs a script in a jail of the home policy.
func (w *world) shell(t *testing.T, workspace, script string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args = append(append([]string{"run", "--policy", w.path("out/home.toml"), "--workspace", w.path(workspace)}, args...), "--", "/bin/sh", "-c", script)
	out, err := w.command(ctx, args...).CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("the run did not end: %v\n%s", err, out)
	}
	return string(out)
}

// secret fails the test if the text has a canary.
func (w *world) secret(t *testing.T, what, text string) {
	t.Helper()
	for c, place := range w.secrets {
		if strings.Contains(text, c) {
			t.Errorf("%s shows %s", what, place)
		}
	}
}

// overlay: the agent changes its view of a directory of the host in every way, and the host's stays as it was; what is denied in it
// stays denied.
func (w *world) overlay(t *testing.T) {
	before := w.state()
	out := w.shell(t, "ws", `cd ~/over || exit 1
echo agent >> lower.txt; cat lower.txt
mv dir moved && echo x > moved/new; mv lower.txt renamed; rm -r moved; chmod 700 renamed; ln renamed hard; truncate -s 0 hard
mkdir dir; echo again > dir/deep.txt; ls -la . dir; touch -d 2000-01-01 dir
for f in key.pem ./dir/../key.pem /proc/self/cwd/key.pem "$HOME/over/key.pem"; do cat $f; done
cp key.pem copy; ln key.pem linked; mv key.pem plain; ln -s key.pem sym; cat sym; dd if=key.pem; exec 3<>key.pem && cat <&3
echo late > late.pem && echo LATE; echo a > a && mv a b.pem && echo MOVED; echo hook > fixed/hook && echo HOOK; rm fixed/hook && echo GONE; mv fixed away && echo AWAY
true`)
	w.secret(t, "the overlay", out)
	if !strings.Contains(out, "of the host\nagent\n") || !strings.Contains(out, "renamed") {
		t.Errorf("control: the agent does not see the host's files and its own changes:\n%s", out)
	}
	for _, word := range []string{"LATE", "MOVED", "HOOK", "GONE", "AWAY"} {
		if strings.Contains(out, word) {
			t.Errorf("a denied or protected name in the overlay was taken: %s\n%s", word, out)
		}
	}
	for _, d := range diff(before, w.state()) {
		t.Error(d)
	}
	w.hostRenames(t)
	if out := w.shell(t, "ws", "cat ~/over/lower.txt ~/over/dir/deep.txt"); out != "" && !strings.Contains(out, "of the host\nof the host\n") {
		t.Errorf("the next session sees changes of the last one:\n%s", out)
	}
}

// hostRenames: a file below an overlay that the agent has read gets a denied name on the host, and then a secret. What was answered
// about the first name must not answer for the second.
func (w *world) hostRenames(t *testing.T) {
	w.put("home/over/note", "harmless\n", 0o644)
	w.put("ws/ready", "", 0o666)
	w.own("home/over/note")
	must(t, os.Chmod(w.path("ws/ready"), 0o666))
	run := w.command(t.Context(), "run", "--policy", w.path("out/home.toml"), "--workspace", w.path("ws"), "--", "/bin/sh", "-c",
		`cat ~/over/note ~/over/note; ls -l ~/over; echo 1 > ready; i=0; while [ $i -lt 600 ] && ! [ -e go ]; do sleep 0.1; i=$((i+1)); done; cat ~/over/renamed.pem; cp ~/over/renamed.pem ~/x; cat ~/x; true`)
	var said lockedBuffer
	run.Stdout, run.Stderr = &said, &said
	must(t, run.Start())
	for range 1200 {
		if b, _ := os.ReadFile(w.path("ws/ready")); len(b) > 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	must(t, os.Rename(w.path("home/over/note"), w.path("home/over/renamed.pem")))
	must(t, os.WriteFile(w.path("home/over/renamed.pem"), []byte(w.canary("a file of an overlay that the host renamed")), 0o644))
	w.put("ws/go", "", 0o644)
	err := run.Wait()
	w.secret(t, "the overlay after a rename on the host", said.String())
	if err != nil || !strings.Contains(said.String(), "harmless\nharmless\n") {
		t.Errorf("control: %v\n%s", err, said.String())
	}
	for _, p := range []string{"home/over/renamed.pem", "ws/go", "ws/ready"} {
		must(t, os.Remove(w.path(p)))
	}
}

// hostileLayer: what an agent plants in its home misleads neither those who list it nor those who copy of it.
func (w *world) hostileLayer(t *testing.T) {
	script := `cd ~
ln -s ` + w.path("home/.ssh/id_rsa") + ` link; ln -s ` + w.path("out") + ` outdir; mkdir -p keep/sub; cd keep
ln -s ` + w.path("out/secret.txt") + ` abs; ln -s ../../../../../../../..` + w.path("out/secret.txt") + ` rel; ln -s ` + w.path("out") + ` sub/dir
ln -s /proc/self/fd fds; ln -s . loop; ln "$OLDPWD"/ws/.env hard; ln ` + w.path("ws/README.md") + ` hard2
mkfifo fifo; truncate -s 1T sparse; echo fine > good; cp ` + w.path("ws/act") + ` suid; chmod 6755 suid; mknod dev c 1 3
: > "$(printf 'a\nb')"; mkdir ~/deep ~/race; cd ~/deep; i=0; while [ $i -lt 300 ]; do mkdir dddddddddddddddd && cd dddddddddddddddd; i=$((i+1)); done
cd ~/keep; i=0; mkdir many; while [ $i -lt 400 ]; do : > many/$i; i=$((i+1)); done
mkdir ~/gate; echo x > ~/gate/planted; echo x > ~/.bashrc; echo ready > ~/ready; echo fine > ~/race/good
while :; do mv ~/race/good ~/good2; ln -s ` + w.path("out/secret.txt") + ` ~/race/good; rm ~/race/good; mv ~/good2 ~/race/good; done`
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // an emulated machine takes its time
	defer cancel()
	run := w.command(ctx, "run", "--name", "hostile", "--policy", w.path("out/home.toml"), "--workspace", w.path("ws"), "--", "/bin/sh", "-c", script)
	must(t, run.Start())
	defer func() { _ = run.Wait() }()
	before := w.state()
	var list string
	for !strings.Contains(list, "/ready\"") {
		if ctx.Err() != nil {
			t.Fatalf("the session was not ready: %s", list)
		}
		time.Sleep(50 * time.Millisecond)
		list = w.agentos(t, "changes", "hostile", "--all", "--json")
	}
	w.secret(t, "the listing", list)
	for _, p := range []string{"secret.txt", "home/.ssh/id_rsa"} {
		if strings.Contains(list, w.path(p)+"\"") && !strings.Contains(p, "ssh") || strings.Contains(list, "outdir/") {
			t.Errorf("the listing has %s", p)
		}
	}
	other := &world{t: t, base: w.base, uid: 60231, secrets: map[string]string{}}
	for _, args := range [][]string{{"changes", "hostile"}, {"changes", "hostile", "--keep", "~/keep/good", "--to", "/tmp"}} {
		if out := other.agentos(t, args...); !strings.Contains(out, "no running session") || strings.Contains(out, "keep/") {
			t.Errorf("another user's agentos %v: %s", args, out)
		}
	}
	// The host's home has a link where the session has a directory.
	must(t, os.Symlink(w.path("out"), w.path("home/gate")))
	must(t, os.Lchown(w.path("home/gate"), w.uid, w.uid))
	for _, p := range []string{"~/keep", "~/keep/abs", "~/keep/fifo", "~/link", "~/outdir", "~/outdir/secret.txt", "~/gate/planted", "~/.bashrc", "~/../out/secret.txt", w.path("out/secret.txt"), "~/keep/fds/0"} {
		out := w.agentos(t, "changes", "hostile", "--keep", p)
		if p == "~/keep" && !strings.Contains(out, "kept "+w.path("home/keep")+": ") || p == "~/keep/fifo" && !strings.Contains(out, "not kept") {
			t.Errorf("control: keeping %s: %s", p, out)
		}
		w.secret(t, "keeping "+p, out)
	}
	for range 15 {
		w.agentos(t, "changes", "hostile", "--keep", "~/race/good", "--to", w.path("home"), "--force")
		if b, err := os.ReadFile(w.path("home/good")); err == nil && string(b) != "fine\n" {
			t.Errorf("a racing link was kept: %q", b)
		}
	}
	must(t, os.Remove(w.path("home/gate")))
	_ = os.Remove(w.path("home/good"))
	_ = filepath.WalkDir(w.path("home/keep"), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		if st.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeDevice|os.ModeNamedPipe|os.ModeSocket) != 0 || st.Sys().(*syscall.Stat_t).Uid != uint32(w.uid) {
			t.Errorf("%s was kept as %v of uid %d", p, st.Mode(), st.Sys().(*syscall.Stat_t).Uid)
		}
		if to, err := os.Readlink(p); err == nil && to != "." {
			t.Errorf("%s was kept as a link to %s", p, to)
		}
		if st.Mode().IsRegular() && st.Size() < 1<<20 {
			b, _ := os.ReadFile(p)
			w.secret(t, p, string(b))
		}
		return nil
	})
	must(t, os.RemoveAll(w.path("home/keep")))
	w.agentos(t, "kill", "hostile")
	for _, d := range diff(before, w.state()) {
		t.Error(d)
	}
}

// agentos calls the command as the user and returns all it says. It ends within two minutes.
func (w *world) agentos(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := w.command(ctx, args...)
	if cmd.SysProcAttr.Credential.Uid == 60231 {
		cmd.Dir = "/"
	}
	out, _ := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("agentos %v did not end", args)
	}
	return string(out)
}

// shared: directories that outlast a session belong to one user, one workspace and one path, are shared while sessions run, and
// follow the policy's deny rules.
func (w *world) shared(t *testing.T) {
	before := w.state()
	for _, d := range []string{"ws2", "ws3"} {
		w.put(d+"/README.md", "# other\n", 0o644)
		w.own(d)
	}
	word := w.canary("a kept directory of another workspace")
	must(t, os.WriteFile(w.path("ws/word"), []byte(word), 0o644))
	out := w.shell(t, "ws", `echo room > ~/.cache/room && cat ~/.cache/room; cp word ~/.npm/word && cat ~/.npm/word | wc -c; mkdir -p ~/.npm/a; echo x > ~/.npm/a/k.pem && echo LATE; cp act ~/.npm/suid; chmod 6755 ~/.npm/suid; ln -s `+w.path("out/secret.txt")+` ~/.npm/link; cat ~/.npm/link`)
	if !strings.Contains(out, fmt.Sprint(len(word))) || strings.Contains(out, "LATE") || !strings.Contains(out, "room\n") {
		t.Errorf("control: %s", out)
	}
	w.secret(t, "the first session", out)
	if out := w.shell(t, "ws", "cat ~/.npm/word; cat ~/.npm/link"); !strings.Contains(out, word) {
		t.Errorf("the next session does not find what was kept: %s", out)
	}
	for _, d := range []string{"ws2", "ws3"} {
		w.secret(t, d, w.shell(t, d, "cat ~/.npm/word ~/.cache/pip/word; ls -la ~ ~/.npm; find / -name word -exec cat {} + 2>/dev/null"))
	}
	// Another directory at the path of the first workspace.
	must(t, os.Rename(w.path("ws"), w.path("ws.away")))
	w.put("ws/README.md", "# new\n", 0o644)
	w.own("ws")
	w.secret(t, "another directory at the workspace's path", w.shell(t, "ws", "cat ~/.npm/word"))
	must(t, os.RemoveAll(w.path("ws")))
	must(t, os.Rename(w.path("ws.away"), w.path("ws")))
	// Another user has none of it, and cannot remove it.
	other := &world{t: t, base: w.base, uid: 60231, secrets: map[string]string{}}
	id := "none"
	for l := range strings.Lines(w.agentos(t, "changes", "--persisted")) {
		if strings.HasSuffix(strings.TrimSpace(l), w.path("ws")) {
			id = strings.Fields(l)[0]
		}
	}
	for _, args := range [][]string{{"changes", "--persisted"}, {"changes", "--persisted", "--remove", id}} {
		if out := other.agentos(t, args...); strings.Contains(out, "removed") || strings.Contains(out, w.path("ws")) {
			t.Errorf("another user's agentos %v: %s", args, out)
		}
	}
	w.liveShare(t)
	if out := w.agentos(t, "changes", "--persisted", "--remove"); !strings.Contains(out, "removed ") || strings.Contains(out, "uses it") {
		t.Errorf("remove: %s", out)
	}
	w.secret(t, "after the removal", w.shell(t, "ws", "cat ~/.npm/word"))
	for _, d := range diff(before, w.state()) {
		t.Error(d)
	}
}

// liveShare: two sessions that run at a time see each other's files, and nobody removes them under them.
func (w *world) liveShare(t *testing.T) {
	first := w.command(t.Context(), "run", "--name", "first", "--policy", w.path("out/home.toml"), "--workspace", w.path("ws"), "--", "/bin/sh", "-c",
		`echo from-first > ~/.npm/live; i=0; while [ $i -lt 600 ] && ! [ -e ~/.npm/answer ]; do sleep 0.1; i=$((i+1)); done; cat ~/.npm/answer`)
	var said lockedBuffer
	first.Stdout, first.Stderr = &said, &said
	must(t, first.Start())
	out := w.shell(t, "ws", `i=0; while [ $i -lt 600 ] && ! [ -e ~/.npm/live ]; do sleep 0.1; i=$((i+1)); done; cat ~/.npm/live`)
	if !strings.Contains(out, "from-first") {
		t.Errorf("the second session does not see the first one's file: %s", out)
	}
	if out := w.agentos(t, "changes", "--persisted", "--remove"); !strings.Contains(out, "a session uses it") {
		t.Errorf("removed under a session: %s", out)
	}
	w.shell(t, "ws", "echo from-second > ~/.npm/answer")
	if err := first.Wait(); err != nil || !strings.Contains(said.String(), "from-second") {
		t.Errorf("the first session does not see the second one's file: %v, %s", err, said.String())
	}
}

// leftOnDisk: no layer of an ended session; kept directories behind a directory that is root's alone.
func (w *world) leftOnDisk(t *testing.T) {
	var left []fs.DirEntry
	for range 200 {
		if left, _ = os.ReadDir(w.path("state/layers")); len(left) == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if len(left) > 0 {
		t.Errorf("layers are left: %v", left)
	}
	st, err := os.Stat(w.path("state/persist"))
	if err != nil || st.Mode().Perm() != 0o700 || st.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("kept directories are reachable: %v, %v", st, err)
	}
	cmd := exec.Command("/bin/ls", w.path("state/persist"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 60217, Gid: 60217}}
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("a user lists kept directories: %s", out)
	}
}

// TestHomeOnOverlayfs: where the helper's state lies on a file system that can neither be idmapped nor be written to by overlayfs, what
// needs it is refused in one sentence, and the rest works.
func TestHomeOnOverlayfs(t *testing.T) {
	if os.Getenv("AGENTOS_SOCKET") != "" {
		t.Skip("wanted a helper with a state of its own, got one that runs (AGENTOS_SOCKET)")
	}
	w := newWorld(t, 60217)
	for _, d := range []string{"state", "fs/lower", "fs/upper", "fs/work", "home/over"} {
		must(t, os.MkdirAll(w.path(d), 0o755))
	}
	w.own("home")
	must(t, unix.Mount("overlay", w.path("state"), "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", w.path("fs"))))
	t.Cleanup(func() { must(t, unix.Unmount(w.path("state"), 0)) }) // after the helper has ended
	w.startHelper()
	w.reset()
	for _, tt := range []struct{ lists, want string }{
		{"", "fine"},
		{`overlay = ["~/over"]`, "takes no overlay there"},
		{`persist = ["~/.npm"]`, "its file system cannot be idmapped"},
	} {
		must(t, os.WriteFile(w.path("out/home.toml"), []byte("version = 1\nname = \"p\"\nextends = [\"builtin:strict\"]\n[files]\n"+tt.lists+"\n"), 0o644))
		out := w.shell(t, "ws", "echo fine > ~/x && cat ~/x")
		said := 0
		for l := range strings.Lines(out) {
			if strings.HasPrefix(l, "agentos: ") && !strings.Contains(l, "not enforced here") {
				said++
			}
		}
		if !strings.Contains(out, tt.want) || tt.lists != "" && (said != 1 || strings.Contains(out, "fine")) {
			t.Errorf("%q: %s", tt.lists, out)
		}
	}
	w.leftOnDisk(t)
}
