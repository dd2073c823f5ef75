package machine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentos/agentos/jail/rpc"
)

// Input is what could be read, as text of the kernel. An empty field is one that
// could not be.
type Input struct {
	Release    string            // uname -r
	LSM        string            // /sys/kernel/security/lsm
	Landlock   int               // ABI, 0 for none
	Mountinfo  string            // /proc/self/mountinfo
	Cgroups    string            // /proc/cgroups
	Unified    string            // cgroup.controllers of the v2 hierarchy's root
	Seccomp    string            // /proc/sys/kernel/seccomp/actions_avail
	Sysctl     map[string]string // by dotted name
	BTF        bool              // /sys/kernel/btf/vmlinux exists
	UserNS     error             // what unshare of a user namespace says; nil = it works
	Cmdline    string            // /proc/cmdline
	Containers []string          // marks of a container around us: files and variables
	PidNS      string            // readlink /proc/self/ns/pid
	Root       bool              // we are root
}

// Assess turns what was read into facts, most basic first.
func Assess(in Input) []rpc.Fact {
	var out []rpc.Fact
	add := func(name string, good bool, text, hint string) {
		if good {
			hint = ""
		}
		out = append(out, rpc.Fact{Name: name, Good: good, Text: text, Hint: hint})
	}
	major, minor := version(in.Release)
	add("kernel", major > 6 || major == 6 && minor >= 1, in.Release, "use a kernel of 6.1 or newer")
	if text, ok := surroundings(in); ok {
		add("machine", true, text, "")
	} else {
		add("machine", false, text, "run on the host, or in a virtual machine with a kernel of its own")
	}
	lsm(in, add)
	add("landlock", in.Landlock >= 1, landlock(in.Landlock), "boot with landlock in lsm= (CONFIG_SECURITY_LANDLOCK)")
	add("bpf", in.BTF, map[bool]string{true: "the kernel describes its types (BTF); loading needs the helper", false: "no /sys/kernel/btf/vmlinux"}[in.BTF],
		"use a kernel with CONFIG_DEBUG_INFO_BTF, as distributions ship")
	userNamespaces(in, add)
	actions := strings.Fields(in.Seccomp)
	add("seccomp", slices.Contains(actions, "user_notif") && slices.Contains(actions, "errno"), orUnknown(strings.Join(actions, " ")),
		"use a kernel with CONFIG_SECCOMP_FILTER")
	cgroups(in, add)
	return out
}

type addFunc func(name string, good bool, text, hint string)

func orUnknown(s string) string {
	if s == "" {
		return "not known"
	}
	return s
}

func lsm(in Input, add addFunc) {
	names := strings.Split(strings.TrimSpace(in.LSM), ",")
	switch {
	case in.LSM == "" && in.Root:
		add("lsm", false, "securityfs is not mounted, so the list of LSMs cannot be read", "mount -t securityfs none /sys/kernel/security")
	case in.LSM == "":
		add("lsm", false, "the list of LSMs cannot be read", "mount -t securityfs none /sys/kernel/security")
	default:
		add("lsm", slices.Contains(names, "bpf"), strings.Join(names, ","), "add bpf to lsm= on the kernel command line: file rules then cost nearly nothing")
	}
}

func landlock(abi int) string {
	if abi < 1 {
		return "not in this kernel, or not started"
	}
	return fmt.Sprintf("ABI %d", abi)
}

func userNamespaces(in Input, add addFunc) {
	text, hint := "can be made by any user", ""
	switch {
	case in.Sysctl["kernel.unprivileged_userns_clone"] == "0":
		text, hint = "only by root (kernel.unprivileged_userns_clone = 0)", "none needed with the helper; without it: sysctl kernel.unprivileged_userns_clone=1"
	case in.Sysctl["kernel.apparmor_restrict_unprivileged_userns"] == "1":
		text, hint = "only by root and by profiles of AppArmor (kernel.apparmor_restrict_unprivileged_userns = 1)", "none needed with the helper"
	case in.Sysctl["user.max_user_namespaces"] == "0":
		add("user namespaces", false, "none may be made (user.max_user_namespaces = 0)", "sysctl user.max_user_namespaces=10000")
		return
	case in.UserNS != nil:
		add("user namespaces", false, "cannot be made: "+in.UserNS.Error(), "use a kernel with CONFIG_USER_NS, outside of containers")
		return
	}
	// The helper is root: a restriction of others is no obstacle.
	add("user namespaces", true, text, hint)
}

