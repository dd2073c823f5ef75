package opens

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/policy/glob"
)

// Rules answers what a policy allows on a path, as [glob.Automaton.Match] does. It does not
// change, and must not keep the string.
type Rules interface {
	Match(path string) glob.Accept
	// Text is how events name rule i, or, for [glob.NoRule], that no one rule decided.
	Text(i uint16) string
}

// Source gives each event the rules that it is judged by. Others may be put in their place,
// if [Judge.Changed] is called after the last event that the old ones judge has left.
type Source interface {
	Enter() Rules // nil refuses everything
	Leave(Rules)  // the event is answered, and what is remembered of it is in the kernel
}

// Config is the blueprint of a judge.
type Config struct {
	Group    *os.File // of [NewGroup]; stays the caller's
	Rules    Source   // nil refuses everything
	UID, GID int      // of the agent, in init's user namespace
	Emit     func(event.Event)
	// Layered are the overlays of this jail. The host may rename and write what lies below
	// them, which raises no event of the overlay's own inodes: nothing is remembered there.
	Layered []string
	Linked  *Linked // of the jail; nil: the judge has its own
}

const (
	overdue    = 10 * time.Millisecond // in one event: another reader takes over
	maxReaders = 16
	pathMax    = 2 * 4096 // the kernel's d_path gives at most a page

	// A plain ignore mark: the kernel drops it when the file is written, and with the inode.
	ignoreFlags = unix.FAN_MARK_ADD | unix.FAN_MARK_IGNORED_MASK | unix.FAN_MARK_EVICTABLE
)

// Judge answers the events of one jail. It runs in the jail's init, in the agent's root.
type Judge struct {
	c     Config
	group int
	links int // O_PATH of /proc/self/fd

	trusted   atomic.Bool
	challenge atomic.Bool   // the root directory is refused whatever the rules say, see [Judge.Prove]
	asked     atomic.Uint64 // how often that happened

	readers atomic.Int32
	turn    atomic.Uint64 // of the latest event taken; odd while it is judged
	watched atomic.Bool
	failed  chan error

	scout scout

	mu     sync.Mutex
	steady map[uint64]bool // by device: whether files change through this kernel only
}

// New makes a judge.
//
// Preconditions: /proc is the procfs of the jail, the calling process holds CAP_SETUID and
// CAP_SETGID.
func New(c Config) (*Judge, error) {
	if c.UID <= 0 || c.GID <= 0 {
		return nil, fmt.Errorf("agent ids %d:%d: %w", c.UID, c.GID, unix.EINVAL)
	}
	links, err := unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/proc/self/fd", Err: err}
	}
	if c.Linked == nil {
		c.Linked = &Linked{}
	}
	j := &Judge{
		c: c, group: int(c.Group.Fd()), links: links, failed: make(chan error, maxReaders+1),
		steady: map[uint64]bool{}, scout: scout{seed: maphash.MakeSeed()},
	}
	return j, nil
}

// Serve answers events until it cannot, and says why. The process must end then: opens
// wait for an answer.
func (j *Judge) Serve() error {
	j.another()
	return <-j.failed
}

// Trust lets opens of this process pass from here on: those of the broker, which has
// decided them. Until then they are judged as the agent's.
func (j *Judge) Trust() { j.trusted.Store(true) }

// Changed says that other rules hold: every remembered answer is dropped.
func (j *Judge) Changed() error { return j.Forget() }

// Forget drops every remembered answer.
func (j *Judge) Forget() error {
	if err := unix.FanotifyMark(j.group, unix.FAN_MARK_FLUSH, 0, unix.AT_FDCWD, ""); err != nil {
		return fmt.Errorf("forget answers: %w", err)
	}
	j.scout.forget()
	return nil
}

// Prove shows that opens are asked about: open must open "/" for reading, from where the
// agent will be, and must be refused here.
func (j *Judge) Prove(open func() error) error {
	before := j.asked.Load()
	j.challenge.Store(true)
	err := open()
	j.challenge.Store(false)
	if !errors.Is(err, unix.EPERM) || j.asked.Load() == before {
		return fmt.Errorf("to open / was not asked about: %v", err)
	}
	return nil
}

