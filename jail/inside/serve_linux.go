package inside

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/job"
	"github.com/agentos/agentos/jail/packet"
)

// processes are the ones that init was asked to start. Orphans that init reaps
// are nobody's.
type processes struct {
	mu    sync.Mutex // held over fork and over reaping: no exit is seen before its start
	next  int
	byPid map[int]*process
	byNum map[int]*process
}

type process struct {
	num, pid int
	master   *os.File // nil without a terminal
	shared   bool     // it is in init's session, whose terminal this is
}

// serve answers the helper until its socket ends.
func (s *state) serve() {
	procs := &processes{byPid: map[int]*process{}, byNum: map[int]*process{}}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	// Caught and dropped. Not signal.Ignore: that, like what the helper was
	// started with, would go on through exec, and the agent's programs would not
	// hear Ctrl-C; caught signals are put back to their default in a child.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGTSTP, unix.SIGTTOU, unix.SIGTTIN,
		unix.SIGPIPE, unix.SIGALRM, unix.SIGUSR1, unix.SIGUSR2)
	go func() { // lives as long as the process
		for range children {
			procs.reap(s)
		}
	}()
	for {
		var m jail.Message
		fds, err := s.control.Receive(&m)
		if err != nil {
			return
		}
		s.handle(procs, m, fds)
		packet.CloseAll(fds)
	}
}

func (s *state) handle(procs *processes, m jail.Message, fds []*os.File) {
	switch m.Op {
	case jail.OpLook:
		s.answer(m, s.fresh())
	case jail.OpRun:
		s.run1(procs, m, fds)
	case jail.OpSignal:
		s.answer(m, procs.signal(m.Proc, unix.Signal(m.Signal)))
	case jail.OpResize:
		s.answer(m, procs.resize(m.Proc, m.Rows, m.Cols))
	case jail.OpWhy:
		s.desk.answered(m)
	case jail.OpRules:
		s.swapRules(m, fds)
	default:
		s.answer(m, fmt.Errorf("unknown request %q", m.Op))
	}
}

func (s *state) answer(m jail.Message, err error) {
	out := jail.Message{Op: m.Op, ID: m.ID, Proc: m.Proc}
	if err != nil {
		out.Op, out.Text = jail.OpFailed, err.Error()
		var errno unix.Errno
		if errors.As(err, &errno) {
			out.Errno = int(errno)
		}
	}
	_ = s.control.Send(out) // a dead helper ends serve
}

// run1 starts one process and answers with its number and PTY master.
func (s *state) run1(procs *processes, m jail.Message, fds []*os.File) {
	p, err := s.process(fds)
	if err != nil {
		s.answer(m, err)
		return
	}
	started, err := s.fork(procs, p, m, fds[1:])
	if err != nil {
		s.answer(m, err)
		return
	}
	out := jail.Message{Op: jail.OpRunning, ID: m.ID, Proc: started.num, Pid: started.pid}
	if started.master != nil {
		_ = s.control.Send(out, int(started.master.Fd()))
		return
	}
	_ = s.control.Send(out)
}

// process reads what to start. The first is the agent, and what others leave out is
// as it is there.
func (s *state) process(fds []*os.File) (p jail.Process, err error) {
	if len(fds) == 0 {
		return p, errors.New("start process: nothing says which")
	}
	if p, err = jail.TakeProcess(fds[0]); err != nil {
		return p, err
	}
	if len(p.Argv) == 0 {
		return p, errors.New("start process: no command")
	}
	if s.agent.Argv == nil {
		s.agent = p
	}
	if len(p.Env) == 0 {
		p.Env = s.agent.Env
	}
	if p.Cwd == "" {
		p.Cwd = s.agent.Cwd
	}
	return p, nil
}

