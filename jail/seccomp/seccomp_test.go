//go:build linux && cgo && (amd64 || arm64)

package seccomp

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const (
	allowed  = uint32(0x7fff0000)
	notified = uint32(0x7fc00000)
)

func errnoRet(e errno) uint32 { return retErrno | uint32(e) }

func build(t *testing.T, s Spec) []insn {
	t.Helper()
	p, err := Build(s)
	if err != nil {
		t.Fatal(err)
	}
	return decode(p)
}

// asked is what the broker of a tier C jail asks for, and more.
var asked = []string{
	"open", "openat", "openat2", "creat", "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2",
	"readlink", "readlinkat", "chdir", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2",
	"link", "linkat", "symlink", "symlinkat", "truncate", "chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat",
	"utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "removexattr", "lremovexattr", "mknod", "mknodat",
	"connect", "bind", "sendto", "sendmsg", "sendmmsg", "inotify_add_watch", "execve",
}

var specs = map[string]Spec{
	"default": {},
	"userns":  {Userns: true},
	"notify":  {Notify: asked},
	"mixed": {
		Allow: []string{"perf_event_open", "personality", "io_uring_setup", "memfd_secret"}, Deny: []string{"ptrace", "ioctl", "kcmp"},
	},
	"report":      {Notify: asked, Report: []string{"mount", "unshare", "bpf", "chroot", "getpid", "socket", "kcmp"}, Allow: []string{"chroot"}, Deny: []string{"kcmp"}},
	"notify-deny": {Notify: asked, Deny: []string{"openat2", "mknod", "connect"}},
}

// words are argument values at the edges of the checks.
func words() []uint64 {
	w := []uint64{
		0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 15, 16, 17, 18, 29, 33, 35, 38, 40, 43, 58, 132, 136, 255, 256, 262,
		0x5411, 0x5412, 0x5413, 0x541b, 0x541c, 0x541d, 0x541e, 0x5422, 0x5423, 0x5424, 0x2000, 0x2fff, 0x61ff, 0x81a4, 0x11ff,
		0x40000, 0x400000, 0x80040000, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff, 0x100005412, 0x100000000, 0xffffffffffffffff,
		1<<32 | 0x541c, 1<<32 | 1, 1<<32 | 16, 0x80001, 0x80803, 0x1200011, 0x3d0f00,
	}
	for i := range 40 {
		w = append(w, 1<<i)
	}
	return w
}

// TestEveryNumber compares the program with the plan for every number, with many
// arguments for the checked ones.
func TestEveryNumber(t *testing.T) {
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			prog := build(t, spec)
			decisions, err := decide(spec, number)
			if err != nil {
				t.Fatal(err)
			}
			for nr := range limit + 600 {
				d, listed := decisions[nr]
				for _, args := range arguments(d) {
					in := data{nr: uint32(nr), arch: auditArch(), args: args}
					want := errnoRet(enosys)
					if listed {
						want = wanted(d, spec.Userns, args)
					}
					got := eval(t, prog, in).ret
					if d.name == "socket" && want != allowed && got>>16 == retErrno>>16 {
						continue // several reasons to refuse; TestSocket says which error where
					}
					if got != want {
						t.Fatalf("%s (%d) %x: got %#x, want %#x", d.name, nr, args, got, want)
					}
				}
			}
		})
	}
}

// arguments returns one set of arguments for calls that are not checked.
func arguments(d decision) [][6]uint64 {
	w := words()
	if d.class != Check {
		return [][6]uint64{{}, {^uint64(0), w[3]}}
	}
	var out [][6]uint64
	for _, a := range w {
		for _, b := range w {
			out = append(out, [6]uint64{a, b, 0}, [6]uint64{a, b, 6}, [6]uint64{a, b, b}, [6]uint64{a, b, 1 << 32})
			if d.name == "socket" {
				out = append(out, [6]uint64{2, a, b}, [6]uint64{10, a, b})
			}
		}
	}
	return out
}

// wanted is an independent statement of the profile: plain Go about what the
// kernel would do with the arguments.
func wanted(d decision, userns bool, args [6]uint64) uint32 {
	otherwise := allowed
	if d.notify {
		otherwise = notified
	}
	switch d.class {
	case Allow:
		return otherwise
	case Never, Refuse:
		if d.report {
			return notified
		}
		return errnoRet(eperm)
	case Absent, Hide:
		return errnoRet(enosys)
	}
	if e := refusedBy(d.name, userns, args); e != 0 {
		if d.report {
			return notified
		}
		return errnoRet(e)
	}
	return otherwise
}

