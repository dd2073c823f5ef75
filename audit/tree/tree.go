package tree

import (
	"slices"
	"strings"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/audit/view"
)

// What a tree keeps at most.
const (
	maxProcesses = 100_000
	maxPrograms  = 64 // of one process: a shell script may exec itself for ever
	maxExamples  = 8
	maxPending   = 10_000
)

// Tree is the processes of a session. As JSON it is a list in which each names its
// parent: how deep a tree is, the jail chooses, and readers of JSON have limits.
type Tree struct {
	Session string     `json:"session"`
	Roots   []*Process `json:"-"`
	All     []*Process `json:"processes"`      // in the order in which they were first seen
	More    uint64     `json:"more"`           // records of processes that there was no room for
	Rest    Acts       `json:"unattributed"`   // what no process is known for
	Lost    uint64     `json:"lost,omitempty"` // events that were not recorded: the tree may have holes
}

// Process is one process from its fork to its exit.
type Process struct {
	ID       string     `json:"id"`                 // unique during one boot
	Parent   string     `json:"parent,omitempty"`   // id; none for roots
	Pid      int32      `json:"pid"`                // on the host
	JailPid  int32      `json:"jail_pid,omitempty"` // in the jail
	Ppid     int32      `json:"ppid,omitempty"`     // on the host, when it was last seen
	Start    uint64     `json:"task_start"`         // CLOCK_BOOTTIME, ns
	Comm     string     `json:"comm,omitempty"`     // name of the task; chosen by it
	Programs []Program  `json:"programs"`           // in the order of its execs; none: it is as its parent
	Began    time.Time  `json:"began"`              // first record
	Ended    *time.Time `json:"ended,omitempty"`    // of its exit
	Code     int        `json:"code"`               // exit status
	Detail   string     `json:"detail,omitempty"`   // of the exit: a signal
	Acts     Acts       `json:"acts"`
	Children []*Process `json:"-"`
}

// Program is one exec.
type Program struct {
	Time    time.Time `json:"time"`
	Path    string    `json:"path"`
	Command string    `json:"command"` // with the arguments, printable
}

// Acts is what a process did, itself.
type Acts struct {
	Read    uint64   `json:"read"`    // files opened for reading
	Altered uint64   `json:"altered"` // files made, written, renamed, with other attributes
	Removed uint64   `json:"removed"`
	Reached uint64   `json:"reached"` // connections
	Failed  uint64   `json:"failed"`  // acts that were allowed and failed
	Denied  uint64   `json:"denied"`
	Refused []string `json:"refused,omitempty"`   // of what was denied, up to 8, printable
	Changed []string `json:"changed,omitempty"`   // of the files, up to 8
	Hosts   []string `json:"connected,omitempty"` // of the connections, up to 8
}

// Builder makes a [Tree]. The zero value is empty.
type Builder struct {
	tree  Tree
	all   map[key]*Process
	live  map[int32]*Process   // the last one of each id
	jail  map[int32][]*Process // by the id inside the jail, in the order of their starts
	order []*Process

	pending []event.Event // acts of processes that are known by their id in the jail, and not told of yet
}

type key struct {
	pid   int32
	start uint64
}

// Add takes the next record; counts says whether what it did is to be counted, or only
// what it tells about processes.
func (b *Builder) Add(r *segment.Record, counts bool) {
	if b.all == nil {
		b.all, b.live, b.jail = map[key]*Process{}, map[int32]*Process{}, map[int32][]*Process{}
	}
	if b.tree.Session == "" {
		b.tree.Session = strings.Clone(r.Jail)
	}
	if r.Kind == event.Loss {
		b.tree.Lost += r.Count
	}
	if r.Pid == 0 && r.JailPid != 0 {
		if counts {
			b.inside(&r.Event)
		}
		return
	}
	p := b.process(r)
	if p == nil {
		if r.Pid != 0 {
			b.tree.More++
		} else if counts {
			b.tree.Rest.add(&r.Event)
		}
		return
	}
	if p.JailPid == 0 && r.JailPid != 0 {
		b.jail[r.JailPid] = append(b.jail[r.JailPid], p)
	}
	p.note(r)
	if counts {
		p.Acts.add(&r.Event)
	}
}

// inside counts an act of a process that only its id in the jail tells.
func (b *Builder) inside(e *event.Event) {
	if p := b.had(e); p != nil {
		p.Acts.add(e)
		return
	}
	if len(b.pending) >= maxPending {
		b.tree.Rest.add(e)
		return
	}
	kept := *e
	kept.Path, kept.Path2, kept.Addr = strings.Clone(e.Path), strings.Clone(e.Path2), strings.Clone(e.Addr)
	kept.Name, kept.Detail, kept.Rule, kept.Argv = strings.Clone(e.Name), strings.Clone(e.Detail), "", nil
	kept.Exe, kept.Comm, kept.Jail = "", "", ""
	b.pending = append(b.pending, kept)
}

