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
// through, and is made again when the host's mounts have changed where it shows them.
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
		var st unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, shown, 0, unix.STATX_MNT_ID, &st); err != nil {
			t.Fatal(err)
		}
		f, err := trees.Clone(key, trees.Ground([]jail.Source{{Path: shown, Mount: st.Mnt_id}}), plan, 70000, 1000, func() ([]*os.File, error) {
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

	treesFollowMounts(t, shown, func() int { clone("a"); return made })
}

// treesFollowMounts mounts where a tree shows the host, and elsewhere; clone answers how often one was made.
func treesFollowMounts(t *testing.T, shown string, clone func() int) {
	t.Helper()
	below, elsewhere := filepath.Join(shown, "below"), t.TempDir()
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	tmpfs := func(at string, flags uintptr) func() error {
		return func() error { return unix.Mount("none", at, "tmpfs", flags, "") }
	}
	for _, tt := range []struct {
		name string
		do   func() error
		made int
	}{
		{"a mount elsewhere", tmpfs(elsewhere, 0), 2},
		{"its end", func() error { return unix.Unmount(elsewhere, 0) }, 2},
		{"a mount below what it shows", tmpfs(below, 0), 3},
		{"nothing", func() error { return nil }, 3},
		{"a change of that mount", tmpfs(below, unix.MS_REMOUNT|unix.MS_NOEXEC), 4},
		{"a mount elsewhere while one is below", tmpfs(elsewhere, 0), 4},
		{"another of the same words in its place", func() error { return errors.Join(unix.Unmount(below, 0), tmpfs(below, unix.MS_NOEXEC)()) }, 5},
		{"the end of the mount below", func() error { return unix.Unmount(below, 0) }, 6},
		{"the end of one elsewhere", func() error { return unix.Unmount(elsewhere, 0) }, 6},
		{"a part of a file system below", func() error { return unix.Mount(elsewhere, below, "", unix.MS_BIND, "") }, 7},
		{"a mount elsewhere, with that", tmpfs(elsewhere, 0), 8},
		{"the end of both", func() error { return errors.Join(unix.Unmount(below, 0), unix.Unmount(elsewhere, 0)) }, 9},
		{"a change of the mount that holds it", func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOATIME, "") }, 10},
	} {
		if err := tt.do(); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if made := clone(); made != tt.made {
			t.Fatalf("after %s: made %d times, want %d", tt.name, made, tt.made)
		}
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
	if _, err := trees.Clone("a", jail.Ground{}, []jail.Mount{{Kind: jail.Bind, Target: "/x", IsDir: true}}, 70000, 1000, none); !errors.Is(err, jail.ErrPlan) {
		t.Errorf("a bind without a descriptor: %v", err)
	}
	f, err := trees.Clone("a", jail.Ground{}, []jail.Mount{{Kind: jail.Dir, Target: "/x", Mode: 0o755}}, 70000, 1000, none)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
