package helper

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"github.com/agentos/agentos/audit/hook"
	"github.com/agentos/agentos/cgroup"
	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/organisation"
	"github.com/agentos/agentos/jail/reach"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/jail/steer"
	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/glob"
)

// netGuarantee is what a report calls the [net] section of a policy that cannot be served.
const netGuarantee = "network"

// missing notes that a guarantee is not given.
func (b *build) missing(g policy.Guarantee, why, hint string) {
	b.report.Missing = append(b.report.Missing, rpc.Missing{Guarantee: string(g), Why: why, Hint: hint})
}

// lacks says what this machine does not give to any jail of a policy; the same
// for a start and for doctor.
func (s *Server) lacks(r *policy.Resolved) []rpc.Missing {
	var out []rpc.Missing
	add := func(g policy.Guarantee, why, hint string) {
		out = append(out, rpc.Missing{Guarantee: string(g), Why: why, Hint: hint})
	}
	k := s.kernel
	out = append(out, s.diskLacks(r)...)
	if s.netd == nil && s.unserved != nil && reach.Wanted(r) {
		add(netGuarantee, "the jail has its own loopback only: "+s.unserved.Error(), "install agentos-netd beside agentos-init")
	}
	if k.h == nil {
		why := "no BPF program loads here"
		if k.why != nil {
			why = k.why.Error()
		}
		add(policy.AuditRecord, why, "run the helper outside of containers, on a kernel with BTF")
		add(policy.AuditLossless, why, "")
	}
	if k.h != nil && unrecorded(r, k.enforces()) {
		what := "changes of files are"
		if r.Audit.Files == "all" {
			what += " (opens are recorded)"
		}
		add(policy.AuditRecord, what+" not recorded: no rule of the policy is about single files, so nothing here looks at each",
			"any deny or protect rule has them looked at and recorded; or say files = \"denied\" under [audit]")
	}
	if k.h == nil || k.features.Tier < hook.TierA {
		add(policy.BPFLSM, strings.Join(k.features.Why, "; "), "boot with bpf in lsm=")
	}
	return out
}

// unrecorded reports whether the record of a jail lacks file events that its policy wants: where
// the kernel has no rules the broker tells of changes, and there is one only where a rule needs it.
func unrecorded(r *policy.Resolved, enforced bool) bool {
	return !enforced && !r.NeedsEngine() && r.Audit.Files != "denied"
}

// judge compares what is missing with what the policy requires.
func (b *build) judge() error {
	if b.report.Enforced == nil {
		b.report.Missing = append(b.report.Missing, b.s.lacks(b.res)...)
	}
	b.report.Enforced = nil
	gone := map[string]bool{}
	for _, m := range b.report.Missing {
		gone[m.Guarantee] = true
	}
	for _, g := range policy.Guarantees() {
		if !gone[string(g)] {
			b.report.Enforced = append(b.report.Enforced, string(g))
		}
	}
	if b.res.Resources.DiskWrite > 0 && !gone[diskWrite] {
		b.report.Enforced = append(b.report.Enforced, diskWrite)
	}
	for _, m := range b.report.Missing {
		g := policy.Guarantee(m.Guarantee)
		if b.res.Require[g] == policy.Required {
			return &rpc.Error{
				Code: rpc.Unsupported, Text: fmt.Sprintf("policy %s requires %s (%s), which this machine does not give: %s", b.res.Name, g, b.res.Where["require."+m.Guarantee], m.Why),
				Hint: m.Hint,
			}
		}
	}
	return nil
}

