package quiet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// mapping is one of a process, from smaps (proc_pid_smaps(5)).
type mapping struct {
	from, to  uintptr
	perms     string
	path      string
	anonymous string // "0 kB": every page is the file's
	rss       int    // bytes in memory
}

// releasable reports whether the kernel can fetch every page of m again. What was
// written to, also once by the dynamic linker before it took the right away, cannot be.
func (m mapping) releasable() bool {
	return strings.HasPrefix(m.path, "/") && !strings.HasPrefix(m.path, "/memfd:") &&
		(m.perms == "r-xp" || m.perms == "r--p") && m.anonymous == "0 kB"
}

// releaseFiles unmaps the pages of files that this process runs. The mappings stay.
func releaseFiles() error {
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range mappings(text) {
		if !m.releasable() {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			errs = append(errs, fmt.Errorf("release pages of %s: %w", m.path, errno))
		}
	}
	return errors.Join(errs...)
}

func mappings(smaps []byte) []mapping {
	var out []mapping
	for line := range bytes.Lines(smaps) {
		name, rest, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if key, ok := strings.CutSuffix(name, ":"); ok {
			if len(out) == 0 {
				continue
			}
			switch last := &out[len(out)-1]; key {
			case "Anonymous":
				last.anonymous = strings.TrimSpace(rest)
			case "Rss":
				if _, err := fmt.Sscanf(rest, "%d kB", &last.rss); err != nil {
					last.rss = -1
				}
				last.rss <<= 10
			}
			continue
		}
		var m mapping
		if _, err := fmt.Sscanf(name, "%x-%x", &m.from, &m.to); err != nil {
			continue
		}
		f := strings.Fields(rest) // perms offset dev inode path
		if len(f) < 5 {
			m.perms = "" // no file: never releasable
		} else {
			m.perms, m.path = f[0], strings.Join(f[4:], " ")
		}
		out = append(out, m)
	}
	return out
}
