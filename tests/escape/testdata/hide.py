# What an agent can do to find names that a rule hides. It prints all that it learns; the test looks for the names.
import ctypes, errno, os, subprocess, sys, threading

libc = ctypes.CDLL(None, use_errno=True)
home = os.environ["HOME"]
tops = [".", os.path.join(os.getcwd()), os.path.join(home, "over")]


def run(*argv):
    out = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=120)
    print("$", *argv[:3], out.returncode)
    print(out.stdout, out.stderr)


for top in tops:
    for path, dirs, files in os.walk(top):
        if "/.git" not in path:
            print(path, dirs, files)
    run("ls", "-laRi", "--ignore=.git", top)
    run("find", top, "-not", "-path", "*/.git/*", "-printf", "%p %i\n")
    run("du", "-a", os.path.join(top, "sub"))
    run("sh", "-c", "cd %s && echo * .* */* */*/* && tar cf - sub | tar tf - && grep -r SECRET . ; cp -r sub /tmp/copy && find /tmp/copy; rm -r /tmp/copy" % top)
run("git", "add", "-An")
run("git", "status", "--short", "-uall")
print("LISTED", len(tops), "trees")

# The same by calls, by a directory that is held, by places in it, with small buffers and by several threads.
fd = os.open("sub", os.O_RDONLY | os.O_DIRECTORY)
for p in ["/proc/self/fd/%d" % fd, "/proc/thread-self/fd/%d/" % fd, "/proc/self/cwd/sub", "/proc/self/root" + os.getcwd() + "/sub"]:
    print(os.listdir(p))
buf = ctypes.create_string_buffer(1 << 16)
for size in [24, 32, 40, 64, 100, 280, 1000, 1 << 16]:
    os.lseek(fd, 0, os.SEEK_SET)
    for _ in range(400):
        ctypes.memset(buf, 0, len(buf))
        n = libc.syscall(217, fd, buf, size)  # getdents64
        if n <= 0:
            break
        print(size, buf.raw[:n])
for n in [78, 220]:  # getdents, and a number of others
    print("old", libc.syscall(n, fd, buf, 4096), buf.raw[:4096].strip(b"\0"))


def race():
    for _ in range(200):
        os.lseek(fd, 0, os.SEEK_SET)
        n = libc.syscall(217, fd, buf, 4096)
        if n > 0:
            print(buf.raw[:n])


threads = [threading.Thread(target=race) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]


def told(what, there, missing):
    """An errno for what is there that is not the one for what is not."""
    got = []
    for name in (there, missing):
        try:
            what(name)
            got.append("done")
        except OSError as e:
            got.append(errno.errorcode[e.errno])
    if got[0] != got[1]:
        print("TOLD", what.__name__, there, "and", missing, *got)


def rd(p): os.close(os.open(p, os.O_RDONLY))
def path(p): os.close(os.open(p, os.O_PATH))
def wr(p): os.close(os.open(p, os.O_WRONLY))
def trunc(p): os.truncate(p, 0)
def access(p): os.stat(p) if os.access(p, os.F_OK) else rd(p)
def link(p): os.link(p, "linked")
def move(p): os.rename(p, "moved")
def onto(p): os.rename("plain", p)
def over(p): os.link("plain", p)
def excl(p): os.close(os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
def creat(p): os.close(os.open(p, os.O_CREAT | os.O_RDWR))
def fifo(p): os.mkfifo(p)
def sym(p): os.symlink("x", p)
def mode(p): os.chmod(p, 0o777)
def times(p): os.utime(p)
def run1(p): os.execv(p, [p])
def xattr(p): os.getxattr(p, "user.x")
def inside(p): os.stat(p + "/x")
def up(p): os.stat(p + "/../seen-file")
def watch(p):
    n = libc.inotify_init()
    if libc.inotify_add_watch(n, p.encode(), 0x100) < 0:
        raise OSError(ctypes.get_errno(), "watch")


open("plain", "w").close()
acts = [os.stat, os.lstat, rd, path, wr, trunc, access, os.readlink, os.chdir, os.listdir, os.unlink, os.rmdir, link, move, onto, over, excl, creat,
        os.mkdir, fifo, sym, mode, times, run1, xattr, os.listxattr, os.statvfs, inside, up, watch]
for act in acts:
    for there, missing in [("unseen-fixed", "unseen-none"), ("sub/unseen.d", "sub/unseen-d"), ("unseen-link", "unseen-none"), ("unseen-fifo", "unseen-none"),
                           ("sub/deep/unseen-fixed", "sub/deep/unseen-none")]:
        told(act, there, missing)
for there, missing in [("sub/to", "sub/nowhere"), ("sub/through/seen-file", "sub/nowhere/seen-file"), ("sub/unseen.d/../seen-file", "sub/none/../seen-file")]:
    for act in [os.stat, rd, path, os.chdir, os.listdir]:
        told(act, there, missing)
subprocess.run(["cat", "x.pem"], stderr=subprocess.DEVNULL)
run("agentos", "why")  # says what was denied, and must not say of what was told not to be there
for p in ["unseen-fixed", "unseen-none"]:
    run("agentos", "why", p)
print("COMPARED", len(acts))
