package jail

import (
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Source is an object of the host that a jail or a tree shows.
type Source struct {
	Path  string // where it is on the host
	Mount uint64 // the mount that holds it (statx(2), stx_mnt_id)
}

// Ground is the part of the host's mounts that decides what is seen through a
// set of sources. The zero Ground is like no other.
type Ground struct {
	changes uint64 // of the host's mounts that were seen when it was looked at; 0: never
	// lines are what mountinfo says of the mounts that hold the sources and of those below
	// them. The same lines are the same mounts, though the number of a mount is used again
	// after its end: a source is told by its own device and inode, which whoever keeps a
	// Ground compares as well, and what is below one by its device, which is nobody else's
	// as long as it is mounted in what was made. So it is the root of a file system, and
	// lines is empty where some mount below a source shows another part of one.
	lines string
}

// Like reports whether what is made of the same sources on h is what was made on g:
// nothing was mounted, unmounted or changed in between that holds a source or is below one.
func (g Ground) Like(h Ground) bool {
	return g.changes != 0 && (g.changes == h.changes || g.lines != "" && g.lines == h.lines)
}

// Ground looks at the mounts of the host that matter to sources. What is then made of
// them stands on it if Steady says so afterwards.
func (t *Trees) Ground(sources []Source) Ground {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look()
	return Ground{changes: t.changes, lines: groundLines(t.info, sources)}
}

// Steady returns g if no mount of the host has changed since, else a Ground that is like
// no other.
func (t *Trees) Steady(g Ground) Ground {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.look(); t.changes == g.changes {
		return g
	}
	return Ground{}
}

// look counts a change of the host's mounts, and reads them after it. t.mu is held.
func (t *Trees) look() {
	if !t.changed() && t.changes != 0 {
		return
	}
	t.changes++
	t.info = readAll(t.mounts) // a change meanwhile is told by the next poll
}

// readAll reads a file of proc from its beginning; empty when that fails.
func readAll(fd int) string {
	var out []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.Pread(fd, buf, int64(len(out)))
		if err != nil {
			return ""
		}
		if n == 0 {
			return string(out)
		}
		out = append(out, buf[:n]...)
	}
}

// groundLines returns the lines of mountinfo (proc_pid_mountinfo(5)) that hold a source
// or are below one, or nothing when one that holds a source is missing, when one below is not
// the root of its file system, and when a line is not understood.
func groundLines(mountinfo string, sources []Source) string {
	holds, shown := make(map[uint64]bool, len(sources)), make(map[string]bool, len(sources))
	for _, s := range sources {
		holds[s.Mount], shown[s.Path] = true, true
	}
	var out strings.Builder
	for line := range strings.Lines(mountinfo) {
		f := strings.SplitN(line, " ", 6) // id, parent, device, root, point, the rest
		if len(f) < 6 {
			return ""
		}
		id, err := strconv.ParseUint(f[0], 10, 64)
		if err != nil {
			return ""
		}
		below := isBelow(unescape(f[4]), shown)
		if below && f[3] != "/" {
			return ""
		}
		if below || holds[id] {
			delete(holds, id)
			out.WriteString(line)
		}
	}
	if len(holds) > 0 {
		return ""
	}
	return out.String()
}

// isBelow reports whether p is below one of the directories.
func isBelow(p string, dirs map[string]bool) bool {
	for p != "/" && p != "." {
		if p = path.Dir(p); dirs[p] {
			return true
		}
	}
	return false
}

// unescape undoes what mountinfo writes for a blank, tab, line break and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
