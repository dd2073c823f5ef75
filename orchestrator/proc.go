package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/rpc"
)

// Proc is a process of a session whose standard streams are in our hands:
// either a terminal's master, or three pipes.
type Proc struct {
	Session string // id
	Name    string // of the session, "" for a further process
	Started rpc.Started
	Caught  func() // called once Attach has the signals of this program; may be nil

	gate   Gate
	ref    rpc.ProcRef
	jail   bool                      // the session's agent: ending it ends the jail
	master *os.File                  // nil with pipes
	asked  atomic.Pointer[rpc.Asked] // what happens next, if that was asked already
	in     *os.File                  // write end
	out    *os.File                  // read ends
	err    *os.File
}

// Exit says how a process ended.
type Exit struct {
	Code    int         // exit status, or 128 + signal
	Signal  int         // signal that ended it, 0 if none
	Notices []string    // what the helper had to say meanwhile, in order
	Totals  *rpc.Totals // of the record, at the end of a session's agent; nil if it is not known
}

// Close gives up our ends of the process' streams.
func (p *Proc) Close() error {
	if a := p.asked.Swap(nil); a != nil {
		a.Forget()
	}
	closeFiles([]*os.File{p.master, p.in, p.out, p.err})
	return nil
}

// Terminal reports whether the process has a terminal, not pipes.
func (p *Proc) Terminal() bool { return p.master != nil }

// Signal sends a signal to the process' foreground process group.
func (p *Proc) Signal(ctx context.Context, sig int) error {
	return call(ctx, p.gate, rpc.Signal, rpc.SignalProc{ProcRef: p.ref, Signal: sig}, nil)
}

// Resize sets the size of the process' terminal.
func (p *Proc) Resize(ctx context.Context, rows, cols uint16) error {
	return call(ctx, p.gate, rpc.Resize, rpc.ResizeProc{ProcRef: p.ref, Terminal: rpc.Terminal{Rows: rows, Cols: cols}}, nil)
}

// Kill ends the process at once: the agent with its whole jail, another process
// by SIGKILL.
func (p *Proc) Kill(ctx context.Context) error {
	if p.jail {
		return Kill(ctx, p.gate, p.Session)
	}
	return p.Signal(ctx, 9)
}

// wait returns the next thing that happens to the process.
func (p *Proc) wait(ctx context.Context) (rpc.Happened, error) {
	var h rpc.Happened
	asked := p.asked.Swap(nil)
	if asked == nil {
		var err error
		if asked, err = p.gate.Ask(rpc.Wait, p.ref); err != nil {
			return h, fmt.Errorf("wait for process: %w", err)
		}
	}
	files, err := asked.Answer(ctx, &h)
	closeFiles(files)
	if err != nil {
		return h, fmt.Errorf("wait for process: %w", err)
	}
	return h, nil
}

// Kill ends the session with everything in it.
func Kill(ctx context.Context, g Gate, session string) error {
	return call(ctx, g, rpc.Kill, rpc.SessionRef{Session: session}, nil)
}

// List returns the caller's sessions (root: everybody's), newest first: those
// that run, or all that have left a log.
func List(ctx context.Context, g Gate, all bool) ([]rpc.Session, error) {
	var out []rpc.Session
	known := map[string]bool{} // one that ends meanwhile changes its place
	for after := ""; ; {
		var s rpc.Sessions
		if err := call(ctx, g, rpc.List, rpc.ListSessions{All: all, After: after}, &s); err != nil {
			return nil, fmt.Errorf("list sessions: %w", err)
		}
		for _, row := range s.Sessions {
			if !known[row.ID] {
				known[row.ID] = true
				out = append(out, row)
			}
		}
		if !s.More || len(s.Sessions) == 0 {
			return out, nil
		}
		after = s.Sessions[len(s.Sessions)-1].ID
	}
}

// Probe returns what the helper found out about this machine.
func Probe(ctx context.Context, g Gate) (rpc.Machine, error) {
	var m rpc.Machine
	if err := call(ctx, g, rpc.Probe, struct{}{}, &m); err != nil {
		return m, fmt.Errorf("probe machine: %w", err)
	}
	return m, nil
}

// Spawn starts a further process in a running session: with a terminal of size
// tty, or with pipes when tty is nil. Argv and env together fit one datagram of
// the gate (64 KiB).
func Spawn(ctx context.Context, g Gate, s rpc.SpawnProc, tty *rpc.Terminal) (*Proc, error) {
	s.Terminal = tty
	p := &Proc{Session: s.Session, gate: g}
	var sp rpc.Spawned
	if err := p.start(ctx, rpc.Spawn, s, &sp, tty != nil, func() error { return nil }); err != nil {
		return nil, err
	}
	p.ref = rpc.ProcRef{Session: s.Session, Proc: sp.Proc}
	return p, nil
}

// start sends verb v with three pipe ends, or takes the terminal's master from
// its answer. before is what has to be answered first.
func (p *Proc) start(ctx context.Context, v rpc.Verb, body, out any, tty bool, before func() error) (err error) {
	var theirs [3]*os.File
	defer func() {
		closeFiles(theirs[:])
		if err != nil {
			_ = p.Close()
		}
	}()
	var fds []int
	if !tty {
		if theirs, err = p.pipes(); err != nil {
			return err
		}
		for _, f := range theirs {
			fds = append(fds, int(f.Fd())) // also makes it blocking again, as programs expect
		}
	}
	started, err := p.gate.Ask(v, body, fds...)
	if err != nil {
		return err
	}
	defer started.Forget()
	if err := before(); err != nil {
		return err
	}
	files, err := started.Answer(ctx, out)
	switch {
	case err != nil:
		if v == rpc.Start {
			return fmt.Errorf("start jail: %w", err)
		}
		return fmt.Errorf("start process in session: %w", err)
	case !tty && len(files) > 0:
		closeFiles(files)
		return errors.New("helper sent descriptors for pipes")
	case tty && len(files) != 1:
		closeFiles(files)
		return fmt.Errorf("helper sent %d descriptors, want the terminal alone", len(files))
	case tty:
		p.master, err = pollable(files[0])
	}
	return err
}

// pipes makes three pipes and returns the ends that are not ours.
func (p *Proc) pipes() (theirs [3]*os.File, err error) {
	theirs[0], p.in, err = os.Pipe()
	if err == nil {
		p.out, theirs[1], err = os.Pipe()
	}
	if err == nil {
		p.err, theirs[2], err = os.Pipe()
	}
	return theirs, err
}

// pollable returns f, which it takes, as a file whose reads can be interrupted.
func pollable(f *os.File) (*os.File, error) {
	defer func() { _ = f.Close() }()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate terminal: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("set terminal non-blocking: %w", err)
	}
	return os.NewFile(uintptr(fd), "terminal"), nil
}
