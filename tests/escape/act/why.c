/* why.c: the socket at which a jail's init answers why something was denied. It must tell nothing of others, take nothing that is sent
 * along, and survive whoever is rude. Also: the errno of each denial. */
#include "act.h"
#include <sys/xattr.h>

#define DESK "/run/agentos/why.sock"

static int dial(int flags)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = DESK};
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
	if (s >= 0 && connect(s, (struct sockaddr *)&a, sizeof a)) {
		close(s);
		return -1;
	}
	return s;
}

/* ask sends one question, with fd along when it is not negative; the answer goes to buf. Descriptors in the answer are an escape. */
static int ask(const char *q, size_t n, int fd, char *buf, size_t size)
{
	int s = dial(0);
	if (s < 0)
		return -1;
	struct timeval t = {5, 0};
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	char control[CMSG_SPACE(sizeof(int) * 4)] = {0};
	struct iovec v = {(void *)q, n};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	if (fd >= 0) {
		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE(sizeof fd);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	int got = -1;
	if (sendmsg(s, &m, MSG_NOSIGNAL) >= 0) {
		struct iovec r = {buf, size - 1};
		struct msghdr in = {.msg_iov = &r, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
		got = recvmsg(s, &in, 0);
		if (got >= 0 && in.msg_controllen)
			done("the answer brings a descriptor");
	}
	close(s);
	if (got >= 0)
		buf[got] = 0;
	return got;
}

/* patient asks until the desk, which has a limit of questions, answers. */
static int patient(const char *q, size_t n, char *buf, size_t size)
{
	for (int i = 0; i < 100; i++) {
		int got = ask(q, n, -1, buf, size);
		if (got > 0 && !strstr(buf, "too many"))
			return got;
		pause_ms(100);
	}
	return -1;
}

static void flood(void)
{
	static char big[1 << 17], buf[1 << 15];
	memset(big, 'A', sizeof big);
	int held[200], n = 0;
	for (int i = 0; i < 200; i++) { /* who says nothing, and whom nobody waits for */
		int s = dial(SOCK_NONBLOCK);
		if (s >= 0)
			held[n++] = s;
	}
	for (int i = 0; i < 2000; i++) {
		int s = dial(SOCK_NONBLOCK);
		if (s < 0)
			continue;
		send(s, big, i % 2 ? sizeof big : 5000, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (i % 3)
			shutdown(s, SHUT_RD);
		close(s);
	}
	for (int i = 0; i < n; i++)
		close(held[i]);
	int dir = open(WS, O_RDONLY | O_DIRECTORY);
	for (int i = 0; i < 50; i++)
		ask("why", 3, dir, buf, sizeof buf); /* with a descriptor that nobody wants */
	pid_t crowd[8];
	for (size_t i = 0; i < COUNT(crowd); i++)
		if (!(crowd[i] = fork())) {
			for (int k = 0; k < 200; k++)
				ask("read\0/etc/passwd", 16, -1, buf, sizeof buf);
			_exit(0);
		}
	for (size_t i = 0; i < COUNT(crowd); i++) /* others work meanwhile */
		if (put(in(WS, "flooded"), "work\n", 0644))
			done("while the desk is flooded no file can be written: %s", why());
	for (size_t i = 0; i < COUNT(crowd); i++)
		waitpid(crowd[i], NULL, 0);
	unlink(in(WS, "flooded"));
	if (patient("why", 3, buf, sizeof buf) < 0)
		done("the desk does not answer any more");
	if (put(in(WS, "flooded"), "work\n", 0644))
		done("after the flood no file can be written: %s", why());
	unlink(in(WS, "flooded"));
	refused("the desk stands");
}

static void others(void)
{
	static char buf[1 << 15];
	const char *q[] = {"why\0", "session\0x", "list", "audit", "log", "{\"verb\":\"list\"}", "read\0relative", "why\0../../etc/shadow", "exec\0/\xff\xfe%s%n", "read\0", "\0\0\0"};
	for (size_t i = 0; i < COUNT(q); i++)
		if (patient(q[i], i ? strlen(q[i]) + 1 + strlen(q[i] + strlen(q[i]) + 1) : 4, buf, sizeof buf) < 0)
			done("the desk is mute after question %zu", i);
		else
			puts(buf); /* the test looks for what must not be in it */
	char path[5000] = "why";
	snprintf(path + 4, sizeof path - 4, "%s/.ssh/id_rsa", want("HOME"));
	if (patient(path, 4 + strlen(path + 4), buf, sizeof buf) > 0)
		puts(buf);
	snprintf(path + 4, sizeof path - 4, "%s/secret.txt", want("OUT"));
	if (patient(path, 4 + strlen(path + 4), buf, sizeof buf) > 0)
		puts(buf);
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	strncpy(a.sun_path, want("HELPER"), sizeof a.sun_path - 1);
	int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	if (!connect(s, (struct sockaddr *)&a, sizeof a))
		done("the helper's own socket answers");
	if (!unlink(DESK) || !rename("/run/agentos", "/run/mine") || open("/run/agentos/x", O_WRONLY | O_CREAT, 0600) >= 0)
		done("the desk can be replaced");
	if (open("/run/agentos/bin/agentos", O_WRONLY) >= 0 || open("/run/agentos/AGENTS.md", O_WRONLY | O_TRUNC) >= 0 || !chmod("/run/agentos/bin/agentos", 0777))
		done("what the jail is told can be changed");
	refused("the desk speaks of this jail only");
}

/* right says whether an act was refused as the kernel refuses for want of permission. */
static int wrong;
static void right(const char *what, int ok)
{
	int e = errno;
	printf("%s: %s\n", what, ok ? "done" : strerrorname_np(e));
	if (ok || (e != EACCES && e != EPERM))
		wrong++;
}

static void errnos(void)
{ /* the workspace has .env (denied), .git/hooks (protected) and README.md; *.pem is denied */
	const char *env = in(WS, ".env"), *hook = in(WS, ".git/hooks/h"), *config = in(WS, ".git/config"), *pem = in(WS, "late.pem"), *plain = in(WS, "README.md");
	right("read denied", open(env, O_RDONLY) >= 0);
	right("read denied, openat2", syscall(SYS_openat2, AT_FDCWD, env, (uint64_t[3]){O_RDONLY}, 24) >= 0);
	right("write denied", open(env, O_WRONLY) >= 0);
	right("truncate by open", open(env, O_WRONLY | O_TRUNC) >= 0);
	right("write protected", open(config, O_WRONLY) >= 0);
	right("append protected", open(config, O_WRONLY | O_APPEND) >= 0);
	right("create denied name", open(pem, O_WRONLY | O_CREAT, 0600) >= 0);
	right("create denied name, exclusive", open(pem, O_WRONLY | O_CREAT | O_EXCL, 0600) >= 0);
	right("create protected name", open(hook, O_WRONLY | O_CREAT, 0700) >= 0);
	right("truncate", !truncate(config, 0));
	right("unlink denied", !unlink(env));
	right("unlink protected", !unlink(config));
	right("rename from denied", !rename(env, in(WS, "plain")));
	right("rename to denied", !rename(plain, pem));
	right("rename to protected", !rename(plain, hook));
	right("link from denied", !link(env, in(WS, "plain")));
	right("link to denied", !link(plain, pem));
	right("symlink at denied", !symlink("x", pem));
	right("symlink at protected", !symlink("x", hook));
	right("mkdir denied", !mkdir(pem, 0755));
	right("mkdir protected", !mkdir(hook, 0755));
	right("rmdir protected", !rmdir(in(WS, ".git/hooks")));
	right("mkfifo denied", !mkfifo(pem, 0600));
	right("chmod denied", !chmod(env, 0666));
	right("chmod protected", !chmod(config, 0666));
	right("chown protected", !chown(config, getuid(), getgid()));
	right("utimes protected", !utimensat(AT_FDCWD, config, NULL, 0));
	int pid = fork();
	if (!pid) {
		execl(in(WS, "secrets/gold"), "gold", NULL);
		_exit(errno == EACCES || errno == EPERM ? 0 : 1);
	}
	int st = 0;
	waitpid(pid, &st, 0);
	printf("exec denied: %s\n", WIFSIGNALED(st) ? "killed" : WEXITSTATUS(st) ? "other" : "refused");
	wrong += WIFEXITED(st) && WEXITSTATUS(st); /* tier C: killed before its first instruction */
	if (wrong)
		done("%d of the errors are not EACCES or EPERM", wrong);
	refused("every error is one of permission");
}

const struct act why_acts[] = {
	{"why-flood", "", "the socket that says why is flooded, by rude, slow and many", flood},
	{"why-others", "", "the socket that says why is asked about others, and replaced", others},
	{"why-errno", "", "each denial has the error of a missing permission", errnos},
	{0},
};
