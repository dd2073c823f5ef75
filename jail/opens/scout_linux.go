package opens

import (
	"bytes"
	"hash/maphash"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/policy/glob"
)

const (
	scoutEntries = 4096 // of a directory that are looked at
	scoutQueue   = 64   // directories that wait; more are not looked at ahead
	scoutMemory  = 1024 // directories that are remembered, roughly
)

// scout answers ahead for the files of a directory: programs that open two files of a
// directory open the others too (searches, archives, compilers' include trees).
type scout struct {
	j     *Judge
	dirs  chan string
	seed  maphash.Seed
	seen  [scoutMemory]uint64 // hash of a directory in which a file was met; its low bit: it was looked at
	entry [32 << 10]byte
	st    unix.Stat_t
}

func newScout(j *Judge) *scout {
	return &scout{j: j, dirs: make(chan string, scoutQueue), seed: maphash.MakeSeed()}
}

// met is called, by one reader at a time as a rule, with each file that was allowed. Two
// readers at once lose a note, which costs an event.
func (s *scout) met(path []byte, mode uint32) {
	if mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	dir := path[:bytes.LastIndexByte(path, '/')]
	if len(dir) == 0 {
		return
	}
	h := maphash.Bytes(s.seed, dir) &^ 1
	at := &s.seen[h>>1%scoutMemory]
	switch *at {
	case h | 1:
	case h:
		*at = h | 1
		select {
		case s.dirs <- string(dir):
		default:
		}
	default:
		*at = h
	}
}

// run looks at directories, on a thread with the agent's rights. Its own opens raise
// events, which the reader lets pass.
func (s *scout) run() {
	runtime.LockOSThread()
	if e := become(s.j.c.UID, s.j.c.GID); e != 0 {
		s.j.failed <- e
		return
	}
	for dir := range s.dirs {
		s.look(dir)
	}
}

func (s *scout) look(dir string) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &how)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var r reader
	r.j = s.j
	if !bytes.Equal(r.pathOf(fd, r.path[:]), []byte(dir)) || fstat(fd, &s.st) != 0 || !s.j.isSteady(s.st.Dev, fd) {
		return
	}
	dev := s.st.Dev
	for left := scoutEntries; left > 0; {
		n, err := unix.Getdents(fd, s.entry[:])
		if err != nil || n <= 0 {
			break
		}
		for rest := s.entry[:n]; len(rest) > 0; left-- {
			var name []byte
			name, rest = file(rest)
			if name != nil {
				s.remember(fd, dev, dir, name)
			}
		}
	}
	if !bytes.Equal(r.pathOf(fd, r.back[:]), []byte(dir)) { // it was moved meanwhile
		_ = s.j.Forget()
	}
}

// remember answers ahead for one file; name ends in NUL.
func (s *scout) remember(fd int, dev uint64, dir string, name []byte) {
	acc := s.j.c.Rules.Match(dir + "/" + string(name[:len(name)-1]))
	mask := uint64(0)
	if acc.Allows(glob.Read) {
		mask |= unix.FAN_OPEN_PERM
	}
	if acc.Allows(glob.Exec) {
		mask |= unix.FAN_OPEN_EXEC_PERM
	}
	if mask == 0 || fstatat(fd, name, &s.st) != 0 || s.st.Mode&unix.S_IFMT != unix.S_IFREG || s.st.Nlink != 1 || s.st.Dev != dev {
		return
	}
	_ = mark(s.j.group, ignoreFlags|unix.FAN_MARK_DONT_FOLLOW, mask, fd, name) // else its first open asks
}

// file answers the name of a directory entry (struct linux_dirent64) with its NUL, nil if it
// is known not to be a regular file, and what follows.
func file(b []byte) (name, rest []byte) {
	const kindAt, nameAt = 18, 19
	if len(b) < nameAt+1 {
		return nil, nil
	}
	size := int(b[16]) | int(b[17])<<8
	if size < nameAt+1 || size > len(b) {
		return nil, nil
	}
	entry, rest := b[:size], b[size:]
	end := bytes.IndexByte(entry[nameAt:], 0)
	if end < 1 || entry[kindAt] != unix.DT_REG && entry[kindAt] != unix.DT_UNKNOWN {
		return nil, rest
	}
	return entry[nameAt : nameAt+end+1], rest
}
