package broker

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// isTerminal reports whether w.st is /dev/tty (major 5, minor 0), which means
// another terminal for every session: to us, ours.
func (w *worker) isTerminal() bool {
	return w.st.Mode&unix.S_IFMT == unix.S_IFCHR && w.st.Rdev == unix.Mkdev(5, 0)
}

// terminal opens the caller's controlling terminal as O_PATH, held. Only
// terminals of the jail's devpts can be one.
func (w *worker) terminal() (int, unix.Errno) {
	text, e := w.procFile("stat")
	if e != 0 {
		return -1, e
	}
	// The name in brackets is the caller's choice: fields count from the last one.
	i := bytes.LastIndexByte(text, ')')
	if i < 0 {
		return -1, unix.ENXIO
	}
	f := bytes.Fields(text[i+1:])
	if len(f) < 5 {
		return -1, unix.ENXIO
	}
	n, err := strconv.ParseInt(view(f[4]), 10, 64) // new_encode_dev: mmmM MMmm
	if err != nil || n == 0 {
		return -1, unix.ENXIO
	}
	major, minor := uint32(n>>8)&0xfff, uint32(n)&0xff|uint32(n>>12)&0xfff00
	const firstPTS, lastPTS = 136, 143 // Documentation/admin-guide/devices.txt
	if major < firstPTS || major > lastPTS {
		return -1, unix.ENXIO
	}
	name := append(w.num[:0], "/dev/pts/"...)
	name = append(strconv.AppendUint(name, uint64((major-firstPTS)<<20|minor), 10), 0)
	w.how = unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC}
	fd, e := openat2(unix.AT_FDCWD, name, &w.how)
	if e != 0 {
		return -1, unix.ENXIO
	}
	w.hold(fd)
	var st unix.Stat_t
	if e := fstat(fd, &st); e != 0 || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(major, minor) {
		return -1, unix.ENXIO
	}
	return fd, 0
}