// another starts one more reader.
func (j *Judge) another() {
	j.readers.Add(1)
	go func() {
		runtime.LockOSThread() // for good: the thread's ids are not the process's
		r := &reader{j: j}
		if e := become(j.c.UID, j.c.GID); e != 0 {
			j.failed <- fmt.Errorf("take the agent's ids: %w", e)
			return
		}
		r.loop()
		j.readers.Add(-1)
	}()
}

// watch looks every now and then, while there are events, whether the reader is stuck in
// one: a file system that answers late must not hold up the others.
func (j *Judge) watch() {
	seen := j.turn.Load()
	for idle := 0; idle < 3; {
		time.Sleep(overdue)
		now := j.turn.Load()
		switch {
		case now != seen:
			idle = 0
		case now&1 == 1:
			if idle = 0; j.readers.Load() < maxReaders {
				j.turn.Add(1) // the next look is for the new reader
				j.another()
			}
		default:
			idle++
		}
		seen = j.turn.Load()
	}
	j.watched.Store(false)
}

// reader is one thread that answers events.
type reader struct {
	j    *Judge
	in   [metadataSize]byte // one event: what waits behind a slow file is for another reader
	name [24]byte
	path [pathMax]byte
	back [pathMax]byte
	st   unix.Stat_t
	acc  glob.Accept

	rules Rules // of the present event

	entries []byte // of a directory, see ahead
	full    []byte // path of one
}

func (r *reader) loop() {
	for {
		n, e := read(r.j.group, r.in[:])
		switch {
		case e == unix.EINTR || e == unix.EAGAIN:
			continue
		case e != 0: // single events whose file cannot be opened are refused by the kernel, and answered with what stopped it
			if e == unix.EBADF || e == unix.EINVAL || e == unix.EFAULT {
				r.j.failed <- fmt.Errorf("read fanotify events: %w", e)
				return
			}
			continue
		}
		turn := r.j.turn.Add(1) | 1
		r.j.turn.Store(turn)
		if !r.j.watched.Load() && r.j.watched.CompareAndSwap(false, true) {
			go r.j.watch()
		}
		if e := r.answer(r.in[:n]); e != 0 {
			r.j.failed <- fmt.Errorf("answer fanotify event: %w", e)
			return
		}
		if !r.j.turn.CompareAndSwap(turn, turn+1) && r.j.readers.Load() > 1 {
			return // another one reads meanwhile
		}
	}
}

// answer answers one event.
func (r *reader) answer(event []byte) unix.Errno {
	m, size := first(event)
	if size == 0 {
		return unix.EPROTO
	}
	if m.fd < 0 {
		return 0 // asks nothing
	}
	if r.j.c.Rules != nil {
		if r.rules = r.j.c.Rules.Enter(); r.rules != nil {
			defer func() { r.j.c.Rules.Leave(r.rules) }()
		}
	}
	response := uint32(unix.FAN_DENY)
	if r.judge(&m) {
		response = unix.FAN_ALLOW
	}
	e := respond(r.j.group, m.fd, response)
	closeFD(int(m.fd))
	if e == unix.ENOENT { // who asked was killed
		return 0
	}
	return e
}

// judge decides one event.
func (r *reader) judge(m *metadata) bool {
	j := r.j
	if m.pid == int32(1) && j.trusted.Load() {
		return true
	}
	if e := fstat(int(m.fd), &r.st); e != 0 {
		return false
	}
	path := r.pathOf(int(m.fd), r.path[:])
	if len(path) == 1 && j.challenge.Load() {
		j.asked.Add(1)
		return false
	}
	op := glob.Read
	if m.mask&unix.FAN_OPEN_EXEC_PERM != 0 {
		op = glob.Exec
	}
	linked := r.st.Nlink > 1 && r.st.Mode&unix.S_IFMT == unix.S_IFREG
	ok := r.allows(path, op)
	switch {
	case !linked || len(path) == 0:
	case !ok:
		j.c.Linked.Met(r.st.Dev, r.st.Ino, path)
	default:
		ok = !j.c.Linked.Refused(r.st.Dev, r.st.Ino, func(name string) bool { return r.allows([]byte(name), op) })
	}
	if !ok {
		r.report(m, path, op)
		return false
	}
	if !linked && j.isSteady(path, r.st.Dev, int(m.fd)) {
		r.remember(int(m.fd), path)
		if r.st.Mode&unix.S_IFMT == unix.S_IFREG {
			r.ahead(path)
		}
	}
	return true
}

