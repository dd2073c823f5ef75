package opens

import (
	"bytes"
	"hash/maphash"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/dirent"
	"github.com/agentos/agentos/policy/glob"
)

const (
	scoutEntries = 1024 // of a directory that are looked at: about 2 ms
	scoutMemory  = 1024 // directories that are remembered, roughly
)

// scout knows the directories whose files are to be answered for ahead: programs that open two
// files of a directory open the others too (searches, archives, compilers' include trees).
type scout struct {
	mu   sync.Mutex
	seed maphash.Seed
	seen [scoutMemory]uint64 // hash of a directory in which a file was met; its low bit: it was looked at
}

// met notes a file that was allowed, and reports whether its directory is to be looked at
// now: at the second one.
func (s *scout) met(dir []byte) bool {
	h := maphash.Bytes(s.seed, dir) &^ 1
	s.mu.Lock()
	defer s.mu.Unlock()
	at := &s.seen[h>>1%scoutMemory]
	switch *at {
	case h | 1:
		return false
	case h:
		*at = h | 1
		return true
	default:
		*at = h
		return false
	}
}

// forget has all directories looked at again.
func (s *scout) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.seen[:])
}

// ahead answers for the files beside the one whose path was allowed just now, while who
// opens it waits: half a microsecond each instead of an event.
func (r *reader) ahead(path []byte) {
	dir := path[:max(1, bytes.LastIndexByte(path, '/'))]
	if !r.j.scout.met(dir) || !r.rules.Match(view(dir)).Allows(glob.Read) {
		return
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	at, err := unix.Openat2(unix.AT_FDCWD, string(dir), &how)
	if err != nil {
		return
	}
	defer unix.Close(at)
	// Our own open must raise no event: we are who answers. The inode is held, so the mark stays.
	if !bytes.Equal(r.pathOf(at, r.back[:]), dir) || fstat(at, &r.st) != 0 || !r.j.isSteady(dir, r.st.Dev, at) ||
		mark(r.j.group, ignoreFlags, unix.FAN_OPEN_PERM, r.j.links, r.link(at)) != 0 {
		return
	}
	fd, err := unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	r.list(fd, dir)
	if !bytes.Equal(r.pathOf(fd, r.back[:]), dir) { // it was moved meanwhile
		_ = r.j.Forget()
	}
}

// list remembers the files of an open directory. It overwrites r.st.
func (r *reader) list(fd int, dir []byte) {
	dev := r.st.Dev
	if r.entries == nil {
		r.entries = make([]byte, 8<<10)
	}
	r.full = append(append(r.full[:0], dir...), '/')
	if len(dir) == 1 {
		r.full = r.full[:1]
	}
	base := len(r.full)
	for left := scoutEntries; left > 0; {
		n, err := unix.Getdents(fd, r.entries)
		if err != nil || n <= 0 {
			return
		}
		for rest := r.entries[:n]; len(rest) > 0; left-- {
			e, tail, ok := dirent.Next(rest)
			if !ok {
				return
			}
			name := e.Name
			if rest = tail; e.Type != unix.DT_REG && e.Type != dirent.Unknown {
				continue
			}
			r.full = append(r.full[:base], e.Text()...)
			mask := ignorable(r.rules.Match(view(r.full)))
			if mask == 0 || fstatat(fd, name, &r.st) != 0 || r.st.Mode&unix.S_IFMT != unix.S_IFREG || r.st.Nlink != 1 || r.st.Dev != dev {
				continue
			}
			_ = mark(r.j.group, ignoreFlags|unix.FAN_MARK_DONT_FOLLOW, mask, fd, name) // else its first open asks
		}
	}
}
