// Package quiet gives the memory of a resident program back to the system while the
// program has nothing to do.
//
// Go collects garbage when the heap has doubled, and returns freed pages slowly: after
// its last start of a jail a helper would keep for minutes what only that start needed, and
// an init for ever. [Start] looks at how much was allocated, seldom where little
// happens, and frees after each burst of work, never during one. What it does not do:
// bound memory, or speed anything up.
//
// Pages of the program's own file and of its libraries are given back too: they stay in
// the page cache, belong to no process, and come back when they are used, at the price of
// some tens of microseconds. (Since Linux 6.18 one touched page maps up to 2 MB of a file.)
//
// Init does not use it: the tables of a first collection are larger than an init's
// garbage, and its file is memory that all jails share.
package quiet

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	often  = time.Second      // between looks while there is work
	seldom = 32 * time.Second // and at most, while there is none
	worth  = 256 << 10        // bytes allocated since the last time that make a look at files worth it
	much   = 4 << 20          // and a collection: where Go makes its first; its tables alone take 0.4 MB
	still  = 32 << 10         // bytes a second that a program at rest may allocate
)

// Start begins to watch. stop ends that and returns when it has ended; it may be
// called more than once.
func Start() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		w := watch{allocated: allocated, free: free, pause: often}
		t := time.NewTimer(often)
		defer t.Stop()
		for {
			select {
			case <-end:
				return
			case <-t.C:
				w.look()
				t.Reset(w.pause)
			}
		}
	}()
	return sync.OnceFunc(func() { close(end); <-ended })
}

// watch is what is known from look to look.
type watch struct {
	allocated func() uint64        // bytes since the program began
	free      func(garbage uint64) // bytes allocated since the last time, at most
	last      uint64               // allocated at the last look
	freed     uint64               // allocated when memory was last given back
	pause     time.Duration
}

// look frees when there was work and it is over, and sets the next pause.
func (w *watch) look() {
	now := w.allocated()
	resting := now-w.last < still*uint64(w.pause/time.Second)
	w.last = now
	switch {
	case !resting:
		w.pause = often
	case now-w.freed >= worth:
		w.free(now - w.freed)
		w.last = w.allocated()
		w.freed = w.last
	case w.pause < seldom:
		w.pause = min(2*w.pause, seldom)
		w.free(0) // what only the last moments of the work touched
	}
}

func free(garbage uint64) {
	if garbage >= much {
		debug.FreeOSMemory()
	}
	_ = releaseFiles() // no more than a larger number in ps
}

func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0 // a runtime without this number: nothing is ever freed
	}
	return s[0].Value.Uint64()
}
