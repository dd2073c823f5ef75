package jail

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/packet"
)

// namespaces are those every jail has of its own.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME

// Birth is what Start clones an init from. All descriptors stay the caller's.
type Birth struct {
	Init   *os.File // executable memfd of agentos-init
	Base   uint32   // first host id of the range
	Cgroup int      // descriptor of the v2 group, -1 for none
	Tmp    uint64   // bytes that the policy will probably ask for, see Input.Tmp; 0 = DefaultTmp
	// Enter puts the calling thread where what it clones must be born (cgroup v1)
	// and returns the way back; nil for nowhere.
	Enter func() (leave func() error, err error)
}

// Parts are what [Jail.Build] makes a jail of. All descriptors stay the caller's.
type Parts struct {
	Spec   Spec
	Filter *os.File   // sealed memfd: seccomp program
	Rules  *os.File   // sealed memfd: automaton
	Tree   *os.File   // of [Trees.Clone]
	Mounts []*os.File // detached mounts in the order of the Bind entries of Spec.Mounts
	Opens  *os.File   // fanotify group, if Spec.Opens
}

// Jail is a live init and the sockets to it.
type Jail struct {
	Pid     int           // of init, on the host
	Control *packet.Conn  // Message both ways
	Events  *packet.Conn  // binary event batches from init
	Ended   chan struct{} // closed when init has been reaped

	pidfd  int
	stderr *os.File
	mu     sync.Mutex
	said   []byte // what init printed: only a crash prints
	closed sync.Once
}

// Start clones init into new namespaces and the cgroup. It returns as soon as
// init runs: init prepares what no policy decides, then waits for [Jail.Build].
//
// Preconditions: root; Cgroup is on the unified hierarchy.
func Start(p Birth) (_ *Jail, err error) {
	control, controlInit, err := packet.Pair()
	if err != nil {
		return nil, err
	}
	defer controlInit.Close()
	events, eventsInit, err := packet.Pair()
	if err != nil {
		_ = control.Close()
		return nil, err
	}
	defer eventsInit.Close()
	stderr, stderrInit, err := os.Pipe()
	if err != nil {
		_ = control.Close()
		_ = events.Close()
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	defer stderrInit.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()

	j := &Jail{Control: control, Events: events, Ended: make(chan struct{}), pidfd: -1, stderr: stderr}
	files := []uintptr{null.Fd(), null.Fd(), stderrInit.Fd(), controlInit.Fd(), eventsInit.Fd()}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(p.Base), Size: RangeSize}}
	sys := &syscall.SysProcAttr{
		Setsid: true, Cloneflags: namespaces, PidFD: &j.pidfd,
		UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
		Credential: &syscall.Credential{Uid: 0, Gid: 0},
	}
	if p.Cgroup >= 0 {
		sys.UseCgroupFD, sys.CgroupFD = true, p.Cgroup
	}
	// Before the exec the child moves its descriptors, first to numbers above the
	// highest of them (syscall.forkAndExecInChild): keep the program clear of those.
	clear := int(slices.Max(files)) + 2*len(files) + 64
	program, err := unix.FcntlInt(p.Init.Fd(), unix.F_DUPFD_CLOEXEC, clear)
	if err != nil {
		j.drop()
		return nil, fmt.Errorf("duplicate init: %w", err)
	}
	defer unix.Close(program)
	attr := &syscall.ProcAttr{Dir: "/", Env: []string{"GOTRACEBACK=single"}, Files: files, Sys: sys}
	if j.Pid, err = clone(program, strconv.FormatUint(cmp.Or(p.Tmp, DefaultTmp), 10), attr, p.Enter); err != nil {
		j.drop()
		return nil, fmt.Errorf("clone init: %w", err)
	}
	go j.reap()    // ends when init does; Close waits for it
	go j.collect() // ends with reap: the pipe's other end goes with init
	return j, nil
}

