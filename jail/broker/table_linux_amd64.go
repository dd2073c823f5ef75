package broker

import "golang.org/x/sys/unix"

const (
	nativeArch      = unix.AUDIT_ARCH_X86_64
	nativeLargefile = 0x8000
)

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
