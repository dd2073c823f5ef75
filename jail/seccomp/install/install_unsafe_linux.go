package install

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Load puts a filter on the calling thread.
//
// program is an array of struct sock_filter as made by seccomp.Build. With
// newListener the result is the descriptor (close-on-exec) on which the calls with a
// notify action arrive, and a call that was received can then only be
// interrupted by a fatal signal (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, Linux 5.19), so
// that an answered open never runs twice. Without, the result is -1.
//
// Preconditions: the caller has called [runtime.LockOSThread] and never unlocks;
// the thread has no_new_privs set or CAP_SYS_ADMIN in its user namespace.
//
// Errors: EACCES without that precondition; EBUSY when a filter of this thread
// has a listener already; EINVAL for a malformed
// program, which with a listener cannot be told from an old kernel: that error is
// [errors.ErrUnsupported] too.
func Load(program []byte, newListener bool) (listenerFD int, err error) {
	if !valid(program) {
		return -1, fmt.Errorf("load filter: %d bytes: %w", len(program), unix.EINVAL)
	}
	var flags uintptr
	if newListener {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	fd, errno := load(program, flags)
	switch {
	case errno == unix.EINVAL && newListener:
		return -1, fmt.Errorf("load filter with listener: %w: malformed, or %w (before Linux 5.19)", errno, errors.ErrUnsupported)
	case errno != 0:
		return -1, fmt.Errorf("load filter: %w", errno)
	case !newListener:
		return -1, nil
	}
	return int(fd), nil
}

// LoadAll puts a filter on all threads of the process, at one moment
// (SECCOMP_FILTER_FLAG_TSYNC), and no_new_privs with it.
//
// Preconditions: the calling thread has no_new_privs set or CAP_SYS_ADMIN; no other
// thread has a filter that the calling one has not.
func LoadAll(program []byte) error {
	if !valid(program) {
		return fmt.Errorf("load filter: %d bytes: %w", len(program), unix.EINVAL)
	}
	tid, errno := load(program, unix.SECCOMP_FILTER_FLAG_TSYNC)
	switch {
	case errno != 0:
		return fmt.Errorf("load filter: %w", errno)
	case tid != 0:
		return fmt.Errorf("load filter: thread %d has another one", tid)
	}
	return nil
}

func load(program []byte, flags uintptr) (uintptr, unix.Errno) {
	// The kernel wants instructions at their natural alignment on no
	// architecture we build for, but a copy makes it true everywhere.
	insns := make([]unix.SockFilter, len(program)/insnSize)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&insns[0])), len(program)), program)
	prog := unix.SockFprog{Len: uint16(len(insns)), Filter: &insns[0]}
	r, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(insns)
	return r, errno
}
