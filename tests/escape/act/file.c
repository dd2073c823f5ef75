/* file.c: denied files that exist at the start, reached by other calls, names and races than open(path). */
#include "act.h"
#include <linux/openat2.h>
#include <sys/inotify.h>
#include <sys/xattr.h>

static long openat2_(int dir, const char *path, uint64_t flags, uint64_t resolve)
{
	struct open_how how = {.flags = flags, .resolve = resolve};
	return syscall(SYS_openat2, dir, path, &how, sizeof how);
}

static void spellings(void)
{
	int ws = open(WS, O_PATH | O_DIRECTORY);
	char buf[5000];
	show_file(in(WS, ".env"));
	show_file(in(WS, "./sub/..//.env"));
	show_file(in(WS, "sub/../../../../../../../../../../../..") );
	show(openat(ws, ".env", O_RDONLY));
	show(openat(ws, ".env", O_RDWR));
	show(openat(ws, "sub/../.env", O_RDONLY | O_DIRECT));
	snprintf(buf, sizeof buf, "/proc/self/cwd/../%s/.env", strrchr(WS, '/') + 1);
	show_file(buf);
	snprintf(buf, sizeof buf, "/proc/self/root%s/.env", WS);
	show_file(buf);
	snprintf(buf, sizeof buf, "/proc/self/fd/%d/.env", ws);
	show_file(buf);
	snprintf(buf, sizeof buf, "/proc/thread-self/root/proc/self/root%s/sub/.env", WS);
	show_file(buf);
	show(open(in(WS, "secrets/gold"), O_RDONLY));
	tried("spellings of denied paths");
}

static void resolve_flags(void)
{
	static const uint64_t flags[] = {0, RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_CACHED, RESOLVE_BENEATH | RESOLVE_CACHED};
	int ws = open(WS, O_PATH | O_DIRECTORY), got = 0;
	for (size_t i = 0; i < COUNT(flags); i++)
		for (int again = 0; again < 2; again++) {
			got += show(openat2_(ws, ".env", O_RDONLY, flags[i])) > 0;
			got += show(openat2_(ws, "/.env", O_RDONLY, flags[i])) > 0;
			got += show(openat2_(ws, "secrets/gold", O_RDONLY | O_CLOEXEC, flags[i])) > 0;
		}
	got ? done("%d opens by openat2", got) : refused("openat2 with every RESOLVE flag");
}

static void opath_reopen(void)
{
	char link[64];
	int fd = open(in(WS, ".env"), O_PATH);
	if (fd < 0)
		refused("O_PATH: %s", why());
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	int got = show_file(link) > 0;
	got += show(openat2_(AT_FDCWD, link, O_RDONLY, 0)) > 0;
	got += show(openat(fd, "", O_RDONLY)) > 0;
	snprintf(link, sizeof link, "/proc/%d/task/%d/fd/%d", getpid(), getpid(), fd);
	got += show_file(link) > 0;
	got ? done("an O_PATH descriptor reopened") : refused("O_PATH descriptor cannot be reopened");
}

static void open_tree_(void)
{
	int fd = syscall(SYS_open_tree, AT_FDCWD, in(WS, ".env"), 1 /* OPEN_TREE_CLONE */);
	int plain = syscall(SYS_open_tree, AT_FDCWD, in(WS, ".env"), 0);
	char link[64];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd >= 0 ? fd : plain);
	if (show_file(link) > 0)
		done("read through open_tree");
	refused("open_tree: %s", why());
}

static void by_handle(void)
{
	struct {
		struct file_handle h;
		unsigned char bytes[128];
	} f = {.h.handle_bytes = 128};
	int mount;
	if (name_to_handle_at(AT_FDCWD, in(WS, ".env"), &f.h, &mount, 0) < 0)
		refused("name_to_handle_at: %s", why());
	int fd = open_by_handle_at(open(WS, O_RDONLY), &f.h, O_RDONLY);
	show(fd) > 0 ? done("read by handle") : refused("open_by_handle_at: %s", why());
}

static void rename_exchange(void)
{
	const char *plain = in(WS, "plain.txt");
	put(plain, "plain\n", 0644);
	renameat2(AT_FDCWD, in(WS, ".env"), AT_FDCWD, plain, RENAME_EXCHANGE);
	show_file(plain);
	rename(in(WS, ".env"), in(WS, "moved.txt"));
	show_file(in(WS, "moved.txt"));
	renameat2(AT_FDCWD, in(WS, "sub/.env"), AT_FDCWD, in(WS, "moved2.txt"), RENAME_NOREPLACE);
	show_file(in(WS, "moved2.txt"));
	tried("exchange and rename");
}

