/* kernel.c: the kernel's own surface: old ABIs, dangerous calls, devices, /proc/sys, mounts, terminals. Calls that would do harm are made
 * with arguments that must fail, so that "may not" (EPERM, ENOSYS, EACCES) can be told from "would". */
#include "act.h"
#include <linux/keyctl.h>
#include <sys/mount.h>
#include <sys/timex.h>

static int guarded(void (*f)(int *), int *out)
{ /* run f in a child that may be killed by SIGSYS; 0 when it ended by itself */
	int pipefd[2], st;
	pipe(pipefd);
	pid_t p = fork();
	if (p == 0) {
		int v = -1;
		f(&v);
		write(pipefd[1], &v, sizeof v);
		_exit(0);
	}
	waitpid(p, &st, 0);
	close(pipefd[1]);
	*out = -1;
	read(pipefd[0], out, sizeof *out);
	close(pipefd[0]);
	return WIFEXITED(st) ? 0 : -1;
}

#ifdef __x86_64__
static void by_int80(int *out)
{
	char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	long r;
	snprintf(low, 4096, "%s", in(WS, ".env"));
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(5L), "b"(low), "c"(0L), "d"(0L) : "memory", "r8", "r9", "r10", "r11");
	if (r >= 0)
		show(r);
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory", "r8", "r9", "r10", "r11"); /* getpid */
	*out = r > 0;
}

static void by_x32(int *out)
{
	long fd = syscall(0x40000000 | SYS_open, in(WS, ".env"), 0, 0);
	if (fd >= 0)
		show(fd);
	*out = fd >= 0 || syscall(0x40000000 | SYS_getpid) > 0;
}
#endif

static void old_abi(void)
{
#ifdef __x86_64__
	int a = 0, b = 0;
	guarded(by_int80, &a);
	guarded(by_x32, &b);
	if (a > 0 || b > 0)
		done("%s%s", a > 0 ? "int80 " : "", b > 0 ? "x32" : "");
	refused("int80 and x32");
#else
	skip("wanted x86_64");
#endif
}

static void io_uring(void)
{
	char params[256] = {0};
	int fd = syscall(425, 4, params);
	if (fd >= 0)
		done("io_uring_setup");
	int e = errno;
	if (syscall(426, -1, 0, 0, 0, 0, 0) < 0 && errno == EBADF)
		done("io_uring_enter is answered");
	errno = e;
	refused("io_uring: %s", why());
}

static void surface(void)
{
	static const struct {
		long nr;
		const char *name;
		long a[5];
	} calls[] = {
		{SYS_bpf, "bpf", {0, 0, 0}}, {SYS_perf_event_open, "perf_event_open", {0, 0, -1, -1, 0}}, {SYS_userfaultfd, "userfaultfd", {-1}},
		{SYS_init_module, "init_module", {0, 0, 0}}, {SYS_finit_module, "finit_module", {-1, 0, 0}}, {SYS_delete_module, "delete_module", {0, 0}},
		{SYS_kexec_load, "kexec_load", {0, 0, 0, -1}}, {SYS_kexec_file_load, "kexec_file_load", {-1, -1, 0, 0, -1}}, {SYS_reboot, "reboot", {1, 2, 3}},
		{SYS_swapon, "swapon", {0, -1}}, {SYS_swapoff, "swapoff", {0}}, {SYS_acct, "acct", {1}}, {SYS_quotactl, "quotactl", {-1, 0, 0, 0}},
		{SYS_syslog, "syslog", {99, 0, 0}}, {SYS_vhangup, "vhangup", {0}}, {SYS_pivot_root, "pivot_root", {0, 0}}, {SYS_chroot, "chroot", {0}},
		{SYS_settimeofday, "settimeofday", {1, 0}}, {SYS_clock_settime, "clock_settime", {99, 0}}, {SYS_sethostname, "sethostname", {0, -1}},
		{SYS_setdomainname, "setdomainname", {0, -1}}, {SYS_fanotify_init, "fanotify_init", {-1, 0}}, {SYS_lookup_dcookie, "lookup_dcookie", {0, 0, 0}},
		{SYS_add_key, "add_key", {0, 0, 0, 0, 0}}, {SYS_request_key, "request_key", {0, 0, 0, 0}}, {SYS_keyctl, "keyctl", {-1}},
		{SYS_open_by_handle_at, "open_by_handle_at", {-1, 0, 0}}, {SYS_move_pages, "move_pages of init", {1, 0, 0, 0, 0}}, {SYS_migrate_pages, "migrate_pages of init", {1, 0, 0, 0}},
#ifdef __x86_64__
		{SYS_iopl, "iopl", {3}}, {SYS_ioperm, "ioperm", {0x80, 1, 1}}, {SYS_modify_ldt, "modify_ldt", {99, 0, 0}}, {SYS_uselib, "uselib", {0}}, {SYS_ustat, "ustat", {0, 0}}, {SYS_sysfs, "sysfs", {99}},
#endif
	};
	int n = 0;
	for (size_t i = 0; i < COUNT(calls); i++) {
		pid_t p = fork();
		int st;
		if (p == 0) {
			errno = 0;
			long r = syscall(calls[i].nr, calls[i].a[0], calls[i].a[1], calls[i].a[2], calls[i].a[3], calls[i].a[4]);
			_exit(r < 0 && (errno == EPERM || errno == ENOSYS || errno == EACCES) ? 0 : r < 0 ? errno : 255);
		}
		waitpid(p, &st, 0);
		if (WIFEXITED(st) && WEXITSTATUS(st) != 0) {
			n++;
			printf("%s is answered (%s)\n", calls[i].name, WEXITSTATUS(st) == 255 ? "success" : strerrorname_np(WEXITSTATUS(st)));
		}
	}
	n ? done("%d calls reach the kernel", n) : refused("%zu calls", COUNT(calls));
}

