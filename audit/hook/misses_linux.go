package hook

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/agentos/agentos/audit/event"
)

// missesAge is how often a reader on tier B looks for skipped programs.
const missesAge = time.Second

// watch opens the enforcing programs of tier B. The kernel skips an fmod_ret program
// while a preempted task is inside it on the same CPU; each time counts as a recursion
// miss, and each is an operation that nobody judged. It must stay 0 without full
// preemption.
func (h *Hook) watch() error {
	if h.tier != TierB {
		return nil
	}
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		return fmt.Errorf("list programs: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "link_check_") {
			continue
		}
		l, err := link.LoadPinnedLink(filepath.Join(h.dir, e.Name()), nil)
		if err != nil {
			return fmt.Errorf("open %s: %w", e.Name(), err)
		}
		info, err := l.Info()
		l.Close()
		if err != nil {
			return fmt.Errorf("ask %s: %w", e.Name(), err)
		}
		if info.Type != link.TracingType {
			continue
		}
		p, err := ebpf.NewProgramFromID(info.Program)
		if err != nil {
			return fmt.Errorf("open program of %s: %w", e.Name(), err)
		}
		h.watched = append(h.watched, p)
	}
	return nil
}

// Misses is how often the kernel skipped an enforcing program on tier B since it was
// loaded: operations of jails, or of anybody, that were not judged. Always 0 on others.
func (h *Hook) Misses() (uint64, error) {
	var sum uint64
	for _, p := range h.watched {
		s, err := p.Stats()
		if err != nil {
			return 0, fmt.Errorf("count skipped programs: %w", err)
		}
		sum += s.RecursionMisses
	}
	return sum, nil
}

// readMisses raises an escape in every jail when programs were skipped.
func (h *Hook) readMisses(f func(uint32, event.Event)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := h.Misses()
	if err != nil || n <= h.missed {
		return err
	}
	for id := range h.jails {
		f(id, event.Event{
			Time: time.Now(), Mono: uint64(bootClock()), Kind: event.Escape, Verdict: event.Allow,
			Count: n - h.missed, Detail: "the kernel skipped enforcing programs: some operation was not judged",
		})
	}
	h.missed = n
	return nil
}