static void rename_dir(void)
{
	rename(in(WS, "secrets"), in(WS, "attic"));
	show_file(in(WS, "attic/gold"));
	mkdir(in(WS, "empty"), 0755);
	renameat2(AT_FDCWD, in(WS, "secrets"), AT_FDCWD, in(WS, "empty"), RENAME_EXCHANGE);
	show_file(in(WS, "empty/gold"));
	/* the rule is about the last component: move the parent of the parent instead, then look from inside */
	rename(in(WS, "sub"), in(WS, "bus"));
	show_file(in(WS, "bus/.env"));
	rename(in(WS, "bus"), in(WS, "sub")); /* a move that gains nothing is permitted, and no finding */
	tried("renamed directories");
}

static void hard_link(void)
{
	int fd = open(in(WS, ".env"), O_PATH);
	char link_[64];
	snprintf(link_, sizeof link_, "/proc/self/fd/%d", fd);
	link(in(WS, ".env"), in(WS, "l1"));
	linkat(fd, "", AT_FDCWD, in(WS, "l2"), AT_EMPTY_PATH);
	linkat(AT_FDCWD, link_, AT_FDCWD, in(WS, "l3"), AT_SYMLINK_FOLLOW);
	link(in(WS, "secrets/gold"), in(WS, "l4"));
	link(in(want("OUT"), "secret.txt"), in(WS, "l5"));
	int n = 0;
	for (int i = 1; i <= 5; i++) {
		char name[8];
		snprintf(name, sizeof name, "l%d", i);
		n += show_file(in(WS, name)) > 0;
	}
	n ? done("%d links to denied files", n) : refused("links to denied files: %s", why());
}

static void sym_link(void)
{
	symlink(".env", in(WS, "s1"));
	symlink("/proc/self/cwd/.env", in(WS, "s2"));
	symlink(in(want("OUT"), "secret.txt"), in(WS, "s3"));
	symlink(want("HOME"), in(WS, "s4"));
	show_file(in(WS, "s1"));
	show_file(in(WS, "s2"));
	show_file(in(WS, "s3"));
	show_file(in(WS, "s4/.ssh/id_rsa"));
	put(in(WS, "s3"), "overwritten", 0644);
	tried("symlinks to denied files");
}

static volatile int stop_;
static char shared_path[4096];

static void *flip_path(void *arg)
{ /* what a broker reads and what the kernel opens must not be two reads of this memory */
	char *c = strrchr(shared_path, '/') + 1;
	(void)arg;
	while (!stop_) {
		memcpy(c, "pub1", 4);
		memcpy(c, ".env", 4);
	}
	return NULL;
}

static void memory_swap(void)
{
	pthread_t t;
	put(in(WS, "pub1"), "", 0644);
	snprintf(shared_path, sizeof shared_path, "%s/pub1", WS);
	pthread_create(&t, NULL, flip_path, NULL);
	int got = 0;
	for (time_t end = time(NULL) + 3; time(NULL) < end && !got;)
		got += show(open(shared_path, O_RDONLY)) > 0;
	stop_ = 1;
	pthread_join(t, NULL);
	got ? done("the path was changed between check and use") : refused("a path that changes in memory");
}

static int swap_fd, dir_a, dir_b;
static void *flip_dir(void *arg)
{
	(void)arg;
	while (!stop_) {
		dup2(dir_a, swap_fd);
		dup2(dir_b, swap_fd);
	}
	return NULL;
}

static void dirfd_swap(void)
{
	pthread_t t;
	mkdir(in(WS, "pub"), 0755);
	put(in(WS, "pub/gold"), "", 0644);
	dir_a = open(in(WS, "pub"), O_RDONLY | O_DIRECTORY);
	dir_b = open(in(WS, "secrets"), O_PATH | O_DIRECTORY);
	if (dir_b < 0)
		refused("the denied directory cannot be named by a descriptor: %s", why());
	swap_fd = dup(dir_a);
	pthread_create(&t, NULL, flip_dir, NULL);
	int got = 0;
	for (time_t end = time(NULL) + 3; time(NULL) < end && !got;)
		got += show(openat(swap_fd, "gold", O_RDONLY)) > 0;
	stop_ = 1;
	pthread_join(t, NULL);
	got ? done("the directory was changed between check and use") : refused("a directory descriptor that changes");
}

