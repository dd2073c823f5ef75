package inside

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capset sets effective and permitted capabilities to set and inheritable to
// none, on the calling thread or on all threads (capset(2)).
func capset(set uint64, allThreads bool) syscall.Errno {
	hdr := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := &[2]unix.CapUserData{
		{Effective: uint32(set), Permitted: uint32(set)},
		{Effective: uint32(set >> 32), Permitted: uint32(set >> 32)},
	}
	call := syscall.RawSyscall
	if allThreads {
		call = syscall.AllThreadsSyscall
	}
	_, _, e := call(unix.SYS_CAPSET, uintptr(unsafe.Pointer(hdr)), uintptr(unsafe.Pointer(data)), 0)
	runtime.KeepAlive(hdr)
	runtime.KeepAlive(data)
	return e
}

// setName names the calling thread (prctl(2)), which main is on: the process.
func setName(name string) error {
	b, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
}
