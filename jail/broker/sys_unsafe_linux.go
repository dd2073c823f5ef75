package broker

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Layouts of linux/seccomp.h.
type (
	notification struct {
		id    uint64
		tid   uint32 // of the caller, in our pid namespace
		flags uint32
		nr    int32
		arch  uint32
		ip    uint64
		args  [6]uint64
	}
	response struct {
		id    uint64
		val   int64
		errno int32
		flags uint32
	}
	addition struct {
		id       uint64
		flags    uint32
		src      uint32
		dst      uint32
		dstFlags uint32
	}
)

// The calls that may sleep for long go through Syscall, which lends the
// processor to other goroutines meanwhile; the short ones through RawSyscall,
// which saves that hand-over.

func ioctl(fd int, req uintptr, arg unsafe.Pointer) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), req, uintptr(arg))
	return e
}

func receive(listener int, n *notification) unix.Errno {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(n)))
	return e
}

func send(listener int, r *response) unix.Errno {
	return ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(r))
}

// addfd waits until the caller has taken the descriptor, so it lends the processor.
// It answers the number that the descriptor has there.
func addfd(listener int, a *addition) (int, unix.Errno) {
	n, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_ADDFD, uintptr(unsafe.Pointer(a)))
	return int(n), e
}

func valid(listener int, id uint64) bool {
	return ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&id)) == 0
}

// syncWakeUp asks for wake-ups on the caller's processor (Linux 6.6).
func syncWakeUp(listener int) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	return e
}

// readMemory copies from the caller's memory; short only at an unreadable page.
func readMemory(tid uint32, addr uint64, to []byte) (int, unix.Errno) {
	if len(to) == 0 {
		return 0, 0
	}
	local := unix.Iovec{Base: &to[0]}
	local.SetLen(len(to))
	remote := unix.RemoteIovec{Base: uintptr(addr), Len: len(to)}
	n, _, e := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(tid),
		uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	return int(n), e
}

// writeMemory copies to the caller's memory; short only at a page that cannot be
// written.
func writeMemory(tid uint32, addr uint64, from []byte) (int, unix.Errno) {
	if len(from) == 0 {
		return 0, 0
	}
	local := unix.Iovec{Base: &from[0]}
	local.SetLen(len(from))
	remote := unix.RemoteIovec{Base: uintptr(addr), Len: len(from)}
	n, _, e := unix.RawSyscall6(unix.SYS_PROCESS_VM_WRITEV, uintptr(tid),
		uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	return int(n), e
}

// openat2 opens a NUL-terminated path.
func openat2(at int, path []byte, how *unix.OpenHow) (int, unix.Errno) {
	fd, _, e := unix.Syscall6(unix.SYS_OPENAT2, uintptr(at), uintptr(unsafe.Pointer(&path[0])),
		uintptr(unsafe.Pointer(how)), unix.SizeofOpenHow, 0, 0)
	return int(fd), e
}

func closeFD(fd int) { _, _, _ = unix.Syscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

func fstat(fd int, st *unix.Stat_t) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(st)), 0)
	return e
}

// readlinkat reads a link into buf; name is NUL-terminated.
func readlinkat(at int, name, buf []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_READLINKAT, uintptr(at), uintptr(unsafe.Pointer(&name[0])),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0)
	return int(n), e
}

func setStatusFlags(fd, flags int) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_FCNTL, uintptr(fd), unix.F_SETFL, uintptr(flags))
	return e
}

func setUmask(m uint32) { _, _, _ = unix.RawSyscall(unix.SYS_UMASK, uintptr(m), 0, 0) }

// sameProcess reports whether thread tid belongs to process tgid.
func sameProcess(tgid, tid uint32) bool {
	_, _, e := unix.RawSyscall(unix.SYS_TGKILL, uintptr(tgid), uintptr(tid), 0)
	return e != unix.ESRCH
}

func setCapabilities(effective, permitted uint32) unix.Errno {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	d := [2]unix.CapUserData{{Effective: effective, Permitted: permitted}}
	_, _, e := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&d[0])), 0)
	return e
}

func setGroups(groups []uint32) unix.Errno {
	var p unsafe.Pointer
	if len(groups) > 0 {
		p = unsafe.Pointer(&groups[0])
	}
	_, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(p), 0)
	return e
}

