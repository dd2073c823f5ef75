package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"
)

// goalFirst is how long a command may take before it talks to a daemon.
const goalFirst = 15 * time.Millisecond

// firsts measures what each command does before its first byte to a helper: a
// socket of this program stands in for the helper's and takes the time.
func (b *bench) firsts(n int) error {
	socket := filepath.Join(b.dir, "run", "first.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("listen for first bytes: %w", err)
	}
	defer func() { _ = l.Close() }()
	cs := []*contestant{{name: "plain exec", once: func() (time.Duration, error) { return timed(b.command("/bin/true")) }}}
	for _, args := range [][]string{
		{"run", "--policy", "strict", "--", "/bin/true"},
		{"run", "--policy", "standard", "shell"},
		{"ps"},
		{"audit", "show"},
		{"doctor"},
	} {
		cs = append(cs, &contestant{name: "agentos " + strings.Join(args, " "), once: func() (time.Duration, error) { return b.first(l, socket, args) }})
	}
	cs = append(cs, &contestant{name: "agentos policy explain read .env", note: "to its end: it needs no daemon", once: func() (time.Duration, error) {
		c := b.agentos("policy", "explain", "read", ".env")
		start := time.Now()
		err := c.Run()
		if c.ProcessState.ExitCode() != 126 { // strict denies it
			return 0, fmt.Errorf("explain: %w", err)
		}
		return time.Since(start), nil
	}})
	rounds(n, cs)
	table("start to the first byte to a daemon", cs)
	var worst time.Duration
	for _, c := range cs[1:] {
		worst = max(worst, c.median())
	}
	fmt.Printf("%-34s %12s %8s  goal %s\n", "slowest of them", show(worst), "", show(goalFirst))
	return nil
}

// first starts one command and answers when its first byte came.
func (b *bench) first(l *net.UnixListener, socket string, args []string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := b.agentos(args...)
	c.Env = append(c.Env, "AGENTOS_SOCKET="+socket) // the last one counts
	start := time.Now()
	if err := c.Start(); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })
	conn, err := l.AcceptUnix()
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	took := time.Since(start)
	if !stop() {
		_ = l.SetDeadline(time.Time{})
	}
	if conn != nil {
		_ = conn.Close() // no helper after all: the command fails
	}
	if c.Wait() == nil && err == nil {
		err = errors.New("it succeeded without a helper")
	}
	return took, err
}