// Build tells init what to build. The next message on Control says whether it
// could.
func (j *Jail) Build(p Parts) error {
	doc, err := json.Marshal(p.Spec)
	if err != nil {
		return fmt.Errorf("encode spec: %w", err)
	}
	spec, err := Memfd("agentos-spec", doc, false)
	if err != nil {
		return err
	}
	defer spec.Close()
	fds := []int{PartSpec: int(spec.Fd()), PartFilter: int(p.Filter.Fd()), PartRules: int(p.Rules.Fd()), PartTree: int(p.Tree.Fd())}
	for _, m := range p.Mounts {
		fds = append(fds, int(m.Fd()))
	}
	if p.Spec.Opens {
		fds = append(fds, int(p.Opens.Fd()))
	}
	for part := range slices.Chunk(fds, packet.MaxFDs) {
		if err := j.Control.Send(Message{Op: OpBuild}, part...); err != nil {
			return fmt.Errorf("tell init: %w", err)
		}
	}
	return nil
}

// Memfd is p as it comes with [OpRun].
func (p Process) Memfd() (*os.File, error) {
	doc, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode process: %w", err)
	}
	f, err := Memfd("agentos-process", doc, false)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("rewind process: %w", err)
	}
	return f, nil
}

// TakeProcess reads what [Process.Memfd] made, for who will start it.
func TakeProcess(f *os.File) (p Process, err error) {
	data, err := io.ReadAll(f) // moves the offset, which both sides share: see Taken
	if err != nil {
		return p, fmt.Errorf("read process: %w", err)
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("decode process: %w", err)
	}
	return p, nil
}

// Taken reports whether anybody has begun to read f, a memfd of [Process.Memfd]. An
// init that ended before that has started nothing. What cannot be found out was taken.
func Taken(f *os.File) bool {
	at, err := f.Seek(0, io.SeekCurrent)
	return err != nil || at != 0
}

// clone forks init on a thread that has entered the groups of its birth. A
// thread that cannot come back is thrown away with its goroutine.
func clone(program int, tmp string, attr *syscall.ProcAttr, enter func() (func() error, error)) (pid int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if enter != nil {
			leave, eerr := enter()
			if eerr != nil {
				err = eerr
				return // still locked: the thread ends
			}
			defer func() {
				if leave() == nil {
					runtime.UnlockOSThread()
				}
			}()
		} else {
			defer runtime.UnlockOSThread()
		}
		pid, err = syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", program), []string{"agentos-init", tmp}, attr)
	}()
	<-done
	return pid, err
}

// drop closes what a jail that never ran holds.
func (j *Jail) drop() {
	_ = j.Control.Close()
	_ = j.Events.Close()
	_ = j.stderr.Close()
}

// reap waits until init has ended and reaps it. It waits in the runtime's poller:
// a system call that waits would keep a thread for each jail.
func (j *Jail) reap() {
	defer close(j.Ended)
	if fd, err := unix.PidfdOpen(j.Pid, unix.PIDFD_NONBLOCK); err == nil { // our child: the pid is its until it is reaped
		f := os.NewFile(uintptr(fd), "init")
		defer f.Close()
		if c, err := f.SyscallConn(); err == nil {
			_ = c.Read(func(fd uintptr) bool {
				p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
				n, err := unix.Poll(p, 0)
				return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
			})
		}
	}
	var ws unix.WaitStatus
	for { // what could not be waited for above is waited for here
		_, err := unix.Wait4(j.Pid, &ws, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (j *Jail) collect() {
	data, _ := io.ReadAll(io.LimitReader(j.stderr, 16<<10))
	j.mu.Lock()
	j.said = data
	j.mu.Unlock()
	_, _ = io.Copy(io.Discard, j.stderr)
	_ = j.stderr.Close()
}

// Said returns what init wrote to its stderr: the trace of a crash.
func (j *Jail) Said() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return string(j.said)
}

// Kill ends init, and with it, by the kernel, every process of its pid
// namespace.
func (j *Jail) Kill() {
	if j.pidfd >= 0 {
		_ = unix.PidfdSendSignal(j.pidfd, unix.SIGKILL, nil, 0)
	}
}

// Stop kills init and waits until it is reaped: at most ten seconds, a process
// in uninterruptible sleep can hold it. What it sent before can still be read.
func (j *Jail) Stop() error {
	j.Kill()
	select {
	case <-j.Ended:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("end init %d: still there after 10 s", j.Pid)
	}
}

// Close is [Jail.Stop] and closes the sockets. Idempotent.
func (j *Jail) Close() error {
	var err error
	j.closed.Do(func() {
		err = j.Stop()
		_ = j.Control.Close()
		_ = j.Events.Close()
		if j.pidfd >= 0 {
			_ = unix.Close(j.pidfd)
		}
	})
	return err
}