// had returns the process that had an id in the jail when e happened, nil if there is none
// yet. Both clocks are CLOCK_BOOTTIME.
func (b *Builder) had(e *event.Event) *Process {
	all := b.jail[e.JailPid]
	for i := len(all) - 1; i >= 0; i-- {
		if p := all[i]; p.Start <= e.Mono {
			return p
		}
	}
	return nil
}

// process finds or makes the process of r; nil if there is none or no room.
func (b *Builder) process(r *segment.Record) *Process {
	if r.Pid == 0 {
		return nil
	}
	p := b.live[r.Pid]
	if p != nil && (r.TaskStart == 0 || p.Start == r.TaskStart) {
		return p
	}
	if r.TaskStart != 0 {
		if p = b.all[key{r.Pid, r.TaskStart}]; p != nil {
			return p
		}
	}
	if len(b.order) >= maxProcesses {
		return nil
	}
	p = &Process{ID: r.Key(), Pid: r.Pid, Start: r.TaskStart, Began: r.Time, Programs: []Program{}}
	b.all[key{r.Pid, r.TaskStart}], b.live[r.Pid] = p, p
	b.order = append(b.order, p)
	return p
}

// note keeps what r tells about the process itself.
func (p *Process) note(r *segment.Record) {
	if r.JailPid != 0 {
		p.JailPid = r.JailPid
	}
	if r.Ppid != 0 && p.Ppid == 0 { // the first one: later it may be whoever reaps it
		p.Ppid = r.Ppid
	}
	if r.Comm != "" && r.Comm != p.Comm {
		p.Comm = strings.Clone(r.Comm)
	}
	switch {
	case r.Kind == event.Exec && r.Verdict == event.Allow && r.Errno == 0 && len(p.Programs) < maxPrograms:
		p.Programs = append(p.Programs, Program{r.Time, strings.Clone(r.Path), strings.Clone(view.Command(&r.Event))})
	case r.Kind == event.Exit:
		at := r.Time
		p.Ended, p.Code, p.Detail = &at, r.Code, strings.Clone(r.Detail)
	}
}

// add counts one act.
func (a *Acts) add(e *event.Event) {
	n := max(e.Count, 1)
	switch {
	case e.Denied():
		a.Denied += n
		a.Refused = a.example(a.Refused, e.Kind.String()+" "+view.Object(e))
	case e.Kind.Class() == event.Session:
	case e.Errno != 0 && e.Kind != event.Connect:
		a.Failed += n
	case e.Alters():
		a.Altered += n
		path := e.Path
		if e.Path2 != "" && e.Kind != event.Symlink {
			path = e.Path2
		}
		a.Changed = a.example(a.Changed, event.Printable(path))
	case e.Kind == event.Open:
		a.Read += n
	case e.Kind == event.Unlink, e.Kind == event.Rmdir:
		a.Removed += n
	case e.Kind == event.Connect, e.Kind == event.UnixConnect, e.Kind == event.Send:
		a.Reached += n
		a.Hosts = a.example(a.Hosts, view.Object(e))
	}
}

// example keeps what is new, while there is room.
func (a *Acts) example(all []string, s string) []string {
	if len(all) >= maxExamples || slices.Contains(all, s) {
		return all
	}
	return append(all, strings.Clone(s))
}

// Result returns the tree so far. Roots and children are in the order in which they
// were first seen.
func (b *Builder) Result() Tree {
	for i := range b.pending {
		acts := &b.tree.Rest
		if p := b.had(&b.pending[i]); p != nil {
			acts = &p.Acts
		}
		acts.add(&b.pending[i])
	}
	b.pending = nil
	t := b.tree
	t.All = append([]*Process{}, b.order...)
	byPid := map[int32][]*Process{}
	for _, p := range t.All {
		p.Parent, p.Children = "", nil
		byPid[p.Pid] = append(byPid[p.Pid], p)
	}
	for _, p := range t.All {
		var parent *Process
		for _, q := range byPid[p.Ppid] {
			if q.Start < p.Start && (parent == nil || q.Start > parent.Start) { // only older ones: no circle
				parent = q
			}
		}
		if parent == nil {
			t.Roots = append(t.Roots, p)
			continue
		}
		p.Parent, parent.Children = parent.ID, append(parent.Children, p)
	}
	return t
}
