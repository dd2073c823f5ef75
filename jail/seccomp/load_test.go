//go:build linux && cgo && (amd64 || arm64)

package seccomp

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/seccomp/install"
)

// A filter cannot be taken off, so whatever loads one is a new process of this
// test binary: child says which act, spec which filter.
const (
	childEnv = "AGENTOS_TEST_CHILD"
	specEnv  = "AGENTOS_TEST_SPEC"
)

func TestMain(m *testing.M) {
	act := os.Getenv(childEnv)
	if act == "" {
		os.Exit(m.Run())
	}
	runtime.LockOSThread()
	if err := child(act); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child loads the filter and does one act. Results go to stdout.
func child(act string) error {
	var spec Spec
	if err := json.Unmarshal([]byte(os.Getenv(specEnv)), &spec); err != nil {
		return err
	}
	program, err := Build(spec)
	if err != nil {
		return err
	}
	if act == "load-without-nnp" {
		if err := unix.Setresuid(65534, 65534, 65534); err != nil {
			return err
		}
		_, err := install.Load(program, false)
		fmt.Println("EACCES:", errors.Is(err, unix.EACCES))
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	bare := perCall()
	began := time.Now()
	listener, err := install.Load(program, len(spec.Notify) > 0)
	if err != nil {
		return err
	}
	switch act {
	case "cost":
		fmt.Printf("%d", time.Since(began).Nanoseconds())
		for i, ns := range perCall() {
			fmt.Printf(" %d", ns-bare[i])
		}
		return nil
	case "calls":
		for _, c := range realCalls() {
			_, _, e := unix.RawSyscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], 0, 0)
			fmt.Printf("%s %d\n", c.name, e)
		}
		return nil
	case "listener":
		fmt.Println("listener:", listener >= 3)
		_, err := install.Load(program, true)
		fmt.Println("second:", err != nil)
		return nil
	case "exec":
		return unix.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	return fmt.Errorf("unknown act %q", act)
}

// perCall is the median cost in ns of getppid (from the bitmap), ioctl and
// prctl (by the program).
func perCall() [3]int64 {
	if os.Getenv(childEnv) != "cost" {
		return [3]int64{}
	}
	var out [3]int64
	for i, nr := range []uintptr{unix.SYS_GETPPID, unix.SYS_IOCTL, unix.SYS_PRCTL} {
		var rounds []int64
		for range 21 {
			const n = 20000
			began := time.Now()
			for range n {
				unix.RawSyscall6(nr, ^uintptr(0), 0, 0, 0, 0, 0)
			}
			rounds = append(rounds, time.Since(began).Nanoseconds()/n)
		}
		slices.Sort(rounds)
		out[i] = rounds[len(rounds)/2]
	}
	return out
}

// BenchmarkCost reports what the kernel takes to load a filter and what a call
// then costs more than before.
func BenchmarkCost(b *testing.B) {
	for _, name := range []string{"default", "notify"} {
		b.Run(name, func(b *testing.B) {
			var all [4][]int64
			for b.Loop() {
				blob, _ := json.Marshal(specs[name])
				cmd := exec.Command("/proc/self/exe")
				cmd.Env = append(os.Environ(), childEnv+"=cost", specEnv+"="+string(blob))
				out, err := cmd.CombinedOutput()
				if err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
				var row [4]int64
				fmt.Sscan(string(out), &row[0], &row[1], &row[2], &row[3])
				for i, v := range row {
					all[i] = append(all[i], v)
				}
			}
			for i, unit := range []string{"load-ns", "getppid-ns", "ioctl-ns", "prctl-ns"} {
				slices.Sort(all[i])
				b.ReportMetric(float64(all[i][len(all[i])/2]), unit)
			}
		})
	}
}

// inChild runs this binary again and returns its output.
func inChild(t *testing.T, act string, spec Spec, argv ...string) (string, error) {
	t.Helper()
	blob, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", argv...)
	cmd.Env = append(os.Environ(), childEnv+"="+act, specEnv+"="+string(blob))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

type realCall struct {
	name string
	nr   uintptr
	args [4]uintptr
	want unix.Errno
}

// realCalls are made by a process under the default filter. Arguments are such
// that the kernel itself would answer something else.
func realCalls() []realCall {
	bad := ^uintptr(0)
	return []realCall{
		{"mount", unix.SYS_MOUNT, [4]uintptr{}, unix.EPERM},
		{"fsopen", unix.SYS_FSOPEN, [4]uintptr{}, unix.EPERM},
		{"bpf", unix.SYS_BPF, [4]uintptr{999}, unix.EPERM},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, [4]uintptr{}, unix.EPERM},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, [4]uintptr{}, unix.EPERM},
		{"userfaultfd", unix.SYS_USERFAULTFD, [4]uintptr{bad}, unix.EPERM},
		{"keyctl", unix.SYS_KEYCTL, [4]uintptr{999}, unix.EPERM},
		{"setns", unix.SYS_SETNS, [4]uintptr{bad}, unix.EPERM},
		{"clone3", unix.SYS_CLONE3, [4]uintptr{}, unix.ENOSYS},
		{"listmount", unix.SYS_LISTMOUNT, [4]uintptr{}, unix.ENOSYS},
		{"call 9999", 9999, [4]uintptr{}, unix.ENOSYS},
		{"x32 getpid", 0x40000000 | unix.SYS_GETPID, [4]uintptr{}, unix.ENOSYS},
		{"unshare user", unix.SYS_UNSHARE, [4]uintptr{unix.CLONE_NEWUSER}, unix.EPERM},
		{"unshare files", unix.SYS_UNSHARE, [4]uintptr{unix.CLONE_FILES}, 0},
		{"personality aslr", unix.SYS_PERSONALITY, [4]uintptr{0x40000}, unix.EPERM},
		{"personality query", unix.SYS_PERSONALITY, [4]uintptr{0xffffffff}, 0},
		{"personality linux", unix.SYS_PERSONALITY, [4]uintptr{0}, 0},
		{"tiocsti", unix.SYS_IOCTL, [4]uintptr{bad, unix.TIOCSTI}, unix.EPERM},
		{"tiocsti, high bit", unix.SYS_IOCTL, [4]uintptr{bad, unix.TIOCSTI | 1<<32}, unix.EPERM},
		{"tcgets", unix.SYS_IOCTL, [4]uintptr{bad, unix.TCGETS}, unix.EBADF},
		{"vsock", unix.SYS_SOCKET, [4]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}, unix.EAFNOSUPPORT},
		{"raw", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET, unix.SOCK_RAW, 0}, unix.EPERM},
		{"tcp", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET, unix.SOCK_STREAM}, 0},
		{"unix pair", unix.SYS_SOCKETPAIR, [4]uintptr{unix.AF_UNIX, unix.SOCK_STREAM, 0, 0}, unix.EFAULT},
		{"listener", unix.SYS_SECCOMP, [4]uintptr{1, 8, 0}, unix.EPERM},
		{"strict", unix.SYS_SECCOMP, [4]uintptr{1, 0, 0}, unix.EFAULT},
		{"kcmp", unix.SYS_KCMP, [4]uintptr{bad, bad}, unix.EPERM},
		{"getppid", unix.SYS_GETPPID, [4]uintptr{}, 0},
		{"futex", unix.SYS_FUTEX, [4]uintptr{0, 99}, unix.ENOSYS},
	}
}