static void *flip_link(void *arg)
{
	const char *l = in(WS, "flip"), *n = in(WS, "flip.new");
	(void)arg;
	while (!stop_) {
		unlink(n), symlink("pub1", n), rename(n, l);
		unlink(n), symlink("secrets/gold", n), rename(n, l);
	}
	return NULL;
}

static void symlink_swap(void)
{
	pthread_t t;
	put(in(WS, "pub1"), "", 0644);
	const char *l = in(WS, "flip");
	symlink("pub1", l);
	pthread_create(&t, NULL, flip_link, NULL);
	int got = 0;
	for (time_t end = time(NULL) + 3; time(NULL) < end && !got;)
		got += show(open(l, O_RDONLY)) > 0;
	stop_ = 1;
	pthread_join(t, NULL);
	got ? done("the link was changed between check and use") : refused("a link that changes");
}

static void fifo_swap(void)
{ /* a name that is a fifo at the check and the secret at the open, and the other way round */
	mkfifo(in(WS, "pipe"), 0666);
	int got = 0;
	for (int i = 0; i < 200; i++) {
		renameat2(AT_FDCWD, in(WS, "pipe"), AT_FDCWD, in(WS, ".env"), RENAME_EXCHANGE);
		got += show(open(in(WS, "pipe"), O_RDONLY | O_NONBLOCK)) > 0;
	}
	got ? done("read through a fifo's name") : refused("exchange with a fifo");
}

static void *churn(void *stop)
{ /* files beside the denied one come, go, move and are written to; in() is not for threads */
	const char *ws = WS;
	for (int i = 0; !*(volatile int *)stop; i++) {
		char a[4096], b[4096];
		snprintf(a, sizeof a, "%s/storm%d", ws, i % 40);
		snprintf(b, sizeof b, "%s/storm%d", ws, (i + 7) % 40);
		put(a, "x", 0644);
		rename(a, b);
		close(open(b, O_RDONLY));
		if (i % 5 == 0)
			unlink(b);
	}
	return NULL;
}

static void storm(void)
{ /* whatever remembers answers must not remember a wrong one while names change hands */
	int stop = 0, got = 0;
	const char *denied[] = {in(WS, ".env"), in(WS, "sub/.env"), in(WS, "secrets/gold")};
	pthread_t t[3];
	for (size_t i = 0; i < COUNT(t); i++)
		pthread_create(&t[i], NULL, churn, &stop);
	for (int i = 0; i < 3000; i++) {
		got += show_file(denied[0]) > 0;
		got += show_file(denied[1 + i % 2]) > 0;
	}
	stop = 1;
	for (size_t i = 0; i < COUNT(t); i++)
		pthread_join(t[i], NULL);
	got ? done("read a denied file %d times", got) : refused("a storm beside the denied files: %s", why());
}

static void watch(void)
{
	int fd = inotify_init1(IN_NONBLOCK);
	int w = inotify_add_watch(fd, in(WS, ".env"), IN_ALL_EVENTS);
	int v = inotify_add_watch(fd, in(WS, "secrets/gold"), IN_ALL_EVENTS);
	w >= 0 || v >= 0 ? done("inotify watches a denied file") : refused("inotify: %s", why());
}

static void xattr_(void)
{
	char buf[256] = "";
	if (getxattr(in(WS, ".env"), "user.note", buf, sizeof buf - 1) > 0)
		printf("%s\n", buf);
	if (setxattr(in(WS, ".env"), "user.note", "changed", 7, 0) == 0)
		done("attributes of a denied file changed");
	tried("xattr: %s", why());
}

static void change_denied(void)
{
	const char *e = in(WS, ".env");
	truncate(e, 0);
	chmod(e, 0666);
	utimensat(AT_FDCWD, e, NULL, 0);
	int fd = open(e, O_WRONLY | O_TRUNC);
	if (fd >= 0)
		write(fd, "x", 1);
	unlink(e);
	unlink(in(WS, "secrets/gold"));
	rmdir(in(WS, "secrets"));
	put(in(WS, "new.env"), "", 0600);
	rename(in(WS, "new.env"), in(WS, "sub/.env"));
	tried("change, delete and replace denied files");
}

static void outside_files(void)
{
	const char *out = want("OUT"), *home = want("HOME");
	show_file(in(out, "secret.txt"));
	show_file(in(home, ".ssh/id_rsa"));
	show_file(in(home, ".aws/credentials"));
	put(in(out, "made-by-act"), "x", 0644);
	put(in(out, "keep.txt"), "overwritten", 0644);
	put(in(home, ".bashrc"), "evil", 0644);
	put(in(home, ".ssh/authorized_keys"), "evil", 0600);
	mkdir(in(home, "made-by-act"), 0755);
	unlink(in(out, "keep.txt"));
	rename(out, in(WS, "stolen"));
	chdir("/");
	for (int i = 0; i < 40; i++)
		chdir("..");
	show_file(out + 1);
	tried("files outside");
}

