package organisation

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentos/agentos/policy"
)

// Breaker is who wants to do without the organisation's rules.
type Breaker struct {
	UID    int
	Groups []int  // all of the process, as the kernel knows them
	Names  []byte // the text of /etc/group, which names groups (group(5))
}

// MayBreak answers which files b may do without, and for how long at most. None is an
// [*Error].
func (r *Rules) MayBreak(b Breaker) (paths []string, longest time.Duration, err error) {
	if r == nil {
		return nil, 0, &Error{Err: errNobody}
	}
	able := false
	for _, f := range r.Files {
		g := &f.Doc.Org.BreakGlass
		if !g.Allowed() {
			continue
		}
		able = true
		if b.UID != 0 && !slices.ContainsFunc(g.Groups, func(it policy.Item) bool { return b.member(it.Text) }) {
			continue
		}
		paths = append(paths, f.Path)
		if d := time.Duration(g.Longest); longest == 0 || d < longest {
			longest = d
		}
	}
	switch {
	case !able:
		return nil, 0, &Error{Err: errNobody, Hint: "ask whoever administers " + r.dir}
	case paths == nil:
		return nil, 0, &Error{Err: errors.New("you are in none of the groups that may break the glass"), Hint: "ask whoever administers " + r.dir}
	}
	return paths, longest, nil
}

// member reports whether b's process has the group of that name. A name that /etc/group
// does not have is nobody's.
func (b Breaker) member(name string) bool {
	for line := range bytes.Lines(b.Names) {
		fields := strings.Split(strings.TrimRight(string(line), "\n"), ":")
		if len(fields) != 4 || fields[0] != name {
			continue
		}
		gid, err := strconv.ParseUint(fields[2], 10, 32)
		return err == nil && slices.Contains(b.Groups, int(gid))
	}
	return false
}
