package trust

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentos/agentos/orchestrator/repo"
)

// Item is one file, or one directory that is taken as a whole, that somebody's
// tool will execute or obey. Strings may be hostile.
type Item struct {
	Path   string `json:"path"` // absolute
	Name   string `json:"name"` // below the workspace, else the path
	Kind   string `json:"kind"`
	Why    string `json:"why"`
	Change string `json:"change"`          // see the constants
	Note   string `json:"note,omitempty"`  // why there is no difference to see: "binary" ...
	Mode   string `json:"mode"`            // as ls(1) has it
	Size   int64  `json:"size"`            // bytes
	Files  int    `json:"files,omitempty"` // changed files below a directory that is taken as a whole
	Digest string `json:"digest"`          // of the present state; what is accepted
	Diff   string `json:"diff,omitempty"`  // unified, from git's version or from nothing
	Base   string `json:"base,omitempty"`  // object that git has for it, see [Session.Head]

	mode uint32 // of Base
	held *Held  // what it was, where git does not say
}

// Changes of an [Item].
const (
	New       = "new"       // made in the session, and git has none
	Changed   = "changed"   // git has another content, or another kind of file
	Mode      = "mode"      // git has the content, but it was not executable
	Untracked = "untracked" // git had none; it may have been there
	Unknown   = "unknown"   // written, made or moved here; what was there before is not known
)

// Report is what a session leaves.
type Report struct {
	Session   string `json:"session"`
	Name      string `json:"name"`
	Workspace string `json:"workspace"`
	Items     []Item `json:"items"`             // by path
	Accepted  int    `json:"accepted"`          // items that were accepted before and are left out
	Compared  int    `json:"-"`                 // files of some kind that were written to, changed or not
	ByTime    bool   `json:"by_time,omitempty"` // the record names no files: found by change times, and changes of others since count too
	Missed    uint64 `json:"missed"`            // events that the record lost, and what is beyond bounds: there may be more
}

// clockStep is how far a file's change time may be behind the clock (the kernel
// takes it from the last tick), with room to spare.
const clockStep = 10 * time.Millisecond

// Find reports what s leaves, by the paths of its record. If that is silent about
// files, all that the session could write is walked, up to most entries, and what
// changed since it began counts as changed by it.
func (s *Session) Find(c *Changes, accepted Accepted, most int) Report {
	f := finder{s: s, disk: s.open(), table: newKinds(Table), whole: map[string]*Item{}, sums: map[string][]string{}, missed: c.Missed, below: maxBelow}
	defer f.disk.close()
	if s.Git != "" {
		f.git = repo.Open(s.Git)
		defer func() { _ = f.git.Close() }()
	}
	if s.Silent {
		c = &Changes{Missed: c.Missed, paths: maps.Clone(c.paths)}
		for _, r := range f.disk.roots {
			if !r.dir.walk(s.Began.Add(-clockStep).UnixNano(), most, func(name string, dir bool) { f.touched(c, filepath.Join(r.path, name), dir) }) {
				f.missed++
			}
		}
	}
	f.all = c.paths
	for _, p := range c.sorted() {
		f.path(p, c.paths[p], 0)
	}
	return f.report(accepted)
}

// touched notes what was found by its change time. A directory's says that names in
// it came or went, or that it came itself by a rename, with files below that keep
// theirs. So of a directory that git knows those count that git knows otherwise,
// and of another one all; git's own directory is known by what was held of it.
func (f *finder) touched(c *Changes, path string, dir bool) {
	if !dir {
		c.note(path, change{})
		return
	}
	name, _ := f.known(path)
	if name == ".git" || strings.HasPrefix(name, ".git/") || strings.Contains(name, "/.git/") || strings.HasSuffix(name, "/.git") {
		return
	}
	ch := change{moved: true}
	if f.git != nil && f.s.Head != "" {
		e, err := f.git.Find(f.s.Head, name)
		ch.tracked = err == nil && e.Mode == 0o40000
	}
	c.note(path, ch)
}

type finder struct {
	s      *Session
	disk   disk
	git    *repo.Store
	table  kinds
	items  []Item
	whole  map[string]*Item
	sums   map[string][]string // stamps of what lies below those
	all    map[string]change
	seen   map[string]bool
	missed uint64
	below  int

	compared int
}

