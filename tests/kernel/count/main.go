//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/hook"
	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/corpus"
)

// file lies six names deep, as in the measurements of the prototype.
const file = "/h/w/project/src/main/main.c"

func main() {
	if code := hook.Attempt(); code >= 0 {
		os.Exit(code)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(1)
	}
}

// level is how much of what is allowed a jail records.
var levels = []struct {
	name  string
	audit hook.Audit
}{{"", hook.AuditAll}, {", denials recorded", hook.AuditDenied}}

func run() (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte("text\n"), 0o644); err != nil {
		return err
	}
	if err := calls("bare", ""); err != nil {
		return err
	}
	opts := hook.Options{PinDir: "/sys/fs/bpf/agentos", Group: "/sys/fs/cgroup/agentos"}
	began, worked := time.Now(), processor()
	h, f, err := hook.Load(opts)
	if err != nil {
		return err
	}
	fmt.Println("TIER", f.Tier)
	fmt.Printf("LOAD %d million instructions to load and attach the programs, the rest of %d waiting\n", (processor() - worked).Milliseconds(), time.Since(began).Milliseconds())
	if f.Tier < hook.TierB {
		return fmt.Errorf("files are not judged in this kernel: %s", strings.Join(f.Why, "; "))
	}
	if err := calls("outside of jails", ""); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); h.Read(ctx, func(uint32, event.Event) {}) }()
	defer func() { cancel(); <-done; err = errors.Join(err, h.Close(), hook.Unpin(opts)) }()
	id := uint32(0)
	for _, level := range levels {
		for _, globs := range []int{10, 100, 1000} {
			id++
			if err := inJail(h, opts.Group, id, globs, level.audit, fmt.Sprintf("jail, %d globs%s", globs, level.name)); err != nil {
				return err
			}
		}
	}
	return err
}

// processor is the processor time of this process.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// inJail measures in a jail of its own.
func inJail(h *hook.Hook, group string, id uint32, globs int, audit hook.Audit, name string) error {
	d, err := policy.Parse("mixed.toml", corpus.Document(append(corpus.Mixed(globs), corpus.Rule{List: corpus.Exec, Glob: "/bin/**"}, corpus.Rule{List: corpus.Read, Glob: "/**"})))
	if err != nil {
		return err
	}
	r, err := policy.Resolve([]policy.Layer{{Kind: policy.Profile, Doc: d}}, policy.Vars{Workspace: "/h/w", Home: "/h"})
	if err != nil {
		return err
	}
	a, err := r.Automaton()
	if err != nil {
		return err
	}
	dir := filepath.Join(group, fmt.Sprint(id))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	jail := hook.Jail{ID: id, CgroupID: fi.Sys().(*syscall.Stat_t).Ino, Rules: a.Bytes(), Enforce: true, Strict: true, Audit: audit}
	if err := h.AddJail(jail); err != nil {
		return err
	}
	if err := calls(name, dir); err != nil {
		return err
	}
	s, err := h.Stats(id)
	if err != nil {
		return err
	}
	fmt.Printf("STATS %s: %+v, automaton %d KiB\n", name, s, len(a.Bytes())>>10)
	time.Sleep(20 * time.Millisecond) // the group empties after its last task was waited for
	return errors.Join(h.RemoveJail(id), os.Remove(dir))
}

// calls runs the measuring program, in a group if there is one, and prints its figures.
func calls(name, group string) error {
	c := exec.Command("/bin/calls", file)
	c.Stderr = os.Stderr
	if group != "" {
		d, err := os.Open(group)
		if err != nil {
			return err
		}
		defer d.Close()
		c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(d.Fd())}
	}
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	for line := range strings.Lines(string(out)) {
		call, ns, _ := strings.Cut(strings.TrimSpace(line), " ")
		fmt.Printf("COUNT %s\t%s\t%s\n", name, call, ns)
	}
	return nil
}
