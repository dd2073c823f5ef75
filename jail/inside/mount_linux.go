package inside

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
)

// beneath is how every path of the plan is resolved: below the new root,
// through no symlink. A link planted by an earlier session cannot lead a mount
// astray (CVE-2024-42472).
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// bases are directories a root can be built on; every host has one of them.
var bases = []string{"/tmp", "/run", "/mnt", "/srv"}

func (s *state) makeRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	tree, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "size=4m", "mode=0755")
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	for _, b := range bases {
		if err = unix.MoveMount(tree, "", unix.AT_FDCWD, b, unix.MOVE_MOUNT_F_EMPTY_PATH); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("attach root: %w", err)
	}
	if s.root, err = unix.Dup(tree); err != nil {
		return err
	}
	unix.CloseOnExec(s.root)
	return nil
}

// newFS makes a detached mount of a new file system instance. Options are
// "key=value" or "flag".
func newFS(kind string, attr int, options ...string) (int, error) {
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

func (s *state) mountAll() error {
	next := jail.FDMounts
	for _, m := range s.spec.Mounts {
		fd := -1
		if m.Kind == jail.Bind {
			fd = next
			next++
		}
		if err := s.place(m, fd); err != nil {
			return fmt.Errorf("%s %s: %w", m.Kind, m.Target, err)
		}
	}
	return nil
}

// place makes one entry of the plan; fd is the detached mount of a Bind.
func (s *state) place(m jail.Mount, fd int) error {
	switch m.Kind {
	case jail.Bind:
		defer unix.Close(fd)
		if m.IsDir {
			return s.attach(fd, m.Target, true)
		}
		return s.attach(fd, m.Target, false)
	case jail.Dir:
		return s.makeDir(m)
	case jail.File:
		return s.makeFile(m)
	case jail.Symlink:
		parent, err := s.mkdirAll(path.Dir(m.Target))
		if err != nil {
			return err
		}
		defer unix.Close(parent)
		return unix.Symlinkat(m.Data, parent, path.Base(m.Target))
	case jail.Tmpfs:
		options := []string{fmt.Sprintf("size=%d", m.Size), fmt.Sprintf("mode=%#o", m.Mode), "nr_inodes=1m"}
		return s.fresh("tmpfs", m.Target, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, options...)
	case jail.Proc:
		return s.fresh("proc", m.Target, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "hidepid=invisible")
	case jail.Devpts:
		return s.fresh("devpts", m.Target, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "newinstance", "ptmxmode=0666", "mode=0600")
	default:
		return fmt.Errorf("unknown kind")
	}
}

func (s *state) fresh(kind, target string, attr int, options ...string) error {
	fd, err := newFS(kind, attr, options...)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return s.attach(fd, target, true)
}

// attach moves the detached mount fd to target, making the mount point.
func (s *state) attach(fd int, target string, dir bool) error {
	point, err := s.mountPoint(target, dir)
	if err != nil {
		return err
	}
	defer unix.Close(point)
	return unix.MoveMount(fd, "", point, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

func (s *state) mountPoint(target string, dir bool) (int, error) {
	if dir {
		return s.mkdirAll(target)
	}
	parent, err := s.mkdirAll(path.Dir(target))
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: beneath}
	fd, err := unix.Openat2(parent, path.Base(target), &how)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	how = unix.OpenHow{Flags: unix.O_CREAT | unix.O_EXCL | unix.O_RDONLY | unix.O_CLOEXEC, Mode: 0o444, Resolve: beneath}
	return unix.Openat2(parent, path.Base(target), &how)
}

// mkdirAll opens the directory at the absolute path dir of the new root,
// making what is missing.
func (s *state) mkdirAll(dir string) (int, error) {
	at, err := unix.Openat2(s.root, ".", &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: beneath})
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
			if err = unix.Mkdirat(at, name, 0o755); err == nil || errors.Is(err, unix.EEXIST) {
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

func (s *state) makeDir(m jail.Mount) error {
	fd, err := s.mkdirAll(m.Target)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if m.Agent {
		if err := unix.Fchownat(fd, "", s.spec.UID, s.spec.GID, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	return unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), m.Mode, 0)
}

// makeFile writes a file of ours. Where the host's tree is mounted around it,
// the file is mounted over the host's; where the host has none, there is none.
func (s *state) makeFile(m jail.Mount) error {
	parent, err := s.mkdirAll(path.Dir(m.Target))
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	err = write(parent, path.Base(m.Target), m.Data)
	switch {
	case errors.Is(err, unix.EROFS):
		return nil
	case !errors.Is(err, unix.EEXIST):
		return err
	}
	return s.coverFile(m)
}

// coverFile mounts a file over an existing one. It lies where the private /run
// will hide it.
func (s *state) coverFile(m jail.Mount) error {
	dir, err := s.mkdirAll("/run/.files")
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	name := strings.ReplaceAll(m.Target, "/", "_")
	if err := write(dir, name, m.Data); err != nil {
		return err
	}
	tree, err := unix.OpenTree(dir, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("clone file: %w", err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("make file read-only: %w", err)
	}
	return s.attach(tree, m.Target, false)
}

func write(dir int, name, data string) error {
	how := unix.OpenHow{Flags: unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_CLOEXEC, Mode: 0o644, Resolve: beneath}
	fd, err := unix.Openat2(dir, name, &how)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(data))
	return err
}

// maskAll covers what procfs tells about the host: files with /dev/null,
// directories with one empty read-only directory.
func (s *state) maskAll() error {
	null, err := unix.Openat2(s.root, "dev/null", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: beneath})
	if err != nil {
		return fmt.Errorf("find /dev/null: %w", err)
	}
	defer unix.Close(null)
	empty, err := s.mkdirAll("/run/.empty")
	if err != nil {
		return err
	}
	defer unix.Close(empty)
	for _, m := range s.spec.Masks {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: beneath}
		at, err := unix.Openat2(s.root, strings.TrimPrefix(m, "/"), &how)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
		err = cover(at, null, empty)
		_ = unix.Close(at)
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return nil
}

func cover(at, null, empty int) error {
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return err
	}
	source := null
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		source = empty
	}
	tree, err := unix.OpenTree(source, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("clone cover: %w", err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("set cover read-only: %w", err)
	}
	return unix.MoveMount(tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

func (s *state) pivot() error {
	if err := unix.Fchdir(s.root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	_ = unix.Close(s.root)
	s.root = -1
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &attr); err != nil {
		return fmt.Errorf("make root read-only: %w", err)
	}
	return nil
}
