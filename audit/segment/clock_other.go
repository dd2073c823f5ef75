//go:build !linux

package segment

// bootTime is 0: this system has no CLOCK_BOOTTIME.
func bootTime() uint64 { return 0 }
