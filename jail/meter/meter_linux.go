package meter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// How often is looked, and how fast an agent is taken to write at most.
const (
	Slowest = time.Second
	Fastest = 100 * time.Millisecond
	Rate    = 2 << 30 // bytes a second
)

const (
	batch  = 50 * time.Millisecond // messages are read that much later, together
	buffer = 8 << 20               // bytes of messages the kernel keeps for us
)

// Meter hears of every thread that ends. It listens only while something is
// watched. Safe for concurrent use.
type Meter struct {
	f      *os.File
	family uint16
	cpus   string

	mu      sync.Mutex
	watched map[*watch]bool
	wg      sync.WaitGroup
}

// watch is one jail.
type watch struct {
	first, n uint32
	ended    atomic.Uint64 // bytes of threads that have ended
	lost     atomic.Bool
}

// Open prepares the meter and proves it: the end of a thread of this process must
// be heard. It wraps [errors.ErrUnsupported] where the kernel does not account,
// or this process is in a pid or network namespace that is not told.
//
// Preconditions: CAP_NET_ADMIN.
func Open() (_ *Meter, err error) {
	if _, err := os.Stat("/proc/self/io"); err != nil {
		return nil, fmt.Errorf("kernel without CONFIG_TASK_IO_ACCOUNTING: %w", errors.ErrUnsupported)
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	m := &Meter{f: os.NewFile(uintptr(fd), "netlink"), watched: map[*watch]bool{}}
	defer func() {
		if err != nil {
			_ = m.f.Close()
		}
	}()
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("bind netlink: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer); err != nil {
		return nil, fmt.Errorf("size netlink buffer: %w", err)
	}
	cpus, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err != nil {
		return nil, fmt.Errorf("count processors: %w", err)
	}
	m.cpus = strings.TrimSpace(string(cpus))
	_ = m.f.SetReadDeadline(time.Now().Add(5 * time.Second))
	if err := m.findFamily(); err != nil {
		return nil, err
	}
	if err := m.prove(); err != nil {
		return nil, err
	}
	_ = m.f.SetReadDeadline(time.Time{})
	m.wg.Go(m.run) // until Close
	return m, nil
}

// Close stops listening. Every watch must have been stopped.
func (m *Meter) Close() error {
	err := m.f.Close()
	m.wg.Wait()
	return err
}

func (m *Meter) findFamily() error {
	if err := m.send(typeControl, cmdGetFamily, attrFamilyName, "TASKSTATS"); err != nil {
		return err
	}
	data, err := m.receive(make([]byte, 16<<10))
	if err != nil {
		return fmt.Errorf("find taskstats: %w", err)
	}
	err = messages(data, func(_ uint16, attrs []byte) error {
		if id := attribute(attrs, attrFamilyID); len(id) >= 2 {
			m.family = binary.NativeEndian.Uint16(id)
		}
		return nil
	})
	if err != nil || m.family == 0 {
		return fmt.Errorf("kernel without CONFIG_TASKSTATS: %w", errors.ErrUnsupported)
	}
	return nil
}

// prove ends a thread of ours and waits to hear of it.
func (m *Meter) prove() error {
	if err := m.listen(true); err != nil {
		return err
	}
	tid := make(chan int)
	go func() { // a goroutine that ends locked takes its thread with it
		runtime.LockOSThread()
		tid <- unix.Gettid()
	}()
	want := uint32(<-tid)
	buf := make([]byte, 16<<10)
	for heard := false; !heard; {
		data, err := m.receive(buf)
		if err == nil {
			err = exits(m.family, data, func(e exit) { heard = heard || e.tid == want })
		}
		if err != nil {
			return fmt.Errorf("the kernel tells nothing of threads that end (%w): %w", err, errors.ErrUnsupported)
		}
	}
	return m.listen(false)
}

// listen tells the kernel whether we want to hear.
func (m *Meter) listen(on bool) error {
	attr := uint16(attrDeregister)
	if on {
		attr = attrRegister
	}
	return m.send(m.family, cmdGet, attr, m.cpus)
}

func (m *Meter) send(family uint16, cmd byte, attr uint16, value string) error {
	c, err := m.f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = c.Write(func(fd uintptr) bool {
		serr = unix.Sendto(int(fd), request(family, cmd, attr, value), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !errors.Is(serr, unix.EAGAIN)
	})
	if err = errors.Join(err, serr); err != nil {
		return fmt.Errorf("ask for taskstats: %w", err)
	}
	return nil
}

// receive returns the next datagram of the kernel.
func (m *Meter) receive(buf []byte) ([]byte, error) {
	c, err := m.f.SyscallConn()
	if err != nil {
		return nil, err
	}
	for {
		var n int
		var from unix.Sockaddr
		var rerr error
		err := c.Read(func(fd uintptr) bool {
			n, from, rerr = unix.Recvfrom(int(fd), buf, 0)
			return !errors.Is(rerr, unix.EAGAIN)
		})
		if err = errors.Join(err, rerr); err != nil {
			return nil, err
		}
		if a, ok := from.(*unix.SockaddrNetlink); ok && a.Pid == 0 { // from the kernel
			return buf[:n], nil
		}
	}
}

// run reads what the kernel tells until the socket is closed.
func (m *Meter) run() {
	c, err := m.f.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 16<<10)
	for c.Read(func(fd uintptr) bool { return m.drain(int(fd), buf) }) == nil {
		time.Sleep(batch) // one wake-up for many
	}
}

// drain reads until there is no more, and reports whether there was any.
func (m *Meter) drain(fd int, buf []byte) (any bool) {
	for ; ; any = true {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		switch a, ok := from.(*unix.SockaddrNetlink); {
		case errors.Is(err, unix.ENOBUFS):
			m.each(func(w *watch) { w.lost.Store(true) })
		case err != nil:
			return any
		case ok && a.Pid == 0: // from the kernel
			_ = exits(m.family, buf[:n], m.heard) // an answer with an error tells of no end
		}
	}
}

func (m *Meter) heard(e exit) {
	if e.wrote == 0 {
		return
	}
	m.each(func(w *watch) {
		if e.uid-w.first < w.n {
			w.ended.Add(e.wrote)
		}
	})
}

func (m *Meter) each(do func(*watch)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watched {
		do(w)
	}
}

// Watch counts what the tasks of a jail write: the threads in the v2 group whose
// directory is open as group, with real uids from first on, n of them. It calls
// reached once, with the bytes, when they are at least limit, and lost once if threads
// could not be read or their ends were not heard. Stop it before group is closed; stop waits for
// the calls.
func (m *Meter) Watch(group int, first, n uint32, limit uint64, reached func(wrote uint64), lost func()) (stop func(), err error) {
	w := &watch{first: first, n: n}
	m.mu.Lock()
	if len(m.watched) == 0 {
		err = m.listen(true)
	}
	if err == nil {
		m.watched[w] = true
	}
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { w.poll(ctx, group, limit, reached, lost) })
	return func() {
		cancel()
		wg.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		if delete(m.watched, w); len(m.watched) == 0 {
			_ = m.listen(false) // at worst we hear what nobody needs
		}
	}, nil
}

