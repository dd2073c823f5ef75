package opens

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fifos runs a walk of top under which every FIFO with "no" in its name may not be read.
func fifos(t *testing.T, top string, until time.Time) (Found, []string) {
	t.Helper()
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	var covered []string
	f, err := Fifos(root, top, until, func(p string) bool { return !strings.Contains(p, "no") }, func(fd int) error {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
			t.Errorf("covers what is no FIFO: %o, %v", st.Mode, err)
		}
		p, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		covered = append(covered, strings.TrimPrefix(p, top+"/"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return f, covered
}

// TestFifos: each denied FIFO is met once, near the top first, and no link is followed.
func TestFifos(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	deep := strings.Repeat("d/", 100)
	for _, dir := range []string{"a/b/c", "z", deep, "elsewhere"} {
		if err := os.MkdirAll(filepath.Join(top, "ws", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"ws/a/b/c/no1", "ws/no2", "ws/z/no3", "ws/z/yes", "ws/" + deep + "no4", "no-outside"} {
		if err := unix.Mkfifo(filepath.Join(top, p), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"ws/up": "..", "ws/no-link": "z/no3", "ws/z/loop": "."} {
		if err := os.Symlink(to, filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(top, "ws/no-file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, covered := fifos(t, top+"/ws", time.Now().Add(time.Minute))
	want := []string{"no2", "z/no3", "a/b/c/no1", deep + "no4"}
	if f.Partial || f.Covered != 4 || f.Dirs != 106 || !slices.Equal(covered, want) {
		t.Errorf("%+v %q, want %q", f, covered, want)
	}
	// Given up at once it has covered nothing and says so.
	if f, covered := fifos(t, top+"/ws", time.Now().Add(-time.Second)); !f.Partial || len(covered) > 0 {
		t.Errorf("out of time: %+v %q", f, covered)
	}
	// A tree that is one file has nothing to find.
	if f, _ := fifos(t, top+"/ws/no-file", time.Now().Add(time.Minute)); f != (Found{}) {
		t.Errorf("a file: %+v", f)
	}
}

// TestFifosDeep: what lies deeper than a path can say ends no walk, and is said.
func TestFifosDeep(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("n", 200)
	for range 25 {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	if f, _ := fifos(t, top, time.Now().Add(time.Minute)); !f.Partial || f.Dirs < 15 {
		t.Errorf("%+v", f)
	}
}
