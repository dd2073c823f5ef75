//go:build root

package escape

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRootOnForeignWorkspace: root runs an agent in another user's workspace, which lies below a directory that only that user may search.
// What the agent makes belongs to the workspace's owner, and it gets no further than the workspace.
func TestRootOnForeignWorkspace(t *testing.T) {
	const owner, group = 60231, 60232
	for _, policy := range []string{"strict", "permissive"} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t, 0)
			w.startHelper()
			w.reset()
			w.put("out/private/ws/given", "given\n", 0o644)
			w.put("out/private/beside", w.canary("a file beside the workspace"), 0o644)
			for _, p := range []string{"out/private", "out/private/ws", "out/private/ws/given"} {
				must(t, os.Lchown(w.path(p), owner, group))
			}
			must(t, os.Chmod(w.path("out/private"), 0o700))
			ws := w.path("out/private/ws")
			cmd := w.command(t.Context(), "run", "--policy", policy, "--workspace", ws, "--", "/bin/sh", "-c",
				"cat given && echo changed > given && echo made > made && mkdir dir && ln -s given link; cat ../beside ../../secret.txt; echo x > ../made; true")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "given\n") {
				t.Errorf("ordinary work is impossible: %v\n%s", err, out)
			}
			for c, place := range w.secrets {
				if strings.Contains(string(out), c) && !(policy == "permissive" && place == "a file outside") {
					t.Errorf("it read %s", place)
				}
			}
			if _, err := os.Lstat(w.path("out/private/made")); err == nil {
				t.Error("it wrote beside the workspace")
			}
			for _, p := range []string{"given", "made", "dir", "link"} {
				st, err := os.Lstat(filepath.Join(ws, p))
				if err != nil {
					t.Error(err)
					continue
				}
				if s := st.Sys().(*syscall.Stat_t); s.Uid != owner || s.Gid != group {
					t.Errorf("%s belongs to %d:%d, want the workspace's owner %d:%d", p, s.Uid, s.Gid, owner, group)
				}
			}
		})
	}
}

// TestUserOnForeignWorkspace: an ordinary user gets no jail on a workspace of another user that they cannot write.
func TestUserOnForeignWorkspace(t *testing.T) {
	w := newWorld(t, 60217)
	w.startHelper()
	w.reset()
	w.put("out/theirs/file", "theirs\n", 0o644)
	for _, p := range []string{"out/theirs", "out/theirs/file"} {
		must(t, os.Lchown(w.path(p), 60231, 60231))
	}
	cmd := w.command(t.Context(), "run", "--policy", "strict", "--workspace", w.path("out/theirs"), "--", "/bin/sh", "-c", "echo x > file; echo x > made")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("it ran:\n%s", out)
	}
	if b, err := os.ReadFile(w.path("out/theirs/file")); err != nil || string(b) != "theirs\n" {
		t.Errorf("their file is %q, %v", b, err)
	}
	if _, err := os.Lstat(w.path("out/theirs/made")); err == nil {
		t.Error("a file was made in another user's directory")
	}
}