// takeTurns makes the calling thread one that preempts nobody when it wakes
// (SCHED_BATCH). SECCOMP_IOCTL_NOTIF_ADDFD ends with a wake-up by the caller, who could go on:
// we have nothing to do then but to close our copy, and do it when he waits for us anyway.
// It saves one switch in three.
func takeTurns() {
	const batch = 3
	var priority int32 // struct sched_param
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, batch, uintptr(unsafe.Pointer(&priority)))
}

// pathCall makes a call whose first arguments are a directory and a
// NUL-terminated name. It may wait for a disk.
func pathCall(nr uintptr, at int, name []byte, a, b, c uintptr) unix.Errno {
	_, _, e := unix.Syscall6(nr, uintptr(at), uintptr(unsafe.Pointer(&name[0])), a, b, c, 0)
	return e
}

// twoPathCall makes a call with two directories and two NUL-terminated names.
func twoPathCall(nr uintptr, at1 int, name1 []byte, at2 int, name2 []byte, flags uintptr) unix.Errno {
	_, _, e := unix.Syscall6(nr, uintptr(at1), uintptr(unsafe.Pointer(&name1[0])),
		uintptr(at2), uintptr(unsafe.Pointer(&name2[0])), flags, 0)
	return e
}

// symlinkCall makes name in at point to target, both NUL-terminated.
func symlinkCall(target []byte, at int, name []byte) unix.Errno {
	_, _, e := unix.Syscall(unix.SYS_SYMLINKAT, uintptr(unsafe.Pointer(&target[0])), uintptr(at), uintptr(unsafe.Pointer(&name[0])))
	return e
}

func truncateCall(name []byte, size uint64) unix.Errno {
	_, _, e := unix.Syscall(unix.SYS_TRUNCATE, uintptr(unsafe.Pointer(&name[0])), uintptr(size), 0)
	return e
}

// timesCall sets times; nil means now.
func timesCall(name []byte, ts *[2]unix.Timespec) unix.Errno {
	at := unix.AT_FDCWD
	_, _, e := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(at), uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(ts)), 0, 0, 0)
	return e
}

// xattrCall sets (value != nil or set) or removes an attribute.
func xattrCall(nr uintptr, path, name, value []byte, flags uint64) unix.Errno {
	var p unsafe.Pointer
	if len(value) > 0 {
		p = unsafe.Pointer(&value[0])
	}
	_, _, e := unix.Syscall6(nr, uintptr(unsafe.Pointer(&path[0])), uintptr(unsafe.Pointer(&name[0])), uintptr(p), uintptr(len(value)), uintptr(flags), 0)
	return e
}

// xattrGet is getxattr(2): the length of the value, which is all an empty value asks for.
func xattrGet(path, name, value []byte) (int, unix.Errno) {
	var p unsafe.Pointer
	if len(value) > 0 {
		p = unsafe.Pointer(&value[0])
	}
	n, _, e := unix.Syscall6(unix.SYS_GETXATTR, uintptr(unsafe.Pointer(&path[0])), uintptr(unsafe.Pointer(&name[0])), uintptr(p), uintptr(len(value)), 0, 0)
	return int(n), e
}

func watchCall(fd int, path []byte, mask uint32) (int, unix.Errno) {
	wd, _, e := unix.Syscall(unix.SYS_INOTIFY_ADD_WATCH, uintptr(fd), uintptr(unsafe.Pointer(&path[0])), uintptr(mask))
	return int(wd), e
}

// socketCall makes bind or connect.
func socketCall(nr uintptr, fd int, addr []byte) unix.Errno {
	var p unsafe.Pointer
	if len(addr) > 0 {
		p = unsafe.Pointer(&addr[0])
	}
	_, _, e := unix.Syscall(nr, uintptr(fd), uintptr(p), uintptr(len(addr)))
	return e
}

// view is the string over the same bytes: valid until they change.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// interruptible makes sig, which has no other use, end a sleeping call with
// EINTR instead of restarting it: Go installs all handlers with SA_RESTART.
// The handler stays Go's, which ignores a signal that nobody asked for.
func interruptible(sig int) unix.Errno {
	type sigaction struct {
		handler  uintptr
		flags    uint64
		restorer uintptr
		mask     uint64
	}
	const restart = 0x10000000
	var sa sigaction
	if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&sa)), 8, 0, 0); e != 0 {
		return e
	}
	sa.flags &^= restart
	_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&sa)), 0, 8, 0, 0)
	return e
}
