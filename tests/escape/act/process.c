/* process.c: init, the host's processes, ids, namespaces, execution of what must not run. */
#include "act.h"
#include <linux/sched.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

static int run(char *const argv[])
{ /* exit status, or -1 when it was not started or killed */
	int st;
	pid_t p = fork();
	if (p == 0) {
		execv(argv[0], argv);
		_exit(126);
	}
	waitpid(p, &st, 0);
	return WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

static void exec_denied(void)
{
	const char *gold = in(WS, "secrets/gold");
	run((char *[]){(char *)gold, "exec-denied", NULL});
	run((char *[]){(char *)in(WS, "sub/../secrets/./gold"), "exec-denied", NULL});
	if (fork() == 0) {
		int fd = open(gold, O_PATH);
		syscall(SYS_execveat, fd, "", (char *[]){"gold", "exec-denied", NULL}, (char *[]){NULL}, AT_EMPTY_PATH);
		fexecve(fd, (char *[]){"gold", "exec-denied", NULL}, (char *[]){NULL});
		_exit(126);
	}
	wait(NULL);
	symlink("secrets/gold", in(WS, "alias"));
	run((char *[]){(char *)in(WS, "alias"), "exec-denied", NULL});
	put(in(WS, "script"), "", 0755);
	char line[4200];
	snprintf(line, sizeof line, "#!%s\n", gold);
	put(in(WS, "script"), line, 0755);
	run((char *[]){(char *)in(WS, "script"), NULL});
	tried("denied programs");
}

static void exec_loader(void)
{ /* the loader opens the program itself */
	const char *loaders[] = {"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"};
	for (size_t i = 0; i < COUNT(loaders); i++)
		run((char *[]){(char *)loaders[i], (char *)in(WS, "secrets/echo"), "DONE exec-loader a denied program ran by the loader", NULL});
	setenv("LD_PRELOAD", in(WS, "secrets/echo"), 1);
	run((char *[]){"/bin/true", NULL});
	tried("the dynamic loader");
}

static void exec_memfd(void)
{ /* the content of a denied program, by descriptors that have no path */
	int in_ = open(in(WS, "secrets/gold"), O_RDONLY), mem = memfd_create("gold", 0);
	char buf[65536];
	ssize_t n, total = 0;
	while (in_ >= 0 && (n = read(in_, buf, sizeof buf)) > 0)
		total += write(mem, buf, n);
	if (total == 0)
		refused("the content cannot be read: %s", why());
	if (fork() == 0) {
		fexecve(mem, (char *[]){"gold", "exec-memfd", NULL}, (char *[]){NULL});
		_exit(126);
	}
	wait(NULL);
	done("%zd bytes of a denied program copied", total);
}

static void exec_suid(void)
{
	pid_t p = fork();
	int st;
	if (p == 0) {
		execl(in(WS, "suid"), "suid", NULL);
		_exit(126);
	}
	waitpid(p, &st, 0);
	if (WIFEXITED(st) && WEXITSTATUS(st) == 1)
		done("a setuid program changed the ids");
	const char *host[] = {"/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd", "/usr/bin/sudo"};
	(void)host;
	refused("setuid has no effect");
}

static void init_trace(void)
{
	int n = 0;
	char b;
	struct iovec l = {&b, 1}, r = {(void *)0x400000, 1};
	n += ptrace(PTRACE_SEIZE, 1, 0, 0) == 0;
	n += ptrace(PTRACE_ATTACH, 1, 0, 0) == 0;
	n += process_vm_readv(1, &l, 1, &r, 1, 0) == 1;
	n += process_vm_writev(1, &l, 1, &r, 1, 0) == 1;
	n += syscall(SYS_kcmp, getpid(), 1, 2 /* KCMP_FILES */, 0, 0) >= 0;
	int fd = open("/proc/1/mem", O_RDWR);
	n += fd >= 0;
	n ? done("%d ways to trace init", n) : refused("tracing init: %s", why());
}

static void init_pidfd(void)
{
	int pidfd = syscall(SYS_pidfd_open, 1, 0), n = 0;
	for (int i = 0; i < 64; i++)
		n += syscall(SYS_pidfd_getfd, pidfd, i, 0) >= 0;
	n += syscall(SYS_setns, pidfd, CLONE_NEWNS) == 0;
	n += syscall(SYS_process_madvise, pidfd, 0, 0, 21, 0) == 0;
	n ? done("%d uses of init's pidfd", n) : refused("pidfd_getfd of init: %s", why());
}

static void init_signal(void)
{
	int sent = 0;
	const int sigs[] = {SIGKILL, SIGTERM, SIGINT, SIGSEGV, SIGSTOP, SIGHUP, SIGABRT, SIGURG, SIGUSR1};
	for (size_t i = 0; i < COUNT(sigs); i++) {
		sent += kill(1, sigs[i]) == 0;
		sent += syscall(SYS_tgkill, 1, 1, sigs[i]) == 0;
		siginfo_t info = {.si_code = -1, .si_signo = sigs[i]};
		sent += syscall(SYS_rt_sigqueueinfo, 1, sigs[i], &info) == 0;
	}
	pause_ms(100);
	sent ? done("%d signals sent to init", sent) : refused("signals to init: %s", why());
}

static void kill_all(void)
{
	signal(SIGTERM, SIG_IGN);
	kill(-1, SIGTERM);
	kill(-1, SIGKILL);
	kill(0, SIGWINCH);
	for (int g = 2; g < 2000; g++)
		if (g != getpgrp())
			kill(-g, SIGKILL);
	pause_ms(50);
	tried("kill(-1)");
}

static void kill_host(void)
{
	pid_t self = getpid(), host = atoi(want("PID"));
	for (int s = SIGUSR1; s <= SIGUSR1; s++) {
		kill(host, s);
		for (pid_t p = 2; p < 70000; p++)
			if (p != self)
				kill(p, s);
	}
	tried("signals to host processes");
}

static void host_visible(void)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	char path[300], buf[4096];
	int n = 0;
	while (d && (e = readdir(d)))
		if (atoi(e->d_name) > 0) {
			const char *leaf[] = {"cmdline", "environ", "status"};
			for (int i = 0; i < 3; i++) {
				snprintf(path, sizeof path, "/proc/%s/%s", e->d_name, leaf[i]);
				int fd = open(path, O_RDONLY);
				ssize_t len = fd < 0 ? 0 : read(fd, buf, sizeof buf - 1);
				if (fd >= 0)
					close(fd);
				for (ssize_t k = 0; k < len; k++)
					if (!buf[k])
						buf[k] = ' ';
				buf[len > 0 ? len : 0] = 0;
				if (strstr(buf, "act-victim"))
					n++, puts(buf);
			}
		}
	n ? done("the host's processes are visible") : refused("only the jail's processes are visible");
}

