package broker

import "golang.org/x/sys/unix"

// handler answers one call; unless it has sent the answer itself, its result is
// the caller's errno and w.val the caller's result.
type handler func(*worker) unix.Errno

const tableSize = 480

// handlers is what answers the calls of a broker with this configuration.
func (c *Config) handlers() [tableSize]handler {
	t := handlers()
	if c.Hide {
		lookHandlers(&t, c.Kernel)
	}
	return t
}

// handlers maps call numbers to what answers them. Anything else is ENOSYS.
func handlers() [tableSize]handler {
	t := oldHandlers() // calls that only some architectures have
	for nr, h := range map[int]handler{
		unix.SYS_OPENAT:            sysOpenat,
		unix.SYS_OPENAT2:           sysOpenat2,
		unix.SYS_MKDIRAT:           sysMkdirat,
		unix.SYS_MKNODAT:           sysMknodat,
		unix.SYS_SYMLINKAT:         sysSymlinkat,
		unix.SYS_UNLINKAT:          sysUnlinkat,
		unix.SYS_RENAMEAT:          sysRenameat,
		unix.SYS_RENAMEAT2:         sysRenameat2,
		unix.SYS_LINKAT:            sysLinkat,
		unix.SYS_TRUNCATE:          sysTruncate,
		unix.SYS_FCHMOD:            sysFchmod,
		unix.SYS_FCHMODAT:          sysFchmodat,
		unix.SYS_FCHMODAT2:         sysFchmodat2,
		unix.SYS_FCHOWN:            sysFchown,
		unix.SYS_FCHOWNAT:          sysFchownat,
		unix.SYS_UTIMENSAT:         sysUtimensat,
		unix.SYS_GETXATTR:          sysGetxattr,
		unix.SYS_LGETXATTR:         sysLgetxattr,
		unix.SYS_SETXATTR:          sysSetxattr,
		unix.SYS_LSETXATTR:         sysLsetxattr,
		unix.SYS_FSETXATTR:         sysFsetxattr,
		unix.SYS_REMOVEXATTR:       sysRemovexattr,
		unix.SYS_LREMOVEXATTR:      sysLremovexattr,
		unix.SYS_FREMOVEXATTR:      sysFremovexattr,
		unix.SYS_INOTIFY_ADD_WATCH: sysWatch,
		unix.SYS_BIND:              sysBind,
		unix.SYS_CONNECT:           sysConnect,
	} {
		t[nr] = h
	}
	for nr := range refusals {
		t[nr] = sysRefused
	}
	return t
}
