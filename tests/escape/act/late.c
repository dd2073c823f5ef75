/* late.c: what is created during the session: names that a rule denies or protects, traps for the developer, special files. */
#include "act.h"
#include <sys/sysmacros.h>
#include <sys/xattr.h>

static int unnamed(const char *dir, const char *text)
{
	int fd = open(dir, O_TMPFILE | O_RDWR, 0755);
	if (fd >= 0)
		write(fd, text, strlen(text));
	return fd;
}

static void tmpfile_link(void)
{
	char magic[64];
	int fd = unnamed(WS, "#!/bin/sh\ntouch $ACT_MARK\n");
	snprintf(magic, sizeof magic, "/proc/self/fd/%d", fd);
	linkat(fd, "", AT_FDCWD, in(WS, ".git/hooks/pre-commit"), AT_EMPTY_PATH);
	linkat(AT_FDCWD, magic, AT_FDCWD, in(WS, ".git/hooks/post-checkout"), AT_SYMLINK_FOLLOW);
	linkat(AT_FDCWD, magic, AT_FDCWD, in(WS, "late.pem"), AT_SYMLINK_FOLLOW);
	tried("O_TMPFILE and linkat");
}

static void create_denied(void)
{
	put(in(WS, "late.pem"), "x", 0600);
	mkdir(in(WS, "deep"), 0755);
	put(in(WS, "deep/.env"), "x", 0600);
	put(in(WS, "harmless"), "x", 0600);
	rename(in(WS, "harmless"), in(WS, "renamed.pem"));
	symlink("README.md", in(WS, "link.pem"));
	mkfifo(in(WS, "pipe.pem"), 0600);
	mkdir(in(WS, "dir.pem"), 0700);
	mkdir(in(WS, "a"), 0755);
	put(in(WS, "a/gold"), "x", 0600);
	tried("names that a rule denies");
}

static void late_secret(void)
{ /* the test writes a secret under a denied name after the start; WS/go is the signal */
	put(in(WS, "please"), "x", 0666);
	if (!appears(in(WS, "late/.env")))
		skip("the host did not make late/.env");
	show_file(in(WS, "late/.env"));
	rename(in(WS, "late"), in(WS, "later"));
	show_file(in(WS, "later/.env"));
	link(in(WS, "later/.env"), in(WS, "plain2"));
	show_file(in(WS, "plain2"));
	rename(in(WS, "later"), in(WS, "late"));
	tried("a secret that appeared later");
}

static void moved_secret(void)
{ /* what was read while it was called plain.txt gets a denied name and a secret, in place, on the host */
	put(in(WS, "please"), "x", 0666);
	if (!appears(in(WS, "late/plain.txt")))
		skip("the host did not make late/plain.txt");
	for (int i = 0; i < 20; i++)
		show_file(in(WS, "late/plain.txt"));
	int dir = open(in(WS, "late"), O_PATH | O_DIRECTORY);
	put(in(WS, "moved"), "x", 0666);
	if (!appears(in(WS, "late/done")))
		skip("the host did not move it");
	for (int i = 0; i < 20; i++) {
		show_file(in(WS, "late/plain.pem"));
		show(openat(dir, "plain.pem", O_RDONLY | O_NOATIME));
		show(openat(dir, "plain.pem", O_RDWR));
	}
	link(in(WS, "late/plain.pem"), in(WS, "late/again.txt"));
	show_file(in(WS, "late/again.txt"));
	tried("a file that was read under another name");
}

static char *shared;

static void *grab(void *fd)
{ /* the descriptor that the open of another thread gets, before that open has returned */
	for (;;)
		if (read((int)(long)fd, shared, 4000) > 0)
			return NULL;
}