static void keys(void)
{
	long k = syscall(SYS_add_key, "user", "act", "x", 1, KEY_SPEC_SESSION_KEYRING);
	long s = syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 1, 0, 0);
	long j = syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, "act", 0, 0, 0);
	k >= 0 || s >= 0 || j >= 0 ? done("keyrings") : refused("keyctl: %s", why());
}

static void mounts(void)
{
	int n = 0;
	n += mount("none", "/tmp", "tmpfs", 0, NULL) == 0;
	n += mount(WS, "/tmp", NULL, MS_BIND | MS_REC, NULL) == 0;
	n += mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL) == 0;
	n += mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL) == 0;
	n += umount2(WS, MNT_DETACH) == 0;
	n += umount2("/proc", MNT_DETACH) == 0;
	n += syscall(SYS_fsopen, "tmpfs", 0) >= 0;
	n += syscall(SYS_fspick, AT_FDCWD, "/", 0) >= 0;
	int t = syscall(SYS_open_tree, AT_FDCWD, WS, 1 /* CLONE */);
	n += t >= 0;
	n += syscall(SYS_move_mount, AT_FDCWD, "/tmp", AT_FDCWD, "/var", 0) == 0;
	uint64_t attr[4] = {0, 1, 0, 0};
	n += syscall(442 /* mount_setattr */, AT_FDCWD, "/", 0, attr, sizeof attr) == 0;
	n += chroot(WS) == 0;
	n += syscall(SYS_pivot_root, WS, WS) == 0;
	n ? done("%d mount calls", n) : refused("mounts: %s", why());
}

static void devices(void)
{
	const char *dev[] = {"mem", "kmem", "port", "kmsg", "kvm", "fuse", "vsock", "vhost-net", "vhost-vsock", "net/tun", "loop-control", "loop0", "vda", "sda", "nvme0n1", "dm-0", "mapper/control",
			     "console", "tty0", "tty1", "ttyS0", "uinput", "input/event0", "snapshot", "hpet", "rtc0", "watchdog", "cpu/0/msr", "dri/card0", "nvram", "btrfs-control", "userfaultfd", "autofs", "rfkill"};
	int n = 0;
	for (size_t i = 0; i < COUNT(dev); i++) {
		int fd = open(in("/dev", dev[i]), O_RDONLY | O_NONBLOCK | O_NOCTTY);
		if (fd >= 0)
			n++, printf("/dev/%s opened\n", dev[i]), close(fd);
	}
	n ? done("%d devices", n) : refused("devices: %s", why());
}

static void kernel_files(void)
{
	const char *f[] = {"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/kernel/ns_last_pid", "/proc/sys/vm/drop_caches", "/proc/sys/fs/binfmt_misc/register",
			   "/proc/sysrq-trigger", "/proc/1/oom_score_adj", "/proc/1/uid_map", "/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/setgroups", "/proc/self/timens_offsets", "/proc/self/mem",
			   "/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state", "/sys/kernel/uevent_helper",
			   "/sys/kernel/tracing/trace", "/sys/kernel/debug", "/sys/fs/bpf/x", "/sys/kernel/security/apparmor/.load", "/sys/module/kernel/parameters/panic"};
	int n = 0;
	for (size_t i = 0; i < COUNT(f); i++) {
		int fd = open(f[i], O_WRONLY);
		if (fd >= 0)
			n++, printf("%s opened for writing\n", f[i]), close(fd);
	}
	const char *r[] = {"/proc/kcore", "/proc/kallsyms", "/proc/kmsg", "/proc/sched_debug", "/proc/slabinfo", "/proc/keys", "/proc/timer_list", "/sys/kernel/debug/tracing", "/sys/firmware/acpi/tables/DSDT", "/boot/grub/grub.cfg"};
	char b[64];
	for (size_t i = 0; i < COUNT(r); i++) {
		int fd = open(r[i], O_RDONLY | O_NONBLOCK);
		if (fd >= 0 && read(fd, b, sizeof b) > 0 && strcmp(r[i], "/proc/kallsyms"))
			n++, printf("%s can be read\n", r[i]);
	}
	n ? done("%d kernel files", n) : refused("kernel files: %s", why());
}

