package opens

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// ErrMissed is returned by [Missed] for a view that [Fifos] would change now.
var ErrMissed = errors.New("a FIFO that may not be read is not covered")

var errPartial = errors.New("there are too many directories")

// Missed answers nil if [Fifos] was called for all paths below the root directory of the
// caller and would find nothing more to cover now. Each path is looked at with the ids of
// the agent, by which its own directories are open to a caller without capabilities; one
// that cannot be listed so is an error, because what lies in it could be opened by name;
// so is a tree that is not looked through at the time until.
func Missed(paths []string, until time.Time, uid, gid int, allows func(path string) bool) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the ids
		done <- missed(paths, until, uid, gid, allows)
	}()
	return <-done
}

func missed(paths []string, until time.Time, uid, gid int, allows func(path string) bool) error {
	if e := become(uid, gid); e != 0 {
		return fmt.Errorf("take the agent's ids: %w", e)
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /: %w", err)
	}
	defer unix.Close(root)
	found := func(int) error { return ErrMissed }
	for _, p := range paths {
		f, err := find(root, p, walk{until: until, allows: allows, cover: found, again: true})
		if err != nil {
			return err
		}
		if f.Partial {
			return fmt.Errorf("look for FIFOs in %s: %w", p, errPartial)
		}
	}
	return nil
}
