package segment

import "golang.org/x/sys/unix"

// bootTime returns CLOCK_BOOTTIME in ns.
func bootTime() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return uint64(ts.Nano())
}
