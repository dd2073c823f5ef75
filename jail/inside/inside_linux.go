package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/opens"
	"github.com/agentos/agentos/jail/packet"
)

// state is what the steps work on, in the order they fill it.
type state struct {
	build   string
	tmp     uint64 // bytes that a private tmpfs probably has
	control *packet.Conn
	events  *emitter
	stage   staged
	launch  *launcher
	spec    jail.Spec
	agent   jail.Process  // the first that was started
	parts   []*os.File    // of jail.PartSpec and so on
	rules   func() loaded // waits for it
	book    rulebook      // what the broker judges by
	desk    desk          // where processes of the jail ask why
	root    jail.Root     // of the jail while it is built
	abi     int           // Landlock ABI in force
	ruleset int           // Landlock ruleset, -1 for none
	checks  []jail.Check
	broker  *engine
	group   *os.File     // of fanotify, if Spec.Opens
	judge   *opens.Judge // nil: opens for reading are asked about as the others, or not at all
	linked  opens.Linked // what broker and judge know of files with several names
}

// step is one phase of init.
type step struct {
	name string
	do   func(*state) error
}

// early is what init does before it knows for whom, in order.
var early = []step{
	{"descriptors", (*state).sweep},      // nothing but what we were given, none passes an exec
	{"loopback", (*state).loopback},      // the jail's own 127.0.0.1 and ::1
	{"resolver", (*state).resolver},      // every name is refused and recorded
	{"stage", (*state).setStage},         // a tmpfs nobody else sees
	{"procfs", (*state).mountProc},       // without what it tells about the host
	{"terminals", (*state).mountPts},     //
	{"scratch", (*state).makeScratch},    // empty file systems
	{"leave host", (*state).leave},       // the host's tree is gone
	{"launch thread", (*state).startRun}, // everything in the jail will be forked from it
	{"warm up", (*state).warmUp},         // what is slow the first time only
}

// steps is the rest up to the agent's start, in order.
var steps = []step{
	{"spec", (*state).readSpec},
	{"tree", (*state).takeTree},         // what jails of this view share, read-only
	{"mounts", (*state).mountAll},       // what is this jail's own
	{"fifos", (*state).coverFifos},      // no event asks about them
	{"pivot", (*state).pivot},           // the stage is gone
	{"view", (*state).sayMounted},       // the helper marks the mounts, beside what follows
	{"hostname", (*state).hostname},     //
	{"limits", (*state).limits},         // rlimits, inherited by the agent
	{"landlock", (*state).landlock},     // the ruleset; the launch thread takes it
	{"capabilities", (*state).dropCaps}, // all threads but what serving needs
	{"posture", (*state).takePosture},   // the launch thread becomes the agent
	{"broker", (*state).startBroker},    // from here on opens of the launch thread are answered
	{"why", (*state).openDesk},          // who is denied something may ask; the helper marks meanwhile
	{"marks", (*state).awaitMarks},      // and those for reading and running
	{"jail check", (*state).check},      // forbidden acts must fail
}

// Main is the whole program; args are those of jail.Start. It returns the exit status of init.
func Main(build string, args []string) int {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "agentos-init: this is pid 1 of a jail; it is started by agentos-helper only")
		return 125
	}
	control, err := packet.New(jail.FDControl)
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentos-init: no control socket:", err)
		return 125
	}
	s := &state{build: build, control: control, ruleset: -1, tmp: jail.DefaultTmp}
	if len(args) > 1 {
		if s.tmp, err = strconv.ParseUint(args[1], 10, 64); err != nil {
			fmt.Fprintln(os.Stderr, "agentos-init: size of scratch:", err)
			return 125
		}
	}
	took, err := s.run()
	if errors.Is(err, errUnwanted) {
		return 0
	}
	if err != nil {
		var errno unix.Errno
		errors.As(err, &errno)
		failed := jail.Message{Op: jail.OpFailed, Text: err.Error(), Errno: int(errno), Checks: s.checks}
		if len(took) > 0 {
			failed.Step = took[len(took)-1].Name
		}
		_ = control.Send(failed)
		return 125
	}
	if err := control.Send(jail.Message{Op: jail.OpReady, Steps: took, Checks: s.checks, ABI: s.abi}); err != nil {
		return 125
	}
	s.serve()
	endAll()
	return 0
}

// endAll ends every process of the jail and waits until they are gone. Init's descriptors go
// before its processes do, by the kernel's hand, and with the last holder of the fanotify
// group go the questions about opens: when the helper is gone too, nobody must be left who
// could open anything.
func endAll() {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		_ = unix.Kill(-1, unix.SIGKILL)
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if errors.Is(err, unix.ECHILD) {
				return
			}
			if err == nil && pid == 0 {
				break
			}
		}
	}
}

// giveUp ends init when it cannot go on, with everything in its jail.
func giveUp(why ...any) {
	fmt.Fprintln(os.Stderr, append([]any{"agentos-init:"}, why...)...)
	endAll()
	os.Exit(125)
}

// errUnwanted is how an init that was made ahead of need ends.
var errUnwanted = errors.New("nobody needed this jail")

