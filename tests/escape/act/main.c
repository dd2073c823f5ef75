/* act: one program, one function for each forbidden act. `act --list` prints id, need and what; `act ID` runs one. Static, no
 * dependencies, so that nothing of the jail's view is needed to try. */
#include "act.h"

static const struct act *current;

static void say(const char *word, const char *fmt, va_list ap)
{
	char text[400];
	vsnprintf(text, sizeof text, fmt, ap);
	char line[600];
	int n = snprintf(line, sizeof line, "\n%s %s %s\n", word, current ? current->id : "-", text);
	if (write(1, line, n) < 0)
		_exit(3);
}
#define WORD(name, word, code)                  \
	void name(const char *fmt, ...)         \
	{                                       \
		va_list ap;                     \
		va_start(ap, fmt);              \
		fflush(stdout);                 \
		say(word, fmt, ap);             \
		va_end(ap);                     \
		_exit(code);                    \
	}
WORD(refused, "REFUSED", 0)
WORD(done, "DONE", 1)
WORD(tried, "TRIED", 0)
WORD(skip, "SKIP", 77)

const char *want(const char *name)
{
	char key[64];
	snprintf(key, sizeof key, "ACT_%s", name);
	const char *v = getenv(key);
	if (!v || !*v)
		skip("%s is not set", key);
	return v;
}

const char *in(const char *dir, const char *rel)
{
	static char buf[32][4096];
	static int next;
	char *b = buf[next++ % 32];
	snprintf(b, sizeof buf[0], "%s/%s", dir, rel);
	return b;
}

int show(int fd)
{
	if (fd < 0)
		return -1;
	char buf[4096];
	int total = 0;
	ssize_t n;
	while ((n = read(fd, buf, sizeof buf)) > 0) {
		total += n;
		if (write(1, buf, n) < 0)
			break;
		if (total > 1 << 16)
			break;
	}
	close(fd);
	return total ? total : (n < 0 ? -1 : 0);
}

int show_file(const char *path) { return show(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)); }

int put(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	if (fd < 0)
		return -1;
	int ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return ok ? 0 : -1;
}

void pause_ms(int ms)
{
	struct timespec t = {ms / 1000, (ms % 1000) * 1000000L};
	nanosleep(&t, NULL);
}

int appears(const char *path)
{
	for (int i = 0; i < 6000 && access(path, F_OK); i++)
		pause_ms(10);
	return access(path, F_OK) == 0;
}

const char *why(void) { return strerrorname_np(errno) ? strerrorname_np(errno) : "0"; }

static const struct act *const families[] = {file_acts, link_acts, late_acts, process_acts, kernel_acts, network_acts, resource_acts, why_acts};

int main(int argc, char **argv)
{
	const char *base = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	if (!strcmp(base, "gold")) { /* a copy below a denied directory was executed */
		printf("\nDONE %s the denied program runs\n", argc > 1 ? argv[1] : "exec");
		return 1;
	}
	if (!strcmp(base, "suid")) {
		printf("\nEUID %d RUID %d EGID %d RGID %d\n", geteuid(), getuid(), getegid(), getgid());
		return geteuid() != getuid() ? 1 : 0;
	}
	for (size_t f = 0; f < COUNT(families); f++)
		for (const struct act *a = families[f]; a->id; a++) {
			if (argc == 2 && !strcmp(argv[1], "--list"))
				printf("%s\t%s\t%s\n", a->id, a->need, a->what);
			else if (argc >= 2 && !strcmp(argv[1], a->id)) {
				current = a;
				if (geteuid() == 0)
					skip("never as root: outside a jail this would harm the machine");
				setvbuf(stdout, NULL, _IONBF, 0);
				a->run();
				tried("returned");
			}
		}
	if (argc == 2 && !strcmp(argv[1], "--list"))
		return 0;
	fprintf(stderr, "usage: act --list | act ID\n");
	return 2;
}
