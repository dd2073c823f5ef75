# Reads a FIFO from several threads, before and after the rules deny it, not while they change: who opens it just then is killed.
# Prints what it gets.
import os, threading, time

os.close(os.open("ready", os.O_WRONLY | os.O_CREAT, 0o666))
seen = set()


def read(name):
    end = time.time() + 60
    after = 0
    while time.time() < end and after < 2000:
        if os.path.exists("pause") and not os.path.exists("go"):
            os.write(1, b"PAUSED\n")
            while not os.path.exists("go"):
                time.sleep(0.01)
        after += os.path.exists("go")
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
            text = os.read(fd, 100)
            os.close(fd)
            if text:
                os.write(1, text + b"\n")
        except OSError as e:
            if e.strerror not in seen and e.errno != 11:
                seen.add(e.strerror)
                os.write(1, b"SAID %d\n" % e.errno)


threads = [threading.Thread(target=read, args=[n]) for n in ["pipe", "./sub/../pipe", "/proc/self/cwd/pipe"]]
[t.start() for t in threads]
[t.join() for t in threads]
print("ALIVE")
