package opens

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrMissed is returned by [Missed] for a view that [Fifos] would change now.
var ErrMissed = errors.New("a FIFO that may not be read is not covered")

// Missed answers nil if [Fifos] was called for all paths below the root directory of the
// caller and would find nothing more to cover now. Each path is looked at with the ids of
// the agent, by which its own directories are open to a caller without capabilities; one
// that cannot be listed so is an error, because what lies in it could be opened by name.
func Missed(paths []string, uid, gid int, allows func(path string) bool) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the ids
		done <- missed(paths, uid, gid, allows)
	}()
	return <-done
}

func missed(paths []string, uid, gid int, allows func(path string) bool) error {
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
		if err := find(root, p, walk{allows: allows, cover: found, again: true}); err != nil {
			return err
		}
	}
	return nil
}
