/* resource.c: more than the policy of the test gives: 64 MB in each private file system, 512 MB of memory, 128 processes, 256 open files. */
#include "act.h"

static void forks(void)
{
	int n = 0;
	for (; n < 400; n++) {
		pid_t p = fork();
		if (p == 0) {
			pause();
			_exit(0);
		}
		if (p < 0)
			break;
	}
	int limit = atoi(want("PIDS"));
	n > limit ? done("%d processes, %d allowed", n, limit) : refused("%d processes, then %s", n, why());
}

static void threads(void)
{
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 65536);
	int n = 0, limit = atoi(want("PIDS"));
	pthread_t t;
	for (; n < 400; n++)
		if (pthread_create(&t, &a, (void *(*)(void *))(void *)pause, NULL))
			break;
	n > limit ? done("%d threads, %d allowed", n, limit) : refused("%d threads", n);
}

static void memory(void)
{
	size_t limit = strtoull(want("MEMORY"), NULL, 10), step = 16 << 20, total = 0;
	for (; total <= limit + (64 << 20); total += step) {
		char *p = mmap(NULL, step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			refused("%zu MB, then %s", total >> 20, why());
		memset(p, 1, step);
	}
	done("%zu MB used, %zu MB allowed", total >> 20, limit >> 20);
}

static size_t fill(const char *path, size_t most)
{
	static char buf[1 << 20];
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	size_t n = 0;
	memset(buf, 7, sizeof buf);
	while (fd >= 0 && n < most && write(fd, buf, sizeof buf) == (ssize_t)sizeof buf)
		n += sizeof buf;
	return n;
}

static void tmp(void)
{
	size_t limit = strtoull(want("TMP"), NULL, 10), worst = 0;
	const char *dirs[] = {"/tmp", "/var/tmp", "/dev/shm", "/run"};
	for (size_t i = 0; i < COUNT(dirs); i++) {
		size_t n = fill(in(dirs[i], "fill"), limit + (32 << 20));
		unlink(in(dirs[i], "fill"));
		if (n > worst)
			worst = n;
	}
	int fd = open(in("/tmp", "holes"), O_CREAT | O_WRONLY, 0600);
	if (fd >= 0 && fallocate(fd, 0, 0, limit * 4) == 0)
		worst = limit * 4;
	worst > limit ? done("%zu MB in a private file system, %zu MB allowed", worst >> 20, limit >> 20) : refused("%zu MB, then ENOSPC", worst >> 20);
}

static void files(void)
{
	int limit = atoi(want("FILES")), n = 0;
	while (n < limit + 64 && dup(0) >= 0)
		n++;
	n >= limit ? done("%d open files, %d allowed", n, limit) : refused("%d open files, then %s", n, why());
}

const struct act resource_acts[] = {
	{"res-processes", "", "more processes than the policy gives", forks},
	{"res-threads", "", "more threads than the policy gives", threads},
	{"res-memory", "", "more memory than the policy gives", memory},
	{"res-tmp", "", "fill /tmp, /dev/shm, /run, also by fallocate", tmp},
	{"res-files", "", "more open files than the policy gives", files},
	{0},
};
