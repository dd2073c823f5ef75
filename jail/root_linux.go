package jail

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// beneath is how every path of a plan is resolved: below the root that is built,
// through no symlink. A link planted by an earlier session cannot lead a mount
// astray (CVE-2024-42472).
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// Root is a tree under construction. Whoever works on it has the rights to
// mount there and is not in a jail yet.
type Root struct {
	FD       int // descriptor of its top
	Scratch  int // directory elsewhere for files that are mounted over others; -1: none is
	Owner    int // uid and gid of what is made; -1: the maker's
	UID, GID int // of what belongs to the agent
}

// NewFS makes a detached mount of a new file system instance. Options are
// "key=value" or "flag".
func NewFS(kind string, attr int, options ...string) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", kind, err)
	}
	defer unix.Close(fs)
	for _, o := range options {
		k, v, found := strings.Cut(o, "=")
		if found {
			err = unix.FsconfigSetString(fs, k, v)
		} else {
			err = unix.FsconfigSetFlag(fs, k)
		}
		if err != nil {
			return -1, fmt.Errorf("configure %s %s: %w", kind, o, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("create %s: %w", kind, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attr)
	if err != nil {
		return -1, fmt.Errorf("mount %s: %w", kind, err)
	}
	return fd, nil
}

// NewTmpfs makes a detached tmpfs as an entry of kind Tmpfs wants it.
func NewTmpfs(size uint64, mode uint32) (int, error) {
	return NewFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, fmt.Sprintf("size=%d", size), fmt.Sprintf("mode=%#o", mode), "nr_inodes=1m")
}

// bases are directories that every host has one of.
var bases = []string{"/tmp", "/run", "/mnt", "/srv"}

// Cover mounts the detached mount fd over a directory of the host. The caller
// has a mount namespace of its own, with nothing shared.
func Cover(fd int) error {
	var err error
	for _, b := range bases {
		if err = unix.MoveMount(fd, "", unix.AT_FDCWD, b, unix.MOVE_MOUNT_F_EMPTY_PATH); err == nil {
			return nil
		}
	}
	return fmt.Errorf("attach root: %w", err)
}

// Pivot makes the mount at the directory fd the root of the calling process and
// drops the old root with everything in it.
func Pivot(fd int) error {
	if err := unix.Fchdir(fd); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach old root: %w", err)
	}
	return unix.Chdir("/")
}

// Place makes one entry of a plan; fd is the detached mount of a Bind, which
// stays the caller's.
func (r Root) Place(m Mount, fd int) error {
	var err error
	switch m.Kind {
	case Bind:
		err = r.Attach(fd, m.Target, m.IsDir)
	case Dir:
		err = r.makeDir(m)
	case Point:
		fd, err = r.point(m.Target, m.IsDir)
		if err == nil {
			_ = unix.Close(fd)
		}
	case File:
		err = r.makeFile(m)
	case Symlink:
		err = r.makeLink(m)
	case Tmpfs:
		if fd, err = NewTmpfs(m.Size, m.Mode); err == nil {
			err = r.Attach(fd, m.Target, true)
			_ = unix.Close(fd)
		}
	default:
		err = errors.New("unknown kind")
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", m.Kind, m.Target, err)
	}
	return nil
}

