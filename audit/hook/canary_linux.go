package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/policy/glob"
)

// canaryEnv names the directory in which [Attempt] works.
const canaryEnv = "AGENTOS_CANARY"

// attempt is one operation that the rules of the canary deny.
type attempt struct {
	name  string
	tier  Tier // the weakest tier that denies it in the kernel
	kind  event.Kind
	wants string // errno, or KILLED
	do    func(dir string) error
}

// attempts is at least one per class of hook. None of them does harm if it succeeds.
var attempts = []attempt{
	{"open", TierB, event.Open, "EACCES", func(dir string) error {
		return closed(unix.Open(dir+"/denied/file", unix.O_RDONLY|unix.O_CLOEXEC, 0))
	}},
	{"create", TierB, event.Create, "EACCES", func(dir string) error {
		return closed(unix.Open(dir+"/denied/new", unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600))
	}},
	{"mkdir", TierB, event.Mkdir, "EACCES", func(dir string) error { return unix.Mkdir(dir+"/denied/dir", 0o700) }},
	{"symlink", TierB, event.Symlink, "EACCES", func(dir string) error { return unix.Symlink("x", dir+"/denied/symlink") }},
	{"link", TierB, event.Link, "EACCES", func(dir string) error { return unix.Link(dir+"/denied/file", dir+"/link") }},
	{"rename", TierB, event.Rename, "EACCES", func(dir string) error { return unix.Rename(dir+"/denied/other", dir+"/other") }},
	{"rename directory", TierB, event.Rename, "EACCES", func(dir string) error { return unix.Rename(dir+"/denied", dir+"/open") }},
	{"truncate", TierB, event.Truncate, "EACCES", func(dir string) error { return unix.Truncate(dir+"/denied/file", 0) }},
	{"chmod", TierB, event.Chmod, "EACCES", func(dir string) error { return unix.Chmod(dir+"/denied/file", 0o644) }},
	{"chown", TierB, event.Chown, "EACCES", func(dir string) error { return unix.Chown(dir+"/denied/file", -1, 0) }},
	{"unlink", TierB, event.Unlink, "EACCES", func(dir string) error { return unix.Unlink(dir + "/denied/file") }},
	{"rmdir", TierB, event.Rmdir, "EACCES", func(dir string) error { return unix.Rmdir(dir + "/denied/empty") }},
	{"exec", TierB, event.Exec, "EACCES", func(dir string) error { return exec.Command(dir + "/denied/true").Run() }},
	{"exec", TierC, event.Exec, "KILLED", func(dir string) error { return exec.Command(dir + "/denied/true").Run() }},
	{"bpf", TierB, event.BPF, "EPERM", func(string) error {
		if _, _, errno := unix.Syscall(unix.SYS_BPF, 9999, 0, 0); errno != 0 { // no such command: EINVAL if not denied
			return errno
		}
		return nil
	}},
	{"packet socket", TierB, event.Socket, "EPERM", func(string) error {
		return closed(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0))
	}},
	{"unix connect", TierB, event.UnixConnect, "EPERM", func(dir string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrUnix{Name: dir + "/socket"})
	}},
	{"connect", TierC, event.Connect, "EACCES", func(string) error { // of a datagram socket: nothing is sent
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{10, 255, 255, 254}})
	}},
	{"send", TierC, event.Send, "EACCES", func(string) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, nil, 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{10, 255, 255, 254}})
	}},
	{"raw socket", TierC, event.Socket, "EPERM", func(string) error {
		return closed(unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP))
	}},
}

// applies says whether the kernel side must deny a on a tier.
func (a *attempt) applies(tier Tier) bool {
	if a.name == "exec" { // refused on A and B, killed on C
		return (tier == TierC) == (a.tier == TierC)
	}
	return a.tier <= tier
}

