package seccomp

import (
	"slices"
	"strings"
)

// Class is what the default profile answers to a call.
type Class uint8

// Classes, from the zero value up.
const (
	Absent Class = iota // ENOSYS
	Hide                // ENOSYS, whatever a policy says
	Never               // EPERM, whatever a policy says
	Refuse              // EPERM, unless a policy allows it
	Check               // by its arguments, see checks.go
	Allow               // run it
)

// String is the class in one lower-case word.
func (c Class) String() string {
	return [...]string{"absent", "hide", "never", "refuse", "check", "allow"}[c]
}

// Call is one row of the profile.
type Call struct {
	Name  string // as in the kernel's table
	Class Class
	Why   string
}

// group is several calls with one reason.
type group struct {
	class Class
	why   string
	names string // separated by white space
}

// profile is the default profile. A name occurs once. Names that an
// architecture does not have are skipped there; names not listed are Absent.
func profile() []group {
	return slices.Concat(files(), tasks(), sockets(), checked(), refused())
}

// files: what every program does with files, memory and readiness.
func files() []group {
	return []group{
		{Allow, "files by descriptor", `
			read write pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 close close_range lseek
			fstat fstatfs fsync fdatasync sync_file_range ftruncate fallocate fadvise64 readahead
			getdents getdents64 fchdir fchmod fchown flock fcntl dup dup2 dup3 pipe pipe2 umask
			fsetxattr fgetxattr flistxattr fremovexattr sync syncfs
			sendfile splice tee copy_file_range cachestat`},
		{Allow, "files by path: the view, Landlock and the rule engine decide", `
			open openat openat2 creat stat lstat newfstatat statx statfs access faccessat faccessat2
			readlink readlinkat chdir getcwd mkdir mkdirat rmdir unlink unlinkat
			rename renameat renameat2 link linkat symlink symlinkat truncate
			chmod fchmodat fchmodat2 chown lchown fchownat utime utimes futimesat utimensat
			setxattr lsetxattr getxattr lgetxattr listxattr llistxattr removexattr lremovexattr
			inotify_init inotify_init1 inotify_add_watch inotify_rm_watch`},
		{Allow, "waiting for several things", `
			poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
			eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime
			io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents`},
		{Allow, "memory of the caller", `
			mmap mprotect pkey_mprotect pkey_alloc pkey_free munmap mremap msync mincore madvise brk
			mlock mlock2 mlockall munlock munlockall memfd_create mseal map_shadow_stack
			process_madvise process_mrelease mbind get_mempolicy set_mempolicy set_mempolicy_home_node`},
	}
}

// tasks: processes, signals, time, identity.
func tasks() []group {
	return []group{
		{Allow, "processes and threads", `
			fork vfork execve execveat exit exit_group wait4 waitid set_tid_address set_robust_list get_robust_list
			getpid getppid gettid getpgrp getpgid setpgid getsid setsid pidfd_open
			futex futex_waitv futex_wake futex_wait futex_requeue rseq membarrier restart_syscall
			arch_prctl landlock_create_ruleset landlock_add_rule landlock_restrict_self`},
		{Allow, "debuggers inside the jail; the pid namespace hides everybody else", `
			ptrace process_vm_readv process_vm_writev`},
		{Allow, "uretprobes of the host's tracing call it on behalf of the traced program", `uretprobe uprobe`},
		{Allow, "signals, within the pid namespace", `
			kill tkill tgkill rt_sigaction rt_sigprocmask rt_sigpending rt_sigreturn rt_sigsuspend
			rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo sigaltstack pause pidfd_send_signal`},
		{Allow, "time: reading and waiting", `
			nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
			getitimer setitimer alarm timer_create timer_settime timer_gettime timer_getoverrun timer_delete`},
		{Allow, "scheduling of the jail's own tasks, within its limits", `
			sched_yield sched_setaffinity sched_getaffinity sched_setparam sched_getparam sched_setscheduler
			sched_getscheduler sched_setattr sched_getattr sched_get_priority_max sched_get_priority_min
			sched_rr_get_interval getpriority setpriority ioprio_get ioprio_set getcpu`},
		{Allow, "identity: no capability is left that could change it to anything", `
			getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid
			setresuid setresgid setgroups setfsuid setfsgid capget capset`},
		{Allow, "limits and facts", `
			getrlimit setrlimit prlimit64 getrusage sysinfo uname getrandom`},
	}
}

// sockets: talking to others, over sockets that are there; making one is checked.
func sockets() []group {
	return []group{
		{Allow, "sockets that exist already", `
			connect accept accept4 bind listen getsockname getpeername getsockopt setsockopt shutdown
			sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg`},
		{Allow, "System V and POSIX ipc, within the ipc namespace", `
			shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
			mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`},
	}
}

// checked: decided by arguments.
func checked() []group {
	return []group{
		{Check, "no new namespaces", `clone unshare`},
		{Check, "families unix, inet, inet6 and route netlink; no raw sockets, only TCP and UDP", `socket`},
		{Check, "unix only", `socketpair`},
		{Check, "no keystrokes into terminals, no line disciplines", `ioctl`},
		{Check, "no editing of the memory map's borders", `prctl`},
		{Check, "only the query and the default: no switching off of address randomisation", `personality`},
		{Check, "no notification listener: the newest one would answer before the broker", `seccomp`},
		{Check, "no device nodes", `mknod mknodat`},
	}
}

