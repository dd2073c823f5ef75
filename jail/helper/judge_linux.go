package helper

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/agentos/agentos/audit/hook"
	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/glob"
)

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
	if k.h == nil {
		why := "no BPF program loads here"
		if k.why != nil {
			why = k.why.Error()
		}
		add(policy.AuditRecord, why, "run the helper outside of containers, on a kernel with BTF")
		add(policy.AuditLossless, why, "")
	}
	if k.h == nil || k.features.Tier < hook.TierA {
		add(policy.BPFLSM, strings.Join(k.features.Why, "; "), "boot with bpf in lsm=")
	}
	return out
}

// judge compares what is missing with what the policy requires.
func (b *build) judge() error {
	if b.report.Enforced == nil {
		b.report.Missing = append(b.report.Missing, b.v.s.lacks(b.v.res)...)
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
	if b.v.res.Resources.DiskWrite > 0 && !gone[diskWrite] {
		b.report.Enforced = append(b.report.Enforced, diskWrite)
	}
	for _, m := range b.report.Missing {
		g := policy.Guarantee(m.Guarantee)
		if b.v.res.Require[g] == policy.Required {
			return &rpc.Error{
				Code: rpc.Unsupported, Text: fmt.Sprintf("policy %s requires %s (%s), which this machine does not give: %s", b.v.res.Name, g, b.v.res.Where["require."+m.Guarantee], m.Why),
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
