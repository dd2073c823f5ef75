package trust

import (
	"slices"
	"strings"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

// maxChanged bounds the paths of a session.
const maxChanged = 500_000

// Changes are the paths that a session wrote to, by its record. The zero value
// is empty.
type Changes struct {
	Missed uint64 // events that were lost, and paths beyond the bound
	Files  uint64 // events about files

	paths map[string]change
}

// change is what the record says of a path.
type change struct {
	fresh bool // it was made in the session, before anything else was done to it
	moved bool // it came by a rename or link: if it is a directory, so did all below

	tracked bool // only its change time says so, which is no news for a file that git does not have
}

// Add takes the next record.
func (c *Changes) Add(r *segment.Record) {
	if r.Kind.Class() == event.File {
		c.Files++
	}
	switch {
	case r.Kind == event.Loss:
		c.Missed += r.Count
		return
	case !r.Alters():
		return
	}
	switch r.Kind {
	case event.Create, event.Mknod:
		c.note(r.Path, change{fresh: true})
	case event.Symlink:
		c.note(r.Path, change{fresh: true, moved: true})
	case event.Open, event.Truncate, event.Chmod, event.Setattr:
		c.note(r.Path, change{})
	case event.Rename, event.Link:
		c.note(r.Path2, change{moved: true})
		if r.Kind == event.Rename { // an exchange changes both
			c.note(r.Path, change{moved: true})
		}
	}
}

func (c *Changes) note(path string, ch change) {
	if !strings.HasPrefix(path, "/") {
		return
	}
	old, ok := c.paths[path]
	if !ok && len(c.paths) >= maxChanged {
		c.Missed++
		return
	}
	if c.paths == nil {
		c.paths = map[string]change{}
	}
	if ok {
		ch.fresh, ch.moved, ch.tracked = old.fresh, ch.moved || old.moved, ch.tracked && old.tracked
	} else {
		path = strings.Clone(path) // records of a block share memory
	}
	c.paths[path] = ch
}

// sorted returns the paths in order.
func (c *Changes) sorted() []string {
	out := make([]string, 0, len(c.paths))
	for p := range c.paths {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}
