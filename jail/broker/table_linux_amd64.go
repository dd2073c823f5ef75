package broker

import "golang.org/x/sys/unix"

const (
	nativeArch      = unix.AUDIT_ARCH_X86_64
	nativeLargefile = 0x8000
)

func oldAsks() map[int]look {
	return map[int]look{
		unix.SYS_STAT:     {cwd, 0, none, always, false},
		unix.SYS_LSTAT:    {cwd, 0, none, never, false},
		unix.SYS_ACCESS:   {cwd, 0, none, always, false},
		unix.SYS_READLINK: {cwd, 0, none, never, false},
	} // and getdents, for which ENOSYS is the answer: every libc has the newer one
}

func oldActs() map[int][]look {
	return map[int][]look{
		unix.SYS_OPEN:      {{cwd, 0, 1, asOpen, false}},
		unix.SYS_CREAT:     {{cwd, 0, none, always, true}},
		unix.SYS_MKDIR:     {{cwd, 0, none, never, true}},
		unix.SYS_MKNOD:     {{cwd, 0, none, never, true}},
		unix.SYS_SYMLINK:   {{cwd, 1, none, never, true}},
		unix.SYS_UNLINK:    {{cwd, 0, none, never, false}},
		unix.SYS_RMDIR:     {{cwd, 0, none, never, false}},
		unix.SYS_RENAME:    {{cwd, 0, none, never, false}, {cwd, 1, none, never, true}},
		unix.SYS_LINK:      {{cwd, 0, none, never, false}, {cwd, 1, none, never, true}},
		unix.SYS_CHMOD:     {{cwd, 0, none, always, false}},
		unix.SYS_CHOWN:     {{cwd, 0, none, always, false}},
		unix.SYS_LCHOWN:    {{cwd, 0, none, never, false}},
		unix.SYS_UTIME:     {{cwd, 0, none, always, false}},
		unix.SYS_UTIMES:    {{cwd, 0, none, always, false}},
		unix.SYS_FUTIMESAT: {{0, 1, none, always, false}},
	}
}

func oldHandlers() (t [tableSize]handler) {
	for nr, h := range map[int]handler{
		unix.SYS_OPEN:      sysOpen,
		unix.SYS_CREAT:     sysCreat,
		unix.SYS_MKDIR:     sysMkdir,
		unix.SYS_MKNOD:     sysMknod,
		unix.SYS_SYMLINK:   sysSymlink,
		unix.SYS_UNLINK:    sysUnlink,
		unix.SYS_RMDIR:     sysRmdir,
		unix.SYS_RENAME:    sysRename,
		unix.SYS_LINK:      sysLink,
		unix.SYS_CHMOD:     sysChmod,
		unix.SYS_CHOWN:     sysChown,
		unix.SYS_LCHOWN:    sysLchown,
		unix.SYS_UTIME:     sysUtime,
		unix.SYS_UTIMES:    sysUtimes,
		unix.SYS_FUTIMESAT: sysFutimesat,
	} {
		t[nr] = h
	}
	return t
}