var deletedMark = []byte(" (deleted)")

// allows decides a path as the broker does: what has no name is reached through a
// descriptor only, and an unlinked file is decided by the name it had, with and without
// the kernel's mark, because a file may really be called that.
func (r *reader) allows(path []byte, op glob.Op) bool {
	if r.rules == nil || len(path) == 0 || path[0] != '/' {
		return false
	}
	r.acc = r.rules.Match(view(path))
	stripped, deleted := bytes.CutSuffix(path, deletedMark)
	if deleted && len(stripped) > 0 && r.acc.Allows(op) {
		r.acc = r.rules.Match(view(stripped))
	}
	return r.acc.Allows(op)
}

// remember has the kernel answer for this inode, where the answer is the same as long as
// nothing is written. The path is read again: a host that moved the file in between and
// wrote to it would else have written before there was a mark to drop.
func (r *reader) remember(fd int, path []byte) {
	mask := ignorable(r.acc)
	name := r.link(fd)
	if mark(r.j.group, ignoreFlags, mask, r.j.links, name) != 0 {
		return // the next open asks again
	}
	if again := r.pathOf(fd, r.back[:]); !bytes.Equal(path, again) {
		const undo = unix.FAN_MARK_REMOVE | unix.FAN_MARK_IGNORED_MASK
		if e := mark(r.j.group, undo, mask, r.j.links, r.link(fd)); e != 0 && e != unix.ENOENT {
			_ = r.j.Forget()
		}
	}
}

// ignorable are the events that need no answer for a file with such a decision.
func ignorable(acc glob.Accept) (mask uint64) {
	if acc.Allows(glob.Read) {
		mask |= unix.FAN_OPEN_PERM
	}
	if acc.Allows(glob.Exec) {
		mask |= unix.FAN_OPEN_EXEC_PERM
	}
	return mask
}

// link is the name of a descriptor below /proc/self/fd, with NUL.
func (r *reader) link(fd int) []byte {
	return append(strconv.AppendInt(r.name[:0], int64(fd), 10), 0)
}

// pathOf answers the path of an object as the jail sees it, nil when it is too long.
func (r *reader) pathOf(fd int, buf []byte) []byte {
	n, e := readlinkat(r.j.links, r.link(fd), buf)
	if e != 0 || n == len(buf) {
		return nil
	}
	return buf[:n]
}

// isSteady reports whether the file at path and others on its device, that of fd, change
// through this kernel and these inodes only, so that it can tell us.
func (j *Judge) isSteady(path []byte, dev uint64, fd int) bool {
	for _, top := range j.c.Layered {
		if rest, ok := bytes.CutPrefix(path, []byte(top)); ok && (len(rest) == 0 || rest[0] == '/') {
			return false
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	steady, known := j.steady[dev]
	if !known {
		var fs unix.Statfs_t
		if unix.Fstatfs(fd, &fs) != nil {
			return false
		}
		switch fs.Type {
		case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
			zfsMagic, bcachefsMagic, unix.SQUASHFS_MAGIC, unix.EROFS_SUPER_MAGIC_V1, unix.SYSFS_MAGIC:
			steady = true
		}
		j.steady[dev] = steady
	}
	return steady
}

// Not in package unix.
const (
	zfsMagic      = 0x2fc12fc1
	bcachefsMagic = 0xca451a4e
)

// report records a refusal.
func (r *reader) report(m *metadata, path []byte, op glob.Op) {
	if r.j.c.Emit == nil {
		return
	}
	e := event.Event{
		Kind: event.Open, Verdict: event.Deny, Errno: int(unix.EPERM), JailPid: m.pid, Path: string(path),
		Dev: r.st.Dev, Ino: r.st.Ino,
	}
	if op == glob.Exec {
		e.Kind = event.Exec
	}
	if exe, err := os.Readlink("/proc/" + strconv.Itoa(int(m.pid)) + "/exe"); err == nil {
		e.Exe = exe
	}
	if r.rules != nil {
		rule := r.acc.Rule[op]
		if rule >= glob.SomeRule {
			rule = glob.NoRule
		}
		e.Rule = r.rules.Text(rule)
	}
	r.j.c.Emit(e)
}
