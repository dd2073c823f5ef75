package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

// stopSignal ends a sleeping call of one of our threads. Nothing else uses it.
const stopSignal = 41

// Broker answers the calls of one jail.
type Broker struct {
	c         Config
	listener  int
	groups    []uint32
	root      int    // O_PATH of /
	proc      int    // O_PATH of /proc
	links     int    // O_PATH of /proc/self/fd: descriptor numbers are shared by all threads
	tasks     int    // O_PATH of /proc/self/task: our own threads
	procDev   uint64 // st_dev of /proc
	rootLinks []rootLink
	auditAll  bool
	auditSome bool

	// names is held for reading while a name is made or removed, and for
	// writing while names move: between decision and act nothing moves.
	names sync.RWMutex

	stopping atomic.Bool
	lane     *lane
	crew     *crew
	workers  []*worker
	made     sockets // sockets that this jail bound
	wg       sync.WaitGroup
}

// New makes a broker; it touches no kernel object.
func New(c Config) (*Broker, error) {
	switch c.Audit {
	case "", AuditDenied, AuditChanges, AuditAll:
	default:
		return nil, fmt.Errorf("audit level %q: %w", c.Audit, unix.EINVAL)
	}
	if c.UID <= 0 || c.GID < 0 {
		return nil, fmt.Errorf("agent ids %d:%d: %w", c.UID, c.GID, unix.EINVAL)
	}
	for _, p := range append(append([]string(nil), c.Unix...), c.Private...) {
		if !strings.HasPrefix(p, "/") {
			return nil, fmt.Errorf("path %q is not absolute: %w", p, unix.EINVAL)
		}
	}
	if c.Workers <= 0 {
		c.Workers = max(4, runtime.NumCPU()+2)
	}
	b := &Broker{
		c: c, listener: c.Listener, root: -1, proc: -1, links: -1, tasks: -1,
		auditAll:  c.Audit == AuditAll,
		auditSome: c.Audit == AuditAll || c.Audit == AuditChanges,
	}
	b.crew = newCrew(b)
	for _, g := range c.Groups {
		b.groups = append(b.groups, uint32(g))
	}
	return b, nil
}

// Serve answers calls until ctx ends or no process of the filter is left.
//
// Preconditions: /proc is the procfs of the jail, the calling process holds
// CAP_SETUID, CAP_SETGID and CAP_SYS_PTRACE over the agent and is not under the
// filter. Serve may be called once.
func (b *Broker) Serve(ctx context.Context) error {
	defer b.closeRoots()
	if err := b.openRoots(); err != nil {
		return err
	}
	if e := interruptible(stopSignal); e != 0 {
		return fmt.Errorf("prepare signal %d: %w", stopSignal, e)
	}
	_ = syncWakeUp(b.listener) // only faster; EINVAL before Linux 6.6
	b.lane = newLane(b)
	defer b.lane.stop()

	for range b.c.Workers {
		b.workers = append(b.workers, newWorker(b))
	}
	failed := make(chan error, b.c.Workers)
	b.wg.Add(1)
	go func() {
		defer b.wg.Done()
		b.crew.watch()
	}()
	for _, w := range b.workers {
		b.wg.Add(1)
		go func() {
			defer b.wg.Done()
			failed <- w.loop()
		}()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed: // a worker ends when no caller is left, or when it cannot work
	}
	b.stop()
	if err == nil || errors.Is(err, errNobody) {
		return nil
	}
	return err
}

// errNobody says that no process of the filter is left.
var errNobody = errors.New("no process is left")

// receivers is the most workers that receive at a time; the others replace those that
// wait for something.
func (b *Broker) receivers() int { return max(1, min(runtime.NumCPU(), b.c.Workers-2)) }

// stop ends all workers and waits for them.
func (b *Broker) stop() {
	b.stopping.Store(true)
	close(b.crew.halt)
	done := make(chan struct{})
	go func() { b.wg.Wait(); close(done) }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, w := range b.workers {
			w.interrupt()
		}
		select {
		case <-done:
			return
		case <-tick.C: // a thread may have been on its way into the call
		}
	}
}

func (b *Broker) openRoots() error {
	for _, r := range []struct {
		fd   *int
		path string
	}{{&b.root, "/"}, {&b.proc, "/proc"}, {&b.links, "/proc/self/fd"}, {&b.tasks, "/proc/self/task"}} {
		fd, err := unix.Open(r.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: r.path, Err: err}
		}
		*r.fd = fd
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(b.proc, &fs); err != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return fmt.Errorf("/proc is no procfs: %w", unix.ENODEV)
	}
	var st unix.Stat_t
	if err := unix.Fstat(b.proc, &st); err != nil {
		return fmt.Errorf("stat /proc: %w", err)
	}
	b.procDev = st.Dev
	b.readRootLinks()
	return nil
}

func (b *Broker) closeRoots() {
	for _, fd := range []*int{&b.root, &b.proc, &b.links, &b.tasks} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}

// posture makes the calling thread act for the agent: its effective and
// file-system ids and groups, its own umask and working directory, and of all capabilities
// CAP_SYS_PTRACE. The real uid stays 0, so that the agent can neither signal nor
// trace the thread.
//
// Precondition: the goroutine is locked to its thread for good.
func (b *Broker) posture() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare fs: %w", err)
	}
	setUmask(0)
	if e := setGroups(b.groups); e != 0 {
		return fmt.Errorf("set groups: %w", e)
	}
	same := ^uintptr(0)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, same, uintptr(b.c.GID), same); e != 0 {
		return fmt.Errorf("set gid: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(b.c.UID), same); e != 0 {
		return fmt.Errorf("set uid: %w", e)
	}
	const trace = 1 << unix.CAP_SYS_PTRACE
	if e := setCapabilities(trace, trace); e != 0 {
		return fmt.Errorf("set capabilities: %w", e)
	}
	return nil
}

// emit reports a decision.
func (b *Broker) emit(e event.Event) {
	if b.c.Emit != nil {
		b.c.Emit(e)
	}
}
