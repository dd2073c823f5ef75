//go:build root

package script

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lines is output that is looked at while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// smallDisk is a helper whose state lies on a file system that is soon full.
type smallDisk struct {
	t                      *testing.T
	bin, ws, state, socket string
}

func newSmallDisk(t *testing.T) *smallDisk {
	t.Helper()
	bin, root, _ := stage(t)
	dir := filepath.Join(root, "full")
	d := &smallDisk{t: t, bin: bin, state: filepath.Join(dir, "state"), ws: filepath.Join(dir, "ws"), socket: filepath.Join(dir, "helper.sock")}
	for _, p := range []string{d.state, filepath.Join(d.ws, "many")} {
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("none", d.state, "tmpfs", 0, "size=300k,mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.state, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	var log lines
	helper := exec.Command(filepath.Join(bin, "agentos-helper"), "--foreground", "--group", "agentos-full", "--run", dir, "--state", d.state, "--org", filepath.Join(dir, "org"))
	helper.Stderr = &log
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = helper.Process.Signal(unix.SIGTERM)
		if err := helper.Wait(); err != nil || t.Failed() {
			t.Errorf("helper: %v\n%s", err, log.String())
		}
	})
	d.await("the helper listens", func() bool { _, err := os.Stat(d.socket); return err == nil })
	return d
}

func (d *smallDisk) await(what string, ok func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Fatalf("waited in vain until %s", what)
		}
	}
}

func (d *smallDisk) agentos(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(d.bin, "agentos"), args...)
	cmd.Dir, cmd.Env = d.ws, []string{"PATH=/usr/bin:/bin", "HOME=/root", "AGENTOS_SOCKET=" + d.socket}
	return cmd
}

// busy starts an agent that makes events until the disk is full. The number of its turn is in a file: outside of the jail's pipes.
func (d *smallDisk) busy(name string) (cmd *exec.Cmd, said *lines) {
	d.t.Helper()
	cmd, said = d.agentos("run", "--name", name, "--", "sh", "-c", `i=0; while ! [ -e done ]; do echo $((i=i+1)) > many/count; done; echo finished`), &lines{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.await("the agent is held", func() bool { return strings.Contains(said.String(), "the agent is held until it can") })
	return cmd, said
}

func (d *smallDisk) turn() int {
	b, err := os.ReadFile(filepath.Join(d.ws, "many", "count"))
	if err != nil {
		d.t.Fatal(err)
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b))) // 0 between truncate and write
	return n
}

func (d *smallDisk) size(s string) {
	d.t.Helper()
	if err := unix.Mount("none", d.state, "", unix.MS_REMOUNT, "size="+s); err != nil {
		d.t.Fatal(err)
	}
}

// TestDiskFull: when the disk refuses the log the agent is held, which is said; it can be ended; and it goes on when there is room again,
// with a record that has no hole.
func TestDiskFull(t *testing.T) {
	d := newSmallDisk(t)
	cmd, said := d.busy("goes-on")
	if out, err := d.agentos("ps").CombinedOutput(); err != nil || !strings.Contains(string(out), " held ") {
		t.Errorf("ps does not say that it is held: %v\n%s", err, out)
	}
	if out, err := d.agentos("exec", "goes-on", "--", "true").CombinedOutput(); err == nil || !strings.Contains(string(out), "is held until") {
		t.Errorf("exec in a held jail: %v\n%s", err, out)
	}
	before := d.turn()
	time.Sleep(time.Second) // what must not happen, happens in this time
	if after := d.turn(); after != before {
		t.Errorf("the held agent went on from turn %d to %d", before, after)
	}
	d.size("200m")
	d.await("it goes on", func() bool { return strings.Contains(said.String(), "the agent goes on") && d.turn() > before })
	if err := os.WriteFile(filepath.Join(d.ws, "done"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(said.String(), "finished\n") {
		t.Errorf("after the disk had room: %v\n%s", err, said.String())
	}
	if out, err := d.agentos("audit", "verify", "goes-on").CombinedOutput(); err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
	if err := os.Remove(filepath.Join(d.ws, "done")); err != nil {
		t.Fatal(err)
	}

	for _, how := range []string{"kill", "two signals"} {
		var st unix.Statfs_t
		if err := unix.Statfs(d.state, &st); err != nil {
			t.Fatal(err)
		}
		d.size(strconv.FormatInt((int64(st.Blocks)-int64(st.Bfree))*st.Bsize+250<<10, 10))
		name := strings.ReplaceAll(how, " ", "-")
		cmd, said := d.busy(name)
		if how == "kill" {
			if out, err := d.agentos("kill", name).CombinedOutput(); err != nil {
				t.Errorf("kill: %v\n%s", err, out)
			}
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		d.await("a held run ends by "+how, func() bool {
			select {
			case <-ended:
				return true
			default:
			}
			if how == "two signals" { // one that comes while another waits to be taken is none, so it is said until it is heard
				_ = cmd.Process.Signal(unix.SIGTERM)
				time.Sleep(100 * time.Millisecond)
			}
			return false
		})
		if code := cmd.ProcessState.ExitCode(); code != 128+9 {
			t.Errorf("%s: status %d\n%s", how, code, said.String())
		}
		d.size("200m")
	}
}