// run executes the steps. The last entry of took is the step that failed.
func (s *state) run() (took []jail.Step, err error) {
	do := func(list []step) error {
		for _, st := range list {
			start := time.Now()
			took = append(took, jail.Step{Name: st.name})
			if err := st.do(s); err != nil {
				return err
			}
			took[len(took)-1].Micros = time.Since(start).Microseconds()
		}
		return nil
	}
	if err := do(early); err != nil {
		return took, err
	}
	if err := s.receive(); err != nil {
		return took, err
	}
	return took, do(steps)
}

// receive waits for the order to build and its first parts.
func (s *state) receive() error {
	var m jail.Message
	fds, err := s.control.Receive(&m)
	if err != nil {
		return errUnwanted
	}
	s.parts = fds
	if m.Op != jail.OpBuild || len(fds) < jail.PartMounts {
		return fmt.Errorf("want the order to build, got %q with %d parts", m.Op, len(fds))
	}
	return nil
}

// threads is how many threads init has ready beyond those it has at its start: more
// than ever wait in the kernel at the same time.
const threads = 7

// warmUp decodes what will come once, because the first time builds the decoder, and has
// the runtime make its threads now: when the jail has used up its process limit
// it could make none, which is the end of a Go program.
func (s *state) warmUp() error {
	var all, held sync.WaitGroup
	held.Add(threads)
	for range threads {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // idle threads stay
			held.Done()
			held.Wait()
		})
	}
	all.Wait()
	sample := jail.Spec{
		Mounts: []jail.Mount{{Kind: jail.Tmpfs, Target: "/tmp", Mode: 0o1777}}, Allow: []jail.Allow{{Path: "/"}},
		Canaries: jail.Canaries{Known: true},
	}
	if err := decodeOnce(sample, &jail.Spec{}); err != nil {
		return err
	}
	return decodeOnce(jail.Process{Argv: []string{"true"}, Env: []string{"A=B"}, Cwd: "/"}, &jail.Process{})
}

func decodeOnce(sample, into any) error {
	data, err := json.Marshal(sample)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// readSpec decodes the Spec and waits for the parts that it counts.
func (s *state) readSpec() error {
	data, err := readAll(s.parts[jail.PartSpec])
	if err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	if err := json.Unmarshal(data, &s.spec); err != nil {
		return fmt.Errorf("decode spec: %w", err)
	}
	if s.spec.Build != s.build {
		return fmt.Errorf("helper is build %q, init is %q: install both from one build", s.spec.Build, s.build)
	}
	want := jail.PartMounts + len(jail.Binds(s.spec.Mounts))
	if s.spec.Opens {
		want++
	}
	for len(s.parts) < want {
		var m jail.Message
		fds, err := s.control.Receive(&m)
		if err != nil {
			return fmt.Errorf("want %d more parts: %w", want-len(s.parts), err)
		}
		s.parts = append(s.parts, fds...)
		if m.Op != jail.OpBuild || len(fds) == 0 {
			return fmt.Errorf("want %d more parts, got %q", want-len(s.parts), m.Op)
		}
	}
	if len(s.parts) != want {
		return fmt.Errorf("%d parts instead of %d", len(s.parts), want)
	}
	if s.spec.Opens {
		s.group, s.parts = s.parts[want-1], s.parts[:want-1]
	}
	if s.spec.Broker {
		s.rules = sync.OnceValue(func() loaded { return loadRules(s.parts[jail.PartRules]) })
		go s.rules() // meanwhile the mounts are made
	}
	return nil
}

// sweep makes every descriptor above 2 close-on-exec; the helper passes no
// other than those of the Spec.
func (s *state) sweep() error {
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("mark descriptors: %w", err)
	}
	if err := setName("agentos-init"); err != nil { // it was run by descriptor, and is called by that number
		return fmt.Errorf("name process: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("become undumpable: %w", err)
	}
	events, err := packet.New(jail.FDEvents)
	if err != nil {
		return err
	}
	s.events = newEmitter(events)
	return nil
}

func (s *state) loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

func (s *state) hostname() error {
	if err := unix.Sethostname([]byte(s.spec.Hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	return unix.Setdomainname([]byte("(none)"))
}

func (s *state) limits() error {
	lim := []struct {
		what  int
		value uint64
	}{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_NOFILE, s.spec.OpenFiles}, {unix.RLIMIT_MSGQUEUE, 819200}}
	for _, l := range lim {
		if l.what == unix.RLIMIT_NOFILE && l.value == 0 {
			continue
		}
		var old unix.Rlimit
		if err := unix.Getrlimit(l.what, &old); err != nil {
			return fmt.Errorf("read limit %d: %w", l.what, err)
		}
		v := min(l.value, old.Max)
		// Through package syscall, so that it forgets the soft limit it would
		// otherwise give back to children.
		if err := syscall.Setrlimit(l.what, &syscall.Rlimit{Cur: v, Max: v}); err != nil {
			return fmt.Errorf("set limit %d: %w", l.what, err)
		}
	}
	unix.Umask(0o022)
	return nil
}
