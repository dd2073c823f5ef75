// Package confine takes from netd what it does not need, for the life of the process:
// new privileges, core dumps, more files on disk than it has open, and every file,
// directory, device and named socket of the file system (Landlock).
//
// Of ports it takes the binding of TCP ones (from 6.7 on; Landlock leaves MPTCP sockets alone).
// It does not restrict what may be dialled: that is what netd decides. It cannot
// make another root directory without a privilege; Landlock without a single rule is
// as good for opening and stricter for naming. On a kernel without Landlock (before
// 5.13, or turned off) netd refuses to start.
//
// The helper has started netd as its own user, without groups, capabilities and environment; [Check]
// refuses to go on as root or with a capability. The seccomp filter, which is made with cgo, is the
// helper's to hand over: [Filter] puts it on all threads, after [Confine].
package confine

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/seccomp/install"
)

// ErrPrivileged is a process that has what netd must not have.
var ErrPrivileged = errors.New("netd has a privilege")

// Check says whether the process is as unprivileged as the helper should have made it.
func Check() error {
	r, e, s := unix.Getresuid()
	if r == 0 || e == 0 || s == 0 {
		return fmt.Errorf("%w: it runs as root", ErrPrivileged)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for _, c := range caps {
		if c.Effective|c.Permitted|c.Inheritable != 0 {
			return fmt.Errorf("%w: capabilities", ErrPrivileged)
		}
	}
	return nil
}

// Confine confines all threads of the process. It leaves descriptors as they are.
func Confine() error {
	limit := unix.Rlimit{}
	for _, l := range []int{unix.RLIMIT_CORE, unix.RLIMIT_FSIZE, unix.RLIMIT_MEMLOCK, unix.RLIMIT_MSGQUEUE} {
		if err := unix.Setrlimit(l, &limit); err != nil {
			return fmt.Errorf("set limit %d: %w", l, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("set dumpable: %w", err)
	}
	if abi, err := ll.LandlockGetABIVersion(); err != nil || abi < 1 {
		return fmt.Errorf("this kernel has no Landlock (5.13 and later, where lsm= names it): %w", errors.ErrUnsupported)
	}
	// Sets no_new_privs as well. BestEffort lowers what is asked for to what the kernel knows: opening files is in its first version.
	if err := ruleset().BestEffort().Restrict(); err != nil {
		return fmt.Errorf("restrict: %w", err)
	}
	return nil
}

// ruleset has no rule: nothing of what it handles is left. Connecting is not in it. Nor are signals: each thread gets a domain of its
// own, and on kernels from 6.12 to 6.14 the runtime could not preempt its threads.
func ruleset() landlock.Config {
	return landlock.MustConfig(
		landlock.AccessFSSet(ll.AccessFSExecute|ll.AccessFSWriteFile|ll.AccessFSReadFile|ll.AccessFSReadDir|ll.AccessFSRemoveDir|
			ll.AccessFSRemoveFile|ll.AccessFSMakeChar|ll.AccessFSMakeDir|ll.AccessFSMakeReg|ll.AccessFSMakeSock|ll.AccessFSMakeFifo|
			ll.AccessFSMakeBlock|ll.AccessFSMakeSym|ll.AccessFSRefer|ll.AccessFSTruncate|ll.AccessFSIoctlDev),
		landlock.AccessNetSet(ll.AccessNetBindTCP),
		landlock.ScopedSet(ll.ScopeAbstractUnixSocket),
	)
}

// maxFilter bounds a filter, in bytes: the kernel takes no more.
const maxFilter = 4096 * 8

// Filter puts the seccomp filter that f holds, a sealed memory file, on all threads of the process.
func Filter(f *os.File) error {
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK
	if got, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || got&seals != seals {
		return errors.New("the system call filter is not a sealed memory file")
	}
	// Its offset is shared with the helper's and with earlier processes of netd.
	program, err := io.ReadAll(io.NewSectionReader(f, 0, maxFilter+1))
	if err != nil {
		return fmt.Errorf("read the system call filter: %w", err)
	}
	return install.LoadAll(program)
}
