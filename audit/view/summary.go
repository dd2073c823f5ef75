package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

// Summary counts what the records of a session hold. The zero value is empty;
// [Summary.Add] takes records in order; [Summary.Result] tells.
type Summary struct {
	res      Result
	kinds    map[event.Kind]uint64
	denials  map[denialKey]*Denial
	programs map[string]uint64
	files    map[string]*change
	uses     map[string]uint64
	refused  int // files that came when uses was full
	sessions map[string]struct{}
	hosts    map[string]uint64
	peers    map[string]uint64
	limits   map[string]uint64
}

// Result is a summary for people and, as JSON, for programs. Strings may be
// hostile. Lists have the most frequent first.
type Result struct {
	Session  string            `json:"session"`  // of the first record
	Sessions int               `json:"sessions"` // how many, counted up to 10,000
	First    time.Time         `json:"first"`    // wall clock of the first record
	Last     time.Time         `json:"last"`
	Records  uint64            `json:"records"`
	Kinds    map[string]uint64 `json:"kinds"` // records by kind
	Denied   uint64            `json:"denied"`
	Denials  []Denial          `json:"denials"`  // by rule and kind
	Programs []Count           `json:"programs"` // executions by path
	Files    []Count           `json:"files"`    // files by how often they were opened or altered
	Hosts    []Count           `json:"hosts"`    // connections by name and port, or by address
	Peers    []Count           `json:"peers"`    // connections by address
	Limits   []Count           `json:"limits"`   // resource limits that were hit
	Changes  []Change          `json:"changes"`  // files that are not as before, by path
	Lost     uint64            `json:"lost"`
	Gaps     uint64            `json:"gaps"`
	Escapes  uint64            `json:"escapes"`
	More     uint64            `json:"more"` // entries that the lists have no room for
}

// Denial is what one rule refused.
type Denial struct {
	Rule    string `json:"rule"` // "" when nothing allowed it
	Kind    string `json:"kind"`
	Example string `json:"example"` // first object refused
	Objects int    `json:"objects"` // how many different ones, counted up to 1000
	Count   uint64 `json:"count"`

	seen map[string]struct{}
}

// Count is a name and how often.
type Count struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

// Change is what happened to a path from the first record to the last.
type Change struct {
	Path string `json:"path"`
	What string `json:"what"` // "new", "written", "deleted" or "attributes"
}

// What a summary keeps at most.
const (
	maxNames   = 10_000
	maxChanges = 100_000
	maxObjects = 1000
)

type denialKey struct {
	rule string
	kind event.Kind
}

// change is the state of one path.
type change struct {
	fresh   bool // it was not there before
	gone    bool
	written bool
	attr    bool
}

// Add counts one record.
func (s *Summary) Add(r *segment.Record) {
	if s.kinds == nil {
		s.kinds, s.denials, s.programs = map[event.Kind]uint64{}, map[denialKey]*Denial{}, map[string]uint64{}
		s.files, s.peers, s.limits = map[string]*change{}, map[string]uint64{}, map[string]uint64{}
		s.uses, s.hosts, s.sessions = map[string]uint64{}, map[string]uint64{}, map[string]struct{}{}
	}
	n := uint64(1)
	if r.Count > 1 && r.Kind != event.Loss && r.Kind != event.Gap {
		n = r.Count
	}
	if s.res.Session == "" {
		s.res.Session = strings.Clone(r.Jail)
	}
	if !r.Time.IsZero() {
		if s.res.First.IsZero() {
			s.res.First = r.Time
		}
		s.res.Last = r.Time
	}
	if _, ok := s.sessions[r.Jail]; !ok && len(s.sessions) < maxNames {
		s.sessions[strings.Clone(r.Jail)] = struct{}{}
	}
	s.res.Records++
	s.kinds[r.Kind]++
	switch r.Kind {
	case event.Loss:
		s.res.Lost += r.Count
		return
	case event.Gap:
		s.res.Gaps++
		return
	case event.Escape:
		s.res.Escapes += n
		return
	case event.Limit:
		s.count(s.limits, r.Name, n)
		return
	}
	if r.Denied() {
		s.deny(&r.Event, n)
		return
	}
	if r.Errno != 0 && (r.Kind != event.Connect || event.ErrnoName(r.Errno) != "EINPROGRESS") {
		return // it failed on its own
	}
	switch r.Kind {
	case event.Exec:
		s.count(s.programs, r.Path, n)
	case event.Connect, event.UnixConnect, event.Send:
		s.count(s.peers, peer(&r.Event), n)
		s.count(s.hosts, host(&r.Event), n)
	default:
		s.change(&r.Event)
		if r.Kind.Class() == event.File && r.Path != "" {
			s.use(r.Path, n)
		}
	}
}

// host is what was connected to, without the address that only stands for a name.
func host(e *event.Event) string {
	if e.Host() == "" {
		if e.Addr != "" {
			return e.Addr
		}
		return e.Path
	}
	return e.Host() + port(e.Addr)
}

// port is ":443" of an address, "" where there is none.
func port(addr string) string {
	i := strings.LastIndexByte(addr, ':')
	if i < 0 {
		return ""
	}
	return addr[i:]
}

func peer(e *event.Event) string {
	addr := e.Addr
	if addr == "" {
		addr = e.Path
	}
	if e.Name != "" && e.Name != addr {
		return e.Name + " (" + addr + ")"
	}
	return addr
}

