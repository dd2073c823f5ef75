package jail

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Attach says how a host object appears in a jail.
type Attach struct {
	ReadOnly bool
	NoExec   bool
	IDMap    *os.File // user namespace, nil for none
}

// Detach clones the mount tree at fd (an O_PATH descriptor in this process'
// mount namespace) into a detached one with the attributes of a, on all mounts
// of the tree. nosuid and nodev are always set, except that a device node keeps
// nodev off: it is what was asked for.
//
// Errors: unix.EINVAL when a file system of the tree cannot be idmapped
// (mount_setattr(2)), unix.EPERM without privilege.
func Detach(fd int, a Attach) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat: %w", err)
	}
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	at := uint(unix.AT_EMPTY_PATH)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		flags |= unix.AT_RECURSIVE
		at |= unix.AT_RECURSIVE
	}
	tree, err := unix.OpenTree(fd, "", flags)
	if err != nil {
		return nil, fmt.Errorf("clone mount: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR {
		attr = unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC, Attr_clr: unix.MOUNT_ATTR_NODEV}
	}
	if a.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if a.NoExec {
		attr.Attr_set |= unix.MOUNT_ATTR_NOEXEC
	}
	// A private copy: nothing that is mounted later on either side travels.
	attr.Propagation = unix.MS_PRIVATE
	if err := unix.MountSetattr(tree, "", at, &attr); err != nil {
		_ = unix.Close(tree)
		return nil, fmt.Errorf("set mount attributes: %w", err)
	}
	if a.IDMap != nil {
		im := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(a.IDMap.Fd())}
		if err := unix.MountSetattr(tree, "", at, &im); err != nil {
			_ = unix.Close(tree)
			return nil, fmt.Errorf("idmap mount: %w", err)
		}
	}
	return os.NewFile(uintptr(tree), "mount"), nil
}

// Handout returns an O_PATH descriptor, for a user, of the directory at fd (O_PATH,
// in this process' mount namespace): read-only, without programs, devices and
// set-id bits, with the ids that idmap shows (nil: as they are). Its mount is in
// no namespace any more, so that nobody can mount it anywhere or change what it
// permits, whatever namespaces they make: open_tree(2), move_mount(2) and
// mount_setattr(2) want an attached mount or the root of a detached one.
//
// Errors: unix.EINVAL when the file system cannot be idmapped.
func Handout(fd int, idmap *os.File) (*os.File, error) {
	m, err := Detach(fd, Attach{ReadOnly: true, NoExec: true, IDMap: idmap})
	if err != nil {
		return nil, err
	}
	defer m.Close() // dissolves the mount's namespace
	top, err := unix.Openat2(int(m.Fd()), ".", &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: beneath})
	if err != nil {
		return nil, fmt.Errorf("open handed-out directory: %w", err)
	}
	return os.NewFile(uintptr(top), "handout"), nil
}

// Memfd returns a sealed memfd with data as its whole content.
func Memfd(name string, data []byte, exec bool) (*os.File, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	mode := unix.MFD_NOEXEC_SEAL
	if exec {
		mode = unix.MFD_EXEC
	}
	fd, err := unix.MemfdCreate(name, flags|mode)
	if errors.Is(err, unix.EINVAL) { // before 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("make memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(data); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("fill memfd: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("seal memfd: %w", err)
	}
	return f, nil
}
