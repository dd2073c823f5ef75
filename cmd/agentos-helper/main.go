// Command agentos-helper is the root side of AgentOS: it builds jails on
// request of local users and keeps the audit log. See package jail/helper.
//
// It runs in one of three ways: --foreground serves a socket until a signal ends
// it (systemd's unit, or by hand), --embedded serves the conversation on descriptor
// 3 that agentos opened when it was root and found no helper, and --sweep removes
// what a killed helper left behind. This file only reads flags and wires.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/hook"
	"github.com/agentos/agentos/jail/helper"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/quiet"
)

// fdClient is the conversation that an embedded helper is started with.
const fdClient = 3

// lingering is how long an embedded helper waits for the next client.
const lingering = 200 * time.Millisecond

type options struct {
	helper.Options
	foreground, embedded, sweep, version bool
	socket, log                          string
}

func main() {
	if status := hook.Attempt(); status >= 0 { // we are the canary of a helper that starts
		os.Exit(status)
	}
	os.Exit(run())
}

func run() int {
	var o options
	fs := flag.NewFlagSet("agentos-helper", flag.ContinueOnError)
	fs.BoolVar(&o.foreground, "foreground", false, "serve until ended by a signal")
	fs.BoolVar(&o.embedded, "embedded", false, "serve the conversation on descriptor 3, then end (used by agentos)")
	fs.BoolVar(&o.sweep, "sweep", false, "remove what a killed helper left behind, then end")
	fs.BoolVar(&o.version, "version", false, "print the build and end")
	fs.StringVar(&o.socket, "socket", "", "`path` of the socket (default /run/agentos/helper.sock)")
	fs.StringVar(&o.State, "state", "/var/lib/agentos", "`directory` of audit logs and home layers")
	fs.StringVar(&o.Run, "run", "/run/agentos", "`directory` of the socket")
	fs.StringVar(&o.Org, "org", "/etc/agentos/policy.d", "`directory` of the organisation policy")
	fs.StringVar(&o.Init, "init", "", "`path` of agentos-init (default: beside this program)")
	fs.StringVar(&o.Netd, "netd", "", "`path` of agentos-netd (default: beside agentos-init)")
	fs.StringVar(&o.Resolv, "resolv", "/etc/resolv.conf", "`file` that names the host's resolvers, for jails with a network")
	fs.StringVar(&o.Hosts, "hosts", "/etc/hosts", "`file` of names that are not asked for, for jails with a network")
	fs.StringVar(&o.Upstream, "upstream", "/etc/agentos/network.toml", "`file` that says by which proxy jails' connections leave this host")
	fs.StringVar(&o.Group, "group", "agentos", "`name` of the cgroup above all jails; helpers of different groups do not meet")
	fs.DurationVar(&o.Wait, "wait", 2*time.Second, "how `long` to wait for another helper to end")
	fs.DurationVar(&o.Spare, "spare", time.Minute, "how `long` a jail that was made ahead waits to be used; 0: none is made ahead")
	fs.StringVar(&o.log, "log", "warn", "`level` of messages: debug, info, warn or error")
	if err := fs.Parse(os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 125
	}
	if o.version {
		fmt.Println(packet.Build())
		return 0
	}
	if err := o.serve(); err != nil {
		fmt.Fprintf(os.Stderr, "agentos: helper: %v\n", err)
		return 125
	}
	return 0
}

func (o *options) serve() error {
	if !o.foreground && !o.embedded && !o.sweep {
		return errors.New("say --foreground, --embedded or --sweep")
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.log)); err != nil {
		return err
	}
	o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if o.Init == "" {
		exe, err := os.Executable()
		if err != nil {
			return err
		}
		o.Init = filepath.Join(filepath.Dir(exe), "agentos-init")
	}
	if o.socket == "" {
		o.socket = filepath.Join(o.Run, "helper.sock")
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	defer quiet.Start()()
	if o.embedded {
		o.Spare = 0                             // nobody comes after this one
		signal.Ignore(unix.SIGINT, unix.SIGHUP) // the terminal's keys are for the agent
	}
	s, err := helper.Open(o.Options)
	if err != nil {
		return err
	}
	switch {
	case o.sweep:
	case o.embedded:
		err = o.embed(ctx, s)
	default:
		err = o.listen(ctx, s)
	}
	return errors.Join(err, s.Close())
}

func (o *options) listen(ctx context.Context, s *helper.Server) error {
	l, err := helper.Activated()
	if err != nil {
		return err
	}
	if l == nil {
		if l, err = helper.Listen(o.socket); err != nil {
			return err
		}
		defer os.Remove(o.socket)
	}
	defer l.Close()
	return s.Accept(ctx, l)
}

// embed serves the client that started it, and others while it is at it, and
// ends when nobody is left.
func (o *options) embed(ctx context.Context, s *helper.Server) error {
	conn, err := packet.New(fdClient)
	if err != nil {
		return err
	}
	l, err := helper.Listen(o.socket)
	if err != nil {
		return err
	}
	defer l.Close()
	defer os.Remove(o.socket)
	ctx, stop := context.WithCancel(ctx)
	accepted := make(chan error, 1)
	go func() { accepted <- s.Accept(ctx, l) }()
	err = s.Serve(ctx, conn)
	for !s.Idle() && ctx.Err() == nil {
		time.Sleep(lingering)
	}
	stop()
	return errors.Join(err, <-accepted)
}
