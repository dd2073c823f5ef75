package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/packet"
)

// state is what the steps work on, in the order they fill it.
type state struct {
	spec    jail.Spec
	control *packet.Conn
	events  *emitter
	abi     int // Landlock ABI in force
	ruleset int // Landlock ruleset, -1 for none
	checks  []jail.Check
	launch  *launcher
	broker  *engine
	root    int // descriptor of the new root while it is built
}

// step is one phase of init.
type step struct {
	name string
	do   func(*state) error
}

// steps is the life of init up to the agent's start, in order.
var steps = []step{
	{"descriptors", (*state).sweep},     // nothing but what we were given, none passes an exec
	{"loopback", (*state).loopback},     // the jail's own 127.0.0.1 and ::1
	{"resolver", (*state).resolver},     // every name is refused and recorded
	{"root", (*state).makeRoot},         // a tmpfs nobody else sees
	{"mounts", (*state).mountAll},       // the plan
	{"masks", (*state).maskAll},         // what procfs tells about the host
	{"pivot", (*state).pivot},           // the old tree is gone
	{"hostname", (*state).hostname},     //
	{"limits", (*state).limits},         // rlimits, inherited by the agent
	{"landlock", (*state).landlock},     // the ruleset; the launch thread takes it
	{"capabilities", (*state).dropCaps}, // all threads but what serving needs
	{"posture", (*state).takePosture},   // the launch thread becomes the agent
	{"broker", (*state).startBroker},    // from here on opens of the launch thread are answered
	{"jail check", (*state).check},      // forbidden acts must fail
}

// Main is the whole program. It returns the exit status of init.
func Main(build string) int {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "agentos-init: this is pid 1 of a jail; it is started by agentos-helper only")
		return 125
	}
	control, err := packet.New(jail.FDControl)
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentos-init: no control socket:", err)
		return 125
	}
	s := &state{control: control, root: -1, ruleset: -1}
	took, err := s.run(build)
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
	return 0
}

// run executes the steps. The last entry of took is the step that failed.
func (s *state) run(build string) (took []jail.Step, err error) {
	took = append(took, jail.Step{Name: "go"})
	var m jail.Message
	if _, err := s.control.Receive(&m); err != nil || m.Op != jail.OpGo {
		return took, fmt.Errorf("want the helper to say go: %v %q", err, m.Op)
	}
	took = append(took, jail.Step{Name: "spec"})
	if err := s.readSpec(build); err != nil {
		return took, err
	}
	for _, st := range steps {
		start := time.Now()
		took = append(took, jail.Step{Name: st.name})
		if err := st.do(s); err != nil {
			return took, err
		}
		took[len(took)-1].Micros = time.Since(start).Microseconds()
	}
	return took, nil
}

func (s *state) readSpec(build string) error {
	f := os.NewFile(jail.FDSpec, "spec")
	defer f.Close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	if err := json.Unmarshal(data, &s.spec); err != nil {
		return fmt.Errorf("decode spec: %w", err)
	}
	if s.spec.Build != build {
		return fmt.Errorf("helper is build %q, init is %q: install both from one build", s.spec.Build, build)
	}
	return nil
}

// sweep makes every descriptor above 2 close-on-exec; the helper passes no
// other than those of the Spec.
func (s *state) sweep() error {
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("mark descriptors: %w", err)
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
