//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command agentos runs AI coding agents in jails and shows what they did.
//
// It has the rights of the user who calls it. What needs root is asked of
// agentos-helper over its socket; see package jail/rpc for that conversation and
// package orchestrator for everything this command does with it. The files here
// parse flags and print.
//
// Data goes to stdout and nothing else does; stderr is for people: lines begin
// with "agentos: ", and one that begins with "hint: " follows when there is
// something to do. Every listing has --json. Names that an agent may have chosen
// are printed through event.Printable.
//
// Exit statuses: the agent's own; 3 trust --check found something; 125 AgentOS failed, 126 refused by policy, 127
// command not found.
//
// No package it imports may be slow to initialise: a command reaches the helper
// within 15 ms of its start. For that reason, too, the runtime does not read the
// CPU limit of the cgroup at each start: this program hardly computes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/orchestrator"
)

func main() {
	if len(os.Args) > 1 && (os.Args[1] == "run" || os.Args[1] == "exec") {
		runtime.GOMAXPROCS(1) // they carry bytes: waking threads for it takes longer than it takes
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// exitStatus is an error that only sets the status: everything has been said.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// program is one run of the command.
type program struct {
	in       *os.File
	out, err printer
	environ  []string
	home     string
}

// run is the whole command without its process: it returns the exit status.
func run(ctx context.Context, args []string, in, out, errs *os.File) int {
	p := &program{in: in, environ: os.Environ(), home: os.Getenv("HOME")}
	noColor := os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
	p.out, p.err = newPrinter(out, noColor), newPrinter(errs, noColor)
	root := p.root(args)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out) // help was asked for: data
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = p.out.flush()
	} else {
		_ = p.out.flush()
	}
	var status exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	p.err.failure(err)
	return orchestrator.Status(err)
}

// commands are made one by one, because most runs need one of them.
var commands = []struct {
	name string
	make func(*program) *cobra.Command
}{
	{"run", (*program).runCommand},
	{"audit", (*program).auditCommand},
	{"trust", (*program).trustCommand},
	{"why", (*program).whyCommand},
	{"policy", (*program).policyCommand},
	{"net", (*program).netCommand},
	{"doctor", (*program).doctorCommand},
	{"ps", (*program).psCommand},
	{"exec", (*program).execCommand},
	{"kill", (*program).killCommand},
	{"changes", (*program).changesCommand},
	{"agents", (*program).agentsCommand},
	{"version", (*program).versionCommand},
	{"man", (*program).manCommand},
	{"completion", (*program).completionCommand},
}

// root is the command with the one below it that args name, or with all of them:
// without one, and for those that speak about the others.
func (p *program) root(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "agentos",
		Short: "run AI coding agents in jails, and see what they did",
		Long: `Runs AI coding agents in jails that the kernel enforces, and keeps a record of everything they do.

  agentos run claude               Claude Code, here, under the strict policy
  agentos run -- make test         any command
  agentos audit show --denied      what the last session was refused, and by which rule
  agentos trust                    what it left that your tools will run or obey
  agentos why                      which rule, and the line that would allow it
  agentos policy explain read .env whether, and which line says so
  agentos net                      a running session's connections
  agentos doctor                   what this machine can enforce`,
		Args:                       known,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		Version:                    packet.Build(),
		CompletionOptions:          cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &orchestrator.Error{Err: err, Hint: c.CommandPath() + " --help"}
	})
	root.SetVersionTemplate("agentos {{.Version}}\n")
	for _, c := range commands {
		if len(args) > 0 && args[0] == c.name && c.name != "man" && c.name != "completion" {
			root.AddCommand(c.make(p))
			return root
		}
	}
	for _, c := range commands {
		root.AddCommand(c.make(p))
	}
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Short = "help about any command"
		}
	}
	return root
}

// known refuses what is no command, with the one that was meant.
func known(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := root.CommandPath() + " --help"
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return &orchestrator.Error{Err: fmt.Errorf("there is no command %q", args[0]), Hint: hint}
}

// gate reaches the helper.
func (p *program) gate(ctx context.Context) (orchestrator.Gate, error) {
	return orchestrator.Connect(ctx, orchestrator.Connection{
		Socket: p.getenv("AGENTOS_SOCKET"), Libexec: p.getenv("AGENTOS_LIBEXEC"), Embedded: p.getenv("AGENTOS_SOCKET") == "", Build: packet.Build(), Stderr: p.err.file,
	})
}

func (p *program) getenv(name string) string {
	for i := len(p.environ) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(p.environ[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// count refuses a wrong number of arguments in the voice of the rest.
func count(minimum, maximum int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if n := len(args); n < minimum || n > maximum {
			return &orchestrator.Error{Err: fmt.Errorf("%s wants %s", c.CommandPath(), what), Hint: c.CommandPath() + " --help"}
		}
		return nil
	}
}