func TestRealCalls(t *testing.T) {
	out, err := inChild(t, "calls", Spec{})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var want strings.Builder
	for _, c := range realCalls() {
		fmt.Fprintf(&want, "%s %d\n", c.name, c.want)
	}
	if out != want.String() {
		t.Errorf("got\n%s\nwant\n%s", out, want.String())
	}
}

func TestListener(t *testing.T) {
	out, err := inChild(t, "listener", Spec{Notify: []string{"mkdirat", "mkdir"}})
	if want := "listener: true\nsecond: true\n"; err != nil || out != want {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestNeedsNoNewPrivs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("wanted root, to give it up")
	}
	out, err := inChild(t, "load-without-nnp", Spec{})
	if want := "EACCES: true\n"; err != nil || out != want {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestPrograms: what agents run works under the filter.
func TestPrograms(t *testing.T) {
	for _, c := range []struct{ script, want string }{
		{"echo $((40+2))", "42"},
		{"(sleep 0 & wait); echo ok | cat", "ok"},
		{"ls / | sort | head -1", ""},
		{"mkdir -p /tmp/x.$$/y && mv /tmp/x.$$/y /tmp/x.$$/z && rm -r /tmp/x.$$ && echo ok", "ok"},
	} {
		out, err := inChild(t, "exec", Spec{}, "/bin/sh", "-c", c.script)
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v\n%s", c.script, err, out)
		}
	}
}

func TestMemfd(t *testing.T) {
	program, err := Build(Spec{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := Memfd(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make(Program, len(program)+8)
	n, _ := f.Read(got)
	if Hash(got[:n]) != Hash(program) {
		t.Error("the memory file holds something else")
	}
	if _, err := f.Write([]byte{0}); err == nil {
		t.Error("a sealed file took a write")
	}
}
