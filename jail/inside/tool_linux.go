package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
)

const usage = `usage: agentos why                      what was denied last, by which rule, and how to ask for it
       agentos why PATH                 the same about one path
       agentos why read|write|exec PATH would it be allowed? exit status 0 or 126
`

// Tool is `agentos` for those in the jail: it asks the desk and prints the answer. It
// has the rights of who runs it and no others. It returns the exit status: 126 when
// what was asked about is denied, 125 when nothing could be asked.
func Tool(args []string) int {
	if len(args) == 0 || args[0] != "why" || len(args) > 3 || slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		fmt.Fprint(os.Stderr, usage)
		return 125
	}
	question, static := "why", false
	if args = args[1:]; len(args) == 2 {
		question, static, args = args[0], true, args[1:]
	}
	if len(args) == 1 {
		p, err := filepath.Abs(args[0])
		if err != nil {
			fmt.Fprintln(os.Stderr, "agentos:", err)
			return 125
		}
		question += "\x00" + p
	}
	answer, err := consult(question)
	for tries := 0; errors.Is(err, errBusy) && tries < 20; tries++ {
		time.Sleep(askTime)
		answer, err = consult(question)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentos: ask why:", err)
		return 125
	}
	fmt.Print(answer[1:])
	if static && answer[0] != '1' {
		return 126
	}
	return 0
}

// errBusy: the desk has hung up. It does not wait for who has connected and says nothing
// for askTime, and on a busy machine that can be us.
var errBusy = errors.New("too busy; ask again")

// consult asks one question at the desk.
func consult(question string) (string, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: jail.WhySocket}); err != nil {
		return "", &os.PathError{Op: "connect", Path: jail.WhySocket, Err: err}
	}
	patience := unix.NsecToTimeval(int64(3 * answerTime / time.Nanosecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return "", err
	}
	if err := unix.Send(fd, []byte(question), unix.MSG_NOSIGNAL); errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return "", errBusy
	} else if err != nil {
		return "", err
	}
	buf := make([]byte, jail.MaxAnswer)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return "", errors.New("no answer")
	case n == 0 && err == nil, errors.Is(err, unix.ECONNRESET):
		return "", errBusy
	case err != nil:
		return "", err
	}
	return string(buf[:n]), nil
}