// path looks at one path, and below it if a directory came there as a whole.
func (f *finder) path(path string, c change, depth int) {
	if f.seen[path] {
		return
	}
	r, name, ok := f.disk.at(path)
	if !ok {
		return // in the jail's own files, which went with it
	}
	o, err := r.dir.look(name, 0)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			f.missed++ // a link on the way, or a directory that may not be entered
		}
		return
	}
	if f.seen == nil {
		f.seen = map[string]bool{}
	}
	f.seen[path] = true
	if !o.mode.IsDir() {
		f.file(path, c, o)
		return
	}
	if !c.moved {
		return
	}
	names, err := r.dir.list(name, f.below+1)
	if err != nil || depth >= maxDepth {
		f.missed++
		return
	}
	slices.Sort(names)
	for _, n := range names {
		if f.below--; f.below < 0 {
			f.missed++
			return
		}
		below := strings.TrimSuffix(path, "/") + "/" + n
		ch, ok := f.all[below]
		if ch.moved = true; !ok {
			ch.tracked = c.tracked
		}
		f.path(below, ch, depth+1)
	}
}

// known is the name by which the table knows a path, and the part of the path
// that the table does not see.
func (f *finder) known(path string) (name, before string) {
	for _, g := range []string{f.s.Own, f.s.Git} {
		if rel, ok := cut(path, g); ok && g != "" && rel != "." {
			return ".git/" + rel, strings.TrimSuffix(g, ".git")
		}
	}
	if rel, ok := cut(path, f.s.Workspace); ok {
		return rel, f.s.Workspace + "/"
	}
	return strings.TrimPrefix(path, "/"), "/"
}

// kept returns the name below it of what lies in a directory that the agent keeps in the home: that it lies there makes it no setting. Its settings
// proper are known by their whole path.
func (f *finder) kept(path string) (name, before string, ok bool) {
	within := func(dir string) bool { _, ok := cut(path, dir); return ok }
	if slices.ContainsFunc(f.s.Settings, within) {
		return "", "", false
	}
	for _, dir := range f.s.State {
		if rel, ok := cut(path, dir); ok && rel != "." {
			return rel, dir + "/", true
		}
	}
	return "", "", false
}

func (f *finder) file(path string, c change, o object) {
	name, before := f.known(path)
	if n, b, ok := f.kept(path); ok {
		name, before = n, b
	}
	kind, item := f.table.of(name)
	if _, ok := cut(path, f.s.Hooks); kind == nil && ok && f.s.Hooks != "" {
		kind = &hooksPath
	}
	switch {
	case kind == nil && (!o.mode.IsRegular() || o.mode&0o111 == 0 || strings.HasPrefix(name, ".git/")):
		return
	case kind == nil:
		kind = &executable
	case kind.Whole && c.tracked:
		return
	case kind.Whole:
		f.part(before+item, kind, path, o)
		return
	}
	if len(f.items) >= maxItems {
		f.missed++
		return
	}
	f.compared++
	full, err := f.disk.look(path)
	if err != nil {
		return
	}
	it := Item{Path: path, Name: strings.TrimPrefix(path, f.s.Workspace+"/"), Kind: kind.Name, Why: kind.Why, Mode: full.mode.String(), Size: full.size, Digest: full.digest()}
	if f.compare(&it, c, &full) {
		f.items = append(f.items, it)
	}
}

// part counts a file below a directory that is taken as a whole.
func (f *finder) part(dir string, kind *Kind, path string, o object) {
	it := f.whole[dir]
	if it == nil {
		if len(f.whole) >= maxItems {
			f.missed++
			return
		}
		it = &Item{Path: dir, Name: strings.TrimPrefix(dir, f.s.Workspace+"/"), Kind: kind.Name, Why: kind.Why, Change: Unknown, Note: "a directory as a whole", Mode: "d"}
		f.whole[dir] = it
	}
	f.compared++
	it.Files++
	it.Size += o.size
	f.sums[dir] = append(f.sums[dir], path+"\x00"+o.mode.String()+"\x00"+o.stamp)
}