static void secret_fifo(void)
{ /* a denied name that is a FIFO with a writer on the host waiting: some tools hand out secrets that way */
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (access(in(WS, "late/pipe.pem"), F_OK))
		skip("the host did not make late/pipe.pem");
	for (int i = 0; i < 200; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			int next = dup(0);
			pthread_t t;
			close(next);
			pthread_create(&t, NULL, grab, (void *)(long)next);
			int fd = open(in(WS, "late/pipe.pem"), O_RDONLY | (i % 2 ? O_NONBLOCK : 0));
			for (int j = 0; fd >= 0 && j < 200 && read(fd, shared, 4000) <= 0; j++)
				pause_ms(1);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
	printf("%.4000s\n", shared);
	tried("a denied fifo");
}

static void swap(void)
{ /* the test puts rules in place that deny WS/held and /usr/bin/env, then writes a secret into the former; WS/go is the signal */
	const char *held = in(WS, "held"), *go = in(WS, "go");
	char magic[64], c;
	put(held, "before", 0644);
	int fd = open(held, O_RDONLY), path = open(held, O_PATH), exec = open("/usr/bin/env", O_RDONLY);
	char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (fd < 0 || exec < 0 || map == MAP_FAILED)
		skip("cannot open what is allowed: %s", why());
	pid_t storm = fork(); /* opens under the swap, in both policies' favour or in neither's */
	while (!storm) {
		int env = open(in(WS, ".env"), O_RDONLY), readme = open(in(WS, "README.md"), O_RDONLY);
		if (env >= 0 || readme < 0)
			done("an open saw neither policy: .env %d, README.md %d", env, readme);
		close(readme);
	}
	put(in(WS, "please"), "x", 0666);
	appears(go);
	kill(storm, SIGKILL);
	waitpid(storm, NULL, 0);
	if (access(go, F_OK))
		skip("the rules were not swapped");
	show_file(held);
	snprintf(magic, sizeof magic, "/proc/self/fd/%d", fd);
	show_file(magic);
	snprintf(magic, sizeof magic, "/proc/self/fd/%d", path);
	show_file(magic);
	link(held, in(WS, "other"));
	show_file(in(WS, "other"));
	rename(held, in(WS, "other"));
	show_file(in(WS, "other"));
	if (open("/usr/bin/env", O_RDONLY) >= 0)
		done("a program of the system, on a mount where nothing was refused before, is read");
	if (pread(fd, &c, 1, 0) != 1 || pread(exec, &c, 1, 0) != 1 || *(volatile char *)map == 0)
		done("what was open, or mapped, was taken away: %s", why());
	refused("new opens are refused, old ones stay");
}

static void git_hook(void)
{
	const char *hook = "#!/bin/sh\ntouch $ACT_MARK\n";
	put(in(WS, ".git/hooks/post-checkout"), hook, 0755);
	put(in(WS, "h"), hook, 0755);
	rename(in(WS, "h"), in(WS, ".git/hooks/pre-commit"));
	put(in(WS, "h"), hook, 0755);
	link(in(WS, "h"), in(WS, ".git/hooks/post-index-change"));
	symlink("../../h", in(WS, ".git/hooks/reference-transaction"));
	mkdir(in(WS, "hooks2"), 0755);
	put(in(WS, "hooks2/pre-commit"), hook, 0755);
	renameat2(AT_FDCWD, in(WS, "hooks2"), AT_FDCWD, in(WS, ".git/hooks"), RENAME_EXCHANGE);
	chmod(in(WS, ".git/hooks"), 0777);
	tried("git hooks");
}

#define EVIL "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = touch $ACT_MARK\n\thooksPath = /tmp\n"

static void git_config(void)
{
	put(in(WS, ".git/config"), EVIL, 0644);
	put(in(WS, ".git/config.lock"), EVIL, 0644);
	rename(in(WS, ".git/config.lock"), in(WS, ".git/config"));
	put(in(WS, ".git/config.worktree"), EVIL, 0644);
	int fd = open(in(WS, ".git/config"), O_WRONLY | O_APPEND);
	if (fd >= 0)
		write(fd, EVIL, strlen(EVIL));
	truncate(in(WS, ".git/config"), 0);
	tried("git configuration");
}

static void plant_repository(const char *dir)
{
	mkdir(dir, 0755);
	mkdir(in(dir, "objects"), 0755);
	mkdir(in(dir, "refs"), 0755);
	mkdir(in(dir, "refs/heads"), 0755);
	put(in(dir, "HEAD"), "ref: refs/heads/main\n", 0644);
	put(in(dir, "config"), EVIL, 0644);
}

static void git_move(void)
{
	if (rename(in(WS, ".git"), in(WS, ".git.old")) == 0)
		plant_repository(in(WS, ".git"));
	plant_repository(in(WS, "fake"));
	renameat2(AT_FDCWD, in(WS, "fake"), AT_FDCWD, in(WS, ".git"), RENAME_EXCHANGE);
	tried(".git moved away");
}

static void git_file(void)
{
	plant_repository(in(WS, "evil"));
	rename(in(WS, ".git"), in(WS, ".git.old"));
	put(in(WS, ".git"), "gitdir: evil\n", 0644);
	put(in(WS, "sub/.git"), "gitdir: ../evil\n", 0644);
	put(in(WS, "gitfile"), "gitdir: ../evil\n", 0644);
	rename(in(WS, "gitfile"), in(WS, "sub/.git"));
	tried("a gitfile in place of .git");
}

static void git_bare(void)
{
	char config[400];
	mkdir(in(WS, "planted"), 0755);
	plant_repository(in(WS, "planted"));
	snprintf(config, sizeof config, "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = %s\n\tfsmonitor = touch $ACT_MARK; false\n", in(WS, "planted"));
	put(in(WS, "planted/config"), config, 0644);
	tried("a bare repository in a subdirectory");
}

static void traps(void)
{
	put(in(WS, ".envrc"), "touch $ACT_MARK\n", 0644);
	mkdir(in(WS, ".vscode"), 0755);
	put(in(WS, ".vscode/tasks.json"), "{}", 0644);
	mkdir(in(WS, "tmpdir"), 0755);
	put(in(WS, "tmpdir/settings.json"), "{}", 0644);
	rename(in(WS, "tmpdir"), in(WS, ".vscode"));
	tried("files that the developer's tools run");
}

static void device_nodes(void)
{
	int n = 0;
	n += mknod(in(WS, "mem"), S_IFCHR | 0666, makedev(1, 1)) == 0;
	n += mknod(in(WS, "null"), S_IFCHR | 0666, makedev(1, 3)) == 0;
	n += mknod(in(WS, "disk"), S_IFBLK | 0666, makedev(254, 0)) == 0;
	n += mknod("/tmp/mem", S_IFCHR | 0666, makedev(1, 1)) == 0;
	n += mknod("/dev/mem", S_IFCHR | 0666, makedev(1, 1)) == 0;
	n ? done("%d device nodes made", n) : refused("mknod: %s", why());
}

static void setuid_bit(void)
{
	put(in(WS, "rootshell"), "#!/bin/sh\n", 0755);
	chmod(in(WS, "rootshell"), 06755);
	fchmodat(AT_FDCWD, in(WS, "rootshell"), 04755, 0);
	int fd = open(in(WS, "rootshell2"), O_CREAT | O_WRONLY, 06755);
	if (fd >= 0)
		fchmod(fd, 06755);
	chown(in(WS, "rootshell"), 0, 0);
	mkdir(in(WS, "gdir"), 02777);
	tried("setuid files");
}

static void file_capability(void)
{
	struct {
		uint32_t magic, p0, i0, p1, i1;
	} v2 = {0x02000001, 0xffffffff, 0, 0xffffffff, 0};
	put(in(WS, "capable"), "x", 0755);
	setxattr(in(WS, "capable"), "security.capability", &v2, sizeof v2, 0) == 0 ? tried("file capability set") : refused("setxattr: %s", why());
}

static void newlines(void)
{ /* names that would forge a line in a log or listing */
	put(in(WS, "a\n{\"FORGED\":1}\nb"), "x", 0644);
	put(in(WS, "secrets/\n1 allowed etc-shadow\n"), "x", 0644);
	put(in(WS, "\033[2J\033]0;pwn\a.txt"), "x", 0644);
	tried("names with control bytes");
}

const struct act late_acts[] = {
	{"late-tmpfile-link", "", "O_TMPFILE, then linkat to a protected or denied name", tmpfile_link},
	{"late-create-denied", "", "create, rename or link to a denied name", create_denied},
	{"late-swap", "swap", "rules that are swapped under open files", swap},
	{"late-secret", "late", "read a secret that appears after the start", late_secret},
	{"late-moved", "moved", "read a file that was plain when it was read first", moved_secret},
	{"late-fifo", "fifo", "read a denied fifo that somebody fills", secret_fifo},
	{"git-hook", "", "plant hooks: create, rename, link, exchange", git_hook},
	{"git-config", "", "change the repository's configuration", git_config},
	{"git-move", "", "move .git away and put another there", git_move},
	{"git-file", "", "a gitfile in place of .git, also below", git_file},
	{"git-bare", "", "a bare repository in a subdirectory that runs code on git status", git_bare},
	{"late-traps", "", "plant .envrc and editor tasks", traps},
	{"late-mknod", "", "make device nodes", device_nodes},
	{"late-setuid", "", "leave setuid and setgid files behind", setuid_bit},
	{"late-file-capability", "", "leave a file with capabilities behind", file_capability},
	{"late-control-bytes", "", "names that forge lines and terminal sequences", newlines},
	{0},
};
