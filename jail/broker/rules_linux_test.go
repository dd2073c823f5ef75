package broker

import (
	"fmt"
	"path/filepath"
	"strings"
)

// testRules: everything is readable, base/ws and /dev are writable, "**/.env", "**/*.pem" and
// "**/secrets/**" are denied, "**/.git/hooks/**" and "**/ro/**" are protected, "**/wo" is writable only,
// "**/hid" and "**/*.hid" and what is below are denied and hidden.
type testRules struct{ base string }

func (r testRules) Match(path string) Answer {
	a := Answer{Bits: canRead | canExec | canSee}
	for i := range a.Rule {
		a.Rule[i] = noRule
	}
	if path == r.base+"/ws" || strings.HasPrefix(path, r.base+"/ws/") || strings.HasPrefix(path, "/dev/") ||
		strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/tmp/") && !strings.HasPrefix(path, r.base) {
		a.Bits |= canWrite
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		switch {
		case p == "secrets", i == len(parts)-1 && (p == ".env" || strings.HasSuffix(p, ".pem")):
			a.Bits = canSee
			a.Rule[opRead], a.Rule[opWrite] = 7, 7
		case p == "ro", p == "hooks" && i > 0 && parts[i-1] == ".git":
			a.Bits &^= canWrite
			a.Rule[opWrite] = 8
		case p == "wo":
			a.Bits = canWrite | canSee
		case p == "hid" || strings.HasSuffix(p, ".hid"):
			a.Bits = 0
			a.Rule[opRead], a.Rule[opWrite], a.Rule[opSee] = 9, 9, 9
		}
	}
	return a
}

func (r testRules) Shows(path string) bool {
	for p := path; p != "/"; p = filepath.Dir(p) {
		if r.Match(p).Bits&canSee == 0 {
			return false
		}
	}
	return true
}

func (r testRules) Text(i uint16) string {
	if i == noRule {
		return ""
	}
	return fmt.Sprintf("rule %d", i)
}

func (r testRules) NoGain(from, to string) bool {
	probes := []string{"", "/x", "/.env", "/hooks", "/hooks/x", "/a/secrets/x", "/a/ro/x"}
	for _, p := range probes {
		if r.Match(to+p).Bits&^r.Match(from+p).Bits != 0 {
			return false
		}
	}
	return true
}
