//go:build root

package escape

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestHelperDies and TestInitDies kill who decides about files, at random moments of a storm of denied opens and runs: nothing may be
// read or run, and everything in the jail must end.
func TestHelperDies(t *testing.T) {
	dies(t, func(w *world) int { return w.helper.Process.Pid })
}

func TestInitDies(t *testing.T) { dies(t, (*world).initPid) }

func dies(t *testing.T, whom func(*world) int) {
	if os.Getenv("AGENTOS_SOCKET") != "" {
		t.Skip("wanted a helper of our own to kill, got the one of AGENTOS_SOCKET")
	}
	rounds := 8
	if os.Getenv("AGENTOS_MACHINE") != "" {
		rounds = 2
	}
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	w := newWorld(t, 60217)
	storm, err := os.ReadFile("testdata/storm.py")
	must(t, err)
	for round := range rounds {
		if w.helper == nil || syscall.Kill(w.helper.Process.Pid, 0) != nil {
			_ = os.Remove(w.socket())
			w.startHelper()
		}
		w.reset()
		w.put("ws/storm.py", string(storm), 0o644)
		w.own("ws/storm.py")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		run := w.command(ctx, "run", "--policy", "strict", "--workspace", w.path("ws"), "--", "/usr/bin/python3", w.path("ws/storm.py"), w.token)
		var said lockedBuffer
		run.Stdout, run.Stderr = &said, &said
		must(t, run.Start())
		ended := make(chan error, 1)
		go func() { ended <- run.Wait() }()
		w.await(t, "the storm", &said, func() bool {
			b, _ := os.ReadFile(w.path("ws/leak"))
			return bytes.Count(b, []byte("tried ")) >= 8
		})
		time.Sleep(time.Duration(r.IntN(200_000)) * time.Microsecond)
		victim := whom(w)
		if victim == 0 {
			t.Fatalf("no process to kill\n%s", said.String())
		}
		must(t, syscall.Kill(victim, syscall.SIGKILL))
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("round %d: agentos run does not end", round)
			cancel()
			<-ended
		}
		w.await(t, "the end of the storm", &said, func() bool { return len(w.stormers()) == 0 })
		cancel()
		leak, err := os.ReadFile(w.path("ws/leak"))
		must(t, err)
		for c, place := range w.secrets {
			if bytes.Contains(leak, []byte(c)) || strings.Contains(said.String(), c) {
				t.Errorf("round %d: it read %s", round, place)
			}
		}
		if bytes.Contains(leak, []byte("READ ")) || bytes.Contains(leak, []byte("RUN ")) {
			t.Errorf("round %d: a denied open or run succeeded:\n%s", round, tail(string(leak), 500))
		}
		if t.Failed() {
			return
		}
		if whom(w) == w.helper.Process.Pid {
			w.await(t, "the end of the helper", &said, func() bool { return syscall.Kill(w.helper.Process.Pid, 0) != nil })
		}
	}
}

// await waits for something that must come.
func (w *world) await(t *testing.T, what string, said *lockedBuffer, come func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !come(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come within a minute\n%s", what, said.String())
		}
	}
}

// stormers are the processes of the present storm, by the token among their arguments.
func (w *world) stormers() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range all {
		b, err := os.ReadFile(p)
		if err == nil && bytes.Contains(b, []byte("storm.py\x00"+w.token)) && !bytes.HasPrefix(b, []byte(filepath.Join(binDir(w.t), "agentos"))) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// initPid is the host's pid of the init of the present storm's jail: the first process above the storm that is not of its own
// program.
func (w *world) initPid() int {
	for _, pid := range w.stormers() {
		for up := pid; up > 1; {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", up))
			if err != nil {
				break
			}
			fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
			if len(fields) < 2 {
				break
			}
			if up, err = strconv.Atoi(string(fields[1])); err != nil {
				break
			}
			exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", up))
			if strings.Contains(exe, "agentos-init") || strings.Contains(exe, "memfd:") {
				return up
			}
		}
	}
	return 0
}