func (s *Summary) count(m map[string]uint64, name string, n uint64) {
	if _, ok := m[name]; ok {
		m[name] += n // does not keep the new key's memory
		return
	}
	if len(m) >= maxNames {
		s.res.More++
		return
	}
	m[strings.Clone(name)] = n
}

// use counts a file. When there is no room for more, the ones that were used once make
// room: what is used often stays.
func (s *Summary) use(path string, n uint64) {
	if _, ok := s.uses[path]; ok {
		s.uses[path] += n // does not keep the new key's memory
		return
	}
	if len(s.uses) >= maxChanges {
		if s.refused++; s.refused%maxChanges == 1 { // not at each: looking through all takes its time
			for p, c := range s.uses {
				if c == 1 {
					delete(s.uses, p)
					s.res.More++
				}
			}
		}
	}
	if len(s.uses) >= maxChanges {
		s.res.More++
		return
	}
	s.uses[strings.Clone(path)] = n
}

func (s *Summary) deny(e *event.Event, n uint64) {
	s.res.Denied += n
	key := denialKey{e.Rule, e.Kind}
	d := s.denials[key]
	if d == nil {
		if len(s.denials) >= maxNames {
			s.res.More++
			return
		}
		key.rule = strings.Clone(e.Rule)
		d = &Denial{Rule: key.rule, Kind: e.Kind.String(), Example: rawObject(e), seen: map[string]struct{}{}}
		s.denials[key] = d
	}
	d.Count += n
	if len(d.seen) < maxObjects {
		d.seen[rawObject(e)] = struct{}{}
	}
}

// rawObject is the object as bytes, in its own memory.
func rawObject(e *event.Event) string {
	for _, s := range []string{e.Path, e.Addr, e.Name} {
		if s != "" {
			return strings.Clone(s)
		}
	}
	return strings.Clone(e.Detail)
}

// change follows what becomes of files. A directory that is renamed counts as
// one path.
func (s *Summary) change(e *event.Event) {
	switch e.Kind {
	case event.Create, event.Mkdir, event.Mknod:
		s.made(e.Path)
	case event.Symlink, event.Link:
		s.made(target(e))
	case event.Open:
		if writes(e) {
			s.touch(e.Path, func(c *change) { c.written, c.gone = true, false })
		}
	case event.Truncate:
		s.touch(e.Path, func(c *change) { c.written = true })
	case event.Unlink, event.Rmdir:
		s.touch(e.Path, func(c *change) { c.gone = true })
	case event.Chmod, event.Chown, event.Setattr:
		s.touch(e.Path, func(c *change) { c.attr = true })
	case event.Rename: // whether it replaced a file is not known: "written" is true either way
		s.touch(e.Path, func(c *change) { c.gone = true })
		s.touch(e.Path2, func(c *change) { c.written, c.gone = true, false })
	}
}

// target is the path that a link or symlink makes: the second one where there
// are two.
func target(e *event.Event) string {
	if e.Path2 != "" && e.Kind == event.Link {
		return e.Path2
	}
	return e.Path
}

// made notes a path that was made: new, or there again after it was deleted.
func (s *Summary) made(path string) {
	s.touch(path, func(c *change) {
		if !c.gone && !c.written && !c.attr {
			c.fresh = true
		}
		c.gone, c.written = false, true
	})
}

func (s *Summary) touch(path string, f func(c *change)) {
	if path == "" {
		return
	}
	c := s.files[path]
	if c == nil {
		if len(s.files) >= maxChanges {
			s.res.More++
			return
		}
		c = &change{}
		s.files[strings.Clone(path)] = c
	}
	f(c)
}

// word is what c comes to, "" for nothing: made and deleted again.
func (c *change) word() string {
	switch {
	case c.fresh && c.gone:
		return ""
	case c.gone:
		return "deleted"
	case c.fresh:
		return "new"
	case c.written:
		return "written"
	case c.attr:
		return "attributes"
	}
	return ""
}

// Result returns the summary so far.
func (s *Summary) Result() Result {
	res := s.res
	res.Kinds, res.Denials, res.Changes = map[string]uint64{}, []Denial{}, []Change{}
	for k, n := range s.kinds {
		res.Kinds[k.String()] = n
	}
	for _, d := range s.denials {
		res.Denials = append(res.Denials, Denial{Rule: d.Rule, Kind: d.Kind, Example: d.Example, Objects: len(d.seen), Count: d.Count})
	}
	slices.SortFunc(res.Denials, func(a, b Denial) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Kind, b.Kind))
	})
	res.Programs, res.Peers, res.Limits = sorted(s.programs), sorted(s.peers), sorted(s.limits)
	res.Files, res.Hosts, res.Sessions = sorted(s.uses), sorted(s.hosts), len(s.sessions)
	for path, c := range s.files {
		if word := c.word(); word != "" {
			res.Changes = append(res.Changes, Change{path, word})
		}
	}
	slices.SortFunc(res.Changes, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return res
}

func sorted(m map[string]uint64) []Count {
	out := []Count{}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, Count{name, m[name]})
	}
	slices.SortStableFunc(out, func(a, b Count) int { return cmp.Compare(b.Count, a.Count) })
	return out
}
