package main

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// unified runs f where /sys/fs/cgroup is cgroup v2 alone, whatever layout this machine has: crun refuses a hybrid one with controllers in v2.
// The programs that f starts inherit the mount namespace of its thread, so what they are timed by is theirs. The thread ends with f.
func (b *bench) unified(f func() (time.Duration, error)) (d time.Duration, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread with this view goes
		if err = unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			err = fmt.Errorf("unshare: %w", err)
			return
		}
		if err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err == nil {
			err = unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, "")
		}
		if err != nil {
			err = fmt.Errorf("mount cgroup2: %w", err)
			return
		}
		d, err = f()
	}()
	<-done
	return d, err
}
