package helper

import (
	"os"
	"slices"
	"sync"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/broker"
	"github.com/agentos/agentos/jail/seccomp"
	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/glob"
)

// How many policies, and mount plans of each, are kept: the same people start
// the same agents on the same workspaces.
const (
	maxPrepared = 16
	maxPlans    = 16
)

// prepared is what a resolved policy comes to, whoever starts a jail under it:
// everything of a start that is slow and always the same. It does not change.
type prepared struct {
	res  *policy.Resolved
	hash string // of res
	view map[string]policy.Mount
	tops []string // trees that are the caller's

	compile sync.Once // of the rest
	err     error
	explain *policy.Explainer
	rules   *glob.Automaton
	filter  seccomp.Program
	sum     string   // hash of filter
	broker  bool     // files are decided by the broker in init
	blob    *os.File // sealed memfd: rules
	program *os.File // sealed memfd: filter

	mu    sync.Mutex
	plans []plan // latest last
}

// preparations keeps the latest policies.
type preparations struct {
	mu   sync.Mutex
	list []*prepared // latest last
}

// get returns what r comes to; r must not change any more.
func (c *preparations) get(r *policy.Resolved) *prepared {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.list, func(p *prepared) bool { return p.res == r })
	if i < 0 {
		hash := r.Hash()
		if i = slices.IndexFunc(c.list, func(p *prepared) bool { return p.hash == hash }); i < 0 {
			p := &prepared{res: r, hash: hash, view: map[string]policy.Mount{}, tops: slices.Concat([]string{r.Vars.Workspace, r.Vars.Home}, r.Vars.State, r.Vars.Git)}
			for _, m := range r.View() {
				p.view[m.Path] = m
			}
			if len(c.list) >= maxPrepared {
				c.list = slices.Delete(c.list, 0, 1) // its files close with the last jail that uses them
			}
			c.list = append(c.list, p)
			return p
		}
	}
	p := c.list[i]
	c.list = append(slices.Delete(c.list, i, i+1), p)
	return p
}

// compiled does the slow part, once.
func (p *prepared) compiled(s *Server) error {
	p.compile.Do(func() { p.err = p.make(s) })
	return p.err
}

// attributes are the calls on extended attributes that only the broker can judge
// (getxattr(2), setxattr(2), removexattr(2)). The kernel's hooks are not told the
// mount, so no rule can be found there; what reads by a descriptor was opened for
// reading, and is judged.
var attributes = []string{
	"getxattr", "lgetxattr", "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr",
}

func (p *prepared) make(s *Server) (err error) {
	if p.explain, err = p.res.Explainer(); err != nil {
		return err
	}
	p.rules = p.explain.Automaton()
	p.broker = !s.kernel.enforces() && p.res.NeedsEngine()
	spec := seccomp.Spec{
		Profile: p.res.Syscalls.Profile, Allow: p.res.Syscalls.Allow, Deny: p.res.Syscalls.Deny,
		Userns: p.res.Syscalls.UserNamespaces,
	}
	switch {
	case p.broker:
		spec.Notify = broker.Notified
	case s.kernel.enforces() && p.res.NeedsEngine():
		spec.Missing = attributes
	}
	if p.filter, err = s.filter.Build(spec); err != nil {
		return err
	}
	p.sum = seccomp.Hash(p.filter)
	if p.program, err = seccomp.Memfd(p.filter); err != nil {
		return err
	}
	p.blob, err = jail.Memfd("agentos-rules", p.rules.Bytes(), false)
	return err
}

// plan is a mount plan, and how each of its mounts is shown.
type plan struct {
	key string // everything that decides what is in it
	jail.Plan
	shared, own []string // targets of the mounts in the tree and in the Spec
}

// planned returns the kept plan of that key, or the one that make makes.
func (p *prepared) planned(key string, make func() (jail.Plan, error)) (plan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.plans, func(k plan) bool { return k.key == key })
	if i < 0 {
		made, err := make()
		if err != nil {
			return plan{}, err
		}
		if len(p.plans) >= maxPlans {
			p.plans = slices.Delete(p.plans, 0, 1)
		}
		p.plans = append(p.plans, plan{key, made, jail.Binds(made.Tree), jail.Binds(made.Spec.Mounts)})
		i = len(p.plans) - 1
	}
	k := p.plans[i]
	p.plans = append(slices.Delete(p.plans, i, i+1), k)
	return k, nil
}
