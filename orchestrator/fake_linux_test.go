package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
)

// fake is a helper that builds no jail: it runs what it is asked to as plain
// processes, on a PTY of its own or on the given pipes.
type fake struct {
	conn *packet.Conn

	mu    sync.Mutex
	doc   rpc.Document
	given []string
	procs map[int]*fakeProc
	calls []rpc.Verb
	// notice is told before the next thing that happens.
	notice string
	// refuse answers start with this.
	refuse *rpc.Error
}

type fakeProc struct {
	pid    int
	master *os.File
	happen chan rpc.Happened
}

// dialFake starts a fake and a client for it.
func dialFake() (*fake, *rpc.Client, error) {
	conn, other, err := packet.Pair()
	if err != nil {
		return nil, nil, err
	}
	fd, err := unix.FcntlInt(other.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	_ = other.Close()
	if err != nil {
		return nil, nil, err
	}
	theirs, err := packet.New(fd)
	if err != nil {
		return nil, nil, err
	}
	f := &fake{conn: theirs, procs: map[int]*fakeProc{}}
	go f.serve()
	c, err := rpc.NewClient(conn, "test")
	return f, c, err
}

func (f *fake) serve() {
	for {
		var r rpc.Request
		files, err := f.conn.Receive(&r)
		if err != nil {
			f.mu.Lock()
			for _, p := range f.procs {
				_ = unix.Kill(p.pid, unix.SIGKILL)
			}
			f.mu.Unlock()
			_ = f.conn.Close()
			return
		}
		answer := func() {
			body, fds, err := f.answer(r, files)
			reply := rpc.Reply{ID: r.ID}
			if err != nil {
				var e *rpc.Error
				if !errors.As(err, &e) {
					e = &rpc.Error{Code: rpc.Failed, Text: err.Error()}
				}
				reply.Error = e
			} else {
				reply.Body, _ = json.Marshal(body)
			}
			_ = f.conn.Send(reply, fds...)
			packet.CloseAll(files)
		}
		if r.Verb.Ordered() || r.Verb == rpc.Start {
			answer()
		} else {
			go answer() // wait blocks
		}
	}
}

func (f *fake) answer(r rpc.Request, files []*os.File) (any, []int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, r.Verb)
	switch r.Verb {
	case rpc.HelloVerb:
		return rpc.HelloReply{Protocol: rpc.Protocol, Build: "fake", Tier: "D"}, nil, nil
	case rpc.Create:
		data, err := io.ReadAll(io.NewSectionReader(files[0], 0, rpc.MaxDocument))
		if err != nil {
			return nil, nil, err
		}
		seals, err := unix.FcntlInt(files[0].Fd(), unix.F_GET_SEALS, 0)
		if err != nil || seals&(unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL) != 15 {
			return nil, nil, fmt.Errorf("seals are %#x, %w", seals, err)
		}
		return rpc.Drafted{Session: "s1", Name: "fake"}, nil, packet.UnmarshalDocument(data, &f.doc)
	case rpc.Give:
		var g rpc.GiveItems
		if err := packet.Unmarshal(r.Body, &g); err != nil {
			return nil, nil, err
		}
		if len(g.Paths) != len(files) {
			return nil, nil, fmt.Errorf("%d paths, %d descriptors", len(g.Paths), len(files))
		}
		for i, p := range g.Paths {
			if real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", files[i].Fd())); err != nil || real != p {
				return nil, nil, fmt.Errorf("%s is %s, %w", p, real, err)
			}
		}
		f.given = append(f.given, g.Paths...)
		return struct{}{}, nil, nil
	case rpc.Start:
		var s rpc.StartJail
		if err := packet.Unmarshal(r.Body, &s); err != nil {
			return nil, nil, err
		}
		if f.refuse != nil {
			return nil, nil, f.refuse
		}
		p, err := f.run(f.doc.Argv, f.doc.Env, f.doc.Cwd, s.Terminal, files)
		if err != nil {
			return nil, nil, err
		}
		f.procs[1] = p
		return rpc.Started{Session: "s1", Proc: 1, Report: rpc.Report{Tier: "D"}}, p.fds(), nil
	case rpc.Spawn:
		var s rpc.SpawnProc
		if err := packet.Unmarshal(r.Body, &s); err != nil {
			return nil, nil, err
		}
		p, err := f.run(s.Argv, s.Env, s.Cwd, s.Terminal, files)
		if err != nil {
			return nil, nil, err
		}
		n := len(f.procs) + 1
		f.procs[n] = p
		return rpc.Spawned{Proc: n}, p.fds(), nil
	case rpc.Wait:
		return f.wait(r)
	case rpc.Signal:
		var s rpc.SignalProc
		if err := packet.Unmarshal(r.Body, &s); err != nil {
			return nil, nil, err
		}
		p := f.procs[s.Proc]
		group := p.pid
		if p.master != nil {
			if g, err := unix.IoctlGetInt(int(p.master.Fd()), unix.TIOCGPGRP); err == nil && g > 0 {
				group = g
			}
		}
		return struct{}{}, nil, unix.Kill(-group, unix.Signal(s.Signal))
	case rpc.Resize:
		var s rpc.ResizeProc
		if err := packet.Unmarshal(r.Body, &s); err != nil {
			return nil, nil, err
		}
		return struct{}{}, nil, pty.Setsize(f.procs[s.Proc].master, &pty.Winsize{Rows: s.Rows, Cols: s.Cols})
	case rpc.Kill:
		for _, p := range f.procs {
			_ = unix.Kill(-p.pid, unix.SIGKILL)
		}
		return struct{}{}, nil, nil
	case rpc.List:
		return rpc.Sessions{Sessions: []rpc.Session{{ID: "s1", Name: "evil\n\x1b[31m", State: "running", Started: time.Unix(0, 0)}}}, nil, nil
	}
	return nil, nil, &rpc.Error{Code: rpc.Invalid, Text: "not in the fake: " + string(r.Verb)}
}

