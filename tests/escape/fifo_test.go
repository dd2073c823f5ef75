//go:build root

package escape

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSwapFifo: a FIFO that becomes denied while the session runs gives nothing of what is written to it from then on, to
// any of several threads that read it, and nobody has to be killed for that once the swap is over.
func TestSwapFifo(t *testing.T) {
	w := newWorld(t, 60217)
	w.startHelper()
	w.reset()
	must(t, unix.Mkfifo(w.path("ws/pipe"), 0o666))
	must(t, os.Chmod(w.path("ws/pipe"), 0o666))
	script, err := os.ReadFile("testdata/fifo.py")
	must(t, err)
	w.put("ws/fifo.py", string(script), 0o644)
	must(t, os.Chmod(w.path("ws"), 0o777))
	for name, deny := range map[string]string{"first": "${workspace}/none", "second": "${workspace}/pipe"} {
		text := "version = 1\nname = \"" + name + "\"\nextends = [\"builtin:strict\"]\n[files]\ndeny = [\"" + deny + "\"]\n"
		must(t, os.WriteFile(w.path("out", name+".toml"), []byte(text), 0o644))
	}
	run := w.command(t.Context(), "run", "--policy", w.path("out/first.toml"), "--name", "fifo", "--workspace", w.path("ws"), "--", "/usr/bin/python3", "fifo.py")
	var said lockedBuffer
	run.Stdout, run.Stderr = &said, &said
	must(t, run.Start())
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	w.await(t, "the reader", &said, func() bool { return w.exists("ws/ready") })

	stop := make(chan struct{})
	go w.fill("ws/pipe", "harmless\n", stop)
	w.await(t, "what is not denied", &said, func() bool { return strings.Contains(said.String(), "harmless") })
	close(stop)
	must(t, os.WriteFile(w.path("ws/pause"), nil, 0o666))
	w.await(t, "the pause of three threads", &said, func() bool { return strings.Count(said.String(), "PAUSED") == 3 })
	if out, err := w.command(t.Context(), "policy", "set", "fifo", w.path("out/second.toml")).CombinedOutput(); err != nil || strings.Contains(string(out), "not all covered") {
		t.Fatalf("policy set: %v\n%s", err, out)
	}
	stop = make(chan struct{})
	go w.fill("ws/pipe", w.canary("a FIFO that became denied")+"\n", stop)
	must(t, os.WriteFile(w.path("ws/go"), nil, 0o666))
	err = <-ended
	close(stop)
	for c, place := range w.secrets {
		if strings.Contains(said.String(), c) {
			t.Errorf("it read %s", place)
		}
	}
	if err != nil || !strings.Contains(said.String(), "ALIVE") || !strings.Contains(said.String(), "SAID ") {
		t.Errorf("the reader was to be refused and to live: %v\n%s", err, tail(said.String(), 1000))
	}
	if st, err := os.Lstat(w.path("ws/pipe")); err != nil || st.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the host's FIFO is %v, %v", st, err)
	}
	if left, _ := filepath.Glob(w.path("ws/pipe*")); len(left) != 1 {
		t.Errorf("left behind: %q", left)
	}
}
