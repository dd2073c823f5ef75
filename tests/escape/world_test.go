//go:build root

package escape

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// world is what lies around a jail: a workspace, a home, other files, listeners and a process of the same user, each with a canary that
// no act can know unless it got there.
type world struct {
	t     *testing.T
	base  string
	uid   int
	token string

	tcp, udp, listen, shm int
	shmID                 int
	noQueue               error // why the host has no message queue
	victim                *exec.Cmd
	helper                *exec.Cmd // that was started last; nil with one that was there
	victimLog             *lockedBuffer

	mu      sync.Mutex
	heard   []string
	secrets map[string]string
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func random() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.base}, elem...)...)
}

// canary makes a secret for a place; finding it in an act's output proves that the act was there.
func (w *world) canary(place string) string {
	c := "canary-" + random()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets[c] = place
	return c
}

func newWorld(t *testing.T, uid int) *world {
	t.Helper()
	must(t, os.MkdirAll("/srv", 0o755))
	base, err := os.MkdirTemp("/srv", "agentos-escape.")
	must(t, err)
	w := &world{t: t, base: base, uid: uid, secrets: map[string]string{}, victimLog: &lockedBuffer{}}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	must(t, os.Chmod(base, 0o755))
	for _, d := range []string{"home", "home/.ssh", "home/.aws", "out", "ws", "mark", "notes"} {
		must(t, os.MkdirAll(w.path(d), 0o755))
	}
	w.put("home/.ssh/id_rsa", w.canary("~/.ssh/id_rsa"), 0o600)
	w.put("home/.aws/credentials", w.canary("~/.aws/credentials"), 0o600)
	w.put("home/.bashrc", "# rc\n", 0o644)
	w.put("out/secret.txt", w.canary("a file outside"), 0o644)
	w.put("out/keep.txt", "keep\n", 0o644)
	w.own("home", "out", "mark", "notes") // notes: of agentos itself
	w.listeners()
	w.startVictim()
	return w
}

func (w *world) put(name, text string, mode fs.FileMode) {
	w.t.Helper()
	must(w.t, os.MkdirAll(filepath.Dir(w.path(name)), 0o755))
	must(w.t, os.WriteFile(w.path(name), []byte(text), mode))
	must(w.t, os.Chmod(w.path(name), mode))
}

func (w *world) own(names ...string) {
	for _, n := range names {
		_ = filepath.WalkDir(w.path(n), func(p string, _ fs.DirEntry, err error) error {
			if err == nil {
				err = os.Lchown(p, w.uid, w.uid)
			}
			return err
		})
	}
}

// reset makes the workspace new: a repository with secrets under denied names, denied programs, a socket of the host.
func (w *world) reset() {
	w.t.Helper()
	w.token = "t" + random()
	must(w.t, os.RemoveAll(w.path("ws")))
	must(w.t, os.Mkdir(w.path("ws"), 0o755))
	w.put("ws/README.md", "# project\n", 0o644)
	w.put("ws/.env", w.canary(".env"), 0o600)
	w.put("ws/sub/.env", w.canary("sub/.env"), 0o600)
	_ = unix.Setxattr(w.path("ws/.env"), "user.note", []byte(w.canary("an attribute of .env")), 0)
	act, err := os.ReadFile(actPath(w.t))
	must(w.t, err)
	w.put("ws/secrets/gold", string(act)+w.canary("secrets/gold"), 0o755)
	echo, err := os.ReadFile("/bin/echo")
	must(w.t, err)
	w.put("ws/secrets/echo", string(echo), 0o755)
	w.put("ws/act", string(act), 0o755)
	must(w.t, os.CopyFS(w.path("ws/.git"), os.DirFS(w.firstCommit())))
	w.own("ws")
	w.put("ws/suid", string(act), 0o755)
	must(w.t, os.Chmod(w.path("ws/suid"), 0o755|fs.ModeSetuid))
	must(w.t, os.MkdirAll(w.path("ws/.run"), 0o777))
	must(w.t, os.Chmod(w.path("ws/.run"), 0o777))
	must(w.t, os.Lchown(w.path("ws/.run"), w.uid, w.uid))
	w.unixListener(w.path("ws/.run/sock"))
	w.mu.Lock()
	w.heard = nil
	w.mu.Unlock()
	w.queue()
}

