package packet

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is the most that a process can have (NGROUPS_MAX, getgroups(2)).
const maxGroups = 65536

// PeerGroups returns the groups of who is at the other end, the one of [Conn.Peer] not
// among them, as the kernel recorded them at connect time (SO_PEERGROUPS, Linux 4.13).
func (c *Conn) PeerGroups() ([]int, error) {
	list := make([]uint32, 64)
	var errno unix.Errno
	var size uint32
	ask := func(fd uintptr) {
		size = uint32(4 * len(list))
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&list[0])), uintptr(unsafe.Pointer(&size)), 0)
	}
	if err := c.sc.Control(ask); err != nil {
		return nil, err
	}
	if errno == unix.ERANGE && size <= 4*maxGroups { // size is what it takes
		list = make([]uint32, size/4)
		if err := c.sc.Control(ask); err != nil {
			return nil, err
		}
	}
	if errno == unix.ENODATA {
		return nil, errors.New("the peer's groups are not known")
	}
	if errno != 0 {
		return nil, fmt.Errorf("read the peer's groups: %w", errno)
	}
	out := make([]int, size/4)
	for i := range out {
		out[i] = int(list[i])
	}
	return out, nil
}
