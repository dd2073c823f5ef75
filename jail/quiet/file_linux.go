package quiet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// mapping is one of a process, from smaps (proc_pid_smaps(5)).
type mapping struct {
	from, to  uint64
	perms     string
	path      string
	rss       int // bytes in memory
	anonymous int // of these, bytes that are not the file's any more
}

// releasable reports whether the kernel can fetch every page of m again. What was
// written to, also once by the dynamic linker before it took the right away, cannot be.
func (m *mapping) releasable() bool {
	return len(m.path) > 0 && m.path[0] == '/' && (len(m.path) < 7 || m.path[:7] != "/memfd:") &&
		(m.perms == "r-xp" || m.perms == "r--p") && m.anonymous == 0
}

// releaseFiles unmaps the pages of files that this process runs. The mappings stay.
func releaseFiles() error {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	var errs []error
	err = mappings(f, func(m *mapping) {
		if !m.releasable() || m.rss == 0 {
			return
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(m.from), uintptr(m.to-m.from), unix.MADV_DONTNEED); errno != 0 {
			errs = append(errs, fmt.Errorf("release pages of %s: %w", m.path, errno))
		}
	})
	return errors.Join(append(errs, err)...)
}

// mappings calls f for each mapping that smaps lists. What it cannot read it calls
// anonymous, so that nothing is done to it.
func mappings(smaps io.Reader, f func(*mapping)) error {
	s := bufio.NewScanner(smaps)
	s.Buffer(make([]byte, 4<<10), 64<<10) // little garbage: this runs to save memory
	var m mapping
	begun := false
	for s.Scan() {
		name, rest, _ := bytes.Cut(s.Bytes(), []byte(" "))
		if len(name) > 0 && name[len(name)-1] == ':' {
			switch string(name) {
			case "Rss:":
				m.rss = kilobytes(rest)
			case "Anonymous:":
				m.anonymous = kilobytes(rest)
			}
			continue
		}
		if begun {
			f(&m)
		}
		m, begun = header(name, rest), true
	}
	if begun {
		f(&m)
	}
	return s.Err()
}

// header reads "FROM-TO PERMS OFFSET DEV INODE PATH".
func header(span, rest []byte) mapping {
	m := mapping{anonymous: -1}
	from, to, _ := bytes.Cut(span, []byte("-"))
	var errFrom, errTo error
	m.from, errFrom = strconv.ParseUint(string(from), 16, 64)
	m.to, errTo = strconv.ParseUint(string(to), 16, 64)
	if errFrom != nil || errTo != nil || m.to < m.from {
		return mapping{anonymous: -1}
	}
	perms, rest, _ := bytes.Cut(rest, []byte(" "))
	m.perms = string(perms)
	if i := bytes.IndexByte(rest, '/'); i >= 0 {
		m.path = string(rest[i:])
	}
	return m
}

// kilobytes reads "  12 kB", in bytes; -1 when it is something else.
func kilobytes(text []byte) int {
	number, unit, _ := bytes.Cut(bytes.TrimSpace(text), []byte(" "))
	n, err := strconv.Atoi(string(number))
	if err != nil || string(unit) != "kB" {
		return -1
	}
	return n << 10
}
