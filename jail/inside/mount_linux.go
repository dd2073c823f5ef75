package inside

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
)

// staged are the descriptors of what init prepares before it knows the jail: a
// tmpfs for the time being, and the file systems that hang on namespaces.
type staged struct {
	root, proc, pts int
	scratch         []scratch
}

// scratch is a tmpfs that some entry of the plan may want.
type scratch struct {
	size uint64
	mode uint32
	fd   int
}

// makeScratch makes the tmpfs of a plan whose policy asks for the size that is
// expected.
func (s *state) makeScratch() error {
	for _, want := range []scratch{{s.tmp, 0o1777, -1}, {s.tmp, 0o1777, -1}, {s.tmp, 0o1777, -1}, {jail.RunTmp, 0o755, -1}} {
		fd, err := jail.NewTmpfs(want.size, want.mode)
		if err != nil {
			return err
		}
		want.fd = fd
		s.stage.scratch = append(s.stage.scratch, want)
	}
	return nil
}

// placeScratch mounts a tmpfs: one that is there already, or a new one.
func (s *state) placeScratch(m jail.Mount) error {
	i := slices.IndexFunc(s.stage.scratch, func(t scratch) bool { return t.size == m.Size && t.mode == m.Mode })
	if i < 0 {
		return s.root.Place(m, -1)
	}
	fd := s.stage.scratch[i].fd
	s.stage.scratch = slices.Delete(s.stage.scratch, i, i+1)
	defer unix.Close(fd)
	return s.root.Attach(fd, m.Target, true)
}

// setStage makes a tmpfs that nobody else sees and mounts it somewhere.
func (s *state) setStage() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	fd, err := jail.NewFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "size=64k", "mode=0755")
	if err != nil {
		return err
	}
	s.stage.root = fd
	return jail.Cover(fd)
}

// mountProc mounts the jail's procfs on the stage, while the host's is still
// mounted: the kernel wants to see a whole one (mount_too_revealing). What it
// tells about the host is covered: files with an empty file, directories with
// an empty directory.
func (s *state) mountProc() (err error) {
	s.stage.proc, err = jail.NewFS("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "hidepid=invisible")
	if err != nil {
		return err
	}
	stage := jail.Root{FD: s.stage.root, Scratch: -1, Owner: -1}
	if err := stage.Attach(s.stage.proc, "/proc", true); err != nil {
		return err
	}
	for _, m := range []jail.Mount{{Kind: jail.Dir, Target: "/empty", Mode: 0o555}, {Kind: jail.File, Target: "/nothing"}} {
		if err := stage.Place(m, -1); err != nil {
			return err
		}
	}
	proc := jail.Root{FD: s.stage.proc}
	for _, m := range jail.ProcMasks {
		at, err := proc.Open(strings.TrimPrefix(m, "/proc"))
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			err = s.cover(at)
			_ = unix.Close(at)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return nil
}

// cover mounts nothing over what is at the descriptor.
func (s *state) cover(at int) error {
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return err
	}
	name := "nothing"
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		name = "empty"
	}
	veil, err := jail.Veil(s.stage.root, name)
	if err != nil {
		return err
	}
	defer unix.Close(veil)
	return unix.MoveMount(veil, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// mountPts makes the jail's own terminals.
func (s *state) mountPts() (err error) {
	s.stage.pts, err = jail.NewFS("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "newinstance", "ptmxmode=0666", "mode=0600")
	return err
}

// leave makes the stage the root: nothing of the host's is mounted any more.
func (s *state) leave() error {
	if err := jail.Pivot(s.stage.root); err != nil {
		return err
	}
	return unix.Mkdir("/root", 0o755)
}

// takeTree attaches the tree that the helper made for the view.
func (s *state) takeTree() error {
	tree := int(s.parts[jail.PartTree].Fd())
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, "/root", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach tree: %w", err)
	}
	s.root = jail.Root{FD: tree, Scratch: -1, Owner: -1, UID: s.spec.UID, GID: s.spec.GID}
	return nil
}

// mountAll puts what is this jail's own on the tree.
func (s *state) mountAll() error {
	binds := s.parts[jail.PartMounts:]
	for _, m := range s.spec.Mounts {
		var err error
		switch m.Kind {
		case jail.Proc:
			err = s.root.Attach(s.stage.proc, m.Target, true)
		case jail.Devpts:
			err = s.root.Attach(s.stage.pts, m.Target, true)
		case jail.Tmpfs:
			err = s.placeScratch(m)
		case jail.Bind:
			err = s.root.Place(m, int(binds[0].Fd()))
			binds = binds[1:]
		case jail.Overlay:
			err = s.placeOverlay(m, int(binds[0].Fd()), int(binds[1].Fd()))
			binds = binds[2:]
		default:
			err = s.root.Place(m, -1)
		}
		if err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	return nil
}

// placeOverlay mounts an overlayfs: lower is the host's tree, layer the session's
// own directory. Its options name paths, and overlayfs takes only mounts of its
// caller's namespace (clone_private_mount, fs/namespace.c, until 6.15), so the two
// hang on the stage meanwhile; it keeps clones of its own.
//
// It is mounted here and not by the helper so that what the file system does in the
// agent's name, copying up above all, is done with the rights of this namespace's
// root and not of the host's (CVE-2021-3493, CVE-2023-0386).
func (s *state) placeOverlay(m jail.Mount, lower, layer int) error {
	stage := jail.Root{FD: s.stage.root, Scratch: -1, Owner: -1}
	for _, part := range []struct {
		name string
		fd   int
	}{{"/lower", lower}, {"/layer", layer}} {
		if err := stage.Attach(part.fd, part.name, true); err != nil {
			return fmt.Errorf("attach %s: %w", part.name, err)
		}
		defer func() { _ = unix.Unmount(part.name, unix.MNT_DETACH) }()
	}
	fd, err := jail.NewFS("overlay", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "lowerdir=/lower", "upperdir=/layer/upper", "workdir=/layer/work", "userxattr")
	if err != nil {
		return fmt.Errorf("this kernel, or its file system, takes no overlay there: %w", err)
	}
	defer unix.Close(fd)
	return s.root.Attach(fd, m.Target, true)
}

// pivot makes the jail's tree the root and closes every descriptor of mounts.
func (s *state) pivot() error {
	if err := jail.Pivot(s.root.FD); err != nil {
		return err
	}
	for _, fd := range []int{s.stage.root, s.stage.proc, s.stage.pts} {
		_ = unix.Close(fd)
	}
	for _, t := range s.stage.scratch {
		_ = unix.Close(t.fd)
	}
	for _, f := range s.parts[jail.PartTree:] {
		_ = f.Close()
	}
	s.parts = s.parts[:jail.PartTree]
	return nil
}