func (w *watch) poll(ctx context.Context, group int, limit uint64, reached func(uint64), lost func()) {
	told := false
	for {
		wrote := w.ended.Load() // before the live ones: a thread that ends in between is counted the next time, not twice
		now, err := live(group)
		if wrote += now; err != nil {
			w.lost.Store(true)
		}
		if w.lost.Load() && !told {
			told = true
			lost()
		}
		if wrote >= limit {
			reached(wrote)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause(limit - wrote)):
		}
	}
}

// pause is how long an agent surely needs for rest bytes, within our bounds.
func pause(rest uint64) time.Duration {
	if rest >= Rate {
		return Slowest
	}
	return max(Fastest, min(Slowest, time.Duration(rest*uint64(time.Second)/Rate)))
}

// live adds up what the threads of a group have written so far. A group that is
// gone has none.
func live(group int) (wrote uint64, err error) {
	fd, err := unix.Openat(group, "cgroup.threads", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list threads: %w", err)
	}
	f := os.NewFile(uintptr(fd), "cgroup.threads")
	defer f.Close()
	var list bytes.Buffer
	if _, err := list.ReadFrom(f); err != nil && !errors.Is(err, unix.ENODEV) {
		return 0, fmt.Errorf("list threads: %w", err)
	}
	var failed error
	for tid := range strings.FieldsSeq(list.String()) {
		data, err := os.ReadFile("/proc/" + tid + "/task/" + tid + "/io")
		if err == nil { // else it has just ended, and is heard of
			wrote += writeBytes(data)
		} else if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESRCH) {
			failed = fmt.Errorf("read what %s has written: %w", tid, err)
		}
	}
	return wrote, failed
}

// writeBytes reads the line of proc_pid_io(5).
func writeBytes(data []byte) uint64 {
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}
