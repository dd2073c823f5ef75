//go:build root

package escape

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHideAsUser and TestHideAsRoot: names that a rule hides are in nothing that an agent prints, whatever it lists directories
// with, also where the host makes them while it does; and no call tells one that is there from one that is not.
func TestHideAsUser(t *testing.T) { hide(t, 60217) }

func TestHideAsRoot(t *testing.T) { hide(t, 0) }

func hide(t *testing.T, uid int) {
	w := newWorld(t, uid)
	w.startHelper()
	w.reset()
	w.hide(t)
}

// hiddenTree makes what is to be seen and what is not below dir.
func (w *world) hiddenTree(dir string) {
	for _, sub := range []string{"", "/sub", "/sub/deep"} {
		w.put(dir+sub+"/seen-file", "plain\n", 0o644)
		w.put(dir+sub+"/unseen-"+w.canary("a hidden name in "+dir+sub), "SECRET\n", 0o644)
		w.put(dir+sub+"/unseen-fixed", w.canary("a hidden file in "+dir+sub), 0o755)
		w.put(dir+sub+"/x.pem", w.canary("a denied file in "+dir+sub), 0o644)
	}
	if strings.HasPrefix(dir, "ws") {
		w.put(dir+"/sub/unseen.d/"+w.canary("a name in a hidden directory"), w.canary("a file in a hidden directory"), 0o644)
		must(w.t, os.Symlink("unseen.d", w.path(dir, "sub/to")))
		must(w.t, os.Symlink("unseen.d/..", w.path(dir, "sub/through")))
		must(w.t, os.Symlink("seen-file", w.path(dir, "unseen-link")))
	}
	must(w.t, unix.Mkfifo(w.path(dir, "unseen-fifo"), 0o666))
}

func (w *world) hide(t *testing.T) {
	w.hiddenTree("ws")
	w.hiddenTree("home/over")
	w.own("ws", "home")
	text, err := os.ReadFile("testdata/hide.toml")
	must(t, err)
	must(t, os.WriteFile(w.path("out/hide.toml"), text, 0o644))
	script, err := os.ReadFile("testdata/hide.py")
	must(t, err)
	w.put("ws/hide.py", string(script), 0o644)
	w.own("ws/hide.py")
	must(t, os.Chmod(w.path("ws"), 0o777))
	before := w.state()

	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // the host makes, renames and removes hidden names all the time
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			name := w.path("ws/sub/unseen-" + w.canary("a hidden name that came later"))
			_ = os.WriteFile(name, []byte("SECRET\n"), 0o644)
			if i%2 == 0 {
				_ = os.Rename(name, w.path("ws/sub/deep/unseen-late"))
			} else {
				_ = os.Remove(name)
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run := w.elsewhere(ctx, "run", "--policy", w.path("out/hide.toml"), "--workspace", w.path("ws"), "--", "/usr/bin/python3", "hide.py")
	out, err := run.CombinedOutput()
	close(stop)
	<-done
	said := string(out)
	if err != nil {
		t.Errorf("run: %v\n%s", err, tail(said, 4000))
	}
	for c, place := range w.secrets {
		if strings.Contains(said, c) {
			t.Errorf("it shows %s: %s", place, c)
		}
	}
	for _, line := range strings.Split(said, "\n") {
		if strings.HasPrefix(line, "TOLD ") {
			t.Error(line)
		}
	}
	if _, why, _ := strings.Cut(said, "$ agentos why 0"); strings.Count(why, "denied with") == 0 || strings.Contains(why, "unseen-fixed: denied with") || strings.Contains(why, "unseen-link") {
		t.Errorf("why, in the jail, says whether a hidden name is there:\n%s", why)
	}
	for _, word := range []string{"seen-file", "LISTED 3 trees", "COMPARED", "x.pem"} {
		if !strings.Contains(said, word) {
			t.Errorf("control: %q is missing in\n%s", word, tail(said, 6000))
		}
	}
	for _, d := range diff(before, w.state()) {
		t.Error(d)
	}
	if b, _ := os.ReadFile(w.path("ws/unseen-fixed")); !strings.HasPrefix(string(b), "canary-") {
		t.Errorf("a hidden file was changed: %q", b)
	}
	record, err := w.elsewhere(t.Context(), "audit", "show", "--denied", "--json").Output()
	if err != nil || !strings.Contains(string(record), "unseen-fixed") || !strings.Contains(string(record), "hide.toml") {
		t.Errorf("no record of a look at a hidden name: %v\n%s", err, tail(string(record), 2000))
	}
}