// canaries chooses what the jail check tries: acts that the policy surely
// denies, found by asking the automaton.
func canaries(r *policy.Resolved, a *glob.Automaton, enforced, inKernel bool) jail.Canaries {
	c := jail.Canaries{Connect: canaryAddr.String(), Child: inKernel, Userns: r.Syscalls.UserNamespaces}
	if p := "/etc/.agentos-canary"; a.Match(p).Bits&(1<<glob.Write) == 0 {
		c.DeniedWrite = p
	}
	if !enforced {
		return c
	}
	for _, n := range []string{".env.agentos-canary", "agentos-canary.pem", "agentos-canary.key", "secrets.agentos-canary", ".git/hooks/agentos-canary"} {
		p := path.Join(r.Vars.Workspace, n)
		dir := a.Match(path.Dir(p))
		if a.Match(p).Bits&(1<<glob.Write) == 0 && dir.Bits&(1<<glob.Write) != 0 {
			c.DeniedRead = p
			break
		}
	}
	return c
}

// known is what is still tried of a check that an earlier jail of the same policy
// has passed on this kernel: what costs nothing, and that the rules reached
// this jail's broker.
func known(c jail.Canaries) jail.Canaries {
	c.Known = true
	if c.Child { // init itself is trusted by rules in the kernel
		c.Child, c.DeniedRead = false, ""
	}
	return c
}

// maxChecked bounds the memory of jail checks.
const maxChecked = 1024

// checked remembers which policies have passed a whole jail check since this
// helper started, and so on this kernel with these programs, and in which session.
type checked struct {
	mu   sync.Mutex
	seen map[string]string
}

func (c *checked) add(key, session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil || len(c.seen) >= maxChecked {
		c.seen = map[string]string{}
	}
	c.seen[key] = session
}

func (c *checked) get(key string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[key]
}

// checkKey is everything that a jail check depends on and that can differ between
// the jails of one helper.
func (b *build) checkKey() string {
	return fmt.Sprintf("%s %s %d %d %t %t", b.hash, b.sum, b.uid, b.gid, b.broker, b.reads)
}

var userRule = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

// userName is the login name the environment gives the agent.
func userName(env []string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "USER="); ok && v != "root" && userRule.MatchString(v) {
			return v
		}
	}
	return "agent"
}

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
	if !s.kernel.enforces() {
		add("reads", s.kernel.opens == nil, s.kernel.opensText(), "use a kernel of 5.19 or newer with CONFIG_FANOTIFY_ACCESS_PERMISSIONS")
	}
	text, hint := s.networkText()
	add("network", hint == "", text, hint)
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
		hook.TierC: "C: the jail's init decides file operations, the kernel programs, network and exec",
		hook.TierD: "D: no BPF; the jail's init decides file operations",
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
	g, err := cgroup.Create(s.layout, "probe-"+id)
	if err != nil {
		return []rpc.Missing{{Guarantee: string(policy.CgroupMemory), Why: err.Error()}}
	}
	missing, err := g.Limit(s.layout, limits(r))
	if err != nil {
		missing = append(missing, cgroup.Missing{Guarantee: string(policy.CgroupMemory), Why: err.Error()})
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

// networkText says whether jails can be let out by name here, and what to do if not.
func (s *Server) networkText() (text, hint string) {
	if s.netd == nil {
		return fmt.Sprintf("jails have their own loopback only: %v", s.unserved), "install agentos-netd beside agentos-init"
	}
	if err := steer.Try(); err != nil {
		return fmt.Sprintf("policies that let a jail reach something cannot be served: %v", err), "use a kernel of 6.1 or newer with IPv6 and CONFIG_BPF_SYSCALL"
	}
	if pid, starts := s.netd.Pid(); pid != 0 {
		return fmt.Sprintf("connections are steered (sk_lookup) to agentos-netd, pid %d, started %d times", pid, starts) + s.leaves(), ""
	}
	return "connections are steered (sk_lookup) to agentos-netd, which starts with the first jail that has a network" + s.leaves(), ""
}

// leaves says which proxy connections go to, if to any.
func (s *Server) leaves() string {
	up, err := s.upstream()
	switch name := organisation.ProxyName(up); {
	case err != nil:
		return "; its newest upstream is not used: " + err.Error()
	case name != "":
		return "; names go to the proxy " + name
	}
	return ""
}