static void through_init(void)
{
	char path[4200];
	const char *links[] = {"root", "cwd", "task/1/root", "task/1/cwd"};
	for (size_t i = 0; i < COUNT(links); i++) {
		snprintf(path, sizeof path, "/proc/1/%s%s/.env", links[i], WS);
		show_file(path);
		snprintf(path, sizeof path, "/proc/1/%s%s/secret.txt", links[i], want("OUT"));
		show_file(path);
	}
	int got = 0;
	const char *files[] = {"mem", "environ", "maps", "auxv", "syscall", "stack", "exe", "pagemap"};
	for (size_t i = 0; i < COUNT(files); i++) {
		snprintf(path, sizeof path, "/proc/1/%s", files[i]);
		int fd = open(path, O_RDONLY);
		char b;
		if (fd >= 0 && read(fd, &b, 1) == 1)
			got++, printf("/proc/1/%s can be read\n", files[i]);
	}
	for (int fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof path, "/proc/1/fd/%d", fd);
		if (open(path, O_RDONLY | O_NONBLOCK) >= 0)
			got++, printf("/proc/1/fd/%d can be opened\n", fd);
	}
	got ? done("%d files of init", got) : refused("/proc/1: %s", why());
}

static void scratch(void)
{
	const char *dirs[] = {"/tmp", "/var/tmp", "/dev/shm", "/run", "/dev/mqueue", "/var/lock"};
	char path[256];
	for (size_t i = 0; i < COUNT(dirs); i++) {
		snprintf(path, sizeof path, "%s/act-%s", dirs[i], want("TOKEN"));
		put(path, "x", 0666);
	}
	tried("scratch files");
}

static void inherited(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	int n = 0;
	while (d && (e = readdir(d))) {
		int fd = atoi(e->d_name);
		if (fd <= 2 || fd == dirfd(d) || e->d_name[0] == '.')
			continue;
		n++;
		printf("descriptor %d\n", fd);
		lseek(fd, 0, SEEK_SET);
		show(openat(fd, "secret.txt", O_RDONLY));
		show(dup(fd));
	}
	n ? done("%d inherited descriptors", n) : refused("no descriptor above 2");
}

static void environment(void)
{
	extern char **environ;
	for (char **e = environ; *e; e++)
		puts(*e);
	show_file("/proc/self/environ");
	tried("environment");
}

const struct act file_acts[] = {
	{"file-spelling", "", "other spellings of denied paths", spellings},
	{"file-openat2", "", "openat2 with every RESOLVE flag", resolve_flags},
	{"file-opath", "", "an O_PATH descriptor, opened again by its magic link", opath_reopen},
	{"file-open-tree", "", "open_tree, cloned and not", open_tree_},
	{"file-handle", "", "open_by_handle_at", by_handle},
	{"file-rename", "", "exchange or rename a denied file to a plain name", rename_exchange},
	{"file-rename-dir", "", "rename the directory that the rule names", rename_dir},
	{"file-hard-link", "", "hard links to denied files, by path and by descriptor", hard_link},
	{"file-symlink", "", "symlinks to denied files, read and written through", sym_link},
	{"file-memory-swap", "", "change the path in memory while it is being checked", memory_swap},
	{"file-dirfd-swap", "", "change the directory descriptor while it is being checked", dirfd_swap},
	{"file-symlink-swap", "", "change the link while it is being checked", symlink_swap},
	{"file-fifo-swap", "", "exchange a fifo with the denied file", fifo_swap},
	{"file-storm", "", "open a denied file while everything beside it changes", storm},
	{"file-inotify", "", "watch a denied file", watch},
	{"file-xattr", "", "read and write attributes of a denied file", xattr_},
	{"file-change-denied", "", "truncate, chmod, unlink, replace denied files", change_denied},
	{"file-outside", "", "read, write, delete outside the workspace", outside_files},
	{"file-init", "", "init's root, memory, environment and descriptors in /proc/1", through_init},
	{"file-scratch", "", "leave files in the host's /tmp, /dev/shm, /run", scratch},
	{"file-inherited", "fds", "use descriptors that the launcher left open", inherited},
	{"env-leak", "", "read secrets from the environment", environment},
	{0},
};