// refused: what a jail must not do, and what hardly any program needs.
func refused() []group {
	return []group{
		{Never, "mounts are the walls", `
			mount umount2 pivot_root open_tree open_tree_attr move_mount mount_setattr fsopen fsconfig fsmount fspick`},
		{Never, "leaves the namespaces", `setns`},
		{Never, "opens files past every path rule (Shocker)", `open_by_handle_at`},
		{Never, "kernel programs", `bpf init_module finit_module delete_module kexec_load kexec_file_load`},
		{Never, "the machine's clock, swap, accounting, quotas, power", `
			settimeofday clock_settime clock_adjtime adjtimex swapon swapoff acct quotactl quotactl_fd reboot`},
		{Never, "port access", `iopl ioperm`},

		{Refuse, "does file and socket work on kernel threads that no filter sees; never together with notification", `
			io_uring_setup io_uring_enter io_uring_register`},
		{Refuse, "another root confuses path rules; needs a capability", `chroot`},
		{Refuse, "performance counters leak and have been exploited often", `perf_event_open`},
		{Refuse, "lets user space stop the kernel in the middle of a copy", `userfaultfd`},
		{Refuse, "keyrings cross containers: keys belong to a uid, not to a namespace", `keyctl add_key request_key`},
		{Refuse, "handles are useless without open_by_handle_at and leak inode numbers", `name_to_handle_at`},
		{Refuse, "watches whole mounts; needs a capability", `fanotify_init fanotify_mark`},
		{Refuse, "the kernel log", `syslog`},
		{Refuse, "the machine's name", `sethostname setdomainname`},
		{Refuse, "compares kernel pointers of processes", `kcmp`},
		{Refuse, "takes descriptors out of other processes, past the audit of fd passing", `pidfd_getfd`},
		{Refuse, "moves pages of other processes", `move_pages migrate_pages`},
		{Refuse, "gifted pages outlive copy-on-write (CVE-2020-29374)", `vmsplice`},
		{Refuse, "16-bit segments, rich in bugs", `modify_ldt`},
		{Refuse, "hangs up the terminal of others", `vhangup`},
		{Refuse, "profiler interface that is gone", `lookup_dcookie`},

		{Hide, "its flags lie in memory where a filter cannot look; every libc falls back to clone", `clone3`},
	}
}

// absent lists calls that are answered ENOSYS on purpose, for the documentation;
// a policy may allow them. Anything not named at all gets the same answer.
func absent() []group {
	return []group{
		{Absent, "memory that the kernel itself cannot see", `memfd_secret`},
		{Absent, "deprecated, emulated, rich in bugs; programs use mmap", `remap_file_pages`},
		{Absent, "shows mounts and security modules; libc does not need it", `
			statmount listmount listns lsm_get_self_attr lsm_set_self_attr lsm_list_modules`},
		{Absent, "new twins of path calls; libc falls back to the old ones, which the broker knows", `
			setxattrat getxattrat listxattrat removexattrat file_getattr file_setattr`},
		{Absent, "obsolete", `
			uselib ustat sysfs _sysctl nfsservctl create_module get_kernel_syms query_module
			getpmsg putpmsg afs_syscall tuxcall security vserver epoll_ctl_old epoll_wait_old
			set_thread_area get_thread_area`},
	}
}

// late is the number of calls that the oldest supported libseccomp has no name
// for. From 424 up numbers are the same on all architectures.
func late() map[string]int {
	return map[string]int{
		"cachestat": 451, "fchmodat2": 452, "map_shadow_stack": 453,
		"futex_wake": 454, "futex_wait": 455, "futex_requeue": 456,
		"statmount": 457, "listmount": 458, "lsm_get_self_attr": 459, "lsm_set_self_attr": 460,
		"lsm_list_modules": 461, "mseal": 462, "setxattrat": 463, "getxattrat": 464, "listxattrat": 465,
		"removexattrat": 466, "open_tree_attr": 467, "file_getattr": 468, "file_setattr": 469, "listns": 470,
	}
}

// lateAMD64 is late for numbers of x86-64 alone.
func lateAMD64() map[string]int { return map[string]int{"uretprobe": 335, "uprobe": 336} }

// limit is the first number that this package does not know.
const limit = 471

// essential lists calls that a policy cannot deny.
func essential() []string {
	return strings.Fields(`execve exit exit_group read write close mmap munmap brk mprotect
		rt_sigreturn rt_sigaction rt_sigprocmask futex`)
}

// Calls lists every call that the default profile names, in the order of the
// table.
func Calls() []Call {
	var out []Call
	for _, g := range append(profile(), absent()...) {
		for _, name := range strings.Fields(g.names) {
			out = append(out, Call{Name: name, Class: g.class, Why: g.why})
		}
	}
	return out
}

// Names returns the names of the calls of the given class, for documentation
// and for messages.
func Names(c Class) []string {
	var out []string
	for _, call := range Calls() {
		if call.Class == c {
			out = append(out, call.Name)
		}
	}
	return out
}
