// Package synthetic gives names addresses that mean something in one jail only, so
// that a connection says which name it was made for.
//
// Each name has one IPv4 address in [netpolicy.Synthetic4] and the IPv6 address in
// [netpolicy.Synthetic6] whose last 32 bits are it. Which one follows from the name
// (a hash, then the next free one), so that a netd that was restarted gives the same
// name the same address, collisions aside, and no other name by chance.
//
// A table holds at most as many names as its limit. A full table drops the name
// that was used longest ago, but none that was used within [Keep], which is many
// times longer than answers may be cached; it then has no room, and the caller says so.
package synthetic

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"github.com/agentos/agentos/netpolicy"
)

// Keep is how long a name keeps its address after its last use, whatever comes.
const Keep = 10 * time.Minute

// size is the number of addresses in Synthetic4.
var size = uint32(1) << (32 - netpolicy.Synthetic4.Bits())

var base = binary.BigEndian.Uint32(netpolicy.Synthetic4.Addr().AsSlice())

// Table is the names of one jail. It may be used by many goroutines.
type Table struct {
	mu     sync.Mutex
	limit  int
	names  map[string]*list.Element
	places map[uint32]*list.Element
	used   *list.List // *entry, the latest first
}

type entry struct {
	name  string
	place uint32
	last  time.Time
}

// New returns an empty table for at most limit names; a quarter of all addresses is the most.
func New(limit int) *Table {
	return &Table{
		limit: min(limit, int(size/4)), names: map[string]*list.Element{}, places: map[uint32]*list.Element{}, used: list.New(),
	}
}

// Address returns the two addresses of a normal name; ok is false when there is
// no room for another.
func (t *Table) Address(name string, now time.Time) (v4, v6 netip.Addr, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.names[name]
	if e == nil {
		if e = t.add(name, now); e == nil {
			return netip.Addr{}, netip.Addr{}, false
		}
	}
	t.touch(e, now)
	v4, v6 = addresses(e.Value.(*entry).place)
	return v4, v6, true
}

// Name returns the name whose address a is, "" when it is nobody's.
func (t *Table) Name(a netip.Addr, now time.Time) string {
	place, ok := placeOf(a)
	if !ok {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.places[place]
	if e == nil {
		return ""
	}
	t.touch(e, now)
	return e.Value.(*entry).name
}

// Is says whether a is an address that could stand for a name.
func Is(a netip.Addr) bool {
	a = a.Unmap()
	return netpolicy.Synthetic4.Contains(a) || netpolicy.Synthetic6.Contains(a)
}

func (t *Table) touch(e *list.Element, now time.Time) {
	e.Value.(*entry).last = now
	t.used.MoveToFront(e)
}

func (t *Table) add(name string, now time.Time) *list.Element {
	if len(t.names) >= t.limit {
		oldest := t.used.Back()
		if oldest == nil || now.Sub(oldest.Value.(*entry).last) < Keep {
			return nil
		}
		old := t.used.Remove(oldest).(*entry)
		delete(t.names, old.name)
		delete(t.places, old.place)
	}
	sum := sha256.Sum256([]byte(name))
	place := binary.BigEndian.Uint32(sum[:]) % size
	for t.places[place] != nil || reserved(place) { // at most a quarter is taken
		place = (place + 1) % size
	}
	e := t.used.PushFront(&entry{name, place, now})
	t.names[name], t.places[place] = e, e
	return e
}

// reserved keeps the ends of the range and the resolver's address from standing for a name.
func reserved(place uint32) bool {
	v4, _ := addresses(place)
	return place == 0 || place == size-1 || v4 == netpolicy.Resolver4
}

func addresses(place uint32) (v4, v6 netip.Addr) {
	var b4 [4]byte
	binary.BigEndian.PutUint32(b4[:], base+place)
	b6 := netpolicy.Synthetic6.Addr().As16()
	copy(b6[12:], b4[:])
	return netip.AddrFrom4(b4), netip.AddrFrom16(b6)
}

func placeOf(a netip.Addr) (uint32, bool) {
	a = a.Unmap()
	b := a.AsSlice()
	switch {
	case netpolicy.Synthetic4.Contains(a):
	case netpolicy.Synthetic6.Contains(a):
		b = b[12:]
		if v4, ok := netip.AddrFromSlice(b); !ok || !netpolicy.Synthetic4.Contains(v4) {
			return 0, false
		}
	default:
		return 0, false
	}
	place := binary.BigEndian.Uint32(b) - base
	if a.Is6() {
		if _, v6 := addresses(place); v6 != a {
			return 0, false
		}
	}
	return place, true
}
