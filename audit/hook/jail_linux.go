package hook

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/bpf"
)

// jail.flags of bpf/include/record.h.
const (
	flagEnforce = 1 << iota
	flagStrict
	flagKillExec
	flagAuditAll
	flagAuditWrite
	flagOpens
	flagLarge
	flagSetup
	flagReads
)

const (
	maxJails   = 256
	kinds      = 48
	rulesSmall = 256 << 10
	rulesLarge = 2 << 20
)

// AddJail registers a jail: from then on the tasks of its group are judged by its
// rules. Register before the first task enters the group.
//
// Errors: [ErrFull]; an error when the id or group is taken or the rules are not an
// automaton of at most 2 MiB.
func (h *Hook) AddJail(spec Jail) error { return h.addJail(spec, nil) }

// addJail is AddJail; tap gets the events of the jail in the place of Read's caller.
func (h *Hook) addJail(spec Jail, tap func(uint32, event.Event)) error {
	if spec.ID == 0 || spec.CgroupID == 0 {
		return errors.New("add jail: id and group must not be 0")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.jails[spec.ID] != nil {
		return fmt.Errorf("add jail %d: id is taken", spec.ID)
	}
	var index uint32
	if err := h.maps["jails"].Lookup(spec.CgroupID, &index); err == nil {
		return fmt.Errorf("add jail %d: group is registered already", spec.ID)
	}
	slot, err := h.take()
	if err != nil {
		return fmt.Errorf("add jail %d: %w", spec.ID, err)
	}
	j := &jail{id: spec.ID, slot: slot, tap: tap}
	j.dec = decoder{procs: map[uint32]process{}, ruleText: spec.RuleText}
	j.state = bpf.TraceJail{Cgroup: spec.CgroupID, Id: spec.ID, Flags: h.flags(spec), Gen: 1}
	if err := h.register(j, spec.Rules); err != nil {
		h.forget(j)
		return fmt.Errorf("add jail %d: %w", spec.ID, err)
	}
	h.jails[j.id] = j
	if err := h.followOpens(); err != nil {
		h.forget(j)
		return fmt.Errorf("add jail %d: %w", spec.ID, err)
	}
	return nil
}

func (h *Hook) flags(spec Jail) uint32 {
	var flags uint32
	for _, f := range []struct {
		on  bool
		bit uint32
	}{
		{spec.Enforce, flagEnforce},
		{spec.Strict, flagStrict},
		{h.tier == TierC, flagKillExec},
		{spec.Audit == AuditAll, flagAuditAll},
		{spec.Audit >= AuditChanges, flagAuditWrite},
		{spec.Opens && h.tier == TierC, flagOpens},
		{len(spec.Rules) > rulesSmall, flagLarge},
		{spec.Setup, flagSetup},
		{spec.Reads && h.tier == TierC, flagReads},
	} {
		if f.on {
			flags |= f.bit
		}
	}
	return flags
}

// register fills the slot and, last, makes the group known.
func (h *Hook) register(j *jail, rules []byte) error {
	if err := j.open(h.waiter); err != nil {
		return err
	}
	for _, r := range j.rings {
		r.skip() // what a jail before left unread
	}
	index := j.slot.index
	if err := h.putRules(j, rules); err != nil {
		return err
	}
	zero := make([]bpf.TraceCount, ebpf.MustPossibleCPU())
	if err := h.maps["counts"].Put(index, zero); err != nil {
		return fmt.Errorf("clear counts: %w", err)
	}
	if err := h.dropTaints(index); err != nil { // of a jail whose helper ended before it forgot it
		return fmt.Errorf("clear taints: %w", err)
	}
	if err := h.maps["slots"].Put(index, j.state); err != nil {
		return fmt.Errorf("set slot: %w", err)
	}
	if err := h.maps["jails"].Update(j.state.Cgroup, index, ebpf.UpdateNoExist); err != nil {
		return fmt.Errorf("register group: %w", err)
	}
	return nil
}

// SetRuleText names the rules of an adopted jail.
func (h *Hook) SetRuleText(id uint32, ruleText func(uint16) string) error {
	return h.change(id, func(j *jail) error { j.dec.ruleText = ruleText; return nil })
}

// SetEnforce switches between denying and only recording.
func (h *Hook) SetEnforce(id uint32, enforce bool) error {
	return h.change(id, func(j *jail) error {
		j.state.Flags &^= flagEnforce
		if enforce {
			j.state.Flags |= flagEnforce
		}
		return nil
	})
}

// Start ends the setup of a jail (see [Jail].Setup) and names the process (host pid) that
// stays trusted inside it: its init, which serves the broker; 0 = none. Children of
// init are judged like any other task. Call before the agent runs.
func (h *Hook) Start(id uint32, init int) error {
	return h.change(id, func(j *jail) error {
		j.state.Init = uint32(init)
		j.state.Flags &^= flagSetup
		return nil
	})
}

// Assign is [Hook.Start] for a jail in setup that gets its own rules only now: Rules,
// Audit, Enforce, Strict, Opens and RuleText of spec replace what it was added with.
// Nothing but init may run in it yet.
func (h *Hook) Assign(id uint32, init int, spec Jail) error {
	err := h.change(id, func(j *jail) error {
		if j.state.Flags&flagSetup == 0 {
			return errors.New("its setup is over")
		}
		if err := h.putRules(j, spec.Rules); err != nil { // in place: nobody is judged by it
			return err
		}
		spec.Setup = false
		j.state.Flags = h.flags(spec)
		j.state.Init = uint32(init)
		j.state.Gen++
		j.dec.ruleText = spec.RuleText
		return nil
	})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.followOpens()
}

// Follow sets Opens and Reads of a jail, in which nothing but init may run yet.
func (h *Hook) Follow(id uint32, opens, reads bool) error {
	if h.tier != TierC {
		return nil
	}
	err := h.change(id, func(j *jail) error {
		j.state.Flags &^= flagOpens | flagReads
		if opens {
			j.state.Flags |= flagOpens
		}
		if reads {
			j.state.Flags |= flagReads
		}
		return nil
	})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.followOpens()
}

func (h *Hook) change(id uint32, f func(*jail) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.jails[id]
	if j == nil {
		return fmt.Errorf("change jail %d: %w", id, ErrNoJail)
	}
	before := j.state
	if err := f(j); err != nil {
		return fmt.Errorf("change jail %d: %w", id, err)
	}
	if err := h.maps["slots"].Put(j.slot.index, j.state); err != nil {
		j.state = before
		return fmt.Errorf("change jail %d: %w", id, err)
	}
	return nil
}

// AllowUnix lets a jail talk to the pathname socket with this inode, which was made
// outside of it. dev is as in stat.
func (h *Hook) AllowUnix(id uint32, dev, ino uint64) error {
	return h.change(id, func(j *jail) error {
		key := bpf.TraceUnixPeer{Ino: ino, Dev: kernelDev(dev), Slot: j.slot.index}
		return h.maps["unix_peers"].Put(key, uint32(1))
	})
}

// RemoveJail forgets a jail whose tasks are gone. Tasks that are not gone are denied
// everything from now on. Read what is left with [Hook.Drain] first.
func (h *Hook) RemoveJail(id uint32) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.jails[id]
	if j == nil {
		return fmt.Errorf("remove jail %d: %w", id, ErrNoJail)
	}
	for j.swapping != nil { // its slot is written to
		swapped := j.swapping
		h.mu.Unlock()
		<-swapped
		h.mu.Lock()
	}
	err := errors.Join(h.forget(j), h.followOpens())
	if err == nil && len(h.jails) == 0 { // nobody can have escaped any more: the cheap gate does again
		err = h.maps["machines"].Put(uint32(0), bpf.TraceMachine{Tier: uint32(h.tier), Ready: 1})
	}
	return err
}

