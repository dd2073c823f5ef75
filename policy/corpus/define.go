package corpus

import "strings"

// Matcher reports whether a path matches a glob; glob.Reference of one glob.
type Matcher func(glob, path string) bool

// Bits of an operation in an answer of [Bits].
const (
	CanRead = 1 << iota
	CanWrite
	CanExec
	CanSee // always: no rule of a corpus hides
)

// Bits answers which operations rules allow on a path, by the definition: in Deny and in
// Protect the last rule that matches decides, Protect forbids writing only, and
// what remains must be listed.
func Bits(rules []Rule, match Matcher, path string) int {
	last := func(l List) bool {
		on := false
		for _, r := range rules {
			if r.List != l {
				continue
			}
			if text, except := strings.CutPrefix(r.Glob, "!"); match(text, path) {
				on = !except
			}
		}
		return on
	}
	if last(Deny) {
		return CanSee
	}
	bits := CanSee
	for l, bit := range map[List]int{Read: CanRead, Write: CanWrite, Exec: CanExec} {
		if last(l) {
			bits |= bit
		}
	}
	if last(Protect) {
		bits &^= CanWrite
	}
	return bits
}

// Allows answers a row by the definition. noGain says whether a directory may move: nothing
// below it, now or later, may gain an access.
func (c *Case) Allows(row Row, match Matcher, noGain func(from, to string) bool) bool {
	from := Bits(c.Rules, match, row.Path)
	switch row.Act {
	case ActRead:
		return from&CanRead != 0
	case ActExec:
		return from&CanExec != 0
	}
	if from&CanWrite == 0 {
		return false
	}
	if !row.Act.Two() {
		return true
	}
	to := Bits(c.Rules, match, row.To)
	gained := to &^ from
	if from&CanRead != 0 { // its content could have been copied there
		gained &^= CanExec
	}
	switch row.Act {
	case ActLink: // a name that can be read and written gives away nothing
		return to&CanWrite != 0 && from&CanRead != 0
	case ActMoveDir:
		return to&CanWrite != 0 && noGain(row.Path, row.To)
	default:
		return to&CanWrite != 0 && gained == 0
	}
}