// compare fills in what is known of before. It reports whether there is a change.
func (f *finder) compare(it *Item, c change, o *object) bool {
	it.Change = Unknown
	if c.fresh {
		it.Change = New
	}
	old, was := []byte(nil), false
	if h, ok := f.s.Before[it.Path]; ok {
		it.held, old, was = &h, h.Data, true
		switch sameExec := h.Exec || o.mode&0o111 == 0; {
		case o.mode.IsRegular() && o.unread == "" && string(o.data) == string(h.Data) && sameExec:
			return false
		case o.mode.IsRegular() && o.unread == "" && string(o.data) == string(h.Data):
			it.Change = Mode
			return true
		}
		it.Change = Changed
	}
	rel, inside := cut(it.Path, f.s.Workspace)
	if inside && f.s.Head != "" && !strings.HasPrefix(rel, ".git/") {
		e, err := f.git.Find(f.s.Head, rel)
		switch {
		case err == nil && e.Mode>>12 == treeType(o.mode):
			it.Base, it.mode, was = e.ID, e.Mode, true
			if old, err = f.git.Blob(e.ID); err != nil {
				it.Note = "git's version cannot be read"
				was = false
			}
			if o.unread == "" && same(e.ID, old, o.data) {
				if e.Mode&0o111 != 0 || o.mode&0o111 == 0 || e.Mode>>12 != 0o10 {
					return false
				}
				it.Change = Mode
				return true
			}
			it.Change = Changed
		case err == nil:
			it.Change, it.Note = Changed, "another kind of file than git has"
		case errors.Is(err, repo.ErrNone) && c.tracked:
			return false
		case errors.Is(err, repo.ErrNone) && !c.fresh:
			it.Change = Untracked
		case !errors.Is(err, repo.ErrNone):
			it.Change, it.Note = Unknown, "git's version cannot be read"
		}
	}
	f.show(it, o, old, was)
	return true
}

// treeType is the type of a file as the mode of a tree's entry has it, shifted.
func treeType(m fs.FileMode) uint32 {
	switch {
	case m.IsRegular():
		return 0o10
	case m&fs.ModeSymlink != 0:
		return 0o12
	}
	return 0
}

// same reports whether content is what git has: as it is, with other line ends
// (core.autocrlf), or held by git-lfs.
func same(id string, old, now []byte) bool {
	if repo.BlobID(id, now) == id {
		return true
	}
	if text(now) && repo.BlobID(id, []byte(strings.ReplaceAll(string(now), "\r\n", "\n"))) == id {
		return true
	}
	if len(old) < 1024 && strings.HasPrefix(string(old), "version https://git-lfs.github.com/spec/") {
		sum := sha256.Sum256(now)
		return slices.Contains(strings.Split(string(old), "\n"), "oid sha256:"+hex.EncodeToString(sum[:]))
	}
	return false
}

// show adds the difference, or says why there is none.
func (f *finder) show(it *Item, o *object, old []byte, was bool) {
	switch {
	case o.mode&fs.ModeSymlink != 0:
		it.Note = "a link"
		it.Diff = unified(string(old), string(o.data))
	case o.unread != "":
		it.Note = cmp.Or(it.Note, o.unread)
	case !text(o.data) || was && !text(old):
		it.Note = "binary"
	default:
		it.Diff = unified(string(old), string(o.data))
	}
}

func (f *finder) report(accepted Accepted) Report {
	r := Report{Session: f.s.ID, Name: f.s.Name, Workspace: f.s.Workspace, Items: []Item{}, Compared: f.compared, Missed: f.missed, ByTime: f.s.Silent}
	for dir, it := range f.whole {
		h := sha256.New()
		for _, s := range f.sums[dir] { // in the order of paths
			_, _ = fmt.Fprintf(h, "%s\x00", s)
		}
		it.Digest = hex.EncodeToString(h.Sum(nil))
		f.items = append(f.items, *it)
	}
	for _, it := range f.items {
		if accepted.Has(it) {
			r.Accepted++
			continue
		}
		r.Items = append(r.Items, it)
	}
	slices.SortFunc(r.Items, func(a, b Item) int { return strings.Compare(a.Path, b.Path) })
	return r
}