// forget undoes register, also a partial one. The slot waits for the next jail.
func (h *Hook) forget(j *jail) error {
	var (
		errs  []error
		index uint32
	)
	if h.maps["jails"].Lookup(j.state.Cgroup, &index) == nil && index == j.slot.index {
		errs = append(errs, h.maps["jails"].Delete(j.state.Cgroup))
	}
	errs = append(errs, h.maps["slots"].Put(j.slot.index, bpf.TraceJail{}))
	errs = append(errs, h.dropLarge(j))
	errs = append(errs, h.dropPeers(j.slot.index), h.dropTaints(j.slot.index), h.setReach(j.slot.index, nil))
	j.close()
	h.giveBack(j.slot)
	delete(h.jails, j.id)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("forget jail %d: %w", j.id, err)
	}
	return nil
}

// dropPeers removes the grants of [Hook.AllowUnix].
func (h *Hook) dropPeers(index uint32) error {
	var (
		key   bpf.TraceUnixPeer
		value uint32
		peers []bpf.TraceUnixPeer
	)
	it := h.maps["unix_peers"].Iterate()
	for it.Next(&key, &value) {
		if key.Slot == index {
			peers = append(peers, key)
		}
	}
	errs := []error{it.Err()}
	for _, peer := range peers {
		errs = append(errs, h.maps["unix_peers"].Delete(peer))
	}
	return errors.Join(errs...)
}

