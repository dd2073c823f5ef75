package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// goalSwap is how long a change of the rules of a running jail may take.
const goalSwap = 20 * time.Millisecond

// swaps measures `agentos policy set` on a jail in which nothing happens: the whole
// command, and in the helper, from the compiled rules to the answer.
func (b *bench) swaps(n int) error {
	other := filepath.Join(b.dir, "other.toml")
	text := "version = 1\nname = \"other\"\nextends = [\"builtin:strict\"]\n[files]\ndeny = [\"${workspace}/other\"]\n"
	if err := os.WriteFile(other, []byte(text), 0o644); err != nil {
		return err
	}
	jail := b.agentos("run", "--policy", "strict", "--name", "bench-swap", "--", "/bin/sh", "-c", "echo ready; read x")
	in, err := jail.StdinPipe()
	if err != nil {
		return err
	}
	out, err := jail.StdoutPipe()
	if err != nil {
		return err
	}
	if err := jail.Start(); err != nil {
		return err
	}
	defer func() {
		_ = in.Close()
		_ = jail.Wait() // sh's read fails: 1
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("start jail: %w", err)
	}
	policies := []string{other, "strict"}
	var inside []time.Duration
	set := func() (time.Duration, error) {
		start := time.Now()
		answer, err := b.agentos("policy", "set", "bench-swap", policies[0], "--json").Output()
		took := time.Since(start)
		if err != nil {
			return 0, fmt.Errorf("policy set: %w", err)
		}
		var said struct{ Took int64 }
		if err := json.Unmarshal(answer, &said); err != nil || said.Took == 0 {
			return 0, fmt.Errorf("policy set said %q: %w", answer, err)
		}
		inside = append(inside, time.Duration(said.Took)*time.Microsecond)
		policies[0], policies[1] = policies[1], policies[0]
		return took, nil
	}
	cs := []*contestant{
		{name: "plain exec", once: func() (time.Duration, error) { return timed(b.command("/bin/true")) }},
		{name: "agentos ps", once: func() (time.Duration, error) { return timed(b.agentos("ps")) }},
		{name: "agentos policy set", once: set},
	}
	rounds(n, cs)
	put := &contestant{name: "of that: rules put in place", all: inside}
	table("change the rules of a running jail", append(cs, put))
	fmt.Printf("%-34s %12s %8s  goal %s\n", "rules put in place", show(put.median()), "", show(goalSwap))
	return nil
}
