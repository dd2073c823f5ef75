package orchestrator

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is struct sigaction of the 64-bit kernels (include/linux/signal_types.h).
type sigaction struct{ handler, flags, restorer, mask uint64 }

// stopJob sends SIGTSTP to our process group with its default action in place
// for us. signal.Reset is not enough: the runtime keeps its handler for this
// signal once it was asked for, and the signal then does nothing.
// The group may be stopped when it returns, or a moment later; call restore when
// we were continued.
func stopJob() (restore func(), err error) {
	var def, old sigaction
	if err := rtSigaction(unix.SIGTSTP, &def, &old); err != nil {
		return nil, err
	}
	if err := unix.Kill(0, unix.SIGTSTP); err != nil {
		_ = rtSigaction(unix.SIGTSTP, &old, nil)
		return nil, err
	}
	return func() { _ = rtSigaction(unix.SIGTSTP, &old, nil) }, nil
}

func rtSigaction(sig unix.Signal, act, old *sigaction) error {
	if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(act)), uintptr(unsafe.Pointer(old)), 8, 0, 0); e != 0 {
		return e
	}
	return nil
}
