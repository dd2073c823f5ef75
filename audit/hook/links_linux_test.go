package hook

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

// TestOldLinks: files that had two names before the jail. What one name is refused the other
// does not give, once both were met; what no rule refuses stays.
func TestOldLinks(t *testing.T) {
	x := enforcing(t)
	dir := place(t)
	p := func(name string) string { return filepath.Join(dir, name) }
	for name, other := range map[string]string{"old.pem": "harmless", "ro/kept": "also-kept", "both": "both2", "twice.pem": "deep/plain"} {
		if err := os.MkdirAll(filepath.Dir(p(other)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p(name), []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(p(name), p(other)); err != nil {
			t.Fatal(err)
		}
	}
	j := x.jail(Jail{Rules: rules(t, dir), Enforce: true, Strict: true})
	var acts [][]string
	var wants []string
	add := func(want string, act ...string) { acts, wants = append(acts, act), append(wants, want) }
	add("EACCES", "read", p("harmless"))
	add("EACCES", "opath", p("harmless"))
	add("EACCES", "write", p("harmless"))
	add("EACCES", "truncate", p("harmless"))
	add("EACCES", "chmod", p("harmless"))
	add("EACCES", "link", p("harmless"), p("harmless2"))
	add("EACCES", "read", p("old.pem"))
	add("ok", "rename", p("harmless"), p("harmless3")) // gives nothing: the inode is known
	add("EACCES", "read", p("harmless3"))
	add("EACCES", "read", p("deep/plain"))
	add("ok", "read", p("also-kept"))
	add("EACCES", "write", p("also-kept"))
	add("EACCES", "link", p("also-kept"), p("again"))
	add("ok", "read", p("both"))
	add("ok", "write", p("both2"))
	add("ok", "link", p("both"), p("both3"))
	add("ok", "read", p("both3"))
	check(t, j.do(acts...), wants, acts)
	x.wait("why", func(e event.Event) bool {
		return e.Kind == event.Open && e.Verdict == event.Deny && e.Path == p("harmless") && e.Detail == "another name of this file is refused"
	})

	// The refused name is gone: the jail met it, so it is known all the same. With one link left there is nothing to say.
	if err := os.Link(p("harmless3"), p("harmless4")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(p("old.pem")); err != nil {
		t.Fatal(err)
	}
	check(t, j.do([]string{"read", p("harmless4")}), []string{"EACCES"}, [][]string{{"old name removed"}})
	if err := os.Remove(p("harmless3")); err != nil {
		t.Fatal(err)
	}
	check(t, j.do([]string{"read", p("harmless4")}), []string{"ok"}, [][]string{{"one name left"}})
}

// TestManyLinks: more names in memory than are looked at refuse, and a jail that makes and drops names of
// a file all the while does not hide an old one.
func TestManyLinks(t *testing.T) {
	x := enforcing(t)
	dir := place(t)
	p := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(p("many.pem"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(p("many.pem"), p("guiltless")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p("own"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	j := x.jail(Jail{Rules: rules(t, dir), Enforce: true, Strict: true})
	var acts [][]string
	var wants []string
	for i := range 600 {
		name := p("link" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)))
		if err := os.Link(p("own"), name); err != nil {
			t.Fatal(err)
		}
	}
	acts, wants = append(acts, []string{"read", p("own")}), append(wants, "EACCES")
	acts, wants = append(acts, []string{"read", p("guiltless")}), append(wants, "EACCES")
	check(t, j.do(acts...), wants, acts)

	stop, done := make(chan struct{}), make(chan struct{})
	if err := os.Link(p("many.pem"), p("churned")); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Link(p("guiltless"), p("churn"))
				unix.Unlink(p("churn"))
			}
		}
	}()
	for range 5 {
		fresh := x.jail(Jail{Rules: rules(t, dir), Enforce: true, Strict: true}) // knows of no taint
		check(t, fresh.do([]string{"read", p("churned")}), []string{"EACCES"}, [][]string{{"read while names come and go"}})
	}
	close(stop)
	<-done
}
