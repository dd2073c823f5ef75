//go:build linux

package posture

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadSelf compares with what the system calls say.
func TestReadSelf(t *testing.T) {
	f, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if p.Pid != os.Getpid() || p.UIDs[1] != uint32(os.Geteuid()) || p.GIDs[0] != uint32(os.Getgid()) {
		t.Errorf("ids: %+v", p)
	}
	if !slices.Contains(p.FDs, FD{int(f.Fd()), "/", false}) {
		t.Errorf("descriptor %d is not among %v", f.Fd(), p.FDs)
	}
	var l unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &l); err != nil {
		t.Fatal(err)
	}
	if got := p.Limits["Max open files"]; got != (Limit{l.Cur, l.Max}) {
		t.Errorf("open files %v, want %v", got, l)
	}
	host, err := Host()
	if err != nil || host["mnt"] == 0 || host["mnt"] != p.Namespaces["mnt"] {
		t.Errorf("namespaces %v and %v (%v)", host, p.Namespaces, err)
	}
	if len(p.Mounts) == 0 || len(p.Cgroups) == 0 || len(p.UIDMap) == 0 {
		t.Errorf("%+v", p)
	}
}

// TestCheckChild: a process in namespaces of its own, but with every privilege.
func TestCheckChild(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("wanted root, got uid", os.Getuid())
	}
	cmd := exec.Command("/bin/sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  unix.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	p, err := Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	host, err := Host()
	if err != nil {
		t.Fatal(err)
	}
	got := Check(p, Expect{
		Groups: p.Groups, IDs: IDRange{0, 0, 4294967295}, Host: host, Cgroup: p.Cgroups[""], AnyMount: true,
		Caps: 0, Dumpable: true, OOMScoreAdj: p.OOMScoreAdj,
	})
	for _, want := range []string{
		"no_new_privs is not set", "seccomp mode is 0, not 2", "it shares the host's user namespace",
		"it shares the host's cgroup namespace", "it shares the host's time namespace",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no complaint %q", want)
		}
	}
	for _, wrong := range []string{"it shares the host's net namespace", "it shares the host's pid namespace"} {
		if slices.Contains(got, wrong) {
			t.Errorf("complaint %q", wrong)
		}
	}
}

func TestReadGone(t *testing.T) {
	cmd := exec.Command("/bin/true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(cmd.Process.Pid); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		t.Error(err)
	}
}