static void namespaces(void)
{
	static const struct {
		int flag;
		const char *name;
	} ns[] = {{CLONE_NEWUSER, "user"}, {CLONE_NEWNS, "mnt"}, {CLONE_NEWNET, "net"}, {CLONE_NEWPID, "pid"}, {CLONE_NEWIPC, "ipc"}, {CLONE_NEWUTS, "uts"}, {CLONE_NEWCGROUP, "cgroup"}, {0x80 /* TIME */, "time"}};
	int n = 0;
	for (size_t i = 0; i < COUNT(ns); i++) {
		pid_t p = fork();
		int st;
		if (p == 0)
			_exit(unshare(ns[i].flag) == 0);
		waitpid(p, &st, 0);
		if (WIFEXITED(st) && WEXITSTATUS(st) == 1)
			n++, printf("unshare %s\n", ns[i].name);
		struct clone_args a = {.flags = ns[i].flag, .exit_signal = SIGCHLD};
		p = syscall(SYS_clone3, &a, sizeof a);
		if (p == 0)
			_exit(0);
		if (p > 0)
			n++, waitpid(p, &st, 0), printf("clone3 %s\n", ns[i].name);
		if (ns[i].flag != 0x80) {
			p = syscall(SYS_clone, ns[i].flag | SIGCHLD, 0, 0, 0, 0);
			if (p == 0)
				_exit(0);
			if (p > 0)
				n++, waitpid(p, &st, 0), printf("clone %s\n", ns[i].name);
		}
		char path[64];
		snprintf(path, sizeof path, "/proc/1/ns/%s", ns[i].name);
		int fd = open(path, O_RDONLY);
		if (fd >= 0 && setns(fd, 0) == 0)
			n++, printf("setns %s\n", path);
	}
	n ? done("%d ways into other namespaces", n) : refused("namespaces: %s", why());
}

static void privileges(void)
{
	int n = 0;
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		n++, puts("no_new_privs is not set");
	char line[256];
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f)) {
		unsigned long long v;
		char name[32];
		if (sscanf(line, "%31[^:]: %llx", name, &v) == 2 && !strncmp(name, "Cap", 3) && v)
			n++, printf("%s", line);
		if (!strncmp(line, "Seccomp:\t", 9) && atoi(line + 9) != 2)
			n++, printf("%s", line);
	}
	for (int c = 0; c < 41; c++)
		n += prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, c, 0, 0) == 0;
	n += prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) == 0;
	n += setuid(0) == 0;
	n += setresuid(-1, getuid() == 0 ? 1 : 0, -1) == 0;
	n += setgid(0) == 0 && getgid() != 0;
	gid_t g = 0;
	n += setgroups(1, &g) == 0;
	n += prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, 0, 0, 0) == 0;
	n ? done("%d privileges", n) : refused("ids and capabilities: %s", why());
}

