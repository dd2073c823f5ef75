package hook

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// turns opens a file (a[0]) again and again in one thread and prints a line whenever the answer changes, for a[1] ms.
func turns(a []string) int {
	runtime.LockOSThread() // what a walk remembers belongs to the thread
	var ms int
	fmt.Sscan(a[1], &ms)
	last := ""
	for end := time.Now().Add(time.Duration(ms) * time.Millisecond); time.Now().Before(end); {
		if now := result(closing(unix.Open(a[0], unix.O_RDONLY, 0))); now != last {
			fmt.Println(now)
			last = now
		}
	}
	return 0
}

// TestSwapForgets swaps the rules under a thread that opens one file all the time: the states that its walks
// remember are of the old table and must not outlive it, in either direction.
func TestSwapForgets(t *testing.T) {
	x := enforcing(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "secrets", "f")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	open, closed := raceRules(t, "/elsewhere"), raceRules(t, dir)
	j := x.jail(Jail{Rules: open, Enforce: true})
	cmd := j.command(self(t), file, "60000")
	cmd.Env = append(os.Environ(), "AGENTOS_ACT=turns")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	lines := bufio.NewScanner(out)
	for i, want := range []string{"ok", "EACCES", "ok", "EACCES"} {
		if i > 0 {
			rules := closed
			if want == "ok" {
				rules = open
			}
			if err := x.h.SetRules(j.id, rules, nil); err != nil {
				t.Fatal(err)
			}
		}
		if !lines.Scan() || strings.TrimSpace(lines.Text()) != want {
			t.Fatalf("turn %d: %q, want %q: %v", i, lines.Text(), want, lines.Err())
		}
	}
}
