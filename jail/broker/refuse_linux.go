package broker

import (
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

// refusals are the calls of [Refused].
var refusals = map[int]string{
	unix.SYS_MOUNT: "mount", unix.SYS_UMOUNT2: "umount2", unix.SYS_PIVOT_ROOT: "pivot_root", unix.SYS_CHROOT: "chroot",
	unix.SYS_OPEN_TREE: "open_tree", unix.SYS_MOVE_MOUNT: "move_mount", unix.SYS_MOUNT_SETATTR: "mount_setattr", unix.SYS_FSOPEN: "fsopen",
	unix.SYS_SETNS: "setns", unix.SYS_UNSHARE: "unshare", unix.SYS_OPEN_BY_HANDLE_AT: "open_by_handle_at",
	unix.SYS_BPF: "bpf", unix.SYS_PERF_EVENT_OPEN: "perf_event_open", unix.SYS_USERFAULTFD: "userfaultfd",
	unix.SYS_INIT_MODULE: "init_module", unix.SYS_FINIT_MODULE: "finit_module", unix.SYS_DELETE_MODULE: "delete_module", unix.SYS_KEXEC_LOAD: "kexec_load",
	unix.SYS_FANOTIFY_INIT: "fanotify_init", unix.SYS_PIDFD_GETFD: "pidfd_getfd", unix.SYS_REBOOT: "reboot", unix.SYS_CLOCK_SETTIME: "clock_settime",
}

// sysRefused refuses a call that the filter would refuse as well, and says so.
func sysRefused(w *worker) unix.Errno {
	return w.deny(about{kind: event.Syscall, name: refusals[int(w.req.nr)]}, unix.EPERM)
}
