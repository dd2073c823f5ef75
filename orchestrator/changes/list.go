package changes

import (
	"encoding/base64"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// foldOver is how many names a directory may hold, at any depth, to be listed name
// by name where not everything is wanted.
const foldOver = 20

// Change is one row of a listing: a name that the session made, or a directory
// with all that is in it.
type Change struct {
	Path  string // absolute, inside; any bytes but NUL
	Kind  Kind
	Size  int64 // bytes, of all files in it
	Disk  int64 // bytes on disk
	Names int   // in it, when it is folded; else 0
}

// MarshalJSON writes a path that is not UTF-8 twice: readable, and as path_b64
// byte for byte, as the audit log does.
func (c Change) MarshalJSON() ([]byte, error) {
	row := struct {
		Path   string `json:"path"`
		Base64 string `json:"path_b64,omitempty"`
		Kind   Kind   `json:"kind"`
		Size   int64  `json:"size"`
		Disk   int64  `json:"disk"`
		Names  int    `json:"names,omitempty"`
	}{c.Path, "", c.Kind, c.Size, c.Disk, c.Names}
	if !utf8.ValidString(c.Path) {
		row.Path, row.Base64 = strings.ToValidUTF8(c.Path, "\ufffd"), base64.StdEncoding.EncodeToString([]byte(c.Path))
	}
	return json.Marshal(row)
}

// node is an entry with what is in it.
type node struct {
	Entry
	children   []*node
	size, disk int64
	names      int
	own        bool // it, or something in it
	place      bool // a directory with nothing in it but places where init mounted something
}

// grow makes a tree of sorted entries and returns its top.
func grow(entries []Entry) *node {
	if len(entries) == 0 {
		return nil
	}
	all := make(map[string]*node, len(entries))
	var top *node
	for _, e := range entries {
		n := &node{Entry: e, size: e.Size, disk: e.Disk, own: e.Own || e.Kind == Removed}
		all[e.Rel] = n
		if top == nil {
			top = n
			continue
		}
		if parent := all[above(e.Rel)]; parent != nil {
			parent.children = append(parent.children, n)
		}
	}
	top.sum()
	return top
}

// above is the directory of a path below a tree, "" for its top.
func above(rel string) string {
	if dir := path.Dir(rel); dir != "." {
		return dir
	}
	return ""
}

// sum adds up what is in n. Its depth is that of a path, at most half of PATH_MAX.
func (n *node) sum() {
	for _, c := range n.children {
		c.sum()
		n.size += c.size
		n.disk += c.disk
		n.names += 1 + c.names
		n.own = n.own || c.own
	}
	n.place = len(n.children) > 0 && !slices.ContainsFunc(n.children, func(c *node) bool { return c.own && !c.place })
}

// passage: a few directories and nothing else, such as ~/.cache: what is in each
// says more than their sum.
func (n *node) passage() bool {
	for _, c := range n.children {
		if c.Kind != Dir {
			return false
		}
	}
	return len(n.children) <= foldOver
}

// rows lists what is below n.
func (n *node) rows(base string, all bool, add func(Change)) {
	for _, c := range n.children {
		if !c.own || c.place {
			continue
		}
		row := Change{Path: path.Join(base, c.Rel), Kind: c.Kind, Size: c.size, Disk: c.disk}
		switch {
		case c.Kind != Dir || len(c.children) == 0:
			add(row)
		case !all && c.names > foldOver && !c.passage():
			row.Names = c.names
			add(row)
		default:
			if all {
				row.Size, row.Disk = 0, c.Disk
				add(row)
			}
			c.rows(base, all, add)
		}
	}
}

// Rows lists the entries of a walk below base, folded unless all is wanted. In a
// home, directories that the agent did not make and that hold nothing of its are
// left out: mounts hang there.
func Rows(base string, entries []Entry, all bool) []Change {
	out := []Change{}
	if top := grow(entries); top != nil {
		top.rows(base, all, func(c Change) { out = append(out, c) })
	}
	return out
}
