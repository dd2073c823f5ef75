package job

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Name is argv[0] of this program.
const Name = "agentos-job"

// forwarded are the signals that the command gets when this program does. The keys of
// the terminal send theirs to the foreground group, where this program never is.
var forwarded = []os.Signal{unix.SIGHUP, unix.SIGTERM, unix.SIGCONT, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM}

// Main runs argv, whose first word is a path, in the foreground of the terminal that is
// its standard input, and returns the exit status: the command's, 127 when there is no such
// command, 126 when it may not be executed. Preconditions: this process leads the
// terminal's session.
func Main(argv []string) int {
	runtime.GOMAXPROCS(1) // it waits
	if len(argv) == 0 {
		return 125
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, append([]os.Signal{unix.SIGCHLD}, forwarded...)...)
	// Caught and dropped; ignored, they would be so in the command as well.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE)
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true, Foreground: true, Ctty: 0},
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "agentos: execute %s: %v\r\n", argv[0], err)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return 127
		}
		return 126
	}
	for sig := range signals {
		if sig != unix.SIGCHLD {
			s, _ := sig.(unix.Signal)
			_ = unix.Kill(-pid, s)
			continue
		}
		if status, ended := reap(pid); ended {
			return status
		}
	}
	return 125 // not reached: nobody closes signals
}

// reap takes the news of the command: it stops when the command has stopped, and
// reports its status when it has ended.
func reap(pid int) (status int, ended bool) {
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(pid, &ws, unix.WNOHANG|unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || got != pid:
			return 0, false
		case ws.Stopped():
			_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
		case ws.Signaled():
			return 128 + int(ws.Signal()), true
		default:
			return ws.ExitStatus(), true
		}
	}
}
