package opens

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Bounds of what is kept: more, and every file with several names is refused.
const (
	maxLinked = 1 << 16 // files
	maxNames  = 4 << 20 // bytes of names
	maxEach   = 8       // names of a file: more, and that file is refused
)

// Linked is what a jail came to know of files with several names: those that were asked for
// and refused. What one of its names is refused, none gives. Names are kept and not
// verdicts, so that it goes by the rules of the day. Shared by whoever decides opens; the
// zero value knows of none.
type Linked struct {
	some  atomic.Bool
	mu    sync.Mutex
	names map[object][]string // nil names: refused whatever is asked
	bytes int
}

// object is an inode.
type object struct{ dev, ino uint64 }

// Some reports whether anything is known: else nobody need look at links.
func (l *Linked) Some() bool { return l.some.Load() }

// Met notes the name of a file with several, which was refused.
func (l *Linked) Met(dev, ino uint64, name []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := object{dev, ino}
	names, known := l.names[id]
	switch {
	case l.full() || known && names == nil || slices.Contains(names, string(name)):
		return
	case l.names == nil:
		l.names = map[object][]string{}
	}
	if len(names) >= maxEach {
		l.names[id] = nil
		return
	}
	l.names[id] = append(names, string(name))
	l.bytes += len(name)
	l.some.Store(true)
}

// Refused reports whether a file has a known name that allows says no to.
func (l *Linked) Refused(dev, ino uint64, allows func(name string) bool) bool {
	if !l.Some() {
		return false
	}
	l.mu.Lock()
	names, known := l.names[object{dev, ino}]
	full := l.full()
	names = slices.Clone(names) // rules are asked without the lock
	l.mu.Unlock()
	if full || known && names == nil {
		return true
	}
	return slices.ContainsFunc(names, func(name string) bool { return !allows(name) })
}

// full reports whether more may have been met than is kept. l.mu is held.
func (l *Linked) full() bool { return len(l.names) >= maxLinked || l.bytes >= maxNames }
