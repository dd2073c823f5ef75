package inside

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
)

// desk answers the questions of the jail's processes about what they were denied: one
// question and one answer a connection, one connection at a time, in memory that does
// not grow. It only carries: what is said comes from the helper. Whoever is slow, rude
// or many takes the time of others who ask, and of nobody else.
type desk struct {
	answers chan jail.Message
}

// How long one connection may take: to ask, and to be answered by the helper.
const (
	askTime    = 100 * time.Millisecond
	answerTime = 2 * time.Second
	backlog    = 16 // connections that wait; more get EAGAIN or wait in connect
)

// openDesk binds the socket and serves it on a thread that has no capability and no
// right to any file.
func (s *state) openDesk() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make socket: %w", err)
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: jail.WhySocket}); err == nil {
		if err = unix.Chmod(jail.WhySocket, 0o666); err == nil {
			err = unix.Listen(fd, backlog)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("listen on %s: %w", jail.WhySocket, err)
	}
	s.desk.answers = make(chan jail.Message, 1)
	ready := make(chan error)
	go func() { // lives as long as the process
		runtime.LockOSThread() // never unlocked: what the thread has given up stays given up
		err := humble(s.abi)
		ready <- err
		if err == nil {
			s.serveDesk(fd)
		}
	}()
	return <-ready
}

// humble takes all capabilities and all files from the calling thread.
func humble(abi int) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if abi >= 1 {
		rules, err := ll.LandlockCreateRuleset(&ll.RulesetAttr{HandledAccessFS: handled(abi)}, 0)
		if err != nil {
			return fmt.Errorf("create ruleset: %w", err)
		}
		defer unix.Close(rules)
		if err := ll.LandlockRestrictSelf(rules, 0); err != nil {
			return fmt.Errorf("restrict with landlock: %w", err)
		}
	}
	if e := capset(0, false); e != 0 {
		return fmt.Errorf("empty capabilities: %w", e)
	}
	return nil
}

func (s *state) serveDesk(fd int) {
	question := make([]byte, jail.MaxQuestion+1)
	for number := uint64(1); ; number++ {
		conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		switch {
		case err == nil:
			s.desk.one(s, conn, number, question)
			_ = unix.Close(conn)
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS):
			time.Sleep(askTime) // they come back
		}
	}
}

// one serves one connection. Descriptors that come with the question are never taken:
// there is no room for control messages.
func (d *desk) one(s *state, conn int, number uint64, question []byte) {
	p := []unix.PollFd{{Fd: int32(conn), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, int(askTime.Milliseconds())); err != nil || n != 1 {
		return
	}
	n, _, _, _, err := unix.Recvmsg(conn, question, nil, 0)
	if err != nil || n == 0 && p[0].Revents&unix.POLLHUP != 0 {
		return
	}
	if n > jail.MaxQuestion {
		_ = unix.Send(conn, []byte("0the question is too long\n"), unix.MSG_NOSIGNAL)
		return
	}
	text := d.ask(s, number, string(question[:n]))
	_ = unix.Send(conn, []byte(text), unix.MSG_NOSIGNAL) // does not wait: it is non-blocking
}

// ask carries a question to the helper and waits for the answer.
func (d *desk) ask(s *state, number uint64, question string) string {
	s.events.flush() // the helper knows of every denial by then
	if err := s.control.Send(jail.Message{Op: jail.OpWhy, ID: number, Text: question}); err != nil {
		return "0nobody answers\n"
	}
	t := time.NewTimer(answerTime)
	defer t.Stop()
	for {
		select {
		case m := <-d.answers:
			if m.ID == number {
				return m.Text
			}
		case <-t.C:
			return "0the helper does not answer; ask again\n"
		}
	}
}

// answered takes the helper's answer; nobody waits for a late one.
func (d *desk) answered(m jail.Message) {
	for {
		select {
		case d.answers <- m:
			return
		default:
		}
		select {
		case <-d.answers: // the late answer to a question that was given up
		default:
		}
	}
}
