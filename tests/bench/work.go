package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// jobs are what is compared inside and outside. Loops answer the time of one call; the others the time of the whole
// script, after an untimed one that makes the surroundings equal.
var jobs = []struct {
	name, before, script string
	calls                int
}{
	{name: "getpid", calls: 300000},
	{name: "stat", calls: 50000},
	{name: "open+close", calls: 10000},
	{name: "fork+exec", calls: 100},
	// The index remembers who owns the files, and in a jail that is another number: after a change of sides git reads all
	// files anew and writes the index. So each side has its own index before it is timed.
	{name: "git status", before: gitStatus, script: gitStatus},
	// Each file once: as a jail meets them first, and when it has met them.
	{name: "grep -r", script: grep},
	{name: "grep -r again", before: grep, script: grep},
	{name: "gcc project", script: "cd c && make -s clean && make -s -j2"},
	{name: "tar", script: "tar cf - repo | cat >/dev/null"},
	{name: "go build", script: "cd go && rm -rf /tmp/bench-cache && GOCACHE=/tmp/bench-cache GOPATH=/tmp/bench-path GOTOOLCHAIN=local GOFLAGS=-buildvcs=false go build -o out ."},
	// A jail's /tmp is new: outside too npm finds neither its cache nor Node's compiled code.
	{name: "npm ci", before: "cd npm && rm -rf node_modules /tmp/bench-npm /tmp/node-compile-cache", script: "cd npm && npm ci --offline --no-audit --no-fund --ignore-scripts --cache /tmp/bench-npm >/dev/null"},
}

const gitStatus = `cd repo && test -z "$(git status --short)"`

const grep = `grep -r 'no such line' repo; test $? = 1`

// inside measures one job in this process's own surroundings.
func inside(args []string) (time.Duration, error) {
	name := strings.Join(args, " ")
	for _, j := range jobs {
		if j.name != name {
			continue
		}
		if j.before != "" {
			if _, err := timed(exec.Command("/bin/sh", "-c", j.before)); err != nil {
				return 0, err
			}
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

// whole is strict with all of the machine: strict keeps 30 % of the processors for whoever else uses it, which parallel
// work feels more than anything that the jail does.
const whole = `version = 1
name = "strict-whole"
extends = ["builtin:strict"]

[resources]
cpu = "100%"
`

// works compares each job, or those of a list with commas, outside, under permissive and under strict.
func (b *bench) works(n int, only string) error {
	if err := b.prepare(); err != nil {
		return err
	}
	policy := filepath.Join(b.dir, "whole.toml")
	if err := os.WriteFile(policy, []byte(whole), 0o644); err != nil {
		return err
	}
	for _, j := range jobs {
		if only != "" && !slices.Contains(strings.Split(only, ","), j.name) {
			continue
		}
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
			{name: "inside, strict, whole machine", once: measure(agentos, "run", "--policy", policy, "--")},
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

// prepare makes a repository of two thousand files, a C project, a Go module and an npm project in the workspace.
func (b *bench) prepare() error {
	for i := range 2000 {
		if err := b.write(fmt.Sprintf("repo/dir%d/file%d.txt", i/50, i), strings.Repeat("text of a file\n", 40+i%60)); err != nil {
			return err
		}
	}
	var objects []string
	for i := range 24 {
		if err := b.write(fmt.Sprintf("c/f%d.c", i), fmt.Sprintf("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <math.h>\nint f%d(int n){char b[256];double s=0;for(int i=0;i<n;i++){snprintf(b,sizeof b,\"%%d\",i);s+=sqrt(strlen(b)+i);}return (int)s;}\n", i)); err != nil {
			return err
		}
		objects = append(objects, fmt.Sprintf("f%d.o", i))
	}
	for name, text := range map[string]string{
		"c/main.c":   "int f0(int);int main(void){return f0(9)<0;}\n",
		"c/Makefile": "all: main\nCFLAGS=-O1\nmain: main.o " + strings.Join(objects, " ") + "\n\tcc -o $@ $^ -lm\nclean:\n\trm -f *.o main\n",
		"go/go.mod":  "module bench\n\ngo 1.21\n",
		"go/main.go": "package main\n\nimport \"strings\"\n\nfunc main() { println(strings.Repeat(\"x\", 3)) }\n",
	} {
		if err := b.write(name, text); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=b", "-c", "user.email=b@x", "commit", "-q", "-m", "x"}} {
		c := b.command("git", append([]string{"-C", "repo"}, args...)...)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("git %v: %w: %s", args, err, out)
		}
	}
	return b.packages()
}

// write makes a file of the workspace and the directories above it.
func (b *bench) write(name, text string) error {
	p := filepath.Join(b.ws, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	return os.WriteFile(p, []byte(text), 0o644)
}

// packages makes an npm project whose dependencies are forty tarballs of fifty files beside it.
func (b *bench) packages() error {
	depends, locked := map[string]string{}, map[string]any{}
	for i := range 40 {
		name := fmt.Sprintf("part%d", i)
		tarball, err := pack(name)
		if err != nil {
			return err
		}
		file := "tarballs/" + name + ".tgz"
		if err := b.write("npm/"+file, string(tarball)); err != nil {
			return err
		}
		sum := sha512.Sum512(tarball)
		depends[name] = "file:" + file
		locked["node_modules/"+name] = map[string]string{
			"version": "1.0.0", "resolved": "file:" + file, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		}
	}
	locked[""] = map[string]any{"name": "bench", "version": "1.0.0", "dependencies": depends}
	for name, v := range map[string]any{
		"npm/package.json":      map[string]any{"name": "bench", "version": "1.0.0", "dependencies": depends},
		"npm/package-lock.json": map[string]any{"name": "bench", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": locked},
	} {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := b.write(name, string(text)); err != nil {
			return err
		}
	}
	return nil
}

// pack is an npm package as a tarball.
func pack(name string) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	t := tar.NewWriter(z)
	file := func(path, text string) error {
		if err := t.WriteHeader(&tar.Header{Name: "package/" + path, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		_, err := t.Write([]byte(text))
		return err
	}
	err := file("package.json", `{"name":"`+name+`","version":"1.0.0","main":"lib/file0.js"}`)
	for i := range 50 {
		err = errors.Join(err, file(fmt.Sprintf("lib/%s/file%d.js", string('a'+rune(i%5)), i), strings.Repeat("module.exports = 1;\n", 20+i)))
	}
	err = errors.Join(err, t.Close(), z.Close())
	return out.Bytes(), err
}
