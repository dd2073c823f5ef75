package helper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/hook"
	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/opens"
	"github.com/agentos/agentos/policy/glob"
)

// kernel is the BPF side of the machine, or the lack of it (tier D).
type kernel struct {
	features hook.Features
	h        *hook.Hook // nil on tier D
	opt      hook.Options
	why      error // why there is none
	opens    error // why fanotify's permission events cannot decide opens here; nil: they can
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

func (s *Server) loadKernel() error {
	k := &kernel{opens: opens.Try(s.opt.State)}
	s.kernel = k
	if k.opens != nil {
		s.log.Warn("opens for reading go through the broker: fanotify cannot decide them", "error", k.opens)
	}
	k.opt = hook.Options{PinDir: s.opt.Pins, Group: s.parent(), Logger: s.log, HighWater: s.highWater, Executable: "/proc/self/exe"}
	h, features, err := hook.Load(k.opt)
	k.features = features
	if err != nil {
		k.why = err
		s.log.Warn("no kernel programs", "error", err)
		return nil // tier D: what is missing is judged per policy
	}
	if err := s.tryKernel(h); err != nil {
		return errors.Join(err, h.Close(), hook.Unpin(k.opt))
	}
	k.h = h
	for id := range h.Jails() { // of a helper that was killed; its groups are gone
		if err := h.RemoveJail(id); err != nil {
			s.log.Error("forget jail", "jail", id, "error", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	k.wg.Add(1)
	go func() {
		defer k.wg.Done()
		if err := h.Read(ctx, s.observed); err != nil && !errors.Is(err, context.Canceled) {
			s.log.Error("read kernel events", "error", err)
		}
	}()
	return nil
}

// tryKernel really tries denied operations in a throw-away jail: that programs
// attach proves nothing. A machine on which one succeeds gets no jails.
func (s *Server) tryKernel(h *hook.Hook) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), canaryTimeout)
	defer cancel()
	if err := h.Canary(ctx, exec.CommandContext(ctx, own)); err != nil {
		return fmt.Errorf("the kernel programs do not hold: %w", err)
	}
	return nil
}

// canaryTimeout bounds the canary of a start, also under emulation.
const canaryTimeout = 30 * time.Second

// observed takes one event of the kernel.
func (s *Server) observed(number uint32, e event.Event) {
	s.mu.Lock()
	sp := s.byNumber[number]
	s.mu.Unlock()
	if sp != nil {
		sp.observed(e)
	}
}

// observed records an event of the kernel.
func (v *session) observed(e event.Event) {
	if e.Kind != event.Open || e.Errno != int(unix.ENOENT) || v.looked(&e) {
		v.record.Load().put(e)
	}
}

// looked turns an open that found nothing into a refusal if a rule refuses that name: who
// looks for keys is worth a record where there are none. Else it answers false.
func (v *session) looked(e *event.Event) bool {
	now := v.record.Load().rules.Now()
	acc := now.Explain.Automaton().Match(e.Path)
	if acc.Allows(glob.Read) || acc.Rule[glob.Read] == glob.NoRule {
		return false
	}
	e.Verdict = event.Deny
	e.Rule = jail.RuleRef(now.Number, acc.Rule[glob.Read])
	return true
}

// highWater holds a jail back while its ring is over half full.
func (s *Server) highWater(number uint32, full bool) {
	s.mu.Lock()
	sp := s.byNumber[number]
	s.mu.Unlock()
	if sp == nil {
		return
	}
	v := sp.session()
	if v == nil || v.res.Audit.OnOverload == "drop-and-count" {
		return
	}
	v.record.Load().hold(ringFull, full)
}

func (k *kernel) tier() string {
	if k == nil || k.h == nil {
		return hook.TierD.String()
	}
	return k.features.Tier.String()
}

// enforces reports whether file rules are decided in the kernel.
func (k *kernel) enforces() bool {
	return k.h != nil && k.features.Tier >= hook.TierB
}

// nothing are the rules of a jail that has none yet: everything is denied.
var nothing = sync.OnceValues(func() (*glob.Automaton, error) {
	return glob.Compile(nil, func([]uint16) glob.Accept { return glob.Accept{} })
})

// reserve makes a group known before anything is born in it: its init is
// trusted, unrecorded, until assign.
func (k *kernel) reserve(number uint32, cgroupID uint64) error {
	if k.h == nil {
		return nil
	}
	deny, err := nothing()
	if err != nil {
		return err
	}
	return k.h.AddJail(hook.Jail{ID: number, CgroupID: cgroupID, Rules: deny.Bytes(), Enforce: true, Strict: true, Setup: true})
}

// assign gives a reserved jail its rules. From then on only init, by its host
// pid, is trusted: it builds the view, which the rules are about. A jail that is built
// ahead needs follow when it is used.
func (k *kernel) assign(number uint32, init int, p *prepared, ahead bool, name func(uint16) string) error {
	if k.h == nil {
		return nil
	}
	audit := hook.AuditDenied
	switch p.res.Audit.Files {
	case "all":
		audit = hook.AuditAll
	case "changes":
		audit = hook.AuditChanges
	}
	return k.h.Assign(number, init, hook.Jail{
		Rules: p.rules.Bytes(), Audit: audit, Enforce: true, Strict: true,
		Opens: !ahead && k.recordsOpens(p), Reads: !ahead && k.judgesReads(p),
		RuleText: name,
	})
}

// follow begins what assign leaves out of a jail that waits: the program that sees the ends
// of opens on tier C costs every system call of the machine. Call before the agent runs.
func (k *kernel) follow(number uint32, p *prepared) error {
	if opens, reads := k.recordsOpens(p), k.judgesReads(p); opens || reads {
		return k.h.Follow(number, opens, reads)
	}
	return nil
}

// recordsOpens reports whether opens are recorded where they end (tier C).
func (k *kernel) recordsOpens(p *prepared) bool {
	return k.h != nil && p.res.Audit.Files == "all" && (p.reads && !p.hides || !p.broker) && !k.enforces()
}

// judgesReads reports whether reading FIFOs and what is not there is seen to (tier C).
func (k *kernel) judgesReads(p *prepared) bool {
	return k.h != nil && p.reads && !p.hides && (p.res.Audit.Files == "all" || p.asks())
}

// opensText says how opens that change nothing are decided where rules are not in the kernel.
func (k *kernel) opensText() string {
	if k.opens != nil {
		return "each open is answered by the jail's init, at ten times its cost: " + k.opens.Error()
	}
	return "fanotify asks the jail's init once for each file, and again after a write"
}

// remove forgets a jail whose tasks are gone, after its last records were read.
func (k *kernel) remove(number uint32, observed func(uint32, event.Event)) error {
	if k.h == nil {
		return nil
	}
	return errors.Join(k.h.Drain(number, observed), k.h.RemoveJail(number))
}

// Close detaches everything.
func (k *kernel) Close() error {
	if k.h == nil {
		return nil
	}
	k.cancel()
	k.wg.Wait()
	return errors.Join(k.h.Close(), hook.Unpin(k.opt))
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Sprintf("unknown: %v", err)
	}
	return unix.ByteSliceToString(u.Release[:])
}
