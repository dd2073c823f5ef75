package helper

import (
	"fmt"
	"os"
	"strings"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"github.com/agentos/agentos/audit/hook"
	"github.com/agentos/agentos/cgroup"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

// probe says what this machine enforces and what each builtin policy would
// miss, with the one thing to do about it.
func (s *Server) probe() rpc.Machine {
	m := rpc.Machine{Kernel: kernelRelease(), Tier: s.kernel.tier()}
	add := func(name string, good bool, text, hint string) {
		if good {
			hint = ""
		}
		m.Features = append(m.Features, rpc.Fact{Name: name, Good: good, Text: text, Hint: hint})
	}
	f := s.kernel.features
	add("helper", true, "reachable, build "+s.build, "")
	add("tier", f.Tier >= hook.TierB, tierText(f), "boot with bpf in lsm= on a kernel that loads BPF trampolines")
	if s.kernel.why != nil {
		add("bpf", false, s.kernel.why.Error(), "run the helper outside of containers, on a kernel with BTF")
	} else {
		add("bpf", f.Trace && f.Cgroup, fmt.Sprintf("tracepoints %t, cgroup hooks %t, task storage %t, LSM programs %t, fmod_ret %t", f.Trace, f.Cgroup, f.Storage, f.LSM, f.ModReturn), "use a kernel of 6.1 or newer with CONFIG_DEBUG_INFO_BTF")
	}
	if lsm, err := os.ReadFile("/sys/kernel/security/lsm"); err == nil {
		add("lsm", strings.Contains(string(lsm), "bpf"), strings.TrimSpace(string(lsm)), "add bpf to lsm= on the kernel command line")
	} else {
		add("lsm", false, "securityfs is not mounted, so the list of LSMs cannot be read", "mount -t securityfs none /sys/kernel/security")
	}
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		abi = 0
	}
	add("landlock", abi >= 1, fmt.Sprintf("ABI %d", abi), "boot with landlock in lsm=")
	add("cgroup layout", s.layout.Unified != "", s.layout.Kind(), "mount -t cgroup2 none /sys/fs/cgroup/unified")
	for _, c := range []string{"memory", "pids", "cpu"} {
		where := s.layout.Where(c)
		text := "v1 at " + where.Mount
		if where.Unified {
			text = "v2 at " + where.Mount
		}
		if where.Mount == "" {
			text = "not on this machine"
		}
		add("cgroup "+c, where.Mount != "", text, "enable the controller in the kernel")
	}
	add("disk meter", s.meter != nil, s.meterText(), "boot a kernel with CONFIG_TASKSTATS and CONFIG_TASK_IO_ACCOUNTING")
	for _, name := range policy.BuiltinNames() {
		if name == "base" {
			continue
		}
		m.Builtins = append(m.Builtins, s.misses(name))
	}
	return m
}

func tierText(f hook.Features) string {
	text := map[hook.Tier]string{
		hook.TierA: "A: BPF LSM decides every file operation in the kernel",
		hook.TierB: "B: fmod_ret programs decide every file operation in the kernel",
		hook.TierC: "C: a broker in the jail decides file operations, the kernel programs, network and exec",
		hook.TierD: "D: no BPF; a broker in the jail decides file operations",
	}[f.Tier]
	if len(f.Why) > 0 {
		text += " (" + strings.Join(f.Why, "; ") + ")"
	}
	return text
}

// misses resolves a builtin policy on neutral ground and says what it would
// not get here.
func (s *Server) misses(name string) rpc.Misses {
	out := rpc.Misses{Policy: name}
	doc, err := policy.Builtin(name)
	if err != nil {
		return out
	}
	r, err := policy.Resolve([]policy.Layer{{Kind: policy.Profile, Doc: doc}}, policy.Vars{Workspace: "/srv/workspace", Home: "/home/user"})
	if err != nil {
		return out
	}
	out.Missing = append(s.lacks(r), s.limitsMissing(r)...)
	out.Starts = true
	for _, m := range out.Missing {
		if r.Require[policy.Guarantee(m.Guarantee)] == policy.Required {
			out.Starts = false
		}
	}
	return out
}

// limitsMissing really makes a group with the policy's limits and removes it.
func (s *Server) limitsMissing(r *policy.Resolved) []rpc.Missing {
	id, err := newID()
	if err != nil {
		return nil
	}
	g, missing, err := cgroup.Create(s.layout, "probe-"+id, limits(r))
	if err != nil {
		return []rpc.Missing{{Guarantee: string(policy.CgroupMemory), Why: err.Error()}}
	}
	var out []rpc.Missing
	for _, m := range missing {
		out = append(out, rpc.Missing{Guarantee: m.Guarantee, Why: m.Why, Hint: m.Hint})
	}
	if err := g.Delete(deleteTimeout); err != nil {
		s.log.Error("remove probe group", "error", err)
	}
	return out
}