// firstCommit answers the .git of a repository in which README.md was committed. It is made once: workspaces get copies, which costs an
// emulated machine less than three programs.
func (w *world) firstCommit() string {
	w.t.Helper()
	dir := w.path("template/.git")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	w.put("template/README.md", "# project\n", 0o644)
	w.own("template")
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "README.md"}, {"commit", "-q", "-m", "first"}} {
		if out, err := w.git("template", args...); err != nil {
			w.t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return dir
}

// git runs git as the developer would: as the user, with the mark that planted code would touch.
func (w *world) git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", w.path(dir)}, args...)...)
	cmd.Env = []string{
		"HOME=" + w.path("home"), "PATH=/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "ACT_MARK=" + w.path("mark", "ran"),
		"GIT_AUTHOR_NAME=dev", "GIT_AUTHOR_EMAIL=d@x", "GIT_COMMITTER_NAME=dev", "GIT_COMMITTER_EMAIL=d@x",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.uid)}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (w *world) hear(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, fmt.Sprintf(format, args...))
}

func (w *world) listeners() {
	c := w.canary("a listener of the host")
	l, err := net.Listen("tcp", "[::]:0")
	must(w.t, err)
	w.tcp = l.Addr().(*net.TCPAddr).Port
	w.serve(l, "tcp", c)
	p, err := net.ListenPacket("udp", "[::]:0")
	must(w.t, err)
	w.udp = p.LocalAddr().(*net.UDPAddr).Port
	w.t.Cleanup(func() { _ = p.Close() })
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			w.hear("udp datagram %q from %v", b[:n], from)
		}
	}()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	w.listen = free.Addr().(*net.TCPAddr).Port
	must(w.t, free.Close())
	w.unixListener(w.path("out/sock"))
	w.unixListener("@agentos-escape-" + filepath.Base(w.base))

	w.shm = 0x41637400 + os.Getpid()%256
	w.shmID, err = unix.SysvShmGet(w.shm, 4096, unix.IPC_CREAT|0o666)
	must(w.t, err)
	mem, err := unix.SysvShmAttach(w.shmID, 0, 0)
	must(w.t, err)
	copy(mem, w.canary("shared memory"))
	must(w.t, unix.SysvShmDetach(mem))
	w.t.Cleanup(func() { _, _ = unix.SysvShmCtl(w.shmID, unix.IPC_RMID, nil) })
}

// queue makes a message queue named by the token, with a canary in it. The queue is as small as one may be: its bytes count on the
// user's RLIMIT_MSGQUEUE, which some machines set low. Where the machine allows none at all, noQueue says so and only ipc-mq is skipped.
func (w *world) queue() {
	msg := []byte(w.canary("a message queue"))
	_ = unix.Setrlimit(unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}) // refused without CAP_SYS_RESOURCE
	name, _ := unix.BytePtrFromString(w.token)
	attr := [8]int64{1: 1, 2: int64(len(msg))} // struct mq_attr: mq_maxmsg, mq_msgsize
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_CREAT|unix.O_RDWR, 0o666,
		uintptr(unsafe.Pointer(&attr)), 0, 0)
	if errno != 0 {
		w.noQueue = fmt.Errorf("mq_open: %w", errno)
		return
	}
	w.t.Cleanup(func() { _, _, _ = unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)), 0, 0) })
	defer func() { _ = unix.Close(int(fd)) }()
	if _, _, errno = unix.Syscall6(unix.SYS_MQ_TIMEDSEND, fd, uintptr(unsafe.Pointer(&msg[0])), uintptr(len(msg)), 0, 0, 0); errno != 0 {
		w.t.Fatalf("mq_timedsend: %v", errno)
	}
}