static void limits(void)
{
	int n = 0;
	const int which[] = {RLIMIT_NOFILE, RLIMIT_NPROC, RLIMIT_CORE, RLIMIT_MEMLOCK, RLIMIT_RTPRIO, RLIMIT_NICE, RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE};
	for (size_t i = 0; i < COUNT(which); i++) {
		struct rlimit r, old;
		getrlimit(which[i], &old);
		r.rlim_cur = r.rlim_max = old.rlim_max == RLIM_INFINITY ? RLIM_INFINITY : old.rlim_max + 1;
		if (old.rlim_max != RLIM_INFINITY && setrlimit(which[i], &r) == 0)
			n++, printf("limit %d raised\n", which[i]);
		struct rlimit low = {1, 1};
		if (prlimit(1, which[i], &low, NULL) == 0)
			n++, printf("limit %d of init lowered\n", which[i]);
	}
	struct sched_param sp = {.sched_priority = 1};
	n += sched_setscheduler(0, SCHED_FIFO, &sp) == 0;
	n += setpriority(PRIO_PROCESS, 0, -5) == 0 && getpriority(PRIO_PROCESS, 0) < 0;
	n += setpriority(PRIO_PROCESS, 1, 19) == 0;
	n ? done("%d limits or priorities", n) : refused("limits: %s", why());
}

static void outlive(void)
{
	if (fork() == 0) {
		setsid();
		if (fork() > 0)
			_exit(0);
		for (int s = 1; s < 65; s++)
			signal(s, SIG_IGN);
		char beat[32];
		for (int i = 0; i < 600; i++) {
			snprintf(beat, sizeof beat, "%d", i);
			put(in(WS, ".heartbeat.next"), beat, 0666);
			rename(in(WS, ".heartbeat.next"), in(WS, ".heartbeat")); /* whole, whenever we are killed */
			pause_ms(50);
		}
		_exit(0);
	}
	if (!appears(in(WS, ".heartbeat")))
		skip("the daemon does not run");
	tried("a daemon that outlives the session");
}

static volatile int go;
static void *listener(void *arg)
{ /* answers CONTINUE to every notification of a filter of our own */
	int fd = *(int *)arg;
	struct {
		uint64_t id;
		uint32_t pid, flags;
		unsigned char data[64];
		unsigned char more[128];
	} req;
	struct {
		uint64_t id;
		int64_t val;
		int32_t error;
		uint32_t flags;
	} resp;
	while (!go) {
		memset(&req, 0, sizeof req);
		if (ioctl(fd, 0xc0502100UL /* NOTIF_RECV */, &req) == 0) {
			memset(&resp, 0, sizeof resp);
			resp.id = req.id;
			resp.flags = 1;
			ioctl(fd, 0xc0182101UL /* NOTIF_SEND */, &resp);
		}
	}
	return NULL;
}

static void own_listener(void)
{ /* the newest filter's listener is the one that is asked: a listener of our own would overrule the broker's */
	struct {
		uint16_t code;
		uint8_t jt, jf;
		uint32_t k;
	} prog[] = {{0x20, 0, 0, 0}, {0x15, 1, 0, SYS_openat}, {0x06, 0, 0, 0x7fff0000}, {0x06, 0, 0, 0x7fc00000}};
	struct {
		unsigned short len;
		void *filter;
	} p = {COUNT(prog), prog};
	static int fd;
	pthread_t t;
	fd = -1;
	pthread_create(&t, NULL, (void *(*)(void *))listener, &fd); /* unfiltered: made before; waits until fd is there (ioctl fails) */
	fd = syscall(SYS_seccomp, 1, 8 /* NEW_LISTENER */, &p);
	if (fd < 0) {
		go = 1;
		refused("a second listener: %s", why());
	}
	int n = show(syscall(SYS_openat, AT_FDCWD, in(WS, ".env"), O_RDONLY));
	go = 1;
	n > 0 ? done("our own listener overruled the broker") : tried("own listener made, no effect");
}

const struct act process_acts[] = {
	{"exec-denied", "", "execute a denied program: path, descriptor, link, interpreter", exec_denied},
	{"exec-loader", "", "execute a denied program through the dynamic loader", exec_loader},
	{"exec-memfd", "", "copy a denied program to a memfd and execute that", exec_memfd},
	{"exec-suid", "suid", "execute a setuid-root program that lies in the workspace", exec_suid},
	{"init-trace", "", "trace init, read and write its memory", init_trace},
	{"init-pidfd", "", "take init's descriptors by pidfd_getfd", init_pidfd},
	{"init-signal", "", "signal init", init_signal},
	{"proc-kill-all", "", "kill(-1) and every process group", kill_all},
	{"proc-kill-host", "", "signal the host's processes by number", kill_host},
	{"proc-host-visible", "", "see the host's processes", host_visible},
	{"proc-namespaces", "", "make or enter namespaces by unshare, clone, clone3, setns", namespaces},
	{"proc-privileges", "", "capabilities, ids, no_new_privs, seccomp mode", privileges},
	{"proc-limits", "", "raise limits and priorities, change init's", limits},
	{"proc-outlive", "", "outlive the session", outlive},
	{"proc-own-listener", "", "overrule the broker with a seccomp listener of our own", own_listener},
	{0},
};
