//go:build root && linux

package jail_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
)

// A user who is handed a directory of a jail reads it as its owner and can do
// nothing else with it: not write, not leave it upwards, and not mount it or change its
// mount, neither as they are nor as root of namespaces of their own.
func TestHandout(t *testing.T) {
	if os.Getenv("HANDOUT") != "" {
		handed(t)
		return
	}
	const user, agent = 60217, 0x70010000 + 60217
	dir := filepath.Join(t.TempDir(), "home")
	file := filepath.Join(dir, "private")
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(dir, 0o700), os.WriteFile(file, []byte("of the agent"), 0o600), os.Mkdir(dir+"/d", 0o700))
	for _, p := range []string{dir, file, dir + "/d"} {
		must(os.Lchown(p, agent, agent))
	}
	ranges := jail.NewRanges("test")
	defer ranges.Close()
	ids, err := ranges.Back(0x70010000, user, 60217, user, 60217)
	must(err)
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(err)
	defer unix.Close(fd)
	out, err := jail.Handout(fd, ids)
	must(err)
	defer out.Close()
	exe := filepath.Join(filepath.Dir(dir), "test")
	self, err := os.ReadFile("/proc/self/exe")
	must(err, os.WriteFile(exe, self, 0o755), os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o755))
	for _, flags := range []uintptr{0, unix.CLONE_NEWUSER | unix.CLONE_NEWNS} {
		cmd := exec.Command(exe, "-test.run", "^TestHandout$", "-test.v")
		cmd.Env, cmd.Dir, cmd.ExtraFiles = []string{fmt.Sprintf("HANDOUT=%d", flags), "TMPDIR=/tmp"}, "/", []*os.File{out}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		if flags != 0 { // root of a namespace of their own: the rights to mount there
			cmd = exec.Command("/usr/bin/setpriv", "--reuid", fmt.Sprint(user), "--regid", fmt.Sprint(user), "--clear-groups", "/usr/bin/unshare", "-Urm", exe, "-test.run", "^TestHandout$", "-test.v")
			cmd.Env, cmd.Dir, cmd.ExtraFiles = []string{fmt.Sprintf("HANDOUT=%d", flags)}, "/", []*os.File{out}
		}
		text, err := cmd.CombinedOutput()
		t.Logf("%s", text)
		if err != nil {
			t.Errorf("flags %#x: %v", flags, err)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "of the agent" {
		t.Errorf("the file is now %q, %v", data, err)
	}
}

// handed tries what the user may and may not do with descriptor 3.
func handed(t *testing.T) {
	const fd = 3
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	if data, err := os.ReadFile(path + "/private"); err != nil || string(data) != "of the agent" {
		t.Errorf("control: read %q, %v", data, err)
	}
	for name, want := range map[string]error{"": unix.EROFS, "/..": unix.EROFS, "/d": unix.EROFS} {
		if err := os.WriteFile(path+name+"/new", nil, 0o600); !errors.Is(err, want) {
			t.Errorf("write in %q: %v, want %v", name, err, want)
		}
	}
	if _, err := os.OpenFile(path+"/private", os.O_WRONLY, 0); !errors.Is(err, unix.EROFS) {
		t.Errorf("open for writing: %v", err)
	}
	if err := unix.Fchmodat(fd, "private", 0o666, 0); !errors.Is(err, unix.EROFS) {
		t.Errorf("chmod: %v", err)
	}
	var top, above unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &top), unix.Fstatat(fd, "..", &above, 0)); err != nil || top.Ino != above.Ino {
		t.Errorf(".. leads to inode %d, the top is %d, %v", above.Ino, top.Ino, err)
	}
	for _, at := range []string{"", "d"} {
		attr := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID}
		if err := unix.MountSetattr(fd, at, unix.AT_EMPTY_PATH, &attr); err == nil {
			t.Errorf("the attributes of the mount were changed through %q", at)
		}
		if tree, err := unix.OpenTree(fd, at, unix.OPEN_TREE_CLONE|unix.AT_EMPTY_PATH); err == nil {
			t.Errorf("the mount was cloned through %q", at)
			_ = unix.Close(tree)
		}
		if err := unix.MoveMount(fd, at, unix.AT_FDCWD, "/mnt", unix.MOVE_MOUNT_F_EMPTY_PATH); err == nil {
			t.Errorf("the mount was attached through %q", at)
		}
		if err := unix.Mount(path+"/"+at, "/mnt", "", unix.MS_BIND, ""); err == nil {
			t.Errorf("%q was bound", at)
		}
	}
}