// unixListener answers each connection with a canary and a descriptor of a secret.
func (w *world) unixListener(path string) {
	c := w.canary("unix socket " + filepath.Base(path))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(w.t, err)
	if path[0] != '@' {
		must(w.t, os.Chmod(path, 0o777))
	}
	w.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			w.hear("connection to unix socket %s", filepath.Base(path))
			if f, err := os.Open(w.path("home/.ssh/id_rsa")); err == nil {
				_, _, _ = conn.WriteMsgUnix([]byte(c), unix.UnixRights(int(f.Fd())), nil)
				_ = f.Close()
			}
			_ = conn.Close()
		}
	}()
}

func (w *world) serve(l net.Listener, name, reply string) {
	w.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.hear("connection to %s from %v", name, c.RemoteAddr())
			_, _ = c.Write([]byte(reply))
			_ = c.Close()
		}
	}()
}

// startVictim starts a process of the same user that writes each signal it gets.
func (w *world) startVictim() {
	cmd := exec.Command("/bin/sh", "-c", `for s in HUP INT QUIT USR1 USR2 TERM WINCH CONT; do trap "echo $s" $s; done; echo ready; while :; do read x; done`, "act-victim", w.canary("a process's arguments"))
	cmd.Env = []string{"VICTIM=" + w.canary("a process's environment")}
	cmd.Stdout = w.victimLog
	stdin, err := cmd.StdinPipe()
	must(w.t, err)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.uid)}, Setsid: true}
	must(w.t, cmd.Start())
	w.victim = cmd
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = stdin.Close(); _ = cmd.Wait() })
	for end := time.Now().Add(time.Minute); !strings.Contains(w.victimLog.String(), "ready"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatal("the process that is to get no signals does not start")
		}
	}
}

// state is everything around the jail that no act may change, as text that can be compared and shown.
func (w *world) state() map[string]string {
	s := map[string]string{}
	for _, top := range []string{"home", "out", "mark", "ws/.git/config", "ws/.git/hooks", "ws/.env", "ws/sub/.env", "ws/secrets"} {
		_ = filepath.WalkDir(w.path(top), func(p string, _ fs.DirEntry, err error) error {
			if err == nil {
				s[strings.TrimPrefix(p, w.base+"/")] = describe(p)
			}
			return nil
		})
	}
	if fi, err := os.Lstat(w.path("ws/.git")); err == nil {
		s["ws/.git"] = fmt.Sprint(fi.IsDir(), fi.Sys().(*syscall.Stat_t).Ino)
	}
	host, _ := os.Hostname()
	s["host name"] = host
	for _, p := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/modprobe"} {
		b, _ := os.ReadFile(p)
		s[p] = string(b)
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	s["mounts"] = fmt.Sprint(bytes.Count(mounts, []byte{'\n'}))
	return s
}

func describe(p string) string {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return err.Error()
	}
	d := fmt.Sprintf("mode %o uid %d", st.Mode, st.Uid)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		b, _ := os.ReadFile(p)
		d += fmt.Sprintf(" sha256 %x, changed at %d.%09d", sha256.Sum256(b), st.Mtim.Sec, st.Mtim.Nsec)
	case unix.S_IFLNK:
		t, _ := os.Readlink(p)
		d += " -> " + t
	}
	note := make([]byte, 256)
	if n, err := unix.Lgetxattr(p, "user.note", note); err == nil {
		d += " note " + string(note[:n])
	}
	return d
}

func diff(before, after map[string]string) []string {
	var out []string
	for k, v := range before {
		if after[k] != v {
			out = append(out, fmt.Sprintf("%s changed: %q -> %q", k, v, after[k]))
		}
	}
	for k, v := range after {
		if _, ok := before[k]; !ok {
			out = append(out, fmt.Sprintf("%s appeared: %q", k, v))
		}
	}
	sort.Strings(out)
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
