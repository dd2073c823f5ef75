package trust

import (
	"path"
	"strings"
)

// matcher is a pattern, split into names.
type matcher struct {
	names []string
	tree  bool // names anywhere, and all below
}

func compile(pattern string) matcher {
	m := matcher{tree: strings.HasSuffix(pattern, "/")}
	m.names = strings.Split(strings.TrimSuffix(pattern, "/"), "/")
	return m
}

// end returns how many of the path's names the pattern reaches to, 0 if it does
// not match.
func (m matcher) end(names []string) int {
	last := len(names) - len(m.names)
	if !m.tree {
		if last >= 0 && m.at(names[last:]) {
			return len(names)
		}
		return 0
	}
	for i := 0; i <= last; i++ {
		if m.at(names[i:]) {
			return i + len(m.names)
		}
	}
	return 0
}

func (m matcher) at(names []string) bool {
	for i, want := range m.names {
		if want == names[i] {
			continue
		}
		if !strings.ContainsAny(want, "*?[") {
			return false
		}
		if ok, err := path.Match(want, names[i]); !ok || err != nil {
			return false
		}
	}
	return true
}

// kinds is a table that is ready to be asked.
type kinds []struct {
	kind       *Kind
	match, not []matcher
}

func newKinds(table []Kind) kinds {
	k := make(kinds, len(table))
	for i := range table {
		k[i].kind = &table[i]
		for _, p := range table[i].Match {
			k[i].match = append(k[i].match, compile(p))
		}
		for _, p := range table[i].Not {
			k[i].not = append(k[i].not, compile(p))
		}
	}
	return k
}

// of returns the kind of a path, nil if it is of none, and the path of the item:
// itself, or the directory that is taken as a whole.
func (k kinds) of(name string) (*Kind, string) {
	names := strings.Split(strings.Trim(name, "/"), "/")
	// What is installed or generated has package files and hooks of its own: the whole comes first.
	for _, whole := range []bool{true, false} {
		for _, row := range k {
			if row.kind.Whole != whole {
				continue
			}
			for _, m := range row.match {
				n := m.end(names)
				if n == 0 || excepted(row.not, names) {
					continue
				}
				if whole {
					return row.kind, strings.Join(names[:n], "/")
				}
				return row.kind, strings.Join(names, "/")
			}
		}
	}
	return nil, ""
}

func excepted(not []matcher, names []string) bool {
	for _, m := range not {
		if m.end(names) > 0 {
			return true
		}
	}
	return false
}
