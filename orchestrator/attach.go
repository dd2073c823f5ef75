package orchestrator

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/orchestrator/terminal"
)

// How long things may take after the process is told to end, or has ended.
const (
	hangUpGrace = 3 * time.Second        // from a hang-up to cgroup.kill
	killGrace   = 10 * time.Second       // from cgroup.kill to giving up
	drainMax    = 1 << 20                // bytes of output after the end: what a pipe can hold
	drainIdle   = 300 * time.Millisecond // silence after which output counts as complete
)

// signals that are passed on or acted on while attached.
var attachedSignals = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH, unix.SIGUSR1, unix.SIGUSR2,
	unix.SIGPIPE, // caught and dropped, so that a write to a closed pipe is an error and not our end
}

// Attach carries the process' streams to s and back until it has ended: through
// a terminal if it was started with one. Signals of this program are for the
// process meanwhile, except that a second SIGTERM ends it at once.
// It returns an error only when the process' end could not be learnt.
// Preconditions: nobody else reads s or handles the signals.
func (p *Proc) Attach(ctx context.Context, s terminal.Streams, f terminal.Filter) (Exit, error) {
	a := &attachment{proc: p, streams: s, signals: make(chan os.Signal, 16), ended: make(chan pumpEnd, 4), filter: f}
	var catch []os.Signal
	for _, sig := range attachedSignals {
		if sig == unix.SIGCONT || sig == unix.SIGPIPE || !signal.Ignored(sig) { // nohup stays nohup
			catch = append(catch, sig)
		}
	}
	signal.Notify(a.signals, catch...)
	// Each signal given back costs two switches of threads, and most programs end after this.
	defer func() { go signal.Stop(a.signals) }() // ends with the one call
	if p.Caught != nil {
		p.Caught()
	}
	defer func() { _ = a.close() }()
	if err := a.begin(); err != nil {
		return Exit{}, err
	}
	return a.loop(ctx)
}

type pump uint8

const (
	inputPump pump = iota
	outputPump
	errorPump
)

type pumpEnd struct {
	which pump
	err   error // nil: end of file
	ours  bool  // the user's side failed, not the process'
}

// attachment is one run of Attach. Only loop's goroutine writes its plain fields.
type attachment struct {
	proc    *Proc
	streams terminal.Streams
	filter  terminal.Filter
	signals chan os.Signal
	ended   chan pumpEnd

	tty    *terminal.TTY    // nil with pipes
	reader *terminal.Reader // of the user's input
	pumps  sync.WaitGroup

	draining atomic.Bool
	writing  atomic.Int32 // output pumps that hold bytes
	terms    int          // SIGTERMs seen
	exit     Exit
	pending  []string // notices not shown yet
	deadline <-chan time.Time
	killed   bool
	resizes  chan [2]uint16
	outputs  int // output pumps that still run
}

func (a *attachment) begin() (err error) {
	if a.reader, err = terminal.NewReader(a.streams.In); err != nil {
		return err
	}
	p := a.proc
	if p.master == nil {
		a.outputs = 2
		a.start(inputPump, a.input(p.in))
		a.start(outputPump, a.output(p.out, a.streams.Out))
		a.start(errorPump, a.output(p.err, a.streams.Err))
		return nil
	}
	if a.tty, err = terminal.Open(a.streams.In, a.streams.Out, a.filter); err != nil {
		return err
	}
	a.outputs = 1
	a.resizes = make(chan [2]uint16, 1)
	a.pumps.Go(func() { a.resizer() })
	a.start(inputPump, a.input(p.master))
	a.start(outputPump, a.output(p.master, a.tty))
	return nil
}

// start runs one pump; the terminal is put back even if it panics.
func (a *attachment) start(which pump, run func() (err error, ours bool)) {
	a.pumps.Go(func() {
		defer a.rescue()
		err, ours := run()
		a.ended <- pumpEnd{which, err, ours}
	})
}

func (a *attachment) rescue() {
	if r := recover(); r != nil {
		if a.tty != nil {
			_ = a.tty.Close()
		}
		panic(r)
	}
}

// input copies what the user sends to the process and closes a pipe at its end.
func (a *attachment) input(to *os.File) func() (error, bool) {
	return func() (error, bool) {
		buf := make([]byte, 32<<10)
		for {
			n, err := a.reader.Read(buf)
			if n > 0 {
				if _, werr := to.Write(buf[:n]); werr != nil {
					return werr, false
				}
			}
			if err != nil || n == 0 {
				if to == a.proc.in {
					_ = to.Close()
				}
				if err == nil || errors.Is(err, io.EOF) {
					return nil, true
				}
				return err, true
			}
		}
	}
}

