/* act.h: what every act shares. An act tries one forbidden thing and ends with exactly one of the four words below; the test outside
 * believes its own eyes first (canaries in the output, files, listeners, victims) and the act's word second. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct act {
	const char *id;   /* family-what */
	const char *need; /* what the test must prepare: "" or one of tty fds listen suid */
	const char *what; /* one phrase, for people */
	void (*run)(void);
};

extern const struct act file_acts[], link_acts[], late_acts[], process_acts[], kernel_acts[], network_acts[], resource_acts[], why_acts[];

/* refused: every way was answered no. done: at least one way worked. tried: only the outside can tell. skip: cannot be tried here. */
void refused(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
void done(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
void tried(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
void skip(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

const char *want(const char *name);           /* a target, from the environment ACT_name; skip when it is not given */
const char *in(const char *dir, const char *rel); /* dir/rel, in a static buffer of its own each time (32 of them) */
int show(int fd);                             /* print what fd holds (the canary); closes fd; bytes printed, or -1 when fd < 0 */
int show_file(const char *path);
int put(const char *path, const char *text, mode_t mode); /* create or truncate; 0 or -1 */
void pause_ms(int ms);
int appears(const char *path); /* waits for it, a minute at most */
const char *why(void); /* name of errno */

#define WS want("WS")
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