// hierarchy is one mounted cgroup file system.
type hierarchy struct {
	mount   string
	unified bool
	names   []string // controllers of v1
}

// hierarchies finds the cgroup mounts in the text of /proc/self/mountinfo; see
// proc_pid_mountinfo(5).
func hierarchies(mountinfo string) []hierarchy {
	var out []hierarchy
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		h := hierarchy{mount: unescape(left[4])}
		switch right[0] {
		case "cgroup2":
			h.unified = true
		case "cgroup":
			for o := range strings.SplitSeq(right[2], ",") {
				if o != "rw" && o != "ro" && !strings.Contains(o, "=") && o != "xattr" && o != "clone_children" && o != "noprefix" {
					h.names = append(h.names, o)
				}
			}
		default:
			continue
		}
		if !slices.ContainsFunc(out, func(o hierarchy) bool { return o.unified == h.unified && slices.Equal(o.names, h.names) }) {
			out = append(out, h) // of several mounts of one hierarchy the first
		}
	}
	return out
}

// unescape replaces the octal escapes of mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func cgroups(in Input, add addFunc) {
	list := hierarchies(in.Mountinfo)
	var unified string
	v1 := map[string]string{}
	for _, h := range list {
		if h.unified {
			unified = h.mount
		}
		for _, n := range h.names {
			v1[n] = h.mount
		}
	}
	layout := "none mounted"
	switch {
	case unified != "" && len(v1) > 0:
		layout = "hybrid: v2 at " + unified + ", controllers on v1"
	case unified != "":
		layout = "v2 at " + unified
	case len(v1) > 0:
		layout = "v1 only"
	}
	add("cgroup layout", unified != "", layout, "mount -t cgroup2 none /sys/fs/cgroup/unified (or boot with systemd.unified_cgroup_hierarchy=1)")
	v2 := strings.Fields(in.Unified)
	for _, c := range []string{"memory", "pids", "cpu"} {
		switch {
		case slices.Contains(v2, c):
			add("cgroup "+c, true, "v2 at "+unified, "")
		case v1[c] != "":
			add("cgroup "+c, true, "v1 at "+v1[c], "")
		case disabled(in.Cgroups, c):
			add("cgroup "+c, false, "switched off at boot", "remove cgroup_disable="+c+" from the kernel command line")
		default:
			add("cgroup "+c, false, "not on this machine", "enable the controller in the kernel")
		}
	}
}

// disabled reads the last column of /proc/cgroups.
func disabled(text, controller string) bool {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 4 && f[0] == controller {
			return f[3] == "0"
		}
	}
	return false
}

// initialPidNS is the machine's own pid namespace: PROC_PID_INIT_INO of
// include/linux/proc_ns.h. Marks alone prove nothing: virtual machines are made
// from container images.
const initialPidNS = "pid:[4026531836]"

// surroundings says what kind of machine this is, and whether jails can be had.
func surroundings(in Input) (text string, good bool) {
	release := strings.ToLower(in.Release)
	switch {
	case strings.Contains(release, "microsoft") && strings.Contains(release, "wsl2"):
		return "WSL 2: a virtual machine without BPF LSM", true
	case strings.Contains(release, "microsoft"):
		return "WSL 1: no Linux kernel", false
	case strings.Contains(release, "gvisor"):
		return "gVisor: no Linux kernel", false
	case in.PidNS != "" && in.PidNS != initialPidNS:
		return strings.TrimSpace("inside a container "+strings.Join(in.Containers, ", ")) + ": the helper needs the host", false
	}
	return "no container around this process", true
}

// version reads the first two numbers of a kernel release.
func version(release string) (major, minor int) {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return 0, 0
	}
	major, _ = strconv.Atoi(parts[0])
	end := strings.IndexFunc(parts[1], func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(parts[1])
	}
	minor, _ = strconv.Atoi(parts[1][:end])
	return major, minor
}

// Merge puts the facts of the helper before ours; where both speak of one thing,
// the helper's stays.
func Merge(helper, own []rpc.Fact) []rpc.Fact {
	out := slices.Clone(helper)
	for _, f := range own {
		if !slices.ContainsFunc(helper, func(h rpc.Fact) bool { return h.Name == f.Name }) {
			out = append(out, f)
		}
	}
	return out
}
