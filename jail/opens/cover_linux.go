package opens

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// CoverMore is [Fifos] for a jail in which the agent runs, whose init is the process pid, after
// its rules have changed: the FIFOs below targets that may not be read are covered with an empty
// file. The mounts are new, and to be marked ([Mark]).
//
// The rules must hold already, so that the agent cannot move what they deny. What the host moves
// meanwhile is not found. A FIFO that has been opened stays open.
//
// Preconditions: CAP_SYS_ADMIN and CAP_SYS_CHROOT on the host.
func CoverMore(pid int, targets []string, until time.Time, allows func(path string) bool) (Found, error) {
	type answer struct {
		Found
		err error
	}
	done := make(chan answer)
	go func() {
		runtime.LockOSThread() // for good: the thread is in the jail's mount namespace and ends with the goroutine
		f, err := coverIn(pid, targets, until, allows)
		done <- answer{f, err}
	}()
	a := <-done
	return a.Found, a.err
}

// coverIn takes the calling thread into the mount namespace of pid.
func coverIn(pid int, targets []string, until time.Time, allows func(path string) bool) (all Found, err error) {
	ns, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return all, fmt.Errorf("open mount namespace of %d: %w", pid, err)
	}
	defer unix.Close(ns)
	empty, err := emptyFile()
	if err != nil {
		return all, fmt.Errorf("make an empty file: %w", err)
	}
	defer unix.Close(empty)
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return all, os.NewSyscallError("unshare", err)
	}
	if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
		return all, os.NewSyscallError("setns", err)
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return all, err
	}
	defer unix.Close(root)
	for _, target := range targets {
		f, err := coverBelow(root, target, empty, until, allows)
		if err != nil {
			return all, fmt.Errorf("cover FIFOs of %s: %w", target, err)
		}
		all.Covered += f.Covered
		all.Dirs += f.Dirs
		all.Partial = all.Partial || f.Partial
	}
	return all, nil
}

// coverBelow walks a copy of the mount at target, which is not marked, so that nobody is asked about
// our opens, and covers in the mount itself.
func coverBelow(root int, target string, empty int, until time.Time, allows func(path string) bool) (Found, error) {
	const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	at, err := unix.Openat2(root, "."+target, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve})
	if err == unix.ENOTDIR || err == unix.ENOENT || err == unix.ELOOP { // a file, nothing or a link in this jail: no mount with directories
		return Found{}, nil
	}
	if err != nil {
		return Found{}, err
	}
	defer unix.Close(at)
	top, err := unix.OpenTree(at, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return Found{}, os.NewSyscallError("open_tree", err)
	}
	defer unix.Close(top)
	skipped := 0
	w := walk{top: top, base: target, until: until, allows: allows}
	w.cover = func(fd int, below string) error {
		place, err := unix.Openat2(at, below, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: resolve | unix.RESOLVE_NO_XDEV})
		switch {
		case err == unix.EXDEV: // covered before
			skipped++
			return nil
		case err == unix.ENOENT, err == unix.ELOOP, err == unix.ENOTDIR: // the host has moved it
			skipped++
			return nil
		case err != nil:
			return err
		}
		defer unix.Close(place)
		if !sameObject(fd, place) {
			skipped++
			return nil
		}
		veil, err := unix.OpenTree(empty, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return os.NewSyscallError("open_tree", err)
		}
		defer unix.Close(veil)
		return os.NewSyscallError("move_mount", unix.MoveMount(veil, "", place, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
	}
	f, err := w.all()
	f.Covered -= skipped
	return f, err
}

// sameObject reports whether two descriptors are of one inode.
func sameObject(a, b int) bool {
	var x, y unix.Stat_t
	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.Dev == y.Dev && x.Ino == y.Ino
}

// emptyFile makes a file without content or rights to change it, on a file system of its own.
func emptyFile() (int, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	if err := errors.Join(unix.FsconfigSetString(fs, "size", "4096"), unix.FsconfigSetString(fs, "nr_inodes", "2"), unix.FsconfigCreate(fs)); err != nil {
		return -1, os.NewSyscallError("fsconfig", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("fsmount", err)
	}
	defer unix.Close(mount)
	file, err := unix.Openat(mount, "nothing", unix.O_CREAT|unix.O_EXCL|unix.O_RDONLY|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return -1, os.NewSyscallError("openat", err)
	}
	_ = unix.Close(file)
	if err := unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return -1, os.NewSyscallError("mount_setattr", err)
	}
	empty, err := unix.OpenTree(mount, "nothing", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("open_tree", err)
	}
	return empty, nil
}
