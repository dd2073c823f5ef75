package helper

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/broker"
	"github.com/agentos/agentos/jail/generation"
	"github.com/agentos/agentos/jail/opens"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/jail/seccomp"
	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/glob"
)

// maxKept bounds the policies, and the mount plans of each, that are kept: the
// same people start the same agents on the same workspaces. A document over
// maxKeptDocument bytes is not the common case, and not worth the memory.
const (
	maxKept         = 16
	maxKeptDocument = 256 << 10
)

// latest keeps the values that were used last, by key. None of them changes any
// more, so that they are used by several sessions at once.
type latest[K comparable, V any] struct {
	mu   sync.Mutex
	list []kept[K, V] // latest last
}

type kept[K comparable, V any] struct {
	key   K
	value V
}

func (l *latest[K, V]) find(key K) (value V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.list, func(k kept[K, V]) bool { return k.key == key })
	if i < 0 {
		return value, false
	}
	k := l.list[i]
	l.list = append(slices.Delete(l.list, i, i+1), k)
	return k.value, true
}

func (l *latest[K, V]) add(key K, value V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) >= maxKept {
		l.list = slices.Delete(l.list, 0, 1)
	}
	l.list = append(l.list, kept[K, V]{key, value})
}

// resolved keeps the latest policies by the hash of all that they are made of.
type resolved struct {
	latest[[sha256.Size]byte, *policy.Resolved]
}

// get resolves the policy of a document below the organisation's layers, which
// were read just now; seen tells them apart.
func (c *resolved) get(org []policy.Layer, seen, document []byte) (*policy.Resolved, error) {
	sum := sha256.New()
	part := func(data []byte) {
		_ = binary.Write(sum, binary.LittleEndian, uint64(len(data))) // a hash takes all
		sum.Write(data)
	}
	part(seen)
	part(document)
	key := [sha256.Size]byte(sum.Sum(nil))
	if res, ok := c.find(key); ok {
		return res, nil
	}
	var stack policy.PolicyDocument
	if err := packet.UnmarshalDocument(document, &stack); err != nil {
		return nil, err
	}
	if stack.Builtins != policy.BuiltinDigest() {
		return nil, &rpc.Error{Code: rpc.Unsupported, Text: "the builtin policies of the helper are not those of the caller", Hint: "install agentos and agentos-helper from one release"}
	}
	res, err := policy.Resolve(slices.Concat(org, stack.Layers), stack.Vars)
	if err != nil {
		return nil, &rpc.Error{Code: rpc.Refused, Text: err.Error()}
	}
	if len(document) <= maxKeptDocument {
		c.add(key, res)
	}
	return res, nil
}

// prepared is what a resolved policy comes to, whoever starts a jail under it:
// everything of a start that is slow and always the same. It does not change.
type prepared struct {
	res  *policy.Resolved
	hash string // of res
	view map[string]policy.Mount
	tops []string // trees that are the caller's

	compile sync.Mutex // over making the rest
	ready   bool       // it is made
	explain *policy.Explainer
	answers generation.Answers // of explain
	rules   *glob.Automaton
	filter  seccomp.Program
	sum     string   // hash of filter
	broker  bool     // files are decided by the broker in init
	blob    *os.File // sealed memfd: rules
	program *os.File // sealed memfd: filter
	// reads: opens that change nothing are decided by permission events instead; with hides the
	// broker is asked first, so that a hidden name is ENOENT.
	reads bool
	hides bool     // names are hidden, which init does on every tier
	marks sync.Map // what is asked about on a mount (uint64), by target

	plans latest[string, plan]
}

// preparations keeps the latest policies, by the object and by the hash of what
// they are: a document that differs in nothing that counts is the same policy.
type preparations struct {
	byObject latest[*policy.Resolved, *prepared]
	byHash   latest[string, *prepared]
}

// get returns what r comes to; r must not change any more.
func (c *preparations) get(r *policy.Resolved) *prepared {
	if p, ok := c.byObject.find(r); ok {
		return p
	}
	hash := r.Hash()
	p, ok := c.byHash.find(hash)
	if !ok {
		p = &prepared{
			res: r, hash: hash, view: map[string]policy.Mount{},
			tops: slices.Concat([]string{r.Vars.Workspace}, r.Vars.Git, r.Vars.State, []string{r.Vars.Home}),
		}
		for _, m := range r.View() {
			p.view[m.Path] = m
		}
		c.byHash.add(hash, p)
	}
	c.byObject.add(r, p)
	return p
}

// compiled does the slow part, until it has succeeded once: what fails for want
// of a descriptor or of memory must not fail for as long as the policy is kept.
func (p *prepared) compiled(s *Server) error {
	p.compile.Lock()
	defer p.compile.Unlock()
	if p.ready {
		return nil
	}
	err := p.make(s)
	p.ready = err == nil
	return err
}

func (p *prepared) make(s *Server) (err error) {
	if p.explain, err = p.res.Explainer(); err != nil {
		return err
	}
	p.rules = p.explain.Automaton()
	p.hides = p.res.Hides()
	p.broker = p.res.NeedsEngine() && (!s.kernel.enforces() || p.hides)
	spec := seccomp.Spec{
		Profile: p.res.Syscalls.Profile, Allow: p.res.Syscalls.Allow, Deny: p.res.Syscalls.Deny,
		Userns: p.res.Syscalls.UserNamespaces,
	}
	switch {
	case p.broker && s.kernel.enforces():
		spec.Notify = slices.Concat(broker.Looks, broker.LooksInKernel)
	case p.broker:
		spec.Notify = broker.Notified
		if p.hides {
			spec.Notify = slices.Concat(broker.Notified, broker.Looks)
		}
		p.reads = s.kernel.opens == nil && opens.Covered(p.rules, jail.ProcMasks)
		spec.Changes = p.reads && !p.hides
	}
	if p.broker {
		spec.Report = broker.Refused
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

// marked says what is asked about on the mount at target: on that of the root whatever is
// asked about on any.
func (p *prepared) marked(target string) uint64 {
	if mask, ok := p.marks.Load(target); ok {
		return mask.(uint64)
	}
	mask := opens.Marks(p.rules, target)
	p.marks.Store(target, mask)
	return mask
}

// asks reports whether some open for reading is asked about.
func (p *prepared) asks() bool { return p.marked("/")&unix.FAN_OPEN_PERM != 0 }

// plan is a mount plan with the targets of its mounts.
type plan struct {
	jail.Plan
	shared, own []string // in the tree and in the Spec
}

// planned returns the kept plan of that key, which says everything that decides
// what is in it, or the one that compile makes.
func (p *prepared) planned(key string, compile func() (jail.Plan, error)) (plan, error) {
	if kept, ok := p.plans.find(key); ok {
		return kept, nil
	}
	made, err := compile()
	if err != nil {
		return plan{}, err
	}
	out := plan{made, jail.Binds(made.Tree), jail.Binds(made.Spec.Mounts)}
	p.plans.add(key, out)
	return out, nil
}
