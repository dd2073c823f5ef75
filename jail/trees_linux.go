package jail

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How many trees are kept, and for how long after their last use: a kept tree
// keeps the host's file systems busy that it shows.
const (
	maxTrees = 8
	keepTree = time.Minute
)

// Trees makes the read-only trees of jails and keeps the latest, because cloning
// one is a single system call and making one takes hundreds. They live in a
// mount namespace that belongs to one thread of this process and has nothing
// else in it. It is safe for concurrent use.
//
// A kept tree shows what the host's paths led to when it was made. It is used for as
// long as the mounts that matter to it are the same, see [Ground].
type Trees struct {
	calls  chan func()
	ended  chan struct{}
	mounts int // mountinfo of the host: its poll says when that changed

	mu      sync.Mutex
	kept    []keptTree // latest last
	made    int
	changes uint64 // of the host's mounts that were seen, from 1
	info    string // mountinfo after the last of them
	expire  *time.Timer

	scratch int // directory for covers, in the keeper's namespace
}

type keptTree struct {
	key  string
	on   Ground
	fd   int    // top of the tree
	name string // of its directory in the keeper's root
	used time.Time
	next *os.File // a clone that nobody has yet; nil while one is made
}

// NewTrees starts the keeper. The host is the mount namespace of the calling thread.
func NewTrees() (*Trees, error) {
	// Not an os.File: the runtime would poll it, and a change is told once only.
	mounts, err := unix.Open("/proc/thread-self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open mountinfo: %w", err)
	}
	t := &Trees{calls: make(chan func()), ended: make(chan struct{}), mounts: mounts, scratch: -1}
	ready := make(chan error, 1)
	go t.keep(ready) // ends with Close
	if err := <-ready; err != nil {
		_ = unix.Close(mounts)
		return nil, fmt.Errorf("make namespace for trees: %w", err)
	}
	t.expire = time.AfterFunc(keepTree, t.drop)
	return t, nil
}

// keep owns the thread of the namespace; the thread ends with it.
func (t *Trees) keep(ready chan<- error) {
	defer close(t.ended)
	runtime.LockOSThread()
	err := t.seclude()
	ready <- err
	if err != nil {
		return
	}
	for f := range t.calls {
		f()
	}
}

// seclude gives the calling thread a mount namespace with an empty root.
func (t *Trees) seclude() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	root, err := NewFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "size=1m", "mode=0700")
	if err != nil {
		return err
	}
	defer unix.Close(root)
	if err := Cover(root); err != nil {
		return err
	}
	if err := Pivot(root); err != nil {
		return err
	}
	if err := unix.Mkdir("/scratch", 0o700); err != nil {
		return err
	}
	t.scratch, err = unix.Open("/scratch", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

// run calls f on the keeper's thread.
func (t *Trees) run(f func() error) error {
	done := make(chan error, 1)
	t.calls <- func() { done <- f() }
	return <-done
}

// Clone returns a detached copy of the tree of that key, which says everything
// that decides what is in it, except the mounts: ground is those of its sources now.
// When none is kept, it is made of plan, with the detached mounts that binds returns
// for its Bind entries, in order; owner is the host id that everything in it belongs
// to but the agent's.
func (t *Trees) Clone(key string, ground Ground, plan []Mount, owner uint32, agent int, binds func() ([]*os.File, error)) (*os.File, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.kept, func(k keptTree) bool { return k.key == key })
	if i >= 0 && !t.kept[i].on.Like(ground) {
		old := t.kept[i]
		t.kept = slices.Insert(slices.Delete(t.kept, i, i+1), 0, old)
		t.forget(1)
		i = -1
	}
	if i < 0 {
		k, err := t.make(plan, owner, agent, binds)
		if err != nil {
			return nil, err
		}
		k.key, k.on = key, ground
		if t.look(); t.changes != ground.changes {
			k.on = Ground{} // who knows which mounts it is made of
		}
		t.kept = append(t.kept, k)
		t.forget(max(0, len(t.kept)-maxTrees))
		i = len(t.kept) - 1
	}
	k := t.kept[i]
	k.used = time.Now()
	tree := k.next
	if k.next = nil; tree == nil {
		var err error
		if tree, err = t.copy(k.fd); err != nil {
			return nil, err
		}
	}
	t.kept = append(slices.Delete(t.kept, i, i+1), k)
	t.expire.Reset(keepTree)
	go t.prepare(k.name) // ends with the one call
	return tree, nil
}