func (s *state) fork(procs *processes, p jail.Process, m jail.Message, fds []*os.File) (*process, error) {
	sys := &syscall.SysProcAttr{Setsid: true}
	var std []uintptr
	var master, slave *os.File
	if m.TTY {
		var err error
		if master, slave, err = s.openPTY(m.Rows, m.Cols); err != nil {
			return nil, err
		}
		defer slave.Close()
		std = []uintptr{slave.Fd(), slave.Fd(), slave.Fd()}
	} else {
		if len(fds) != 3 {
			return nil, fmt.Errorf("start process: %d descriptors instead of 3", len(fds))
		}
		std = []uintptr{fds[0].Fd(), fds[1].Fd(), fds[2].Fd()}
	}
	procs.mu.Lock()
	defer procs.mu.Unlock()
	shared, program, argv := false, p.Argv[0], p.Argv
	if slave != nil {
		if shared = control(slave); shared {
			sys = &syscall.SysProcAttr{Setpgid: true, Foreground: true, Ctty: int(slave.Fd())}
		} else {
			sys.Setctty, sys.Ctty = true, 0
			program, argv = jail.ToolPath, append([]string{job.Name}, p.Argv...)
		}
	}
	pid, err := s.execute(program, argv, p, std, sys)
	if err != nil && program != p.Argv[0] { // a policy may refuse the tool, but not the command; that one alone cannot stop
		pid, err = s.execute(p.Argv[0], p.Argv, p, std, sys)
	}
	if err != nil {
		if shared {
			release(slave)
		}
		if master != nil {
			_ = master.Close()
		}
		if cerr := s.enter(p.Cwd); cerr != nil {
			return nil, fmt.Errorf("enter %s: %w", p.Cwd, cerr)
		}
		return nil, fmt.Errorf("execute %s: %w", p.Argv[0], err)
	}
	procs.next++
	out := &process{num: procs.next, pid: pid, master: master, shared: shared}
	procs.byPid[pid], procs.byNum[out.num] = out, out
	return out, nil
}

// execute starts a program from the launch thread.
func (s *state) execute(program string, argv []string, p jail.Process, std []uintptr, sys *syscall.SysProcAttr) (pid int, err error) {
	s.launch.do(func() {
		pid, err = syscall.ForkExec(program, argv, &syscall.ProcAttr{Dir: p.Cwd, Env: p.Env, Files: std, Sys: sys})
	})
	return pid, err
}

// enter says whether the working directory is what stopped a process from
// starting: fork and exec answer with one error for both.
func (s *state) enter(dir string) (err error) {
	s.launch.do(func() { err = unix.Access(dir+"/.", unix.X_OK) })
	return err
}

// reap collects every child that changed and tells the helper about ours.
func (p *processes) reap(s *state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WUNTRACED, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		q := p.byPid[pid]
		if q == nil {
			continue
		}
		m := jail.Message{Op: jail.OpChanged, Proc: q.num, Pid: pid}
		switch {
		case ws.Stopped():
			m.What, m.Signal = "stopped", int(ws.StopSignal())
		case ws.Signaled():
			m.What, m.Signal, m.Code = "exited", int(ws.Signal()), 128+int(ws.Signal())
		default:
			m.What, m.Code = "exited", ws.ExitStatus()
		}
		if m.What == "exited" {
			s.events.flush() // what it did comes before its end
			delete(p.byPid, pid)
			delete(p.byNum, q.num)
			q.hangUp()
		}
		_ = s.control.Send(m)
	}
}

var errNoProcess = errors.New("no such process")

// signal reaches what a terminal's key would reach: the foreground process
// group; without a terminal the group of the process.
func (p *processes) signal(num int, sig unix.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.byNum[num]
	if q == nil {
		return errNoProcess
	}
	group := q.pid
	if q.master != nil && sig != unix.SIGCONT && sig != unix.SIGHUP && sig != unix.SIGTERM {
		// 1 is init's own group, which the agent may put there; -1 means everybody.
		if g, err := unix.IoctlGetInt(int(q.master.Fd()), unix.TIOCGPGRP); err == nil && g > 1 {
			group = g
		}
	}
	err := unix.Kill(-group, sig)
	if errors.Is(err, unix.ESRCH) { // it left its group: whoever leads no session may
		err = unix.Kill(q.pid, sig)
	}
	return err
}

func (p *processes) resize(num int, rows, cols uint16) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.byNum[num]
	if q == nil || q.master == nil {
		return errNoProcess
	}
	return unix.IoctlSetWinsize(int(q.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
}
