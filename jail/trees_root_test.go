//go:build root && linux

package jail_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
)

// A tree is made once for a key, shows what it was made of, cannot be written
// through, and is made again when the host's mounts have changed.
func TestTrees(t *testing.T) {
	// A mount namespace of its own: what others on this machine mount meanwhile is
	// no change here. The thread ends with the test.
	runtime.LockOSThread()
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
		t.Fatal(err)
	}
	trees, err := jail.NewTrees()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := trees.Close(); err != nil {
			t.Error(err)
		}
	})
	shown := t.TempDir()
	if err := os.WriteFile(filepath.Join(shown, "file"), []byte("host"), 0o644); err != nil {
		t.Fatal(err)
	}
	plan := []jail.Mount{
		{Kind: jail.File, Target: "/etc/hostname", Data: "jail\n"},
		{Kind: jail.Bind, Target: "/shown", IsDir: true, ReadOnly: true},
		{Kind: jail.File, Target: "/shown/file", Data: "ours"},
		{Kind: jail.Point, Target: "/work/space", IsDir: true},
		{Kind: jail.Symlink, Target: "/bin", Data: "usr/bin"},
	}
	made := 0
	clone := func(key string) int {
		t.Helper()
		f, err := trees.Clone(key, plan, 70000, 1000, func() ([]*os.File, error) {
			made++
			fd, err := unix.Open(shown, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, err
			}
			defer unix.Close(fd)
			m, err := jail.Detach(fd, jail.Attach{ReadOnly: true})
			return []*os.File{m}, err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return int(f.Fd())
	}
	fd := clone("a")
	for name, want := range map[string]string{"etc/hostname": "jail\n", "shown/file": "ours"} {
		if got, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/%s", fd, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"new", "etc/hostname", "shown/new", "work/space/new"} {
		f, err := unix.Openat(fd, name, unix.O_WRONLY|unix.O_CREAT, 0o600)
		if !errors.Is(err, unix.EROFS) {
			t.Errorf("write to %s: %v (descriptor %d)", name, err, f)
		}
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, "work/space", &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Uid != 70000 {
		t.Errorf("a place belongs to %d, %v", st.Uid, err)
	}
	clone("a")
	clone("b")
	clone("a")
	if made != 2 {
		t.Errorf("made %d times for two keys", made)
	}

	point := t.TempDir()
	if err := unix.Mount("none", point, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	clone("a")
	if made != 3 {
		t.Errorf("after a mount on the host: made %d times, want 3", made)
	}
	if err := unix.Unmount(point, 0); err != nil {
		t.Fatal(err)
	}
	clone("a")
	if made != 4 {
		t.Errorf("after an unmount on the host: made %d times, want 4", made)
	}
}

// What cannot be made leaves nothing that a later tree would trip over.
func TestTreesRefuseAPlanWithoutItsMounts(t *testing.T) {
	trees, err := jail.NewTrees()
	if err != nil {
		t.Fatal(err)
	}
	defer trees.Close()
	none := func() ([]*os.File, error) { return nil, nil }
	if _, err := trees.Clone("a", []jail.Mount{{Kind: jail.Bind, Target: "/x", IsDir: true}}, 70000, 1000, none); !errors.Is(err, jail.ErrPlan) {
		t.Errorf("a bind without a descriptor: %v", err)
	}
	f, err := trees.Clone("a", []jail.Mount{{Kind: jail.Dir, Target: "/x", Mode: 0o755}}, 70000, 1000, none)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
