package inside

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/broker"
	"github.com/agentos/agentos/jail/opens"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/policy/glob"
)

// engine is the broker and the goroutine that serves it.
type engine struct {
	*broker.Broker
}

// loaded is the policy's automaton, or why there is none.
type loaded struct {
	*glob.Automaton
	err error
}

func loadRules(f *os.File) loaded {
	blob, err := readAll(f)
	if err != nil {
		return loaded{err: fmt.Errorf("read rules: %w", err)}
	}
	a, err := glob.Load(blob)
	if err != nil {
		return loaded{err: fmt.Errorf("load rules: %w", err)}
	}
	return loaded{a, nil}
}

// startBroker answers the filter's notifications from here
// on. Without a broker the rules live in the kernel alone.
func (s *state) startBroker() error {
	defer packet.CloseAll(s.parts)
	if !s.spec.Broker {
		return nil
	}
	rules := s.rules()
	if rules.err != nil {
		return rules.err
	}
	s.book.hold(rules.Automaton)
	b, err := broker.New(broker.Config{
		Listener: s.launch.listener, Rules: brokerBook{&s.book}, UID: s.spec.UID, GID: s.spec.GID,
		Emit: s.events.emit, Audit: s.spec.Audit, Sockets: true,
		Unix: s.spec.Unix, Private: s.spec.Private, Hide: s.spec.Hide, Kernel: s.spec.Kernel, Linked: &s.linked,
	})
	if err != nil {
		return err
	}
	s.broker = &engine{b}
	if err := s.startJudge(); err != nil {
		return err
	}
	go func() { // lives as long as the process
		if err := b.Serve(context.Background()); err != nil {
			giveUp("broker:", err) // without it every open fails; end the jail aloud
		}
	}()
	return nil
}

// fifoTime bounds the walk for FIFOs: some million files on a local disk.
const fifoTime = time.Second

// coverFifos covers the FIFOs that a rule denies with an empty file, whose opens are asked
// about. Of those that it does not find in fifoTime the reader is killed, as of those that
// come later; the receipt says so.
func (s *state) coverFifos() error {
	if len(s.spec.Fifos) == 0 {
		return nil
	}
	rules := s.rules()
	if rules.err != nil {
		return rules.err
	}
	allows := func(path string) bool { return rules.Match(path).Allows(glob.Read) }
	until, covered, partial := time.Now().Add(fifoTime), 0, ""
	for _, target := range s.spec.Fifos {
		f, err := opens.Fifos(s.root.FD, target, until, allows, s.cover)
		if err != nil {
			return err
		}
		if covered += f.Covered; f.Partial {
			partial = fmt.Sprintf("; given up after %d directories of %s: who opens another is killed", f.Dirs, target)
		}
	}
	s.checks = append(s.checks, jail.Check{Name: "cover denied FIFOs", Good: true, Text: fmt.Sprintf("%d covered%s", covered, partial)})
	return nil
}

// fresh answers nil if the FIFOs of the view are covered as they would be in a jail that is
// built now. Of what init does to a view, that alone goes by what lies in it; init cannot
// mount any more, so an error says that the jail is to be made anew.
func (s *state) fresh() error {
	if len(s.spec.Fifos) == 0 {
		return nil
	}
	rules := s.rules() // of the build: nothing has run, and none were swapped
	if rules.err != nil {
		return rules.err
	}
	allows := func(path string) bool { return rules.Match(path).Allows(glob.Read) }
	return opens.Missed(s.spec.Fifos, time.Now().Add(fifoTime), s.spec.UID, s.spec.GID, allows)
}

// sayMounted tells the helper that the view is whole, so that it marks the mounts on which
// something is refused.
func (s *state) sayMounted() error {
	if !s.spec.Opens {
		return nil
	}
	return s.control.Send(jail.Message{Op: jail.OpMounted})
}

// startJudge answers the events of marked mounts from here on.
func (s *state) startJudge() error {
	if !s.spec.Opens {
		return nil
	}
	var err error
	var layered []string
	for _, m := range s.spec.Mounts {
		if m.Kind == jail.Overlay {
			layered = append(layered, m.Target)
		}
	}
	s.judge, err = opens.New(opens.Config{
		Layered: layered, Group: s.group, Rules: judgeBook{&s.book}, UID: s.spec.UID, GID: s.spec.GID, Emit: s.events.emit, Linked: &s.linked,
	})
	if err != nil {
		return err
	}
	s.book.changed = s.judge.Changed
	go func() { // lives as long as the process
		err := s.judge.Serve()
		giveUp("opens:", err) // without it opens wait for ever; end the jail aloud
	}()
	return nil
}

// awaitMarks waits until the mounts are marked.
func (s *state) awaitMarks() error {
	if s.judge == nil {
		return nil
	}
	var m jail.Message
	fds, err := s.control.Receive(&m)
	packet.CloseAll(fds)
	if err != nil {
		return err
	}
	if m.Op != jail.OpMarked {
		return fmt.Errorf("want word that the mounts are marked, got %q", m.Op)
	}
	return nil
}

// proveOpens is the part of the jail check that shows that opens for reading are judged
// in this jail. From then on init's own opens pass: they are the broker's.
func (s *state) proveOpens() error {
	if s.judge == nil {
		return nil
	}
	err := s.judge.Prove(func() (err error) {
		s.launch.do(func() { err = open("/") })
		return err
	})
	if err != nil {
		return err
	}
	s.checks = append(s.checks, jail.Check{Name: "open / while it is refused", Good: true, Text: unix.EPERM.Error()})
	s.judge.Trust()
	return nil
}