// wait answers what happens to a process. f.mu is held, but not while it waits.
func (f *fake) wait(r rpc.Request) (any, []int, error) {
	var w rpc.ProcRef
	if err := packet.Unmarshal(r.Body, &w); err != nil {
		return nil, nil, err
	}
	if n := f.notice; n != "" {
		f.notice = ""
		return rpc.Happened{What: "notice", Text: n}, nil, nil
	}
	p := f.procs[w.Proc]
	if p == nil {
		return nil, nil, &rpc.Error{Code: rpc.NotFound, Text: "no such process"}
	}
	f.mu.Unlock()
	defer f.mu.Lock()
	return <-p.happen, nil, nil
}

func (p *fakeProc) fds() []int {
	if p.master == nil {
		return nil
	}
	return []int{int(p.master.Fd())}
}

func (f *fake) run(argv, env []string, cwd string, size *rpc.Terminal, files []*os.File) (*fakeProc, error) {
	p := &fakeProc{happen: make(chan rpc.Happened, 16)}
	cmd := &exec.Cmd{Path: argv[0], Args: argv, Env: env, Dir: cwd, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if size != nil {
		master, slave, err := pty.Open()
		if err != nil {
			return nil, err
		}
		defer func() { _ = slave.Close() }()
		if err := pty.Setsize(master, &pty.Winsize{Rows: size.Rows, Cols: size.Cols}); err != nil {
			return nil, err
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr.Setctty = true
		p.master = master
	} else {
		if len(files) != 3 {
			return nil, fmt.Errorf("%d descriptors for pipes", len(files))
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	}
	if err := cmd.Start(); err != nil {
		return nil, &rpc.Error{Code: rpc.NotFound, Text: err.Error()}
	}
	p.pid = cmd.Process.Pid
	go func() {
		for {
			var ws unix.WaitStatus
			if _, err := unix.Wait4(p.pid, &ws, unix.WUNTRACED, nil); err != nil {
				if errors.Is(err, unix.EINTR) {
					continue
				}
				return
			}
			switch {
			case ws.Stopped():
				p.happen <- rpc.Happened{What: "stopped", Signal: int(ws.StopSignal())}
			case ws.Exited():
				p.happen <- rpc.Happened{What: "exited", Code: ws.ExitStatus()}
				return
			case ws.Signaled():
				p.happen <- rpc.Happened{What: "exited", Signal: int(ws.Signal())}
				return
			}
		}
	}()
	return p, nil
}
