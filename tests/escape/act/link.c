/* link.c: files with several names, and attributes that are changed without any content. */
#include "act.h"
#include <sys/xattr.h>

static void old_link(void)
{ /* the test linked late/.env to late/plain.txt before the jail: one is denied, the other an ordinary name */
	const char *denied = in(WS, "late/.env"), *plain = in(WS, "late/plain.txt");
	char magic[64];
	if (access(plain, F_OK))
		skip("the test did not make late/plain.txt");
	if (show_file(denied) > 0)
		done("the denied name is read");
	for (int i = 0; i < 3; i++) {
		show_file(plain);
		show(open(plain, O_RDONLY | O_NOATIME | O_NONBLOCK));
		show(open(plain, O_RDWR));
		show(open(plain, O_RDWR | O_CREAT, 0644));
		show(open(plain, O_RDWR | O_APPEND | O_NOFOLLOW));
	}
	close(open(plain, O_WRONLY | O_CREAT | O_TRUNC, 0644));
	close(open(plain, O_WRONLY | O_TRUNC));
	truncate(plain, 0);
	chmod(plain, 0777);
	int fd = open(plain, O_PATH);
	snprintf(magic, sizeof magic, "/proc/self/fd/%d", fd);
	show_file(magic);
	show(open(magic, O_RDWR));
	rename(plain, in(WS, "late/renamed.txt"));
	show_file(in(WS, "late/renamed.txt"));
	link(in(WS, "late/renamed.txt"), in(WS, "late/third.txt"));
	show_file(in(WS, "late/third.txt"));
	mkdir(in(WS, "late/dir"), 0755);
	rename(in(WS, "late/renamed.txt"), in(WS, "late/dir/again"));
	show_file(in(WS, "late/dir/again"));
	tried("an old link to a denied file");
}

static void stamp(const char *path)
{
	static const struct timespec old[2] = {{1, 0}, {1, 0}};
	static const struct timeval older[2] = {{2, 0}, {2, 0}};
	utimensat(AT_FDCWD, path, old, 0);
	utimensat(AT_FDCWD, path, old, AT_SYMLINK_NOFOLLOW);
	utimensat(AT_FDCWD, path, NULL, 0);
	utimes(path, older);
	int fd = open(path, O_RDONLY);
	if (fd >= 0) {
		futimens(fd, old);
		futimens(fd, NULL);
		fchmod(fd, 0777);
		fchown(fd, -1, getgid());
		fsetxattr(fd, "user.note", "changed", 7, 0);
		fremovexattr(fd, "user.note");
		close(fd);
	}
	fd = open(path, O_PATH);
	if (fd >= 0) {
		char magic[64];
		snprintf(magic, sizeof magic, "/proc/self/fd/%d", fd);
		utimensat(AT_FDCWD, magic, old, 0);
		utimensat(fd, "", old, AT_EMPTY_PATH);
		setxattr(magic, "user.note", "changed", 7, 0);
		chmod(magic, 0777);
	}
	setxattr(path, "user.note", "changed", 7, 0);
	lsetxattr(path, "user.note", "changed", 7, 0);
	removexattr(path, "user.note");
	lremovexattr(path, "user.note");
	chmod(path, 0777);
	chown(path, -1, getgid());
}

static void attributes(void)
{
	char buf[256] = "";
	stamp(in(WS, ".env"));
	stamp(in(WS, "sub/.env"));
	stamp(in(WS, "secrets/gold"));
	stamp(in(WS, "secrets"));
	stamp(in(WS, ".git/config"));
	stamp(in(WS, ".git/hooks"));
	symlink("../.env", in(WS, "late-link"));
	stamp(in(WS, "late-link"));
	if (getxattr(in(WS, ".env"), "user.note", buf, sizeof buf - 1) > 0 || lgetxattr(in(WS, ".env"), "user.note", buf, sizeof buf - 1) > 0)
		printf("%s\n", buf);
	put(in(WS, "mine"), "x", 0644);
	static const struct timespec old[2] = {{1, 0}, {1, 0}};
	if (utimensat(AT_FDCWD, in(WS, "mine"), old, 0))
		skip("the times of a file of its own cannot be set: %s", why());
	tried("times and attributes of denied and protected files");
}

const struct act link_acts[] = {
	{"file-old-link", "linked", "read or change a denied file by a name it had before the jail", old_link},
	{"file-attributes", "", "change times, mode, owner and attributes of denied and protected files", attributes},
	{0},
};
