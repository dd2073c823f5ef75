package changes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Keep copies a file or a tree of the session to the host. It checks all of it
// before it writes anything.
//
// Errors: a [*Refusal] for a name that is barred or taken, and for links on the
// way; others are of files that could not be read or written: what was copied
// until then stays.
func (s *Set) Keep(o Order, l Limits) (Result, error) {
	t, rel, ok := s.find(o.Path)
	if !ok {
		return Result{}, &Refusal{Path: o.Path, Why: "it is not in the session's home " + s.Home, Hint: "agentos changes lists what is"}
	}
	if rule := s.Bars.Named(o.Path); rule != nil && !o.Force {
		return Result{}, &Refusal{Path: o.Path, Rule: rule, Hint: barredHint}
	}
	w := newWalker(l)
	entries, err := w.walk(t, rel)
	if errors.Is(err, unix.ENOENT) {
		return Result{}, &Refusal{Path: o.Path, Why: "the session has no such file", Hint: "agentos changes lists what it made"}
	}
	if err != nil {
		return Result{}, err
	}
	switch {
	case w.totals.More:
		return Result{}, &Refusal{Path: o.Path, Why: fmt.Sprintf("it has more than %d files", w.totals.Names), Hint: "name directories in it"}
	case w.totals.Unread > 0:
		return Result{}, &Refusal{Path: o.Path, Why: fmt.Sprintf("%d of its directories cannot be read", w.totals.Unread), Hint: "name directories in it"}
	}
	d, err := s.destination(o)
	if err != nil {
		return Result{}, err
	}
	defer d.root.Close()
	k := &keeper{set: s, tree: t, rel: rel, to: d, force: o.Force}
	k.result.Path = path.Join(d.path, d.name)
	if err := k.check(entries); err != nil {
		return Result{}, err
	}
	for _, e := range k.plan {
		if err := k.copy(e); err != nil {
			return k.result, fmt.Errorf("keep %s: %w", k.hostPath(e), err)
		}
	}
	return k.result, nil
}

const barredHint = "look at it first; --force keeps it all the same"

// target is where on the host something goes: name below root, whose path is path.
type target struct {
	root *os.File // O_PATH
	path string
	name string // clean, relative
}

// destination opens where o goes, with the caller's rights.
func (s *Set) destination(o Order) (target, error) {
	dir, name := s.Home, strings.TrimPrefix(o.Path, s.Home+"/")
	if o.To != "" {
		abs, err := filepath.Abs(o.To)
		if err != nil {
			return target{}, err
		}
		dir, name = abs, path.Base(o.Path)
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return target{}, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	f := os.NewFile(uintptr(fd), dir)
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err == nil && real != dir && !o.Force { // an agent may have planted the link, in a workspace say
		err = &Refusal{Path: o.Path, Why: fmt.Sprintf("%s is %s: a link leads there", dir, real), Hint: "name " + real + " itself"}
	}
	if err != nil {
		_ = f.Close()
		return target{}, err
	}
	return target{f, real, name}, nil
}

// keeper copies one order.
type keeper struct {
	set    *Set
	tree   Tree
	rel    string // of what is kept, below the tree
	to     target
	force  bool
	plan   []Entry
	result Result
}

// name is the path of e below the target's root.
func (k *keeper) name(e Entry) string {
	return path.Join(k.to.name, strings.TrimPrefix(strings.TrimPrefix(e.Rel, k.rel), "/"))
}

func (k *keeper) hostPath(e Entry) string { return path.Join(k.to.path, k.name(e)) }

// check decides about every entry before any is copied.
func (k *keeper) check(entries []Entry) error {
	var first *Refusal
	refuse := func(r *Refusal) {
		if first == nil {
			first = r
		} else {
			first.More++
		}
	}
	for _, e := range entries {
		switch e.Kind {
		case FIFO, Socket, Device:
			k.result.leave(k.hostPath(e), "it is a "+string(e.Kind))
			continue
		case Removed:
			k.result.leave(k.hostPath(e), "the session removed it; the host keeps its own")
			continue
		case Link:
			if why := k.stays(e); why != "" {
				k.result.leave(k.hostPath(e), why)
				continue
			}
		}
		k.plan = append(k.plan, e)
		for _, p := range []string{k.hostPath(e), path.Join(k.tree.Path, e.Rel)} {
			if rule := k.set.Bars.Named(p); rule != nil && !k.force {
				refuse(&Refusal{Path: p, Rule: rule, Hint: barredHint})
				break
			}
		}
		if r := k.taken(e); r != nil {
			refuse(r)
		}
	}
	if first != nil {
		return first
	}
	if len(k.plan) == 0 {
		return &Refusal{Path: k.result.Path, Why: "nothing of it can be kept: " + strings.Join(k.result.Left, "; ")}
	}
	return nil
}

// taken reports whether the host has something else at e's place.
func (k *keeper) taken(e Entry) *Refusal {
	f, err := openBelow(int(k.to.root.Fd()), k.name(e), unix.O_PATH|unix.O_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EXDEV):
		return &Refusal{Path: k.hostPath(e), Why: "a link, a file or another file system is in the way on the host", Hint: "--to DIR copies it elsewhere"}
	case err != nil:
		return &Refusal{Path: k.hostPath(e), Why: err.Error()}
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return &Refusal{Path: k.hostPath(e), Why: err.Error()}
	}
	dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	switch {
	case dir && e.Kind == Dir:
		return nil // it is filled
	case dir != (e.Kind == Dir):
		return &Refusal{Path: k.hostPath(e), Why: "the host has a directory where the session has none, or the other way round", Hint: "--to DIR copies it elsewhere"}
	case !k.force:
		return &Refusal{Path: k.hostPath(e), Why: "the host has one already", Hint: "--force replaces it, --to DIR copies it elsewhere"}
	}
	return nil
}

