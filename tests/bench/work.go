package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// jobs are what is compared inside and outside. Loops answer the time of one call; the others the time of the whole.
var jobs = []struct {
	name, script string
	calls        int
}{
	{name: "getpid", calls: 300000},
	{name: "stat", calls: 50000},
	{name: "open+close", calls: 10000},
	{name: "fork+exec", calls: 100},
	{name: "git status", script: "cd repo && git status --short >/dev/null"},
	{name: "gcc project", script: "cd c && make -s clean && make -s -j2"},
	{name: "tar", script: "tar cf - repo | cat >/dev/null"},
	{name: "go build", script: "cd go && rm -rf /tmp/bench-cache && GOCACHE=/tmp/bench-cache GOPATH=/tmp/bench-path GOTOOLCHAIN=local GOFLAGS=-buildvcs=false go build -o out ."},
}

// inside measures one job in this process's own surroundings.
func inside(args []string) (time.Duration, error) {
	name := strings.Join(args, " ")
	for _, j := range jobs {
		if j.name != name {
			continue
		}
		if j.script != "" {
			return timed(exec.Command("/bin/sh", "-c", j.script))
		}
		return loop(name, j.calls)
	}
	return 0, fmt.Errorf("no job %q", name)
}

func loop(name string, n int) (time.Duration, error) {
	const path = "repo/dir0/file0.txt"
	var st syscall.Stat_t
	start := time.Now()
	for range n {
		switch name {
		case "getpid":
			syscall.Getpid()
		case "stat":
			if err := syscall.Stat(path, &st); err != nil {
				return 0, err
			}
		case "open+close":
			fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
			if err != nil {
				return 0, err
			}
			_ = syscall.Close(fd)
		case "fork+exec":
			if err := exec.Command("/bin/true").Run(); err != nil {
				return 0, err
			}
		}
	}
	return time.Since(start) / time.Duration(n), nil
}

// works compares each job outside, under permissive and under strict.
func (b *bench) works(n int) error {
	if err := b.prepare(); err != nil {
		return err
	}
	for _, j := range jobs {
		self := filepath.Join(b.ws, "bench")
		measure := func(prefix ...string) func() (time.Duration, error) {
			return func() (time.Duration, error) {
				args := append(prefix, self, "inside", j.name)
				return b.reported(b.command(args[0], args[1:]...))
			}
		}
		agentos := filepath.Join(b.bin, "agentos")
		cs := []*contestant{
			{name: "outside", once: measure()},
			{name: "inside, permissive", once: measure(agentos, "run", "--policy", "permissive", "--")},
			{name: "inside, strict", once: measure(agentos, "run", "--policy", "strict", "--")},
		}
		rounds(n, cs)
		table(j.name, cs)
	}
	return nil
}

// reported runs this program elsewhere and reads what it measured.
func (b *bench) reported(c *exec.Cmd) (time.Duration, error) {
	var out, stderr bytes.Buffer
	c.Stdout, c.Stderr = &out, &stderr
	if err := c.Run(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	for line := range strings.Lines(out.String()) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "ns "); ok {
			ns, err := strconv.ParseInt(v, 10, 64)
			return time.Duration(ns), err
		}
	}
	return 0, fmt.Errorf("no measurement in %q", out.String())
}

// prepare makes a repository of two thousand files, a C project and a Go module in the workspace.
func (b *bench) prepare() error {
	w := func(name, text string) error {
		p := filepath.Join(b.ws, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		return os.WriteFile(p, []byte(text), 0o644)
	}
	for i := range 2000 {
		if err := w(fmt.Sprintf("repo/dir%d/file%d.txt", i/50, i), strings.Repeat("text of a file\n", 40+i%60)); err != nil {
			return err
		}
	}
	var objects []string
	for i := range 24 {
		if err := w(fmt.Sprintf("c/f%d.c", i), fmt.Sprintf("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <math.h>\nint f%d(int n){char b[256];double s=0;for(int i=0;i<n;i++){snprintf(b,sizeof b,\"%%d\",i);s+=sqrt(strlen(b)+i);}return (int)s;}\n", i)); err != nil {
			return err
		}
		objects = append(objects, fmt.Sprintf("f%d.o", i))
	}
	if err := w("c/main.c", "int f0(int);int main(void){return f0(9)<0;}\n"); err != nil {
		return err
	}
	if err := w("c/Makefile", "all: main\nCFLAGS=-O1\nmain: main.o "+strings.Join(objects, " ")+"\n\tcc -o $@ $^ -lm\nclean:\n\trm -f *.o main\n"); err != nil {
		return err
	}
	if err := w("go/go.mod", "module bench\n\ngo 1.21\n"); err != nil {
		return err
	}
	if err := w("go/main.go", "package main\n\nimport \"strings\"\n\nfunc main() { println(strings.Repeat(\"x\", 3)) }\n"); err != nil {
		return err
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=b", "-c", "user.email=b@x", "commit", "-q", "-m", "x"}} {
		c := b.command("git", append([]string{"-C", "repo"}, args...)...)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("git %v: %w: %s", args, err, out)
		}
	}
	return nil
}
