package machine

import (
	"errors"
	"strings"
	"testing"

	"github.com/agentos/agentos/jail/rpc"
)

const hybrid = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/p\040ids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`

const pure = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"

func good() Input {
	return Input{
		Release: "6.12.9-amd64", LSM: "lockdown,capability,landlock,yama,apparmor,bpf", Landlock: 6, Mountinfo: pure,
		Unified: "cpuset cpu io memory hugetlb pids", Seccomp: "kill_process kill_thread trap errno user_notif trace log allow", BTF: true,
	}
}

func fact(t *testing.T, in Input, name string) rpc.Fact {
	t.Helper()
	for _, f := range Assess(in) {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no fact %q", name)
	return rpc.Fact{}
}

func TestGoodMachine(t *testing.T) {
	for _, f := range Assess(good()) {
		if !f.Good || f.Hint != "" || f.Text == "" {
			t.Errorf("%+v", f)
		}
	}
}

func TestEveryBadFactHasOneThingToDo(t *testing.T) {
	for _, f := range Assess(Input{PidNS: "pid:[1]", UserNS: errors.New("no")}) {
		if f.Good || f.Hint == "" || f.Text == "" && f.Name != "kernel" {
			t.Errorf("%+v", f)
		}
	}
}

func TestFacts(t *testing.T) {
	for _, c := range []struct {
		change func(*Input)
		fact   string
		good   bool
		text   string
	}{
		{func(in *Input) { in.Release = "5.15.0-generic" }, "kernel", false, "5.15.0-generic"},
		{func(in *Input) { in.Release = "6.1-rc3" }, "kernel", true, "6.1-rc3"},
		{func(in *Input) { in.Release = "garbage" }, "kernel", false, "garbage"},
		{func(in *Input) { in.Release = "5.15.153.1-microsoft-standard-WSL2" }, "machine", true, "WSL 2"},
		{func(in *Input) { in.Release = "4.4.0-19041-Microsoft" }, "machine", false, "WSL 1"},
		{func(in *Input) { in.Containers = []string{"/.dockerenv"} }, "machine", true, "no container"},
		{func(in *Input) { in.Containers, in.PidNS = []string{"/.dockerenv"}, "pid:[4026532000]" }, "machine", false, "inside a container /.dockerenv"},
		{func(in *Input) { in.LSM = "landlock,yama" }, "lsm", false, "landlock,yama"},
		{func(in *Input) { in.LSM = "" }, "lsm", false, "cannot be read"},
		{func(in *Input) { in.Landlock = 0 }, "landlock", false, "not in this kernel"},
		{func(in *Input) { in.BTF = false }, "bpf", false, "no /sys/kernel/btf/vmlinux"},
		{func(in *Input) { in.Sysctl = map[string]string{"kernel.unprivileged_userns_clone": "0"} }, "user namespaces", true, "only by root"},
		{func(in *Input) {
			in.Sysctl, in.UserNS = map[string]string{"kernel.apparmor_restrict_unprivileged_userns": "1"}, errors.New("EPERM")
		}, "user namespaces", true, "AppArmor"},
		{func(in *Input) { in.Sysctl = map[string]string{"user.max_user_namespaces": "0"} }, "user namespaces", false, "none may be made"},
		{func(in *Input) { in.Seccomp = "trap errno" }, "seccomp", false, "trap errno"},
		{func(in *Input) { in.Mountinfo, in.Unified = hybrid, "" }, "cgroup layout", true, "hybrid: v2 at /sys/fs/cgroup/unified"},
		{func(in *Input) { in.Mountinfo, in.Unified = hybrid, "" }, "cgroup memory", true, "v1 at /sys/fs/cgroup/memory"},
		{func(in *Input) { in.Mountinfo, in.Unified = hybrid, "" }, "cgroup cpu", true, "v1 at /sys/fs/cgroup/cpu"},
		{func(in *Input) { in.Mountinfo, in.Unified = hybrid, "" }, "cgroup pids", true, "v1 at /sys/fs/cgroup/p ids"},
		{func(in *Input) {
			in.Unified = "cpu pids"
			in.Cgroups = "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t0\t61\t0\n"
		}, "cgroup memory", false, "switched off"},
		{func(in *Input) { in.Mountinfo, in.Unified = "nonsense\n - \n1 2 3\n", "" }, "cgroup layout", false, "none mounted"},
	} {
		in := good()
		c.change(&in)
		if f := fact(t, in, c.fact); f.Good != c.good || !strings.Contains(f.Text, c.text) {
			t.Errorf("want %s %t %q, got %+v", c.fact, c.good, c.text, f)
		}
	}
}

func TestMerge(t *testing.T) {
	got := Merge([]rpc.Fact{{Name: "bpf", Good: true}, {Name: "tier"}}, []rpc.Fact{{Name: "kernel"}, {Name: "bpf"}})
	if len(got) != 3 || got[0].Name != "bpf" || !got[0].Good || got[2].Name != "kernel" {
		t.Errorf("%+v", got)
	}
}
