package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Freeze stops every process of the jail and returns when all are stopped. On
// error (ctx ended, a process in uninterruptible sleep) the group is thawed again.
func (g *Group) Freeze(ctx context.Context) error {
	if err := g.v2.write("cgroup.freeze", "1"); err != nil {
		return fmt.Errorf("freeze group %s: %w", g.name, err)
	}
	if err := g.wait(ctx, "frozen", 1); err != nil {
		return errors.Join(fmt.Errorf("freeze group %s: %w", g.name, err), g.Thaw())
	}
	return nil
}

// Hold stops every process of the jail before it next runs code of its own, and
// does not wait for that. Unlike [Group.Freeze] it holds as well what waits in the
// kernel for another process of the jail, which then does not answer: the group may
// never count as frozen.
func (g *Group) Hold() error {
	if err := g.v2.write("cgroup.freeze", "1"); err != nil {
		return fmt.Errorf("hold group %s: %w", g.name, err)
	}
	return nil
}

// Thaw lets the jail go on. It does not wait.
func (g *Group) Thaw() error {
	if err := g.v2.write("cgroup.freeze", "0"); err != nil {
		return fmt.Errorf("thaw group %s: %w", g.name, err)
	}
	return nil
}

// Empty waits until no live process is left in the jail.
func (g *Group) Empty(ctx context.Context) error {
	if err := g.wait(ctx, "populated", 0); err != nil {
		return fmt.Errorf("wait for group %s: %w", g.name, err)
	}
	return nil
}

// wait returns when cgroup.events has key with the wanted value. The kernel wakes
// pollers of that file (POLLPRI) on every change; the slices keep ctx alive.
func (g *Group) wait(ctx context.Context, key string, want uint64) error {
	fd, err := unix.Openat(int(g.v2.Fd()), "cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var buf [256]byte
	for {
		n, err := unix.Pread(fd, buf[:], 0)
		if err != nil {
			return err
		}
		if got, ok := field(buf[:n], key); ok && got == want {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		const slice = 20 // ms
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}
		if _, err := unix.Poll(poll, slice); err != nil && err != unix.EINTR {
			return err
		}
	}
}

// Kill ends every process of the jail with SIGKILL, frozen or not, also those
// that are just being forked. It does not wait ([Group.Empty]).
func (g *Group) Kill() error {
	err := g.v2.write("cgroup.kill", "1")
	if errors.Is(err, fs.ErrNotExist) { // before Linux 5.14
		err = g.killEach()
	}
	if err != nil {
		return fmt.Errorf("kill group %s: %w", g.name, err)
	}
	return nil
}

// killEach is Kill for old kernels: freeze, so that nothing forks meanwhile, then
// signal everything until nothing is left. A frozen process dies of SIGKILL.
func (g *Group) killEach() error {
	if err := g.v2.write("cgroup.freeze", "1"); err != nil {
		return err
	}
	defer func() { _ = g.Thaw() }()
	for range 100 {
		list, err := pids(g.v2.File)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, word := range list {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				_ = unix.Kill(pid, unix.SIGKILL) // it may be gone
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	return errors.New("processes do not die")
}

// Delete removes the group from every hierarchy and closes it. While processes
// are still dying it waits, at most patience. On error the group stays open, so that
// Delete can be called again. The empty parent is removed on v1; on v2 it stays for
// the BPF gate ([Prune]). A group that is gone already is no error.
func (g *Group) Delete(patience time.Duration) error {
	if g.v2.File == nil {
		return nil
	}
	deadline := time.Now().Add(patience)
	// v2 comes last: a group that List and Open can find is one that can be adopted.
	for i := len(g.legacy) - 1; i >= 0; i-- {
		if err := remove(g.legacy[i].top, g.name, deadline); err != nil {
			return err
		}
		if err := removeParent(g.legacy[i].top); err != nil {
			return err
		}
		g.legacy[i].File.Close()
		g.legacy = g.legacy[:i]
	}
	if err := remove(g.v2.top, g.name, deadline); err != nil {
		return err
	}
	return g.Close()
}

// remove removes one directory and those below it, trying again while the kernel says
// that it is busy.
func remove(t top, name string, deadline time.Time) error {
	parent, err := openParent(t, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	for pause := time.Millisecond / 2; ; pause = min(2*pause, 20*time.Millisecond) {
		err := removeTree(parent, name)
		if !errors.Is(err, unix.EBUSY) || !time.Now().Before(deadline) {
			if err != nil {
				return &os.PathError{Op: "remove group", Path: t.path(name), Err: err}
			}
			return nil
		}
		time.Sleep(pause)
	}
}

func removeTree(parent *os.File, name string) error {
	err := unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
	if err == unix.ENOENT || err == nil {
		return nil
	}
	if err != unix.EBUSY {
		return err
	}
	d, openErr := openDir(parent, name)
	if openErr != nil {
		return err
	}
	defer d.Close()
	names, listErr := children(d)
	if listErr != nil || len(names) == 0 {
		return err
	}
	for _, sub := range names {
		if err := removeTree(d, sub); err != nil {
			return err
		}
	}
	return unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
}

// removeParent removes the group above all jails of one hierarchy if nothing is in it.
func removeParent(t top) error {
	root, err := os.Open(t.mount)
	if err != nil {
		return fmt.Errorf("open hierarchy: %w", err)
	}
	defer root.Close()
	err = unix.Unlinkat(int(root.Fd()), t.parent, unix.AT_REMOVEDIR)
	switch err {
	case nil, unix.ENOENT, unix.EBUSY, unix.ENOTEMPTY:
		return nil
	}
	return &os.PathError{Op: "remove group", Path: t.path(), Err: err}
}
