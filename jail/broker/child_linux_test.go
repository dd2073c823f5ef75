package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

// The child is this test binary again, as another user and under a filter that
// sends Notified to the broker in the parent. It makes the system calls that it is
// asked to make, each in a goroutine of its own.

type arg struct {
	Int uint64  `json:",omitempty"`
	Str *string `json:",omitempty"` // NUL-terminated copy
	Buf []byte  `json:",omitempty"`
	Out int     `json:",omitempty"` // buffer whose content comes back
}

type command struct {
	ID   int
	Op   string // "" is a system call
	Nr   int
	Args []arg
	Argv []string
}

type result struct {
	ID    int
	Val   int64
	Errno int
	Data  []byte
}

const childEnv = "BROKER_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		childMain()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func childMain() {
	runtime.LockOSThread()
	listener, err := loadFilter()
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(3)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
		fmt.Fprintln(os.Stderr, "child: send listener:", err)
		os.Exit(3)
	}
	unix.Close(listener)
	unix.Close(3)
	dec := json.NewDecoder(os.Stdin)
	enc := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	for {
		var c command
		if dec.Decode(&c) != nil {
			return
		}
		go func() {
			r := perform(c)
			r.ID = c.ID
			mu.Lock()
			defer mu.Unlock()
			_ = enc.Encode(r)
		}()
	}
}

// loadFilter sends the calls to a listener and allows the rest, on all threads.
func loadFilter() (int, error) {
	mode := os.Getenv(childEnv)
	table := (&Config{Hide: mode != "1", Kernel: mode == "kernel"}).handlers()
	prog := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	for nr, h := range table {
		if h != nil {
			prog = append(prog,
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(nr), Jf: 1},
				unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
		}
	}
	prog = append(prog, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, err
	}
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	flags := unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV |
		unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(flags), uintptr(unsafe.Pointer(&f)))
	if e != 0 {
		return -1, fmt.Errorf("load filter: %w", e)
	}
	return int(fd), nil
}

func perform(c command) (r result) {
	if c.Op != "" {
		return ops[c.Op](c)
	}
	var raw [6]uintptr
	var keep []any
	var out []byte
	for i, a := range c.Args {
		switch {
		case a.Str != nil:
			b := append([]byte(*a.Str), 0)
			keep = append(keep, b)
			raw[i] = uintptr(unsafe.Pointer(&b[0]))
		case a.Out > 0:
			out = make([]byte, a.Out)
			raw[i] = uintptr(unsafe.Pointer(&out[0]))
		case len(a.Buf) > 0:
			keep = append(keep, a.Buf)
			raw[i] = uintptr(unsafe.Pointer(&a.Buf[0]))
		default:
			raw[i] = uintptr(a.Int)
		}
	}
	v, _, e := unix.Syscall6(uintptr(c.Nr), raw[0], raw[1], raw[2], raw[3], raw[4], raw[5])
	runtime.KeepAlive(keep)
	r.Val, r.Errno = int64(v), int(e)
	if e == 0 && out != nil {
		r.Data = out[:min(int(v), len(out))]
	}
	return r
}

