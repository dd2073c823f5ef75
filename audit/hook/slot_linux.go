package hook

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// spare is how many slots are kept ready at most, with rings and an empty automaton in
// place; each is 0.7 MB of kernel memory. When fewer than low are left more are made.
// Putting a map into a map of maps waits for an RCU grace period (10 to 20 ms); a
// jail must not, so slots are furnished ahead and keep their maps from jail to jail.
// Between the two nothing is made or removed: one jail after the other finds the slot of
// the one before.
const (
	spare = 3
	low   = 2
)

// slot is one furnished place for a jail.
type slot struct {
	index uint32
	crit  *ebpf.Map
	bulk  *ebpf.Map
	rules *ebpf.Map // small; large tables come and go with their jail
}

func (s *slot) close() {
	for _, m := range []*ebpf.Map{s.crit, s.bulk, s.rules} {
		if m != nil {
			m.Close()
		}
	}
}

// fits says whether the rings have the sizes that are wanted now.
func (s *slot) fits(o Options) bool {
	return int(s.crit.MaxEntries()) == o.CritBytes && int(s.bulk.MaxEntries()) == o.BulkBytes
}

// furnish makes the maps of a slot and puts them in place, all at once: each waits for
// a grace period of its own. Slow; needs no lock as long as nobody else works on the same
// index.
func (h *Hook) furnish(index uint32) (*slot, error) {
	s := &slot{index: index}
	parts := []struct {
		outer string
		into  **ebpf.Map
		spec  *ebpf.MapSpec
	}{
		{"crit", &s.crit, ringSpec("agentos_crit", h.opts.CritBytes)},
		{"bulk", &s.bulk, ringSpec("agentos_bulk", h.opts.BulkBytes)},
		{"rules_small", &s.rules, rulesSpec(rulesSmall)},
	}
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, m := range parts {
		wg.Go(func() {
			inner, err := ebpf.NewMap(m.spec)
			if err != nil {
				errs[i] = fmt.Errorf("make %s: %w", m.outer, plain(err))
				return
			}
			*m.into = inner
			if err := h.maps[m.outer].Put(index, uint32(inner.FD())); err != nil {
				errs[i] = fmt.Errorf("set %s: %w", m.outer, err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func ringSpec(name string, size int) *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: name, Type: ebpf.RingBuf, MaxEntries: uint32(size)}
}

func rulesSpec(size int) *ebpf.MapSpec {
	return &ebpf.MapSpec{
		Name: "agentos_rules", Type: ebpf.Array, Flags: unix.BPF_F_MMAPABLE,
		KeySize: 4, ValueSize: uint32(size), MaxEntries: 1,
	}
}

// found opens the maps that an earlier helper left at a slot; nil when there are not all.
func (h *Hook) found(index uint32) *slot {
	s := &slot{index: index}
	for _, m := range []struct {
		outer string
		into  **ebpf.Map
	}{{"crit", &s.crit}, {"bulk", &s.bulk}, {"rules_small", &s.rules}} {
		inner, err := h.inner(m.outer, index)
		if err != nil {
			s.close()
			return nil
		}
		*m.into = inner
	}
	return s
}

// idAt is where a table has its id, in a part of the blob's header that is not used: TABLE_ID in
// bpf/include/rules.h.
const idAt = 4 * 62

// writeTable copies an automaton to the beginning of a table, under an id that no table had
// before: a walk that remembers states asks it whether they are of this table. What lies behind it is
// never read.
func writeTable(m *ebpf.Map, rules []byte) error {
	b, err := unix.Mmap(m.FD(), 0, len(rules), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map rules: %w", err)
	}
	copy(b, rules)
	if len(b) >= idAt+8 {
		binary.LittleEndian.PutUint64(b[idAt:], rand.Uint64()|1)
	}
	return unix.Munmap(b)
}

// take answers a furnished slot nobody uses, furnishing one if it must. h.mu is held.
func (h *Hook) take() (*slot, error) {
	for i, s := range h.spares {
		if s.fits(h.opts) {
			h.spares = append(h.spares[:i], h.spares[i+1:]...)
			h.wakeKeeper()
			return s, nil
		}
	}
	index, err := h.freeIndex()
	if err != nil {
		if len(h.spares) == 0 {
			return nil, err
		}
		index = h.spares[0].index // of another size: refurnish
		h.spares[0].close()
		h.spares = h.spares[1:]
	}
	h.wakeKeeper()
	return h.furnish(index)
}

// freeIndex is an index without a jail, a spare, or a keeper at work. h.mu is held.
func (h *Hook) freeIndex() (uint32, error) {
	taken := map[uint32]bool{}
	for _, j := range h.jails {
		taken[j.slot.index] = true
	}
	for _, s := range h.spares {
		taken[s.index] = true
	}
	for index := range h.working {
		taken[index] = true
	}
	for index := range uint32(maxJails) {
		if !taken[index] {
			return index, nil
		}
	}
	return 0, ErrFull
}

// giveBack keeps a slot for the next jail. h.mu is held.
func (h *Hook) giveBack(s *slot) {
	h.spares = append(h.spares, s)
	h.wakeKeeper()
}

// wakeKeeper is called with h.mu held, so that the channel is not closed.
func (h *Hook) wakeKeeper() {
	if h.closed {
		return
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// keep furnishes slots ahead of need, and strips those beyond, until Close.
func (h *Hook) keep() {
	defer close(h.kept)
	for range h.wake {
		for h.keepOne() {
		}
	}
}

// keepOne does one slow step without holding the lock; false when all is as it should be.
func (h *Hook) keepOne() bool {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return false
	}
	if n := len(h.spares); n > spare {
		s := h.spares[n-1]
		h.spares = h.spares[:n-1]
		h.working[s.index] = true
		h.mu.Unlock()
		s.close()
		for _, outer := range []string{"crit", "bulk", "rules_small"} {
			h.dropInner(outer, s.index)
		}
		h.mu.Lock()
		delete(h.working, s.index)
		h.mu.Unlock()
		return true
	}
	index, err := h.freeIndex()
	if len(h.spares) >= low || err != nil {
		h.mu.Unlock()
		return false
	}
	h.working[index] = true
	h.mu.Unlock()
	s, err := h.furnish(index)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.working, index)
	if err != nil {
		h.opts.Logger.Error("prepare slot for a jail", "err", err)
		return false
	}
	h.spares = append(h.spares, s)
	return true
}

// dropInner removes what an array of maps holds at index, if anything.
func (h *Hook) dropInner(outer string, index uint32) error {
	if err := h.maps[outer].Delete(index); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove from %s: %w", outer, err)
	}
	return nil
}
