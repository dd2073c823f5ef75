package hook

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	uringOpenat   = 18
	uringUnlinkat = 36
	uringAsync    = 1 << 4 // IOSQE_ASYNC: from a worker thread, which never fires a fork event
)

// uring runs one operation on a path through a new io_uring.
func uring(op, flags byte, path string, openFlags uint32) error {
	params := make([]byte, 120)
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params[0])), 0)
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(fd))
	le := binary.LittleEndian
	at := func(b []byte) uint32 { return le.Uint32(b) }
	sqSize := at(params[40+24:]) + at(params)*4
	cqSize := at(params[80+20:]) + at(params[4:])*16
	sq, err := unix.Mmap(int(fd), 0, int(sqSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(sq)
	cq, err := unix.Mmap(int(fd), 0x8000000, int(cqSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(cq)
	sqe, err := unix.Mmap(int(fd), 0x10000000, int(at(params)*64), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(sqe)
	name := append([]byte(path), 0)
	var pin runtime.Pinner
	pin.Pin(&name[0])
	defer pin.Unpin()
	sqe[0], sqe[1] = op, flags
	cwd := int32(unix.AT_FDCWD)
	le.PutUint32(sqe[4:], uint32(cwd))
	le.PutUint64(sqe[16:], uint64(uintptr(unsafe.Pointer(&name[0]))))
	le.PutUint32(sqe[28:], openFlags)
	le.PutUint32(sq[at(params[40+24:]):], 0) // array[0] = first entry
	le.PutUint32(sq[at(params[40+4:]):], 1)  // tail
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, fd, 1, 1, 1, 0, 0); errno != 0 {
		return errno
	}
	res := int32(at(cq[at(params[80+20:])+8:]))
	if res < 0 {
		return unix.Errno(-res)
	}
	if op == uringOpenat {
		unix.Close(int(res))
	}
	return nil
}