// ops are longer acts.
var ops = map[string]func(command) result{
	"run": func(c command) (r result) {
		cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
		out, err := cmd.CombinedOutput()
		r.Data = out
		if err != nil {
			r.Errno, r.Data = 1, fmt.Appendf(out, "\n%v", err)
		}
		return r
	},
	"bench": func(c command) (r result) {
		n := int(c.Args[0].Int)
		runtime.LockOSThread()
		p := append([]byte(c.Argv[0]), 0)
		at := unix.AT_FDCWD
		start := time.Now()
		for range n {
			fd, _, e := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(&p[0])), uintptr(c.Args[1].Int), 0o644, 0, 0)
			if e != 0 {
				r.Errno = int(e)
				continue
			}
			_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
		}
		r.Val = time.Since(start).Nanoseconds()
		return r
	},
	// threads opens Argv[0] 200 times on each of 64 threads and returns how often the content was right.
	"threads": func(c command) (r result) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 64 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				runtime.LockOSThread()
				good := 0
				for range 200 {
					if b, err := os.ReadFile(c.Argv[0]); err == nil && string(b) == c.Argv[1] {
						good++
					}
				}
				mu.Lock()
				r.Val += int64(good)
				mu.Unlock()
			}()
		}
		wg.Wait()
		return r
	},
	// race swaps Argv[0] and Argv[1] while it opens Argv[0] for Args[0] ms and returns
	// how often the content contained Argv[2].
	"race": func(c command) (r result) {
		var wg sync.WaitGroup
		stop := make(chan struct{})
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Renameat2(unix.AT_FDCWD, c.Argv[0], unix.AT_FDCWD, c.Argv[1], unix.RENAME_EXCHANGE)
				}
			}
		}()
		tries := 0
		for end := time.Now().Add(time.Duration(c.Args[0].Int) * time.Millisecond); time.Now().Before(end); tries++ {
			b, err := os.ReadFile(c.Argv[0])
			if err == nil && bytes.Contains(b, []byte(c.Argv[2])) {
				r.Val++
			}
		}
		close(stop)
		wg.Wait()
		r.Data = fmt.Appendf(nil, "%d tries", tries)
		return r
	},
	// signals interrupts one thread all the time while it makes files with O_EXCL: none may be made twice.
	"signals": func(c command) (r result) {
		runtime.LockOSThread()
		tid := unix.Gettid()
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Tgkill(unix.Getpid(), tid, unix.SIGURG)
				}
			}
		}()
		for i := range int(c.Args[0].Int) {
			p := append(fmt.Appendf(nil, "%s/f%d", c.Argv[0], i), 0)
			at := unix.AT_FDCWD
			fd, _, e := unix.Syscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(&p[0])), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o644, 0, 0)
			if e != 0 {
				r.Errno, r.Val = int(e), int64(i)
				break
			}
			unix.Close(int(fd))
		}
		close(stop)
		<-done
		return r
	},
	"chdir": func(c command) (r result) {
		if err := os.Chdir(c.Argv[0]); err != nil {
			r.Errno = 1
		}
		return r
	},
	"umask": func(c command) (r result) {
		r.Val = int64(unix.Umask(int(c.Args[0].Int)))
		return r
	},
}

// child is the parent's side.
type child struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	b    *Broker
	base string // a tree that the child may write

	mu      sync.Mutex
	next    int
	waiting map[int]chan result
	events  []event.Event
	closed  bool
}

const testUID, testGID = 12345, 12346

// testBase makes a directory for the child with its copy of this binary.
func testBase(t testing.TB) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("wanted root, got uid", os.Getuid())
	}
	base, err := os.MkdirTemp("", "broker-test-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	must(t, os.Chmod(base, 0o755))
	self, err := os.Executable()
	must(t, err)
	data, err := os.ReadFile(self)
	must(t, err)
	must(t, os.WriteFile(base+"/child", data, 0o755))
	must(t, os.Mkdir(base+"/ws", 0o755))
	must(t, os.Chown(base+"/ws", testUID, testGID))
	return base
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startChild starts a child and, with a configuration, its broker.
func startChild(t testing.TB, change func(*Config)) *child {
	t.Helper()
	c := &child{t: t, base: testBase(t), waiting: map[int]chan result{}}
	cfg := Config{
		Rules: Only(testRules{base: c.base}), UID: testUID, GID: testGID, Audit: AuditAll, Sockets: true,
		Emit: func(e event.Event) {
			c.mu.Lock()
			c.events = append(c.events, e)
			c.mu.Unlock()
		},
	}
	if change != nil {
		change(&cfg)
	}
	mode := "1"
	switch {
	case cfg.Kernel:
		mode = "kernel"
	case cfg.Hide:
		mode = "hide"
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	theirs := os.NewFile(uintptr(pair[1]), "pair")
	defer unix.Close(pair[0])
	c.cmd = exec.Command(c.base + "/child")
	c.cmd.Env = []string{childEnv + "=" + mode, "PATH=/usr/bin:/bin", "HOME=" + c.base + "/ws", "GOMAXPROCS=4"}
	c.cmd.Dir = c.base + "/ws"
	c.cmd.ExtraFiles = []*os.File{theirs}
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID, Gid: testGID}, Pdeathsig: syscall.SIGKILL}
	c.in, err = c.cmd.StdinPipe()
	must(t, err)
	out, err := c.cmd.StdoutPipe()
	must(t, err)
	must(t, c.cmd.Start())
	theirs.Close()
	listener := receiveFD(t, pair[0])
	cfg.Listener = listener
	c.b, err = New(cfg)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- c.b.Serve(ctx) }()
	go c.read(out)
	t.Cleanup(func() {
		c.in.Close()
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		cancel()
		if err := <-served; err != nil {
			t.Error("serve:", err)
		}
		unix.Close(listener)
	})
	return c
}