// dropTaints forgets which files of a jail have a name that is refused: see bpf/include/taint.h.
func (h *Hook) dropTaints(index uint32) error {
	var (
		key    bpf.TraceLinked
		value  bpf.TraceTaint
		linked []bpf.TraceLinked
	)
	it := h.maps["taints"].Iterate()
	for it.Next(&key, &value) {
		if key.Slot == index {
			linked = append(linked, key)
		}
	}
	errs := []error{it.Err()}
	for _, l := range linked {
		errs = append(errs, h.maps["taints"].Delete(l))
	}
	return errors.Join(append(errs, h.maps["untold"].Put(index, uint32(0)))...)
}

// kernelDev is the opposite of userDev.
func kernelDev(dev uint64) uint32 {
	major := dev >> 8 & 0xfff
	minor := dev&0xff | dev>>12&^0xff
	return uint32(major<<20 | minor&0xfffff)
}

// Reach says where TCP of the jail may go besides its own loopback: where something in the
// jail's network namespace takes every connection and judges it. Each call replaces what held.
// DNS may go anywhere as soon as the address of the jail's resolver (198.18.0.53) is within.
// All else is refused by the kernel, with an event.
func (h *Hook) Reach(id uint32, prefixes []netip.Prefix) error {
	return h.change(id, func(j *jail) error { return h.setReach(j.slot.index, prefixes) })
}

// setReach puts what is new before it drops what is not there any more.
func (h *Hook) setReach(index uint32, prefixes []netip.Prefix) error {
	wanted := map[bpf.NetReachKey]bool{}
	for _, p := range prefixes {
		key := reachKey(index, p)
		wanted[key] = true
		if err := h.maps["reach"].Put(key, uint32(1)); err != nil {
			return fmt.Errorf("let %s be reached: %w", p, err)
		}
	}
	var (
		key   bpf.NetReachKey
		value uint32
		old   []bpf.NetReachKey
	)
	it := h.maps["reach"].Iterate()
	for it.Next(&key, &value) {
		if key.Slot == index && !wanted[key] {
			old = append(old, key)
		}
	}
	errs := []error{it.Err()}
	for _, key := range old {
		errs = append(errs, h.maps["reach"].Delete(key))
	}
	return errors.Join(errs...)
}

// reachKey is struct reach_key: IPv4 as ::ffff:a.b.c.d.
func reachKey(index uint32, p netip.Prefix) bpf.NetReachKey {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return bpf.NetReachKey{Prefixlen: uint32(32 + bits), Slot: index, Ip: p.Masked().Addr().As16()}
}

// Owner finds the process that made a connection from the jail's end client to to, and names it
// in e: what holds about it at this moment, and nothing where it is not known any more. Of a
// DNS question to is an address of port 53, any.
func (h *Hook) Owner(id uint32, client, to netip.AddrPort, e *event.Event) {
	flow := bpf.OwnerFlow{Id: id, Local: client.Port(), Remote: to.Port()}
	if to.Port() != 53 {
		flow.To = to.Addr().As16()
	}
	var o bpf.OwnerOwner
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.jails[id]
	if j == nil || h.maps["owners"].Lookup(flow, &o) != nil {
		return
	}
	e.Pid, e.Tid, e.TaskStart = int32(o.Tgid), int32(o.Tid), o.Start
	if p, ok := j.dec.find(o.Tgid, o.Start); ok {
		e.Exe, e.Comm, e.Ppid, e.JailPid = p.exe, p.comm, p.ppid, p.jailPid
	}
}
