package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/orchestrator"
	"github.com/agentos/agentos/orchestrator/machine"
)

// doctorWait bounds how long the helper may take to probe.
const doctorWait = 20 * time.Second

func (p *program) doctorCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "doctor",
		Short: "say what this machine can enforce, and what to do about the rest",
		Long: `Says what this machine can enforce: what any process can read, and, where a helper is reachable (or can be started, as root),
what it tried. With each thing that is missing stands the one thing to do about it.
The exit status is 0 if a jail under the strict policy can be made, 1 if not.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			m := p.examine(c.Context())
			if asJSON {
				if err := p.out.json(m); err != nil {
					return err
				}
			} else {
				p.examined(m)
			}
			for _, b := range m.Builtins {
				if b.Policy == "strict" && b.Starts {
					return nil
				}
			}
			return exitStatus(1)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (p *program) examine(ctx context.Context) rpc.Machine {
	ctx, cancel := context.WithTimeout(ctx, doctorWait)
	defer cancel()
	var own []rpc.Fact
	in, err := machine.Read()
	if err != nil {
		own = []rpc.Fact{{Name: "machine", Text: err.Error(), Hint: "use Linux; jails are made of its kernel's parts"}}
	} else {
		own = machine.Assess(in)
	}
	m := rpc.Machine{Kernel: in.Release, Builtins: []rpc.Misses{}}
	g, err := p.gate(ctx)
	if err == nil {
		defer func() { _ = g.Close() }()
		var probed rpc.Machine
		if probed, err = orchestrator.Probe(ctx, g); err == nil {
			m = probed
		}
	}
	if err != nil {
		m.Features = append(m.Features, rpc.Fact{Name: "helper", Text: err.Error(), Hint: orchestrator.Hint(err)})
	}
	m.Features = machine.Merge(m.Features, own)
	return m
}

func (p *program) examined(m rpc.Machine) {
	width := 0
	for _, f := range m.Features {
		width = max(width, len(f.Name))
	}
	for _, f := range m.Features {
		word := p.out.green("ok  ")
		if !f.Good {
			word = p.out.red("miss")
		}
		p.out.linef("%s  %-*s  %s", word, width, event.Printable(f.Name), clean(f.Text))
		if !f.Good && f.Hint != "" {
			p.out.linef("%s  %s", strings.Repeat(" ", 6+width), p.out.dim("do: "+clean(f.Hint)))
		}
	}
	for i, b := range m.Builtins {
		if i > 0 && alike(b, m.Builtins[i-1]) {
			continue // its name stands with the first's
		}
		p.out.linef("")
		names := b.Policy
		for _, o := range m.Builtins[i+1:] {
			if !alike(b, o) {
				break
			}
			names += ", " + o.Policy
		}
		head := "policy " + event.Printable(names) + ": "
		switch {
		case b.Starts && len(b.Missing) == 0:
			p.out.linef("%s%s", head, p.out.green("starts, nothing missing"))
		case b.Starts:
			p.out.linef("%sstarts, without:", head)
		default:
			p.out.linef("%s%s", head, p.out.red("does not start here, for want of:"))
		}
		for _, x := range b.Missing {
			p.out.linef("  %s: %s", event.Printable(x.Guarantee), clean(x.Why))
			if x.Hint != "" {
				p.out.linef("    %s", p.out.dim("do: "+clean(x.Hint)))
			}
		}
	}
}

// alike reports whether the same can be said of two policies.
func alike(a, b rpc.Misses) bool { return a.Starts == b.Starts && slices.Equal(a.Missing, b.Missing) }
