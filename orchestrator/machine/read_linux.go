package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Read collects what any process may read. It starts one process, /bin/true in a
// user namespace of its own, because only trying tells.
func Read() (Input, error) {
	in := Input{Sysctl: map[string]string{}, Root: os.Geteuid() == 0}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		in.Release = unix.ByteSliceToString(u.Release[:])
	}
	for path, to := range map[string]*string{
		"/sys/kernel/security/lsm": &in.LSM, "/proc/self/mountinfo": &in.Mountinfo, "/proc/cgroups": &in.Cgroups,
		"/proc/sys/kernel/seccomp/actions_avail": &in.Seccomp, "/proc/cmdline": &in.Cmdline,
	} {
		*to = read(path)
	}
	for _, h := range hierarchies(in.Mountinfo) {
		if h.unified {
			in.Unified = read(filepath.Join(h.mount, "cgroup.controllers"))
		}
	}
	for _, name := range []string{"kernel.unprivileged_userns_clone", "kernel.apparmor_restrict_unprivileged_userns", "user.max_user_namespaces", "kernel.unprivileged_bpf_disabled"} {
		if v := read("/proc/sys/" + strings.ReplaceAll(name, ".", "/")); v != "" {
			in.Sysctl[name] = v
		}
	}
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	in.BTF = err == nil
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION, landlock_create_ruleset(2)
	if abi, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version); e == 0 {
		in.Landlock = int(abi)
	}
	for _, f := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(f); err == nil {
			in.Containers = append(in.Containers, f)
		}
	}
	if c := os.Getenv("container"); c != "" {
		in.Containers = append(in.Containers, "container="+c)
	}
	in.PidNS, _ = os.Readlink("/proc/self/ns/pid")
	in.UserNS = tryUserNamespace()
	return in, nil
}

func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func tryUserNamespace() error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	return cmd.Run()
}
