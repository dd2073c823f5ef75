package broker

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// procEntry splits a canonical path of procfs: the process or thread it belongs to, 0
// if none, and what follows its directory. For /proc/1/task/2/x the thread is 2.
func procEntry(path []byte) (pid uint32, rest []byte) {
	rest, ok := bytes.CutPrefix(path, []byte("/proc/"))
	if !ok {
		return 0, nil
	}
	number := func() (uint32, bool) {
		head, tail, _ := bytes.Cut(rest, []byte{'/'})
		n, err := strconv.ParseUint(view(head), 10, 31)
		if err != nil || n == 0 {
			return 0, false
		}
		rest = tail
		return uint32(n), true
	}
	if pid, ok = number(); !ok {
		return 0, rest
	}
	if tail, ok := bytes.CutPrefix(rest, []byte("task/")); ok {
		rest = tail
		if tid, ok := number(); ok {
			pid = tid
		}
	}
	return pid, rest
}

// ours reports whether pid is a thread of this process.
//
// The object must have been opened before: then a thread of ours that comes
// later cannot be meant, and one that has ended answers nothing any more.
func (w *worker) ours(pid uint32) bool {
	name := append(strconv.AppendUint(w.num[:0], uint64(pid), 10), 0)
	w.how = unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
	fd, e := openat2(w.b.tasks, name, &w.how)
	if e == 0 {
		closeFD(fd)
	}
	return e != unix.ENOENT // anything unclear counts as ours
}

// public lists what every process may read of another one's directory.
func public(name []byte) bool {
	switch string(name) {
	case "", "task", "stat", "statm", "status", "cmdline", "comm", "cgroup", "limits", "oom_score", "oom_score_adj",
		"mounts", "mountinfo", "loginuid", "sessionid", "schedstat":
		return true
	}
	return false
}

// procOpen prepares the opening of a procfs object and says whether it may be
// tried. Afterwards the thread has CAP_SYS_PTRACE only where the object belongs to the
// caller's own process, which needs no right to see itself; the caller of
// procOpen ends with w.trusted(true).
func (w *worker) procOpen(path []byte, write bool) unix.Errno {
	if string(path) == "/proc" {
		return 0
	}
	pid, rest := procEntry(path)
	if pid == 0 {
		if !bytes.HasPrefix(path, []byte("/proc/")) {
			return unix.EACCES // another procfs than ours: not known here
		}
		w.trusted(false)
		return 0
	}
	if w.ours(pid) {
		if write || !public(rest) {
			return unix.EACCES
		}
		w.trusted(false)
		return 0
	}
	if write && string(rest) == "mem" {
		return unix.EACCES // writes to read-only pages
	}
	w.trusted(sameProcess(w.process(), pid))
	return 0
}

// fdinfoFlags returns the open flags of a /proc/<pid>/fdinfo text.
func fdinfoFlags(text []byte) uint64 {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("flags:")); ok {
			v, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 8, 64)
			if err == nil {
				return v
			}
		}
	}
	return unix.O_PATH // unknown: refuse
}

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
