package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// What is read at most.
const (
	maxFile  = 4 << 20  // bytes of a file that is compared and shown; larger ones are known by size and time
	maxBelow = 50_000   // entries below directories that were renamed, together
	maxDepth = 64       // of those directories
	maxItems = 10_000   // items of a report
	maxTotal = 64 << 20 // bytes of all files that are read
)

// object is what lies at a path now.
type object struct {
	mode   fs.FileMode
	size   int64
	stamp  string // of inode, size and change time, which no program can set (inode(7))
	data   []byte // content of a regular file, target of a link
	unread string // why data is missing: "too large" ...
}

// disk opens what lies below the roots of a session.
type disk struct {
	roots []root
	left  int64 // bytes that may still be read
}

// root is a directory or file of the host that the session could write.
type root struct {
	path string
	dir  opener
}

// opener reads beneath one descriptor. Names are relative and clean; "." is
// itself. Nothing is followed but directories.
type opener interface {
	look(name string, content int64) (object, error)
	list(name string, most int) ([]string, error)
	walk(since int64, most int, found func(name string, dir bool)) bool // what changed since then; false if there was more than most, or unreadable
	close()
}

func (s *Session) open() disk {
	d := disk{left: maxTotal}
	for _, p := range s.Roots {
		if o, err := openBeneath(p); err == nil {
			d.roots = append(d.roots, root{p, o})
		}
	}
	return d
}

func (d *disk) close() {
	for _, r := range d.roots {
		r.dir.close()
	}
}

// at returns the root that has a path, the deepest, and the path in it.
func (d *disk) at(path string) (r root, name string, ok bool) {
	for _, c := range d.roots {
		rel, below := cut(path, c.path)
		if below && (!ok || len(c.path) > len(r.path)) {
			r, name, ok = c, rel, true
		}
	}
	return r, name, ok
}

// cut returns path relative to dir, "." for dir itself.
func cut(path, dir string) (string, bool) {
	if path == dir {
		return ".", true
	}
	rel, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	if !ok || rel == "" || filepath.Clean(rel) != rel || strings.HasPrefix(rel, "..") && (rel == ".." || rel[2] == '/') {
		return "", false
	}
	return rel, true
}

// look reads what lies at a path.
func (d *disk) look(path string) (object, error) {
	r, name, ok := d.at(path)
	if !ok {
		return object{}, fs.ErrNotExist
	}
	o, err := r.dir.look(name, min(maxFile, d.left))
	d.left -= int64(len(o.data))
	return o, err
}

// digest names the state of an object: its content where that was read.
func (o *object) digest() string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%v\x00", o.mode&(fs.ModeType|0o111))
	switch {
	case o.unread != "":
		_, _ = fmt.Fprintf(h, "stamp\x00%s", o.stamp)
	default:
		_, _ = h.Write(o.data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// text reports whether content can be shown as text.
func text(data []byte) bool { return !strings.Contains(string(data[:min(len(data), 8000)]), "\x00") }