// Attach moves the mount fd to target, making the mount point.
func (r Root) Attach(fd int, target string, dir bool) error {
	point, err := r.point(target, dir)
	if err != nil {
		return err
	}
	defer unix.Close(point)
	return unix.MoveMount(fd, "", point, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// Open opens what is at the absolute path p of the root, as O_PATH.
func (r Root) Open(p string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: beneath}
	return unix.Openat2(r.FD, strings.TrimPrefix(p, "/"), &how)
}

// point opens the mount point at target and makes what is missing.
func (r Root) point(target string, dir bool) (int, error) {
	if fd, err := r.Open(target); !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if dir {
		return r.mkdirAll(target)
	}
	parent, err := r.mkdirAll(path.Dir(target))
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	how := unix.OpenHow{Flags: unix.O_CREAT | unix.O_EXCL | unix.O_RDONLY | unix.O_CLOEXEC, Mode: 0o444, Resolve: beneath}
	fd, err := unix.Openat2(parent, path.Base(target), &how)
	if err != nil {
		return -1, err
	}
	if err := r.own(fd, ""); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// own gives what was made to the owner.
func (r Root) own(dir int, name string) error {
	if r.Owner < 0 {
		return nil
	}
	return unix.Fchownat(dir, name, r.Owner, r.Owner, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
}

// mkdirAll opens the directory at the absolute path dir of the root, making
// what is missing.
func (r Root) mkdirAll(dir string) (int, error) {
	at, err := unix.Openat2(r.FD, ".", &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: beneath})
	if err != nil {
		return -1, err
	}
	for name := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if name == "" {
			continue
		}
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: beneath}
		next, err := unix.Openat2(at, name, &how)
		if errors.Is(err, unix.ENOENT) {
			if err = unix.Mkdirat(at, name, 0o755); err == nil {
				err = r.own(at, name)
			}
			if err == nil || errors.Is(err, unix.EEXIST) {
				next, err = unix.Openat2(at, name, &how)
			}
		}
		_ = unix.Close(at)
		if err != nil {
			return -1, fmt.Errorf("directory %s of %s: %w", name, dir, err)
		}
		at = next
	}
	return at, nil
}

func (r Root) makeDir(m Mount) error {
	fd, err := r.mkdirAll(m.Target)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if m.Agent {
		if err := unix.Fchownat(fd, "", r.UID, r.GID, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	if m.Mode == 0o755 {
		return nil // as made
	}
	return unix.Fchmodat(fd, ".", m.Mode, 0)
}

func (r Root) makeLink(m Mount) error {
	parent, err := r.mkdirAll(path.Dir(m.Target))
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if err := unix.Symlinkat(m.Data, parent, path.Base(m.Target)); err != nil {
		return err
	}
	return r.own(parent, path.Base(m.Target))
}

// makeFile writes a file of ours. Where the host's tree is mounted around it,
// the file is mounted over the host's; where the host has none, there is none.
func (r Root) makeFile(m Mount) error {
	parent, err := r.mkdirAll(path.Dir(m.Target))
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	err = r.write(parent, path.Base(m.Target), m.Data)
	switch {
	case errors.Is(err, unix.EROFS):
		return nil
	case !errors.Is(err, unix.EEXIST):
		return err
	}
	return r.coverFile(m)
}

// coverFile mounts a file over an existing one.
func (r Root) coverFile(m Mount) error {
	if r.Scratch < 0 {
		return unix.EEXIST
	}
	name := strings.ReplaceAll(m.Target, "/", "_")
	if err := r.write(r.Scratch, name, m.Data); err != nil {
		return err
	}
	defer func() { _ = unix.Unlinkat(r.Scratch, name, 0) }() // the mount keeps it
	tree, err := Veil(r.Scratch, name)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return r.Attach(tree, m.Target, false)
}

// Veil clones the file or directory name in dir (name "": dir itself) into a
// detached read-only mount, for covering others.
func Veil(dir int, name string) (int, error) {
	tree, err := unix.OpenTree(dir, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, fmt.Errorf("clone cover: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		_ = unix.Close(tree)
		return -1, fmt.Errorf("make cover read-only: %w", err)
	}
	return tree, nil
}

func (r Root) write(dir int, name, data string) error {
	how := unix.OpenHow{Flags: unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_CLOEXEC, Mode: 0o644, Resolve: beneath}
	fd, err := unix.Openat2(dir, name, &how)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err = unix.Write(fd, []byte(data)); err != nil {
		return err
	}
	return r.own(fd, "")
}
