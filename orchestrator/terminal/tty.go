package terminal

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Streams are the standard streams of the user's side.
type Streams struct {
	In, Out, Err *os.File
}

// Interactive reports whether all three are terminals, so that the jailed
// process gets one too. Otherwise they are carried as three separate pipes.
func (s Streams) Interactive() bool {
	for _, f := range []*os.File{s.In, s.Out, s.Err} {
		if f == nil || !term.IsTerminal(int(f.Fd())) {
			return false
		}
	}
	return true
}

// TTY is the user's terminal while a jailed process has it.
type TTY struct {
	in, out *os.File

	wmu    sync.Mutex // held while output of the process is written
	mu     sync.Mutex
	back   sync.Cond   // with mu: no longer given back for a while
	state  *term.State // before Raw; nil = not raw
	given  bool        // back, between Suspend and Raw
	filter Filter
	buf    []byte
	closed bool
}

// Open takes over the terminal that in and out belong to and puts it into raw
// mode. [TTY.Close] gives it back; nothing is kept of the files.
// Preconditions: [Streams.Interactive].
func Open(in, out *os.File, f Filter) (*TTY, error) {
	t := &TTY{in: in, out: out, filter: f}
	t.back.L = &t.mu
	if err := t.Raw(); err != nil {
		return nil, err
	}
	return t, nil
}

// Raw enters raw mode and brings back what [TTY.Suspend] took back; redo is what
// that returned. In the background of a shell's job control it stops this
// process until it is in the foreground, as every program that draws does.
func (t *TTY) Raw(redo ...string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.given = false
	t.back.Broadcast()
	if t.closed {
		return nil
	}
	st, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return fmt.Errorf("set terminal to raw mode: %w", err)
	}
	if t.state == nil { // else a shell changed it while we were stopped
		t.state = st
	}
	for _, r := range redo {
		_, _ = t.out.WriteString(r)
	}
	return nil
}

// Suspend gives the terminal back for a while and returns what [TTY.Raw] needs.
// Until then [TTY.Write] waits: what it wrote would be changed by a mode that is
// not the process' own, or land in what the shell shows.
func (t *TTY) Suspend() (redo string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.given = true
	return t.restore()
}

// Close gives the terminal back for good. It is safe to call twice and from a
// panicking goroutine.
func (t *TTY) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.restore()
		t.closed = true
		t.back.Broadcast()
	}
	return nil
}

func (t *TTY) restore() (redo string) {
	if t.state == nil {
		return ""
	}
	st := t.state
	t.state = nil
	// In the background the terminal is someone else's already: the shell set
	// it up for itself, and a write would stop us.
	if pgrp, err := unix.IoctlGetInt(int(t.in.Fd()), unix.TIOCGPGRP); err == nil && pgrp != unix.Getpgrp() {
		return ""
	}
	undo, redo := t.filter.Undo()
	_, _ = t.out.WriteString(undo)
	_ = term.Restore(int(t.in.Fd()), st)
	return redo
}

// Write filters p and writes it to the terminal. It blocks while the terminal is
// given back and while it does not take more, which holds the jailed process back in turn.
func (t *TTY) Write(p []byte) (int, error) {
	t.wmu.Lock()
	defer t.wmu.Unlock()
	t.mu.Lock()
	for t.given && !t.closed {
		t.back.Wait()
	}
	t.buf = t.filter.Write(t.buf[:0], p)
	b := t.buf
	closed := t.closed
	t.mu.Unlock() // not held while writing: Close must work on a stuck terminal
	if closed {
		return 0, os.ErrClosed
	}
	if _, err := t.out.Write(b); err != nil {
		return 0, fmt.Errorf("write terminal: %w", err)
	}
	return len(p), nil
}

// Notice shows one line of ours, which must be printable: at the bottom of the
// screen, leaving the cursor where it is. It reports false when the terminal is
// in the middle of a sequence or of a write; the caller tries later.
func (t *TTY) Notice(line string) bool {
	if !t.wmu.TryLock() {
		return false
	}
	defer t.wmu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.state == nil || !t.filter.Ground() {
		return false
	}
	rows, cols := t.size()
	if r := []rune(line); len(r) > int(cols)-1 {
		line = string(r[:max(0, int(cols)-1)])
	}
	_, _ = fmt.Fprintf(t.out, "\x1b7\x1b[%d;1H\x1b[0;7m%s\x1b[0m\x1b[K\x1b8", rows, line)
	return true
}

// Size returns the terminal's size in cells, 24 by 80 when it does not know.
func (t *TTY) Size() (rows, cols uint16) { return t.size() }

func (t *TTY) size() (rows, cols uint16) { return Size(t.out) }

// Size returns the size of the terminal f in cells, 24 by 80 when it is unknown.
func Size(f *os.File) (rows, cols uint16) {
	c, r, err := term.GetSize(int(f.Fd()))
	if err != nil || c <= 0 || r <= 0 {
		return 24, 80
	}
	return uint16(min(r, 1<<15)), uint16(min(c, 1<<15))
}

// Reader reads a file of the user's that must not be made non-blocking, such as
// a terminal or an inherited pipe, and can be stopped.
type Reader struct {
	f          *os.File
	wake, quit *os.File
}

// NewReader wraps f, which stays the caller's. Close the Reader to stop it.
func NewReader(f *os.File) (*Reader, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	return &Reader{f: f, wake: r, quit: w}, nil
}

// Read reads what there is; it returns os.ErrClosed after Close.
func (r *Reader) Read(p []byte) (int, error) {
	for {
		fds := []unix.PollFd{
			{Fd: int32(r.f.Fd()), Events: unix.POLLIN},
			{Fd: int32(r.wake.Fd()), Events: unix.POLLIN},
		}
		if _, err := unix.Poll(fds, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return 0, fmt.Errorf("poll %s: %w", r.f.Name(), err)
		}
		if fds[1].Revents != 0 {
			return 0, os.ErrClosed
		}
		return r.f.Read(p)
	}
}

// Close makes the present and every later Read return. The file stays open.
// Call Release when Read has returned.
func (r *Reader) Close() error { return r.quit.Close() }

// Release frees what the Reader has of its own.
func (r *Reader) Release() error { return r.wake.Close() }