func refusedBy(name string, userns bool, args [6]uint64) errno {
	low := func(i int) uint32 { return uint32(args[i]) }
	switch name {
	case "clone", "unshare":
		bad := uint32(unix.CLONE_NEWTIME | unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC)
		if !userns {
			bad |= unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
		}
		if low(0)&bad != 0 {
			return eperm
		}
	case "socket":
		return socketRefused(args)
	case "socketpair":
		if args[0] != unix.AF_UNIX {
			return eafnosupport
		}
	case "ioctl":
		if slices.Contains([]uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCCONS, unix.TIOCSETD}, low(1)) {
			return eperm
		}
	case "prctl":
		if low(0) == unix.PR_SET_MM {
			return eperm
		}
	case "personality":
		if low(0) != 0 && low(0) != 0xffffffff {
			return eperm
		}
	case "seccomp":
		if low(0) == unix.SECCOMP_SET_MODE_FILTER && low(1)&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 {
			return eperm
		}
	case "mknod", "mknodat":
		mode := low(1)
		if name == "mknodat" {
			mode = low(2)
		}
		if m := mode & unix.S_IFMT; m == unix.S_IFCHR || m == unix.S_IFBLK {
			return eperm
		}
	}
	return 0
}

func socketRefused(args [6]uint64) errno {
	switch args[0] {
	case unix.AF_UNIX:
		return 0
	case unix.AF_NETLINK:
		if args[2] != unix.NETLINK_ROUTE {
			return eprotonosupport
		}
		return 0
	case unix.AF_INET, unix.AF_INET6:
	default:
		return eafnosupport
	}
	badType := uint32(args[1])&0xf != unix.SOCK_STREAM && uint32(args[1])&0xf != unix.SOCK_DGRAM
	badProto := args[2] != 0 && args[2] != unix.IPPROTO_TCP && args[2] != unix.IPPROTO_UDP
	switch {
	case badType:
		return eperm
	case badProto:
		return eprotonosupport
	}
	return 0
}

// TestSocket: the errors programs look at (Go falls back from MPTCP, ping explains EPERM).
func TestSocket(t *testing.T) {
	prog := build(t, Spec{})
	nr, _ := number("socket")
	for _, c := range []struct {
		args [6]uint64
		want uint32
	}{
		{[6]uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC}, allowed},
		{[6]uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_NONBLOCK, unix.IPPROTO_TCP}, allowed},
		{[6]uint64{unix.AF_INET6, unix.SOCK_DGRAM}, allowed},
		{[6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, allowed},
		{[6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, errnoRet(eprotonosupport)},
		{[6]uint64{unix.AF_INET, unix.SOCK_RAW}, errnoRet(eperm)},
		{[6]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, errnoRet(eprotonosupport)},
		{[6]uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, errnoRet(eprotonosupport)},
		{[6]uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, errnoRet(eprotonosupport)},
		{[6]uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, errnoRet(eafnosupport)},
		{[6]uint64{unix.AF_ALG, unix.SOCK_SEQPACKET}, errnoRet(eafnosupport)},
		{[6]uint64{unix.AF_PACKET, unix.SOCK_RAW, 3}, errnoRet(eafnosupport)},
	} {
		if got := eval(t, prog, data{nr: uint32(nr), arch: auditArch(), args: c.args}).ret; got != c.want {
			t.Errorf("socket(%v) = %#x, want %#x", c.args[:3], got, c.want)
		}
	}
}

// TestForeign: other architectures, the x32 table and numbers of the future.
func TestForeign(t *testing.T) {
	for name, spec := range specs {
		prog := build(t, spec)
		for _, arch := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_AARCH64, 0, 1 << 30} {
			for nr := range uint32(limit) {
				if arch == auditArch() {
					nr |= 0x40000000
				}
				if got := eval(t, prog, data{nr: nr, arch: arch}).ret; got != errnoRet(enosys) {
					t.Fatalf("%s: arch %#x nr %#x: got %#x", name, arch, nr, got)
				}
			}
		}
		for _, nr := range []uint32{limit, 1000, 0x3fffffff, 0x40000000, 0x7fffffff, 0x80000000, 0xfffffffe} {
			if got := eval(t, prog, data{nr: nr, arch: auditArch()}).ret; got != errnoRet(enosys) {
				t.Errorf("%s: nr %#x: got %#x", name, nr, got)
			}
		}
		if got := eval(t, prog, data{nr: 0xffffffff, arch: auditArch()}).ret; got != allowed {
			t.Errorf("%s: nr -1: got %#x", name, got)
		}
	}
}

