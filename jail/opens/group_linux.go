package opens

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/policy/glob"
)

// NewGroup makes an fanotify group that asks for permission. It must be held, and its
// events answered, for as long as anything is marked.
//
// Preconditions: CAP_SYS_ADMIN on the host.
func NewGroup() (*os.File, error) {
	const flags = unix.FAN_CLASS_CONTENT | unix.FAN_CLOEXEC | unix.FAN_UNLIMITED_QUEUE | unix.FAN_UNLIMITED_MARKS
	fd, err := unix.FanotifyInit(flags, unix.O_RDONLY|unix.O_LARGEFILE|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOATIME)
	if err != nil {
		return nil, fmt.Errorf("make fanotify group: %w", err)
	}
	return os.NewFile(uintptr(fd), "fanotify"), nil
}

// judged are the acts that are asked about.
const judged = unix.FAN_OPEN_PERM | unix.FAN_OPEN_EXEC_PERM

// Marks says what on the mount at target the rules may refuse: a mask of events, 0 for
// nothing. Slow for a large policy: keep the answer.
func Marks(rules *glob.Automaton, target string) (mask uint64) {
	at := rules.Walk(target)
	if !rules.Everywhere(at, 1<<glob.Read) {
		mask |= unix.FAN_OPEN_PERM | unix.FAN_ONDIR
	}
	if !rules.Everywhere(at, 1<<glob.Exec) {
		mask |= unix.FAN_OPEN_EXEC_PERM
	}
	return mask
}

// Covered reports whether the rules refuse reading nothing of /proc but the files and
// trees of masks, which are absolute paths directly below it: whether a procfs that
// cannot be marked needs no mark.
func Covered(rules *glob.Automaton, masks []string) bool {
	names := make([]string, 0, len(masks))
	for _, m := range masks {
		names = append(names, strings.TrimPrefix(m, "/proc/"))
	}
	return rules.Everywhere(rules.Walk("/proc"), 1<<glob.Read, names...)
}

// Mark marks the mounts in the mount namespace of the process pid, which has built its
// jail and run nothing of the agent's. need answers what of a mount is asked about.
// A mount that another one hides cannot be reached and is left out.
func Mark(group *os.File, pid int, need func(target string) uint64) error {
	return markAll(group, pid, need, false)
}

// MarkMore is Mark for a jail in which the agent runs: it may move what leads to a mount
// while that is looked for, so one that cannot be reached is an error.
func MarkMore(group *os.File, pid int, need func(target string) uint64) error {
	return markAll(group, pid, need, true)
}

func markAll(group *os.File, pid int, need func(target string) uint64, all bool) error {
	dir := "/proc/" + strconv.Itoa(pid)
	f, err := os.Open(dir + "/mountinfo")
	if err != nil {
		return err
	}
	mounts, err := mountinfo.GetMountsFromReader(bufio.NewReader(f), nil)
	_ = f.Close()
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	root, err := unix.Open(dir+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open root of %d: %w", pid, err)
	}
	defer unix.Close(root)
	for _, m := range mounts {
		if m.FSType == "proc" {
			continue // cannot be marked: see Covered
		}
		mask := need(m.Mountpoint)
		if mask == 0 {
			continue
		}
		if err := markMount(group, root, m, mask, all); err != nil {
			return fmt.Errorf("mark %s (%s): %w", m.Mountpoint, m.FSType, err)
		}
	}
	return nil
}

func markMount(group *os.File, root int, m *mountinfo.Info, mask uint64, all bool) error {
	name := strings.TrimPrefix(m.Mountpoint, "/")
	if name == "" {
		name = "."
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(root, name, &how)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return err
	}
	if st.Mnt_id != uint64(m.ID) {
		if all {
			return unix.EBUSY
		}
		return nil // hidden
	}
	return unix.FanotifyMark(int(group.Fd()), unix.FAN_MARK_ADD|unix.FAN_MARK_MOUNT, mask, unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd))
}

// tryTimeout bounds the wait for an event of Try, in milliseconds.
const tryTimeout = 5000

// await waits until group has an event, for at most so many milliseconds without a signal.
func await(group *os.File, timeout int) error {
	wait := []unix.PollFd{{Fd: int32(group.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(wait, timeout)
		switch {
		case err == unix.EINTR: // Go's scheduler sends signals
		case err != nil:
			return fmt.Errorf("wait for an event: %w", err)
		case n == 0:
			return errors.New("no event came")
		default:
			return nil
		}
	}
}

// Try reports why permission events do not work here as this package needs them, on a
// throw-away file in dir: an open that is refused fails, an ignored file raises no event, and a
// write ends that.
func Try(dir string) error {
	f, err := os.CreateTemp(dir, "opens")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := f.Close(); err != nil { // a file that is open for writing is not ignored
		return err
	}
	group, err := NewGroup()
	if err != nil {
		return err
	}
	defer group.Close() // lets go what waits
	if err := unix.FanotifyMark(int(group.Fd()), unix.FAN_MARK_ADD, judged, unix.AT_FDCWD, f.Name()); err != nil {
		return fmt.Errorf("ask for permission events: %w", err)
	}
	open := func() <-chan error {
		done := make(chan error, 1)
		go func() {
			r, err := os.Open(f.Name())
			if err == nil {
				err = r.Close()
			}
			done <- err
		}()
		return done
	}
	one := func(response uint32) error {
		buf := make([]byte, 4096)
		if err := await(group, tryTimeout); err != nil {
			return err
		}
		n, e := read(int(group.Fd()), buf)
		if e != 0 {
			return e
		}
		m, n := first(buf[:n])
		if n == 0 || m.fd < 0 {
			return errors.New("not an event")
		}
		defer closeFD(int(m.fd))
		if e := respond(int(group.Fd()), m.fd, response); e != 0 {
			return e
		}
		return nil
	}
	// The mark that asks is kept with its inode, and so must be what is added to it; on dir, which
	// has none, the flags are those of the judge (Linux 5.19).
	ignore := func() error {
		err := unix.FanotifyMark(int(group.Fd()), ignoreFlags, judged, unix.AT_FDCWD, dir)
		if err != nil {
			return err
		}
		return unix.FanotifyMark(int(group.Fd()), ignoreFlags&^unix.FAN_MARK_EVICTABLE, judged, unix.AT_FDCWD, f.Name())
	}
	refused := func() error {
		done := open()
		if err := one(unix.FAN_DENY); err != nil {
			return err
		}
		if err := <-done; !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("a refused open answered %v", err)
		}
		return nil
	}
	if err := refused(); err != nil {
		return err
	}
	if err := ignore(); err != nil {
		return fmt.Errorf("ignore an inode: %w", err)
	}
	select {
	case err := <-open():
		if err != nil {
			return fmt.Errorf("open an ignored file: %w", err)
		}
	case <-time.After(tryTimeout * time.Millisecond):
		return errors.New("an ignored file is asked about") // group.Close lets the opener go
	}
	if err := os.WriteFile(f.Name(), []byte("x"), 0o600); err != nil { // ignored too
		return err
	}
	if err := refused(); err != nil {
		return fmt.Errorf("after a write: %w", err)
	}
	return nil
}
