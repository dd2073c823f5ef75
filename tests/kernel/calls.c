/* calls: what one system call costs, in nanoseconds of the clock. Under qemu -icount shift=0 the clock counts
 * instructions of the guest. The least of many short batches, so that ticks and other tasks are not in it.
 *
 *	calls FILE        getpid, stat and open+close of FILE, fork+exec of this program
 *	calls --exit      ends at once; what the last of them executes
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *file, *self;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void do_getpid(void) { syscall(SYS_getpid); }

static void do_stat(void)
{
	struct stat st;
	if (stat(file, &st))
		fail("stat");
}

static void do_open(void)
{
	int fd = open(file, O_RDONLY);
	if (fd < 0)
		fail("open");
	close(fd);
}

static void do_exec(void)
{
	int status;
	pid_t pid = vfork();
	if (!pid) {
		char *argv[] = {(char *)self, "--exit", 0}, *envp[] = {0};
		execve(self, argv, envp);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		fail("exec");
}

static void measure(const char *name, void (*call)(void), int calls, int batches)
{
	long least = -1;

	call();
	while (batches-- > 0) {
		long began = now();
		for (int i = 0; i < calls; i++)
			call();
		long took = now() - began;
		if (least < 0 || took < least)
			least = took;
	}
	printf("%s %.1f\n", name, (double)least / calls);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--exit"))
		_exit(0);
	if (argc != 2)
		return 2;
	self = "/proc/self/exe";
	char path[4096];
	ssize_t n = readlink(self, path, sizeof(path) - 1);
	if (n < 0)
		fail("readlink");
	path[n] = 0;
	self = path;
	file = argv[1];
	measure("getpid", do_getpid, 1000, 50);
	measure("stat", do_stat, 50, 100);
	measure("open+close", do_open, 50, 200);
	measure("fork+exec", do_exec, 2, 150);
	return 0;
}
