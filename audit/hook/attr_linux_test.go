package hook

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

// TestAttributes: times, extended attributes and flags of what the rules deny or protect stay as they are.
func TestAttributes(t *testing.T) {
	x := enforcing(t)
	dir := place(t)
	p := func(name string) string { return filepath.Join(dir, name) }
	kept := "ok" // where the file system has extended attributes
	for _, name := range []string{".env", "ro/file", "ok", "big"} {
		if err := unix.Setxattr(p(name), "user.kept", []byte("secret"), 0); err != nil {
			kept = unix.ErrnoName(err.(unix.Errno))
		}
	}
	j := x.jail(Jail{Rules: rules(t, dir), Enforce: true, Strict: true, Audit: AuditAll})
	var acts [][]string
	var wants []string
	add := func(want string, act ...string) { acts, wants = append(acts, act), append(wants, want) }
	var before [3]unix.Stat_t
	names := []string{".env", "ro/file", "secrets"}
	for i, name := range names {
		if err := unix.Stat(p(name), &before[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		add("EACCES", "utimes", p(name))
	}
	add("EACCES", "futimens", p("ro/file"))
	add("ok", "utimes", p("ok"))
	add("ok", "futimens", p("ok"))
	add("EACCES", "setflags", p("ro/file"))
	if kept == "ok" {
		add("EACCES", "xattr", p(".env"))
		add("EACCES", "xattr", p("ro/file"))
		add("EACCES", "fsetxattr", p("ro/file"))
		add("EACCES", "removexattr", p("ro/file"))
		add("EACCES", "removexattr", p(".env"))
		add("EACCES", "getxattr", p(".env"))
		add("ok", "getxattr", p("ro/file"))
		add("ok", "xattr", p("ok"))
		add("ok", "fsetxattr", p("ok"))
		add("ok", "removexattr", p("ok"))
	}
	check(t, j.do(acts...), wants, acts)
	for i, name := range names {
		var after unix.Stat_t
		if err := unix.Stat(p(name), &after); err != nil || after.Mtim != before[i].Mtim || after.Ctim != before[i].Ctim {
			t.Errorf("%s was changed: %v, %v to %v", name, err, before[i].Mtim, after.Mtim)
		}
	}
	for _, path := range []string{p(".env"), p("ro/file")} {
		x.wait("refused change of "+path, func(e event.Event) bool {
			return e.Kind == event.Setattr && e.Verdict == event.Deny && e.Path == path
		})
	}
	x.wait("allowed change", func(e event.Event) bool {
		return e.Kind == event.Setattr && e.Verdict == event.Allow && e.Path == p("ok")
	})
	t.Logf("extended attributes of this file system: %s", kept)
}