// Attempt is what the children of this package do: the canary's operations, or the
// installation for [Load]. Call it, and exit with what it answers, at the very
// beginning of a program that [Hook.Canary] or Load start. It answers -1 in any other
// process.
func Attempt() int {
	if spec, ok := os.LookupEnv(installEnv); ok {
		return installFor(spec)
	}
	spec, ok := os.LookupEnv(canaryEnv)
	if !ok {
		return -1
	}
	tier, dir, _ := strings.Cut(spec, ":")
	results := make([]string, len(attempts))
	for i := range attempts {
		if a := &attempts[i]; a.applies(Tier(strings.Index("DCBA", tier))) {
			results[i] = outcome(a.do(dir))
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		return 1
	}
	return 0
}

func closed(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func outcome(err error) string {
	var (
		errno syscall.Errno
		exit  *exec.ExitError
	)
	switch {
	case err == nil:
		return "nothing"
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
			return "KILLED"
		}
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// Canary really tries one denied operation per class of hook, in a throw-away jail:
// attaching proves nothing, since BPF LSM programs attach silently without effect where
// bpf is not an active LSM. command is a process that calls [Attempt] first (usually
// the caller's own executable); Canary places it, runs it and waits.
//
// The error names every operation that was not refused, or refused without a record, and
// matches [ErrTier]: install a lower tier then, or refuse to start jails.
func (h *Hook) Canary(ctx context.Context, command *exec.Cmd) error {
	dir, err := canaryDir()
	if err != nil {
		return fmt.Errorf("prepare canary: %w", err)
	}
	defer os.RemoveAll(dir)
	socket, err := listen(dir + "/socket")
	if err != nil {
		return fmt.Errorf("prepare canary: %w", err)
	}
	defer unix.Close(socket)
	group := filepath.Join(h.opts.Group, fmt.Sprintf("canary-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("prepare canary: %w", err)
	}
	defer removeGroup(group)
	gfd, err := os.Open(group)
	if err != nil {
		return fmt.Errorf("prepare canary: %w", err)
	}
	defer gfd.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(gfd.Fd()), &st); err != nil {
		return fmt.Errorf("prepare canary: %w", err)
	}
	rules, err := canaryRules(dir)
	if err != nil {
		return fmt.Errorf("prepare canary: %w", err)
	}
	var events []event.Event
	const id = 1<<32 - 1
	spec := Jail{ID: id, CgroupID: st.Ino, Rules: rules, Enforce: true, Strict: true}
	if err := h.addJail(spec, func(_ uint32, e event.Event) { events = append(events, e) }); err != nil {
		return fmt.Errorf("run canary: %w", err)
	}
	defer h.RemoveJail(id)

	command.Env = append(command.Environ(), canaryEnv+"="+h.tier.String()+":"+dir)
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.UseCgroupFD, command.SysProcAttr.CgroupFD = true, int(gfd.Fd())
	out, err := command.Output()
	if err != nil {
		return fmt.Errorf("run canary: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var results []string
	if err := json.Unmarshal(out, &results); err != nil || len(results) != len(attempts) {
		return fmt.Errorf("run canary: it said %q: %w", out, errors.Join(err, ErrTier))
	}
	if err := h.Drain(id, nil); err != nil {
		return fmt.Errorf("run canary: %w", err)
	}
	return assess(h.tier, results, events)
}

// listen makes a socket at path. Package net would take 64 KB of heap to look up the
// length of the queue.
func listen(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make socket: %w", err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 1)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listen on %s: %w", path, err)
	}
	return fd, nil
}

// assess compares what the canary saw with what it should have seen.
func assess(tier Tier, results []string, events []event.Event) error {
	var missing []string
	for i := range attempts {
		a := &attempts[i]
		if !a.applies(tier) {
			continue
		}
		if results[i] != a.wants {
			missing = append(missing, fmt.Sprintf("%s: got %s, want %s", a.name, results[i], a.wants))
		} else if !slices.ContainsFunc(events, func(e event.Event) bool { return e.Kind == a.kind && e.Verdict == event.Deny }) {
			missing = append(missing, a.name+": refused but not recorded")
		}
	}
	if missing != nil {
		return fmt.Errorf("tier %s does not hold: %w: %s", tier, ErrTier, strings.Join(missing, "; "))
	}
	return nil
}

func canaryDir() (string, error) {
	dir, err := os.MkdirTemp("", "agentos-canary-")
	if err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir+"/denied/empty", 0o700); err != nil {
		return "", err
	}
	for _, name := range []string{"file", "other"} {
		if err := os.WriteFile(dir+"/denied/"+name, nil, 0o600); err != nil {
			return "", err
		}
	}
	return dir, os.WriteFile(dir+"/denied/true", tinyELF, 0o700)
}

// canaryRules allow everything but <dir>/denied/**.
func canaryRules(dir string) ([]byte, error) {
	a, err := glob.Compile([]string{dir + "/denied/**"}, func(matched []uint16) glob.Accept {
		if len(matched) > 0 {
			return glob.Accept{}
		}
		return glob.Accept{Bits: 1<<glob.Read | 1<<glob.Write | 1<<glob.Exec}
	})
	if err != nil {
		return nil, err
	}
	return a.Bytes(), nil
}

// removeGroup waits for a dying process to leave, which takes a busy machine its time.
func removeGroup(dir string) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
	}
}

// tinyELF is a static x86-64 program that exits with 0.
var tinyELF = []byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x02\x00\x3e\x00\x01\x00\x00\x00\x78\x00\x40\x00\x00\x00\x00\x00" + // executable, x86-64, entry 0x400078
	"\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x00\x00\x00\x00\x40\x00\x38\x00\x01\x00\x00\x00\x00\x00\x00\x00" +
	"\x01\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + // PT_LOAD, r-x
	"\x00\x00\x40\x00\x00\x00\x00\x00\x00\x00\x40\x00\x00\x00\x00\x00" +
	"\x84\x00\x00\x00\x00\x00\x00\x00\x84\x00\x00\x00\x00\x00\x00\x00" +
	"\x00\x10\x00\x00\x00\x00\x00\x00" +
	"\x31\xff\xb8\x3c\x00\x00\x00\x0f\x05\x90\x90\x90") // exit(0)
