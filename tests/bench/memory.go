package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/orchestrator"
)

const (
	idleJails  = 20 // what one jail takes is a twentieth of what they take together
	idleRounds = 3
	settled    = 3 * time.Second // long enough for the helper to have given back what a start used
)

const whatJailsTake = `MemAvailable before less MemAvailable after, over the number of jails, each running sleep on a terminal; the growth of the
client's own private memory is taken off. It counts init, sleep, cgroup, namespaces, kernel rings and tables, page tables, the log's
writer and what the helper keeps; file pages that all jails share are in no jail's figure. Other work on the machine is in it too.
RSS counts every page that is mapped; private is what would be free if the process ended.`

// memory prints what the helper and an idle jail take.
func (b *bench) memory() error {
	if b.helper == nil {
		return errors.New("memory is measured with a helper of its own: end the one that runs, and unset AGENTOS_SOCKET")
	}
	helper := b.helper.Process.Pid
	fmt.Printf("\n%-34s %12s %12s %12s\n", "memory", "RSS", "private", "threads")
	time.Sleep(settled)
	row("helper, idle", helper, "goal 8 MB RSS")
	c, err := b.client()
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.start(1); err != nil { // caches warm
		return err
	}
	time.Sleep(settled)
	for _, p := range children(helper) {
		row("init of an idle jail", p, "its program's pages are one copy for all jails")
	}
	row("helper with one jail", helper, "")
	var takes []float64
	for range idleRounds {
		mb, err := c.take(idleJails, helper)
		if err != nil {
			return err
		}
		takes = append(takes, mb)
	}
	slices.Sort(takes)
	fmt.Printf("%-34s %12s  goal 1.5 MB; %d jails, median of %d\n", "an idle jail takes", megabytes(takes[len(takes)/2]), idleJails, idleRounds)
	fmt.Println(whatJailsTake)
	return nil
}

// client holds idle jails, all in this process.
type client struct {
	opts orchestrator.Options
	gate orchestrator.Gate
	runs []*orchestrator.Proc
}

func (b *bench) client() (*client, error) {
	g, err := orchestrator.Connect(context.Background(), orchestrator.Connection{Socket: b.socket, Build: packet.Build()})
	if err != nil {
		return nil, err
	}
	return &client{gate: g, opts: orchestrator.Options{
		Policy: "strict", Workspace: b.ws, Agent: "sleep", Args: []string{"600"}, Command: true, Environ: b.env, OrgDir: "-",
	}}, nil
}

func (c *client) start(n int) error {
	for range n {
		p, err := orchestrator.Prepare(c.opts)
		if err != nil {
			return err
		}
		proc, err := orchestrator.Launch(context.Background(), c.gate, p, &rpc.Terminal{Rows: 24, Cols: 80})
		_ = p.Close()
		if err != nil {
			return err
		}
		c.runs = append(c.runs, proc)
	}
	return nil
}

// take starts n jails, answers what each took of the machine, in bytes, and ends them.
func (c *client) take(n, helper int) (float64, error) {
	before, own := available(), smaps(os.Getpid()).private
	if err := c.start(n); err != nil {
		return 0, err
	}
	time.Sleep(settled)
	taken := before - available() - (smaps(os.Getpid()).private - own)
	if n := len(c.runs); n == idleJails+1 {
		row(fmt.Sprintf("helper with %d jails", n), helper, "")
	}
	for range n {
		last := c.runs[len(c.runs)-1]
		c.runs = c.runs[:len(c.runs)-1]
		if err := errors.Join(last.Kill(context.Background()), last.Close()); err != nil {
			return 0, err
		}
	}
	time.Sleep(settled)
	return taken / float64(n), nil
}

func (c *client) close() { _ = c.gate.Close() }

func row(name string, pid int, note string) {
	m := smaps(pid)
	fmt.Printf("%-34s %12s %12s %12d  %s\n", name, megabytes(m.rss), megabytes(m.private), threads(pid), note)
}

func megabytes(n float64) string { return fmt.Sprintf("%.1f MB", n/(1<<20)) }

// mapped is what smaps_rollup says of a process, in bytes.
type mapped struct{ rss, private float64 }

func smaps(pid int) mapped {
	f := fields(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	// Dirty pages of files are not private: they are the page cache's. What is mapped by us alone and has no file is anonymous.
	return mapped{rss: f["Rss"], private: f["Anonymous"] + fields(fmt.Sprintf("/proc/%d/status", pid))["VmPTE"]}
}

func available() float64 { return fields("/proc/meminfo")["MemAvailable"] }

func threads(pid int) int {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return len(tasks)
}

// fields reads "Name:   12 kB" lines, in bytes.
func fields(path string) map[string]float64 {
	out := map[string]float64{}
	raw, _ := os.ReadFile(path)
	for line := range strings.Lines(string(raw)) {
		name, rest, _ := strings.Cut(line, ":")
		if w := strings.Fields(rest); len(w) == 2 && w[1] == "kB" {
			kb, _ := strconv.ParseFloat(w[0], 64)
			out[name] = kb * 1024
		}
	}
	return out
}

// children lists the processes whose parent is pid.
func children(pid int) []int {
	var out []int
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		raw, _ := os.ReadFile(f)
		for _, s := range strings.Fields(string(raw)) {
			if p, err := strconv.Atoi(s); err == nil {
				out = append(out, p)
			}
		}
	}
	return out
}