// stays reports why a link cannot be kept, "" if it leads to a place inside of what
// is kept. Only what goes up first and then down can be judged by its text: a name
// on the way may be a link itself, and ".." behind it lead anywhere.
func (k *keeper) stays(e Entry) string {
	to, err := k.readLink(e)
	if err != nil {
		return err.Error()
	}
	inner := strings.TrimPrefix(strings.TrimPrefix(e.Rel, k.rel), "/")
	if inner == "" {
		return fmt.Sprintf("it is a link to %q, and nothing else is kept", to)
	}
	depth := strings.Count(inner, "/") // directories between the top and the link
	down := false
	for part := range strings.SplitSeq(to, "/") {
		switch {
		case part == "" && !down && strings.HasPrefix(to, "/"):
			return fmt.Sprintf("it is a link to %q, not inside of what is kept", to)
		case part == "" || part == ".":
		case part != "..":
			down = true
		case down || depth == 0:
			return fmt.Sprintf("it is a link to %q, not inside of what is kept", to)
		default:
			depth--
		}
	}
	return ""
}

func (k *keeper) readLink(e Entry) (string, error) {
	f, err := openBelow(int(k.tree.dir.Fd()), e.Rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", buf)
	if err != nil || n == 0 || n == len(buf) {
		return "", errors.New("it is a link that cannot be read")
	}
	return string(buf[:n]), nil
}

// parent opens the directory on the host that e goes into, making what is missing.
func (k *keeper) parent(e Entry) (*os.File, error) {
	dir := path.Dir(k.name(e))
	f, err := openBelow(int(k.to.root.Fd()), dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if !errors.Is(err, unix.ENOENT) {
		return f, err
	}
	at := ""
	for part := range strings.SplitSeq(dir, "/") {
		above, err := openBelow(int(k.to.root.Fd()), at, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
		if err != nil {
			return nil, err
		}
		err = unix.Mkdirat(int(above.Fd()), part, 0o755)
		_ = above.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
		at = path.Join(at, part)
	}
	return openBelow(int(k.to.root.Fd()), dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
}

func (k *keeper) copy(e Entry) error {
	dir, err := k.parent(e)
	if err != nil {
		return err
	}
	defer dir.Close()
	name := path.Base(k.name(e))
	switch e.Kind {
	case Dir:
		err := unix.Mkdirat(int(dir.Fd()), name, e.Mode&0o777|0o700)
		if errors.Is(err, unix.EEXIST) {
			err = nil
		}
		return err
	case Link:
		to, err := k.readLink(e)
		if err != nil {
			return err
		}
		return k.place(dir, name, func(tmp string) error { return unix.Symlinkat(to, int(dir.Fd()), tmp) })
	}
	return k.place(dir, name, func(tmp string) error { return k.copyFile(e, dir, tmp) })
}

// place makes something under a name that nobody has and gives it its own name,
// which another may have only where that is forced.
func (k *keeper) place(dir *os.File, name string, make func(tmp string) error) error {
	tmp := fmt.Sprintf(".agentos-keep-%d-%d", os.Getpid(), k.result.Files)
	if err := make(tmp); err != nil {
		_ = unix.Unlinkat(int(dir.Fd()), tmp, 0)
		return err
	}
	flags := uint(unix.RENAME_NOREPLACE)
	if k.force {
		flags = 0
	}
	if err := unix.Renameat2(int(dir.Fd()), tmp, int(dir.Fd()), name, flags); err != nil {
		_ = unix.Unlinkat(int(dir.Fd()), tmp, 0)
		return err
	}
	k.result.Files++
	return nil
}

// copyFile copies the content of a regular file, holes as holes. What the agent
// makes of it meanwhile does not count: it is opened by its inode, and read up to
// the size that it had then.
func (k *keeper) copyFile(e Entry, dir *os.File, name string) error {
	at, err := openBelow(int(k.tree.dir.Fd()), e.Rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer at.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(at.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("it is no regular file any more")
	}
	in, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", at.Fd()), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, nameless, err := create(dir, name, uint64(st.Mode&0o777))
	if err != nil {
		return err
	}
	n, err := copyData(out, in, st.Size)
	k.result.Bytes += n
	if err == nil {
		err = out.Truncate(st.Size)
	}
	if err == nil {
		err = unix.UtimesNanoAt(int(out.Fd()), "", []unix.Timespec{st.Atim, st.Mtim}, unix.AT_EMPTY_PATH)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			err = nil // before 5.8; only the times are lost
		}
	}
	if err == nil && nameless {
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", out.Fd()), int(dir.Fd()), name, unix.AT_SYMLINK_FOLLOW)
	}
	return errors.Join(err, out.Close())
}

// create makes a file in dir that has no name until it is whole, so that nothing is left
// of a copy that was killed; where the file system has no such files, one of that name.
func create(dir *os.File, name string, mode uint64) (f *os.File, nameless bool, err error) {
	how := unix.OpenHow{Flags: unix.O_WRONLY | unix.O_TMPFILE | unix.O_CLOEXEC, Mode: mode, Resolve: resolve}
	fd, err := unix.Openat2(int(dir.Fd()), ".", &how)
	if err == nil {
		return os.NewFile(uintptr(fd), name), true, nil
	}
	how.Flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if fd, err = unix.Openat2(int(dir.Fd()), name, &how); err != nil {
		return nil, false, err
	}
	return os.NewFile(uintptr(fd), name), false, nil
}

// copyData copies the data below size and returns how many bytes that were.
func copyData(out, in *os.File, size int64) (int64, error) {
	var done int64
	for at := int64(0); at < size; {
		from, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return done, nil // a hole up to the end
		}
		if err != nil {
			return done, err
		}
		to, err := unix.Seek(int(in.Fd()), from, unix.SEEK_HOLE)
		if err != nil {
			return done, err
		}
		if to = min(to, size); from >= to {
			return done, nil
		}
		if _, err := in.Seek(from, io.SeekStart); err != nil {
			return done, err
		}
		if _, err := out.Seek(from, io.SeekStart); err != nil {
			return done, err
		}
		n, err := io.CopyN(out, in, to-from)
		done += n
		if errors.Is(err, io.EOF) {
			return done, nil // it was cut meanwhile
		}
		if err != nil {
			return done, err
		}
		at = to
	}
	return done, nil
}
