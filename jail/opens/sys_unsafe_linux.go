package opens

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// metadata is struct fanotify_event_metadata (linux/fanotify.h).
type metadata struct {
	length   uint32
	version  uint8
	reserved uint8
	header   uint16
	mask     uint64
	fd       int32
	pid      int32
}

const metadataSize = int(unsafe.Sizeof(metadata{}))

// answer is struct fanotify_response.
type answer struct {
	fd       int32
	response uint32
}

// first decodes the event at the start of buf and answers its length, 0 for none.
func first(buf []byte) (m metadata, n int) {
	if len(buf) < metadataSize {
		return m, 0
	}
	m = *(*metadata)(unsafe.Pointer(&buf[0]))
	if int(m.length) < metadataSize || int(m.length) > len(buf) || m.version != unix.FANOTIFY_METADATA_VERSION {
		return m, 0
	}
	return m, int(m.length)
}

// The read waits, so it lends the processor; the rest are short.

func read(fd int, buf []byte) (int, unix.Errno) {
	n, _, e := unix.Syscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
	return int(n), e
}

func respond(group int, fd int32, response uint32) unix.Errno {
	a := answer{fd, response}
	_, _, e := unix.RawSyscall(unix.SYS_WRITE, uintptr(group), uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a))
	return e
}

func closeFD(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// mark is fanotify_mark with a NUL-terminated name.
func mark(group int, flags uint, mask uint64, at int, name []byte) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_FANOTIFY_MARK, uintptr(group), uintptr(flags), uintptr(mask), uintptr(at), uintptr(unsafe.Pointer(&name[0])), 0)
	return e
}

func fstat(fd int, st *unix.Stat_t) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(st)), 0)
	return e
}

// fstatat does not follow links; name is NUL-terminated.
func fstatat(at int, name []byte, st *unix.Stat_t) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_NEWFSTATAT, uintptr(at), uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(st)), unix.AT_SYMLINK_NOFOLLOW, 0, 0)
	return e
}

// readlinkat reads a link into buf; name is NUL-terminated.
func readlinkat(at int, name, buf []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_READLINKAT, uintptr(at), uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0)
	return int(n), e
}

// view is b as a string, for as long as b does not change.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// become gives the calling thread the file-system ids of the agent, and no groups: a mark
// on an inode takes the right to read it.
func become(uid, gid int) unix.Errno {
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return e
	}
	for _, c := range []struct{ nr, id uintptr }{{unix.SYS_SETFSGID, uintptr(gid)}, {unix.SYS_SETFSUID, uintptr(uid)}} {
		_, _, _ = unix.RawSyscall(c.nr, c.id, 0, 0)           // answers what it was, whatever happens
		now, _, _ := unix.RawSyscall(c.nr, ^uintptr(0), 0, 0) // an impossible id changes nothing
		if uint32(now) != uint32(c.id) {
			return unix.EPERM
		}
	}
	return 0
}
