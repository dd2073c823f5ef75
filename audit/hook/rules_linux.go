package hook

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A program of ours looks the table of its jail up several times for one path, and
// again for the second path of a rename, but it asks only once, when it begins, whether
// the table is the small or the large one (struct scratch, large). So rules are swapped
// by writing the new ones into the table that is not in use and turning the flag: who
// has begun goes on with the old table, who begins finds the new one, and nobody sees
// something of both. The old one is written to again only after an RCU grace period.

// ErrLarge says that both the rules in force and the new ones need the large table.
var ErrLarge = errors.New("rules of over 256 KiB cannot follow others of that size")

// putRules writes the automaton of a jail that nobody is judged by yet.
func (h *Hook) putRules(j *jail, rules []byte) error {
	if err := fits(rules); err != nil {
		return err
	}
	if len(rules) <= rulesSmall {
		return writeTable(j.slot.rules, rules)
	}
	if err := h.makeLarge(j); err != nil {
		return err
	}
	return writeTable(j.large, rules)
}

func fits(rules []byte) error {
	if len(rules) == 0 || len(rules) > rulesLarge {
		return fmt.Errorf("set rules: automaton of %d bytes: want 1 to %d", len(rules), rulesLarge)
	}
	return nil
}

// makeLarge gives the jail a large table, which it keeps to its end. Slow: putting
// a map into a map of maps waits for a grace period.
func (h *Hook) makeLarge(j *jail) error {
	if j.large != nil {
		return nil
	}
	m, err := ebpf.NewMap(rulesSpec(rulesLarge))
	if err != nil {
		return fmt.Errorf("make rules: %w", plain(err))
	}
	if err := h.maps["rules_large"].Put(j.slot.index, uint32(m.FD())); err != nil {
		m.Close()
		return fmt.Errorf("set rules: %w", err)
	}
	j.large = m
	return nil
}

// dropLarge undoes makeLarge, also that of an earlier helper.
func (h *Hook) dropLarge(j *jail) error {
	if j.large == nil && j.state.Flags&flagLarge == 0 {
		return nil
	}
	if j.large != nil {
		j.large.Close()
		j.large = nil
	}
	return h.dropInner("rules_large", j.slot.index)
}

// PrepareRules does the slow part of the first [Hook.SetRules] of a jail ahead of it.
// It is not needed, and may be called while rules are being compiled.
func (h *Hook) PrepareRules(id uint32) error {
	j, err := h.claim(id)
	if err != nil {
		return err
	}
	defer h.unclaim(j)
	if j.state.Flags&flagLarge != 0 {
		return nil
	}
	return h.makeLarge(j)
}

// SetRules replaces the automaton of a jail that runs. Every act is judged by the old
// rules or by the new ones, never by both; when SetRules returns, nothing is judged by
// the old ones any more. It waits for an RCU grace period (some 10 ms), the first time
// for two; the new rules hold before the last of them.
//
// Errors: [ErrNoJail]; [ErrLarge]; an error while another SetRules of the jail is at
// work. After an error the old rules hold.
func (h *Hook) SetRules(id uint32, rules []byte, ruleText func(uint16) string) error {
	if err := fits(rules); err != nil {
		return err
	}
	j, err := h.claim(id)
	if err != nil {
		return err
	}
	defer h.unclaim(j)
	if len(rules) > rulesSmall && j.state.Flags&flagLarge != 0 { // only a swap changes that
		now, err := small(j.large)
		if err == nil {
			err = h.swap(j, now, j.dec.ruleText) // what holds makes room for it
		}
		if err != nil {
			return fmt.Errorf("change jail %d: %w", id, err)
		}
	}
	if err := h.swap(j, rules, ruleText); err != nil {
		return fmt.Errorf("change jail %d: %w", id, err)
	}
	return nil
}

// swap writes rules, which must fit, to the table that is not in use and turns to it.
func (h *Hook) swap(j *jail, rules []byte, ruleText func(uint16) string) error {
	large := j.state.Flags&flagLarge == 0
	table, before := j.slot.rules, "rules_large"
	if large {
		if err := h.makeLarge(j); err != nil {
			return err
		}
		table, before = j.large, "rules_small"
	}
	if err := writeTable(table, rules); err != nil {
		return err
	}
	if err := h.change(j.id, func(j *jail) error {
		j.state.Flags ^= flagLarge
		j.state.Gen++
		j.dec.ruleText = ruleText
		return nil
	}); err != nil {
		return err
	}
	return h.settle(before, j)
}

// small reads the automaton in a large table, if it would fit the small one.
func small(table *ebpf.Map) ([]byte, error) {
	if table == nil {
		return nil, ErrLarge // an earlier helper's
	}
	b, err := unix.Mmap(table.FD(), 0, rulesSmall, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map rules: %w", err)
	}
	defer func() { _ = unix.Munmap(b) }()
	size := binary.LittleEndian.Uint32(b[sizeAt:])
	if size > rulesSmall {
		return nil, ErrLarge
	}
	return bytes.Clone(b[:size]), nil
}

// sizeAt is where the header of an automaton has its length (policy/glob, hSize).
const sizeAt = 4 * 3

// settle waits until no program is at work that began before, by putting what is in
// place in its own place: that ends with a grace period (kernel/bpf/syscall.c,
// maybe_wait_bpf_programs).
func (h *Hook) settle(outer string, j *jail) error {
	m := j.slot.rules
	if outer == "rules_large" {
		if m = j.large; m == nil { // an earlier helper made it
			return h.dropInner(outer, j.slot.index) // waits as well
		}
	}
	if err := h.maps[outer].Put(j.slot.index, uint32(m.FD())); err != nil {
		return fmt.Errorf("wait for rules to be out of use: %w", err)
	}
	return nil
}

// claim keeps a jail from being removed, and from a second swap, until unclaim.
func (h *Hook) claim(id uint32) (*jail, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.jails[id]
	switch {
	case j == nil:
		return nil, fmt.Errorf("change jail %d: %w", id, ErrNoJail)
	case j.swapping != nil:
		return nil, fmt.Errorf("change jail %d: its rules are being changed", id)
	}
	j.swapping = make(chan struct{})
	return j, nil
}

func (h *Hook) unclaim(j *jail) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(j.swapping)
	j.swapping = nil
}