static void cgroups(void)
{
	const char *roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpu"};
	const char *files[] = {"cgroup.procs", "memory.max", "pids.max", "cgroup.freeze", "cgroup.kill", "memory.limit_in_bytes", "tasks", "release_agent", "notify_on_release"};
	int n = 0;
	for (size_t i = 0; i < COUNT(roots); i++) {
		n += mkdir(in(roots[i], "act"), 0755) == 0;
		for (size_t k = 0; k < COUNT(files); k++) {
			int fd = open(in(roots[i], files[k]), O_WRONLY);
			if (fd >= 0)
				n++, printf("%s/%s opened for writing\n", roots[i], files[k]), close(fd);
		}
	}
	n ? done("%d cgroup files", n) : refused("cgroups: %s", why());
}

static void names_and_clock(void)
{
	int n = 0;
	n += sethostname("act", 3) == 0;
	n += setdomainname("act", 3) == 0;
	struct timeval now;
	gettimeofday(&now, NULL);
	n += settimeofday(&now, NULL) == 0;
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	n += clock_settime(CLOCK_REALTIME, &t) == 0;
	struct timex x = {.modes = ADJ_TICK, .tick = 10000};
	n += adjtimex(&x) >= 0;
	n ? done("%d of host name and clock", n) : refused("host name and clock: %s", why());
}

static void self_mem(void)
{ /* write to memory that is mapped read-only */
	static const char constant[] = "constant";
	int fd = open("/proc/self/mem", O_RDWR);
	if (fd >= 0 && pwrite(fd, "C", 1, (off_t)(uintptr_t)constant) == 1)
		done("/proc/self/mem writes through protections");
	refused("/proc/self/mem: %s", why());
}

static void tiocsti(void)
{
	int n = 0, fds[] = {0, 1, 2, open("/dev/tty", O_RDWR | O_NOCTTY)};
	const unsigned long cmd[] = {0x5412, 0x5412UL | 1UL << 32, 0x5412UL | 0xffffffffUL << 32, 0x541c /* TIOCLINUX */, 0x541cUL | 1UL << 32};
	for (size_t f = 0; f < COUNT(fds); f++)
		for (size_t c = 0; c < COUNT(cmd); c++)
			n += syscall(SYS_ioctl, fds[f], cmd[c], "\n") == 0;
	n ? done("%d characters pushed", n) : tried("TIOCSTI: %s", why());
}

static void tty_take(void)
{ /* another session's terminals: everything in /dev/pts that is not ours */
	DIR *d = opendir("/dev/pts");
	struct dirent *e;
	char mine[64] = "", path[300];
	int n = 0;
	readlink("/proc/self/fd/0", mine, sizeof mine - 1);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof path, "/dev/pts/%s", e->d_name);
		if (e->d_name[0] < '0' || e->d_name[0] > '9' || !strcmp(path, mine))
			continue;
		int fd = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK);
		if (fd >= 0)
			n++, write(fd, want("TOKEN"), 4), printf("%s opened\n", path);
	}
	n ? done("%d terminals of others", n) : tried("terminals of others");
}

const struct act kernel_acts[] = {
	{"kernel-old-abi", "", "open by int 0x80 and by x32 numbers", old_abi},
	{"kernel-io-uring", "", "io_uring", io_uring},
	{"kernel-surface", "", "calls that no agent needs", surface},
	{"kernel-keys", "", "keyrings", keys},
	{"kernel-mounts", "", "mount, the new mount API, chroot, pivot_root", mounts},
	{"kernel-devices", "", "open devices", devices},
	{"kernel-files", "", "write /proc/sys and /sys, read kernel memory and logs", kernel_files},
	{"kernel-cgroups", "", "change cgroups", cgroups},
	{"kernel-clock", "", "host name and clock", names_and_clock},
	{"kernel-self-mem", "", "write through /proc/self/mem", self_mem},
	{"tty-push", "tty", "push characters by TIOCSTI, also with high bits, and TIOCLINUX", tiocsti},
	{"tty-others", "tty", "open other terminals", tty_take},
	{0},
};