// copy clones the tree at fd.
func (t *Trees) copy(fd int) (*os.File, error) {
	var tree int
	err := t.run(func() (err error) {
		tree, err = unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("clone tree: %w", err)
	}
	return os.NewFile(uintptr(tree), "tree"), nil
}

// prepare has a clone ready for the next who wants the tree of that name.
func (t *Trees) prepare(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.kept, func(k keptTree) bool { return k.name == name && k.next == nil })
	if i < 0 {
		return
	}
	if next, err := t.copy(t.kept[i].fd); err == nil {
		t.kept[i].next = next // else the next Clone says why
	}
}

// changed reports whether the host's mounts did since the last call
// (proc_pid_mountinfo(5): POLLERR after a change, once).
func (t *Trees) changed() bool {
	p := []unix.PollFd{{Fd: int32(t.mounts), Events: unix.POLLPRI}}
	n, err := unix.Poll(p, 0)
	return err != nil || n > 0 && p[0].Revents&(unix.POLLERR|unix.POLLPRI) != 0
}

func (t *Trees) make(plan []Mount, owner uint32, agent int, binds func() ([]*os.File, error)) (_ keptTree, err error) {
	files, err := binds()
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	if err != nil {
		return keptTree{}, err
	}
	t.made++
	k := keptTree{fd: -1, name: strconv.Itoa(t.made)}
	err = t.run(func() error {
		err := t.build(&k, plan, files, int(owner), int(owner)+agent)
		if err != nil {
			err = errors.Join(err, k.remove())
		}
		return err
	})
	return k, err
}

// build runs on the keeper's thread.
func (t *Trees) build(k *keptTree, plan []Mount, files []*os.File, owner, agent int) error {
	fs, err := NewFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "size=4m", "mode=0755", fmt.Sprintf("uid=%d", owner), fmt.Sprintf("gid=%d", owner))
	if err != nil {
		return err
	}
	k.fd = fs
	if err := unix.Mkdir("/"+k.name, 0o700); err != nil {
		return err
	}
	if err := unix.MoveMount(fs, "", unix.AT_FDCWD, "/"+k.name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach tree: %w", err)
	}
	root := Root{FD: fs, Scratch: t.scratch, Owner: owner, UID: agent, GID: agent}
	for _, m := range plan {
		fd := -1
		if m.Kind == Bind {
			if len(files) == 0 {
				return fmt.Errorf("%w: no descriptor for %s", ErrPlan, m.Target)
			}
			fd, files = int(files[0].Fd()), files[1:]
		}
		if err := root.Place(m, fd); err != nil {
			return err
		}
	}
	if err := makeReadOnly(fs); err != nil {
		return fmt.Errorf("make tree read-only: %w", err)
	}
	return nil
}

// makeReadOnly makes the mount fs read-only. The kernel answers EBUSY while a file in it
// is open for writing, and one that was just written is for as long as a child that
// another thread forked meanwhile, with copies of all descriptors, has not executed
// its program.
func makeReadOnly(fs int) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	for wait := 100 * time.Microsecond; ; wait *= 2 {
		err := unix.MountSetattr(fs, "", unix.AT_EMPTY_PATH, &attr)
		if err != unix.EBUSY || wait > time.Second {
			return err
		}
		time.Sleep(wait)
	}
}

// remove runs on the keeper's thread.
func (k keptTree) remove() error {
	if k.fd < 0 {
		return nil
	}
	if k.next != nil {
		_ = k.next.Close()
	}
	err := unix.Unmount("/"+k.name, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) {
		err = nil // never attached
	}
	return errors.Join(err, unix.Close(k.fd), unix.Rmdir("/"+k.name))
}

// forget drops the n oldest. t.mu is held.
func (t *Trees) forget(n int) {
	old := slices.Clone(t.kept[:n])
	t.kept = slices.Delete(t.kept, 0, n)
	if len(old) == 0 {
		return
	}
	_ = t.run(func() error { // a tree that cannot be removed goes with the namespace
		for _, k := range old {
			_ = k.remove()
		}
		return nil
	})
}

// drop forgets what has not been used for a while.
func (t *Trees) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		return
	}
	limit := time.Now().Add(-keepTree)
	n := slices.IndexFunc(t.kept, func(k keptTree) bool { return k.used.After(limit) })
	if n < 0 {
		n = len(t.kept)
	}
	t.forget(n)
	if len(t.kept) > 0 {
		t.expire.Reset(keepTree)
	}
}

// Close drops all trees and ends the keeper. Idempotent.
func (t *Trees) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		return nil
	}
	t.expire.Stop()
	t.forget(len(t.kept))
	close(t.calls)
	<-t.ended
	t.calls = nil
	if t.scratch >= 0 {
		_ = unix.Close(t.scratch)
	}
	return unix.Close(t.mounts)
}