func receiveFD(t testing.TB, sock int) int {
	t.Helper()
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(sock, make([]byte, 1), oob, 0)
	must(t, err)
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	must(t, err)
	if len(msgs) == 0 {
		t.Fatal("child sent no listener")
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	must(t, err)
	unix.CloseOnExec(fds[0])
	return fds[0]
}

func (c *child) read(out io.Reader) {
	dec := json.NewDecoder(out)
	for {
		var r result
		err := dec.Decode(&r)
		c.mu.Lock()
		if err != nil {
			c.closed = true
			for _, ch := range c.waiting {
				close(ch)
			}
			c.waiting = map[int]chan result{}
			c.mu.Unlock()
			return
		}
		ch := c.waiting[r.ID]
		delete(c.waiting, r.ID)
		c.mu.Unlock()
		ch <- r
	}
}

// begin sends a command.
func (c *child) begin(cmd command) chan result {
	ch := make(chan result, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	cmd.ID = c.next
	c.waiting[cmd.ID] = ch
	b, _ := json.Marshal(cmd)
	if _, err := c.in.Write(append(b, '\n')); err != nil {
		c.t.Error("send command:", err)
	}
	return ch
}

func (c *child) do(cmd command) result {
	c.t.Helper()
	select {
	case r, ok := <-c.begin(cmd):
		if !ok {
			c.t.Fatal("child ended")
		}
		return r
	case <-time.After(60 * time.Second):
		c.t.Fatalf("no answer to %+v", cmd)
	}
	return result{}
}

// sys makes one system call: ints, strings (paths), []byte and *int (output size).
func (c *child) sys(nr int, args ...any) result {
	c.t.Helper()
	return c.do(sysCommand(nr, args...))
}

func sysCommand(nr int, args ...any) command {
	cmd := command{Nr: nr}
	for _, a := range args {
		switch v := a.(type) {
		case int:
			cmd.Args = append(cmd.Args, arg{Int: uint64(v)})
		case int64:
			cmd.Args = append(cmd.Args, arg{Int: uint64(v)})
		case string:
			cmd.Args = append(cmd.Args, arg{Str: &v})
		case []byte:
			cmd.Args = append(cmd.Args, arg{Buf: v})
		case *int:
			cmd.Args = append(cmd.Args, arg{Out: *v})
		default:
			panic(fmt.Sprintf("argument %T", a))
		}
	}
	return cmd
}

func (c *child) open(path string, flags int, mode ...int) result {
	c.t.Helper()
	m := 0
	if len(mode) > 0 {
		m = mode[0]
	}
	return c.sys(unix.SYS_OPENAT, unix.AT_FDCWD, path, flags, m)
}

// content opens and reads; the errno is that of the open or the read.
func (c *child) content(path string) (string, unix.Errno) {
	c.t.Helper()
	r := c.open(path, unix.O_RDONLY)
	if r.Errno != 0 {
		return "", unix.Errno(r.Errno)
	}
	n := 4096
	got := c.sys(unix.SYS_READ, r.Val, &n, n)
	c.sys(unix.SYS_CLOSE, r.Val)
	return string(got.Data), unix.Errno(got.Errno)
}

func (c *child) op(name string, argv []string, ints ...int) result {
	c.t.Helper()
	cmd := command{Op: name, Argv: argv}
	for _, i := range ints {
		cmd.Args = append(cmd.Args, arg{Int: uint64(i)})
	}
	return c.do(cmd)
}

// put makes a file of the child's.
func (c *child) put(name, content string) string {
	c.t.Helper()
	p := filepath.Join(c.base, "ws", name)
	must(c.t, os.MkdirAll(filepath.Dir(p), 0o755))
	must(c.t, os.WriteFile(p, []byte(content), 0o644))
	for d := p; d != c.base; d = filepath.Dir(d) {
		must(c.t, os.Chown(d, testUID, testGID))
	}
	return p
}

// saw reports whether an event was emitted.
func (c *child) saw(match func(event.Event) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.events, match)
}