// output copies what the process sends until its end, or, once draining, until
// it has been silent for drainIdle.
func (a *attachment) output(from *os.File, to io.Writer) func() (error, bool) {
	return func() (error, bool) {
		buf := make([]byte, 64<<10)
		for rest := drainMax; rest > 0; {
			last := a.draining.Load()
			if last {
				_ = from.SetReadDeadline(time.Now().Add(drainIdle))
			}
			n, err := from.Read(buf)
			if last {
				rest -= n
			}
			if n > 0 {
				a.writing.Add(1)
				_, werr := to.Write(buf[:n])
				a.writing.Add(-1)
				if werr != nil {
					_ = from.Close() // the process learns it at its next write
					return werr, true
				}
			}
			switch {
			case err == nil:
			case errors.Is(err, os.ErrDeadlineExceeded) && (!last || readable(from)):
				// A read whose deadline has passed fails before it looks: drain sets one, maybe after we
				// set ours, and without a processor for drainIdle ours has passed as well.
			case errors.Is(err, io.EOF), errors.Is(err, unix.EIO), errors.Is(err, os.ErrDeadlineExceeded):
				return nil, false
			default:
				return err, false
			}
		}
		return nil, false
	}
}

func (a *attachment) resizer() {
	defer a.rescue()
	for size := range a.resizes {
		_ = a.proc.Resize(context.Background(), size[0], size[1])
	}
}

// resize hands the newest size to the resizer and drops one it has not taken.
func (a *attachment) resize(rows, cols uint16) {
	for {
		select {
		case a.resizes <- [2]uint16{rows, cols}:
			return
		default:
		}
		select {
		case <-a.resizes:
		default:
		}
	}
}

// close puts the terminal back first, then stops the pumps. A pump that is stuck
// in a write to the user is left behind: nothing but the user can end that.
func (a *attachment) close() error {
	if a.tty != nil {
		_ = a.tty.Close()
	}
	if a.reader == nil {
		return nil
	}
	_ = a.reader.Close()
	_ = a.proc.Close()
	if a.resizes != nil {
		close(a.resizes)
		a.resizes = nil
	}
	done := make(chan struct{})
	go func() { // ends with the pumps
		a.pumps.Wait()
		_ = a.reader.Release()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(drainIdle):
	}
	return nil
}

func (a *attachment) loop(ctx context.Context) (Exit, error) {
	happened := make(chan rpc.Happened)
	failed := make(chan error, 1)
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	a.pumps.Go(func() {
		defer a.rescue()
		a.watch(stop, happened, failed)
	})
	for {
		notice := a.retryNotice()
		select {
		case h := <-happened:
			if done := a.happened(ctx, h); done {
				a.drain()
				return a.exit, nil
			}
		case err := <-failed:
			return a.exit, err
		case sig := <-a.signals:
			a.signal(ctx, sig)
		case e := <-a.ended:
			a.pumpEnded(ctx, e)
		case <-a.deadline:
			if a.killed {
				return a.exit, errors.New("the process does not end")
			}
			a.kill(ctx)
		case <-notice:
		case <-ctx.Done():
			return a.exit, ctx.Err()
		}
	}
}

// watch asks what happens to the process until it has exited.
func (a *attachment) watch(ctx context.Context, happened chan<- rpc.Happened, failed chan<- error) {
	for {
		h, err := a.proc.wait(ctx)
		if err != nil {
			failed <- err
			return
		}
		select {
		case happened <- h:
		case <-ctx.Done():
			return
		}
		if h.What == "exited" {
			return
		}
	}
}

func (a *attachment) happened(ctx context.Context, h rpc.Happened) (done bool) {
	switch h.What {
	case "exited":
		a.exit.Code, a.exit.Signal, a.exit.Totals = h.Code, h.Signal, h.Totals
		if h.Signal != 0 {
			a.exit.Code = 128 + h.Signal
		}
		return true
	case "stopped":
		a.suspend(ctx)
	case "notice":
		text := event.Printable(h.Text)
		a.exit.Notices = append(a.exit.Notices, text)
		if a.tty != nil {
			a.pending = append(a.pending, text)
		} else {
			_, _ = a.streams.Err.WriteString("agentos: " + text + "\n")
		}
	}
	return false
}

// retryNotice shows a pending notice, or returns when to try again.
func (a *attachment) retryNotice() <-chan time.Time {
	if len(a.pending) == 0 {
		return nil
	}
	if a.tty.Notice("agentos: " + a.pending[0]) {
		a.pending = a.pending[1:]
		if len(a.pending) == 0 {
			return nil
		}
	}
	return time.After(50 * time.Millisecond)
}

