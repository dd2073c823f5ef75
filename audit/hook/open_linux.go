package hook

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/bpf"
)

// Hook is the handle on the installed programs. Its methods may be called from any
// goroutine.
type Hook struct {
	opts Options
	tier Tier
	dir  string
	maps map[string]*ebpf.Map

	waiter  *waiter
	watched []*ebpf.Program // see watch
	missed  uint64          // already reported; of the one reader

	mu      sync.Mutex
	jails   map[uint32]*jail // by id
	spares  []*slot
	working map[uint32]bool // slots that the keeper is busy with
	closed  bool
	wake    chan struct{} // to the keeper; closed by Close
	kept    chan struct{} // closed when it ended
}

// jail is the reading side of one registered jail.
type jail struct {
	id    uint32
	slot  *slot
	state bpf.TraceJail
	rings [2]*ring // crit, bulk
	dec   decoder
	lost  [kinds]uint64 // already reported
	// Its counts are read soon after records came, else seldom.
	active  bool
	counted time.Time
	tap     func(uint32, event.Event)
	// The large table, once there is one; see rules_linux.go.
	large    *ebpf.Map
	swapping chan struct{} // while its rules are swapped; closed after
}

// Load is [Install], in a child of [Options.Executable] where there is one, and [Open].
func Load(o Options) (*Hook, Features, error) {
	install := Install
	if o.Executable != "" {
		install = installApart
	}
	f, err := install(o)
	if err != nil {
		return nil, f, err
	}
	h, err := Open(o)
	return h, f, err
}

var mapNames = []string{"agents", "jails", "slots", "machines", "counts", "unix_peers", "taints", "untold", "reach", "owners", "crit", "bulk", "rules_small", "rules_large"}

// Open opens what [Install] pinned and adopts the jails that are registered: their
// ids are in [Hook.Jails], their waiting records come from [Hook.Read]. Light: no BTF.
func Open(o Options) (*Hook, error) {
	o, err := o.defaults()
	if err != nil {
		return nil, err
	}
	h := &Hook{
		opts: o, dir: o.versionDir(), maps: map[string]*ebpf.Map{}, jails: map[uint32]*jail{},
		working: map[uint32]bool{}, wake: make(chan struct{}, 1), kept: make(chan struct{}),
	}
	if h.waiter, err = newWaiter(); err != nil {
		return nil, err
	}
	go h.keep()
	for _, name := range mapNames {
		m, err := ebpf.LoadPinnedMap(filepath.Join(h.dir, name), nil)
		if err != nil {
			h.Close()
			return nil, fmt.Errorf("open map %s: %w", name, err)
		}
		h.maps[name] = m
	}
	var machine bpf.TraceMachine
	if err := h.maps["machines"].Lookup(uint32(0), &machine); err != nil || machine.Ready == 0 {
		h.Close()
		return nil, fmt.Errorf("open programs: installation is not complete: %w", errors.Join(err, ErrTier))
	}
	h.tier = Tier(machine.Tier)
	if err := errors.Join(h.watch(), h.adopt()); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// Tier is the tier that was installed.
func (h *Hook) Tier() Tier { return h.tier }

// adopt opens the rings of the jails that the kernel knows.
func (h *Hook) adopt() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var (
		cgroup uint64
		index  uint32
		used   = map[uint32]bool{}
	)
	it := h.maps["jails"].Iterate()
	for it.Next(&cgroup, &index) {
		used[index] = true
		j := &jail{slot: h.found(index)}
		if j.slot == nil {
			return fmt.Errorf("adopt jail in slot %d: its maps are not there", index)
		}
		if err := h.maps["slots"].Lookup(index, &j.state); err != nil {
			return fmt.Errorf("adopt jail in slot %d: %w", index, err)
		}
		j.id = j.state.Id
		if err := j.open(h.waiter); err != nil {
			return fmt.Errorf("adopt jail %d: %w", j.id, err)
		}
		j.dec = decoder{procs: map[uint32]process{}}
		h.jails[j.id] = j
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("list registered jails: %w", err)
	}
	defer h.wakeKeeper()
	for index := range uint32(maxJails) {
		if !used[index] {
			if s := h.found(index); s != nil {
				h.spares = append(h.spares, s)
			}
		}
	}
	return nil
}

// open maps the rings and has them wake the reader.
func (j *jail) open(w *waiter) error {
	for i, m := range []*ebpf.Map{j.slot.crit, j.slot.bulk} {
		r, err := openRing(m)
		if err != nil {
			return err
		}
		j.rings[i] = r
		if err := w.watch(m); err != nil {
			return err
		}
	}
	return nil
}

// inner opens the map that an array of maps holds at slot.
func (h *Hook) inner(outer string, slot uint32) (*ebpf.Map, error) {
	var id ebpf.MapID
	if err := h.maps[outer].Lookup(slot, &id); err != nil {
		return nil, fmt.Errorf("look up %s: %w", outer, err)
	}
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", outer, err)
	}
	return m, nil
}

// Jails lists the registered jails, adopted ones included, by id, with the kernfs id
// of their groups.
func (h *Hook) Jails() map[uint32]uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make(map[uint32]uint64, len(h.jails))
	for id, j := range h.jails {
		ids[id] = j.state.Cgroup
	}
	return ids
}

// Close gives up the handle; what is pinned stays and keeps enforcing.
func (h *Hook) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	close(h.wake)
	h.mu.Unlock()
	<-h.kept

	h.mu.Lock()
	defer h.mu.Unlock()
	for id, j := range h.jails {
		j.close()
		if j.large != nil {
			j.large.Close()
		}
		j.slot.close()
		delete(h.jails, id)
	}
	for _, s := range h.spares {
		s.close()
	}
	h.spares = nil
	for _, p := range h.watched {
		p.Close()
	}
	for name, m := range h.maps {
		m.Close()
		delete(h.maps, name)
	}
	h.waiter.close()
	return nil
}

func (j *jail) close() {
	for i, r := range j.rings {
		if r != nil {
			r.close()
			j.rings[i] = nil
		}
	}
}

// followOpens attaches or detaches the program that records opens, as asked.
func (h *Hook) followOpens() error {
	pin := filepath.Join(h.dir, "link_"+onDemand)
	wanted := false
	for _, j := range h.jails {
		wanted = wanted || j.state.Flags&(flagOpens|flagReads) != 0
	}
	l, err := link.LoadPinnedLink(pin, nil)
	if attached := err == nil; attached == wanted {
		if attached {
			return l.Close()
		}
		return nil
	}
	if !wanted {
		defer l.Close()
		return l.Unpin()
	}
	prog, err := ebpf.LoadPinnedProgram(filepath.Join(h.dir, "prog_"+onDemand), nil)
	if err != nil {
		return fmt.Errorf("open program %s: %w", onDemand, err)
	}
	defer prog.Close()
	l, err = link.AttachTracing(link.TracingOptions{Program: prog})
	if err != nil {
		return fmt.Errorf("attach %s: %w", onDemand, err)
	}
	defer l.Close()
	return l.Pin(pin)
}
