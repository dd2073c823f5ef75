# Opens denied files and runs a denied program as fast as it can, by eight threads of each of two processes, until somebody ends it.
# What it gets goes to a file that was opened before, because nothing may be left to open then.
import os, subprocess, sys, threading

leak = os.open("leak", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
names = [".env", "sub/.env", "./sub/../.env", "/proc/self/cwd/.env", "linked", "sub/.env", ".env", "secrets/gold"]
os.symlink(".env", "linked")
os.fork()


def read(name):
    tries = 0
    while True:
        tries += 1
        try:
            fd = os.open(name, os.O_RDONLY)
            os.write(leak, b"READ " + os.read(fd, 1 << 20))
        except OSError:
            pass
        if tries == 50:
            os.write(leak, b"tried %s\n" % name.encode())


def execute():
    while True:
        try:
            out = subprocess.run(["secrets/echo", "EXECUTED"], capture_output=True).stdout
            os.write(leak, b"RUN " + out)
        except OSError:
            pass


for name in names[1:]:
    threading.Thread(target=read, args=[name]).start()
threading.Thread(target=execute).start()
read(names[0])