// TestBitmap: which calls run the program each time. A call that appears here by
// mistake costs every program.
func TestBitmap(t *testing.T) {
	var outside, most []string
	prog := build(t, Spec{})
	worst := 0
	for _, c := range Calls() {
		nr, ok := number(c.Name)
		if !ok || nr < 0 || c.Class < Check {
			continue
		}
		r := eval(t, prog, data{nr: uint32(nr), arch: auditArch()})
		if !r.constant || r.ret != allowed {
			outside = append(outside, c.Name)
		}
		if r.steps > worst {
			worst, most = r.steps, []string{c.Name}
		}
	}
	want := []string{"clone", "unshare", "socket", "socketpair", "ioctl", "prctl", "personality", "seccomp", "mknod", "mknodat"}
	if d := cmp.Diff(want, outside); d != "" {
		t.Errorf("calls outside the bitmap (-want +got):\n%s", d)
	}
	t.Logf("longest way: %d instructions (%s), program %d instructions", worst, most, len(prog))
}

// TestReport: of the names in Report those are asked about that are refused whatever their arguments, and unshare where it is.
func TestReport(t *testing.T) {
	prog := build(t, specs["report"])
	for name, want := range map[string]uint32{
		"mount": notified, "bpf": notified, "kcmp": notified, "chroot": allowed, "getpid": allowed, "setns": errnoRet(eperm), "unshare": allowed,
	} {
		nr, ok := number(name)
		if !ok {
			t.Fatalf("no number of %s", name)
		}
		if got := eval(t, prog, data{nr: uint32(nr), arch: auditArch()}).ret; got != want {
			t.Errorf("%s: got %#x, want %#x", name, got, want)
		}
	}
	nr, _ := number("unshare")
	if got := eval(t, prog, data{nr: uint32(nr), arch: auditArch(), args: [6]uint64{unix.CLONE_NEWUSER}}).ret; got != notified {
		t.Errorf("unshare(CLONE_NEWUSER): got %#x, want %#x", got, notified)
	}
	if (Spec{Report: []string{"mount"}}).Key() == (Spec{}).Key() {
		t.Error("two specs with one key")
	}
}

func TestDeterministic(t *testing.T) {
	for name, spec := range specs {
		first, err := Build(spec)
		if err != nil {
			t.Fatal(err)
		}
		shuffled := spec
		shuffled.Notify = slices.Clone(spec.Notify)
		slices.Reverse(shuffled.Notify)
		for range 3 {
			again, err := Build(shuffled)
			if err != nil || !bytes.Equal(first, again) {
				t.Fatalf("%s: differs (%v)", name, err)
			}
		}
		if shuffled.Key() != spec.Key() || Hash(first) == "" {
			t.Errorf("%s: keys differ", name)
		}
	}
	var c Cache
	a, _ := c.Build(Spec{})
	b, _ := c.Build(Spec{Profile: Default})
	if &a[0] != &b[0] {
		t.Error("cache missed")
	}
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want error
	}{
		{Spec{Profile: "lax"}, ErrUnknownProfile},
		{Spec{Allow: []string{"mount"}}, ErrNever},
		{Spec{Allow: []string{"clone3"}}, ErrNever},
		{Spec{Allow: []string{"io_uring_setup"}, Notify: []string{"openat"}}, ErrNever},
		{Spec{Deny: []string{"opennat"}}, ErrUnknownCall},
		{Spec{Deny: []string{""}}, ErrUnknownCall},
		{Spec{Deny: []string{"execve"}}, ErrEssential},
		{Spec{Notify: []string{"ioctl"}}, ErrChecked},
		{Spec{Notify: []string{"socketcall"}}, nil}, // exists elsewhere
		{Spec{Allow: []string{"ioctl"}}, nil},
		{Spec{Deny: []string{"clone3", "mount"}}, nil},
	} {
		_, err := Build(c.spec)
		if !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.spec, err, c.want)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for name, spec := range specs {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Build(spec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