func (a *attachment) signal(ctx context.Context, sig os.Signal) {
	s, _ := sig.(unix.Signal)
	switch s {
	case unix.SIGPIPE:
	case unix.SIGWINCH:
		if a.tty != nil {
			a.resize(a.tty.Size())
		}
	case unix.SIGCONT: // after a SIGSTOP that nobody told us of
		a.resume(ctx, "")
	case unix.SIGTSTP:
		_ = a.proc.Signal(ctx, int(unix.SIGTSTP))
		a.suspend(ctx)
	case unix.SIGHUP:
		a.hangUp(ctx)
	case unix.SIGTERM:
		if a.terms++; a.terms > 1 {
			a.kill(ctx)
			return
		}
		_ = a.proc.Signal(ctx, int(s))
	default:
		_ = a.proc.Signal(ctx, int(s))
	}
}

func (a *attachment) pumpEnded(ctx context.Context, e pumpEnd) {
	if e.which != inputPump {
		a.outputs--
	}
	switch {
	case a.tty != nil && e.ours: // our terminal is gone
		a.hangUp(ctx)
	case e.which == inputPump && !e.ours && a.tty == nil:
		_ = a.proc.in.Close() // the process takes no more
	case e.which != inputPump && e.ours && e.err != nil && !errors.Is(e.err, unix.EPIPE) && !errors.Is(e.err, unix.EBADF):
		_, _ = a.streams.Err.WriteString("agentos: " + event.Printable(e.err.Error()) + "\n") // a full disk; a pipe without a reader is usual
	}
}

// hangUp tells the process that nobody is there any more, and sees to its end.
func (a *attachment) hangUp(ctx context.Context) {
	_ = a.proc.Signal(ctx, int(unix.SIGHUP))
	_ = a.proc.Signal(ctx, int(unix.SIGCONT)) // a stopped one has to run to take it
	if a.deadline == nil {
		a.deadline = time.After(hangUpGrace)
	}
}

func (a *attachment) kill(ctx context.Context) {
	a.killed = true
	a.deadline = time.After(killGrace)
	_ = a.proc.Kill(ctx)
}

// suspend stops this program, and with it the job it is part of, as the process
// has stopped; it returns when we are continued.
func (a *attachment) suspend(ctx context.Context) {
	redo := ""
	if a.tty != nil {
		a.settle()
		redo = a.tty.Suspend()
	}
	if restore, err := stopJob(); err == nil {
		a.awaitContinue()
		restore()
	}
	a.resume(ctx, redo)
}

// settle waits until what the stopped process had written has been shown: it
// belongs on the screen before the shell's prompt.
func (a *attachment) settle() {
	quiet := 0
	for range 100 {
		if quiet++; a.writing.Load() != 0 || readable(a.proc.master) {
			quiet = 0
		}
		if quiet > 2 { // also the moment between a read and its write is over
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func readable(f *os.File) bool {
	c, err := f.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	_ = c.Control(func(fd uintptr) {
		n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	})
	return n > 0
}

// awaitContinue also returns when a timer says that SIGTSTP did not stop us: the
// kernel does not stop a group that nobody could continue.
func (a *attachment) awaitContinue() {
	limit := time.After(200 * time.Millisecond) // does not run while we are stopped
	for {
		select {
		case sig := <-a.signals:
			if sig == unix.SIGCONT {
				return
			}
			if sig != unix.SIGWINCH && sig != unix.SIGTSTP {
				a.signals <- sig // for loop
				return
			}
		case <-limit:
			return
		}
	}
}

// resume takes the terminal again and lets the process go on. A program that
// draws repaints when its size changes, and only then, so it changes twice.
func (a *attachment) resume(ctx context.Context, redo string) {
	if a.tty != nil {
		_ = a.tty.Raw(redo)
	}
	_ = a.proc.Signal(ctx, int(unix.SIGCONT))
	if a.tty != nil {
		rows, cols := a.tty.Size()
		if rows > 1 {
			_ = a.proc.Resize(ctx, rows-1, cols)
		}
		a.resize(rows, cols)
	}
}

// drain lets the output that is on its way arrive.
func (a *attachment) drain() {
	a.draining.Store(true)
	for _, f := range []*os.File{a.proc.master, a.proc.out, a.proc.err} {
		if f != nil {
			_ = f.SetReadDeadline(time.Now()) // wakes the pump, which then sets its own
		}
	}
	for a.outputs > 0 {
		select {
		case e := <-a.ended:
			if e.which != inputPump {
				a.outputs--
			}
		case sig := <-a.signals: // the user does not want the rest
			if sig == unix.SIGTERM || sig == unix.SIGHUP || sig == unix.SIGINT {
				return
			}
		}
	}
}
