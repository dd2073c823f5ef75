package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() { os.Exit(run()) }

func run() int {
	if len(os.Args) > 2 && os.Args[1] == "inside" { // this program, in a jail or outside: one measurement, printed in nanoseconds
		d, err := inside(os.Args[2:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
		fmt.Println("ns", d.Nanoseconds())
		return 0
	}
	count := flag.Int("count", 21, "rounds of the start and first sections")
	work := flag.Int("work", 5, "rounds of the work section")
	only := flag.String("only", "", "start, first, rules, swap, work, memory or tree")
	job := flag.String("job", "", "of the work section only these rows: names with commas between")
	flag.Parse()
	b, err := newBench()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	defer b.close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	go func() { <-stop; b.close(); os.Exit(130) }()
	for _, s := range []struct {
		name string
		run  func() error
	}{
		{"start", func() error { return b.starts(*count) }},
		{"first", func() error { return b.firsts(*count) }},
		{"rules", func() error { return b.rules(*count) }},
		{"swap", func() error { return b.swaps(*count) }},
		{"work", func() error { return b.works(*work, *job) }},
		{"memory", b.memory},
		{"tree", func() error { return b.trees(*count) }},
	} {
		if *only != "" && *only != s.name || *only == "" && s.name == "tree" { // the tree takes a while to grow
			continue
		}
		if err := s.run(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
	}
	return 0
}

// bench is one run: a scratch directory, and a helper when none was running.
type bench struct {
	bin, dir, ws string
	socket       string // of our helper
	env          []string
	helper       *exec.Cmd
	undo         []func() // before the directory goes
}

func newBench() (*bench, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := &bench{bin: filepath.Dir(exe)}
	if err := os.MkdirAll("/srv", 0o755); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("/srv", "agentos-bench."); err != nil {
		return nil, err
	}
	if err := os.Chmod(b.dir, 0o755); err != nil {
		return nil, err
	}
	b.ws = filepath.Join(b.dir, "ws")
	home := filepath.Join(b.dir, "home")
	for _, d := range []string{b.ws, home, filepath.Join(b.dir, "run"), filepath.Join(b.dir, "state"), filepath.Join(b.dir, "org")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return nil, err
		}
	}
	b.env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "AGENTOS_LIBEXEC=" + b.bin}
	self, err := os.ReadFile(exe)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(b.ws, "bench"), self, 0o755); err != nil {
		return nil, err
	}
	if s := os.Getenv("AGENTOS_SOCKET"); s != "" {
		b.env = append(b.env, "AGENTOS_SOCKET="+s)
		return b, nil
	}
	return b, b.startHelper()
}

// startHelper starts a helper for this run, unless one listens where everybody looks.
func (b *bench) startHelper() error {
	if _, err := os.Stat("/run/agentos/helper.sock"); err == nil {
		return nil
	}
	socket := filepath.Join(b.dir, "run", "helper.sock")
	b.socket = socket
	b.env = append(b.env, "AGENTOS_SOCKET="+socket)
	b.helper = exec.Command(filepath.Join(b.bin, "agentos-helper"), "--foreground", "--group", "agentos-bench", "--socket", socket,
		"--run", filepath.Join(b.dir, "run"), "--state", filepath.Join(b.dir, "state"), "--org", filepath.Join(b.dir, "org"))
	b.helper.Stderr = os.Stderr
	if err := b.helper.Start(); err != nil {
		b.helper = nil
		return fmt.Errorf("start helper: %w", err)
	}
	for range 2400 { // an emulated machine loads the kernel programs for long
		if _, err := os.Stat(socket); err == nil {
			return nil
		}
		time.Sleep(25 * time.Millisecond)
	}
	return errors.New("the helper did not listen; is another one running?")
}

func (b *bench) close() {
	for _, f := range b.undo {
		f()
	}
	b.undo = nil
	if b.helper != nil {
		_ = b.helper.Process.Signal(syscall.SIGTERM)
		_ = b.helper.Wait()
		b.helper = nil
	}
	_ = os.RemoveAll(b.dir)
}

// agentos prepares a call of the command line in the workspace.
func (b *bench) agentos(args ...string) *exec.Cmd {
	return b.command(filepath.Join(b.bin, "agentos"), args...)
}

func (b *bench) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir, c.Env = b.ws, b.env
	return c
}

// contestant is one row: how to measure it once, and what became of it.
type contestant struct {
	name string
	once func() (time.Duration, error)
	note string
	all  []time.Duration
	err  error
}

// rounds runs each contestant once per round, the first one rotating; one that fails is not tried again.
func rounds(n int, cs []*contestant) {
	for _, c := range cs { // caches warm, failures early
		if c.err == nil {
			_, c.err = c.once()
		}
	}
	for r := range n {
		for i := range cs {
			c := cs[(r+i)%len(cs)]
			if c.err != nil {
				continue
			}
			d, err := c.once()
			if err != nil {
				c.err = err
				continue
			}
			c.all = append(c.all, d)
		}
	}
}

func (c *contestant) median() time.Duration {
	if len(c.all) == 0 {
		return 0
	}
	s := slices.Clone(c.all)
	slices.Sort(s)
	return s[len(s)/2]
}

// table prints a section; ratios are to the first row.
func table(title string, cs []*contestant) {
	fmt.Printf("\n%-34s %12s %8s\n", title, "median", "ratio")
	base := cs[0].median()
	for _, c := range cs {
		if c.err != nil {
			fmt.Printf("%-34s %12s %8s  %s\n", c.name, "-", "-", firstLine(c.err))
			continue
		}
		ratio := "-"
		if base > 0 {
			ratio = fmt.Sprintf("%.2f", float64(c.median())/float64(base))
		}
		fmt.Printf("%-34s %12s %8s  %s\n", c.name, show(c.median()), ratio, c.note)
	}
}

func show(d time.Duration) string {
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Second:
		return fmt.Sprintf("%.2f ms", float64(d.Nanoseconds())/1e6)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

func firstLine(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	return s
}
