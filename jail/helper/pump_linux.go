package helper

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/hook"
	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/meter"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

// attach starts the readers of a jail's two sockets. The channel is closed when
// both have read to the end, which comes when init has ended.
func (v *session) attach(j *jail.Jail) <-chan struct{} {
	var wg sync.WaitGroup
	wg.Add(2)
	go func() {
		defer wg.Done()
		v.readControl(j)
	}()
	go func() {
		defer wg.Done()
		v.readEvents(j)
	}()
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	return done
}

func (v *session) readControl(j *jail.Jail) {
	for {
		var m jail.Message
		fds, err := j.Control.Receive(&m)
		if err != nil {
			break
		}
		switch {
		case m.Op == jail.OpWhy:
			packet.CloseAll(fds)
			v.why(j, m)
		case m.ID != 0:
			v.mu.Lock()
			ch := v.pending[m.ID]
			delete(v.pending, m.ID)
			if m.Op == jail.OpRunning && v.procs[m.Proc] == nil {
				v.procs[m.Proc] = &proc{}
			}
			v.mu.Unlock()
			if ch == nil {
				packet.CloseAll(fds)
				continue
			}
			ch <- initAnswer{m, fds}
		case m.Op == jail.OpChanged:
			packet.CloseAll(fds)
			v.changed(j, m)
		default: // what no init says now
			packet.CloseAll(fds)
		}
	}
	v.initEnded(j)
}

// changed notes what happened to a process and wakes the waiting.
func (v *session) changed(j *jail.Jail, m jail.Message) {
	if m.What != "stopped" {
		v.settle(j)
	}
	v.limitsHit()
	v.mu.Lock()
	p := v.procs[m.Proc]
	if p == nil { // it ended before its start was answered
		p = &proc{}
		v.procs[m.Proc] = p
	}
	if m.What == "stopped" {
		p.stops = append(p.stops, m.Signal)
	} else {
		p.exited, p.code, p.signal = true, m.Code, m.Signal
	}
	v.mu.Unlock()
	if m.What != "stopped" && m.Proc == 1 && v.record.Load() != nil {
		v.record.Load().put(event.Event{Kind: event.End, Verdict: event.Allow, Code: m.Code, JailPid: int32(m.Pid)})
	}
	v.happened()
}

// initEnded marks every process as ended when init went away under them: by
// the kernel's hand, or ours.
func (v *session) initEnded(j *jail.Jail) {
	if v.now() != ended { // nobody told it to, or it says what no init says: it is not to go on
		j.Kill()
		<-j.Ended
		v.s.log.Error("init ended under its jail", "session", v.id, "said", firstLine(j.Said()))
	}
	v.settle(j)
	v.limitsHit()
	v.mu.Lock()
	for _, p := range v.procs {
		if !p.exited {
			p.exited, p.code, p.signal = true, 128+int(unix.SIGKILL), int(unix.SIGKILL)
		}
	}
	v.mu.Unlock()
	v.happened()
}

// limitsHit turns limits that were hit since the last look into records and
// into sentences for the user.
func (v *session) limitsHit() {
	if v.group == nil || v.record.Load() == nil {
		return
	}
	v.mu.Lock()
	hits, counts := v.group.Hits(v.counts)
	v.counts = counts
	v.mu.Unlock()
	for _, h := range hits {
		v.record.Load().put(event.Event{Kind: event.Limit, Verdict: event.Deny, Name: h.Limit, Count: h.Count, Detail: h.Text})
		v.mu.Lock()
		v.notices = append(v.notices, h.Text)
		v.mu.Unlock()
	}
}

func (v *session) readEvents(j *jail.Jail) {
	for {
		data, fds, err := j.Events.RecvHolding(&v.record.Load().events)
		if err != nil {
			return
		}
		v.take(data, fds)
		v.record.Load().events.Unlock()
	}
}

// take records what init sent and answers the time of the last event of it.
func (v *session) take(data []byte, fds []*os.File) (last uint64) {
	packet.CloseAll(fds)
	put := func(e event.Event) {
		last = e.Mono
		v.record.Load().put(e)
	}
	if err := jail.EachEvent(data, put); err != nil {
		v.record.Load().put(event.Event{Kind: event.Loss, Verdict: event.Deny, Count: 1, Detail: "init sent " + err.Error()})
	}
	return last
}

// settle records what has happened in the jail up to now. Init sends its events
// before it says that a process has ended, on another socket; the kernel's wait
// in their rings to be read. So an end comes after what was done, in the log and
// in the totals.
func (v *session) settle(j *jail.Jail) {
	until := bootClock() // what comes later is not waited for: a jail may never be silent
	v.record.Load().events.Lock()
	for {
		data, fds, err := j.Events.TryRecv()
		if err != nil { // empty, or its end, which readEvents sees too
			break
		}
		if v.take(data, fds) > until {
			break
		}
	}
	v.record.Load().events.Unlock()
	v.catchUp()
}

// catchUp takes what the kernel has told of the jail and nobody has read: that a
// process began, and what it executed, may wait in a ring.
func (v *session) catchUp() {
	h := v.s.kernel.h
	if h == nil {
		return
	}
	if err := h.Drain(v.number, v.s.observed); err != nil && !errors.Is(err, hook.ErrNoJail) {
		v.s.log.Error("read kernel events", "session", v.id, "error", err)
	}
}

func firstLine(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return "it said nothing"
	}
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// diskWrite is the guarantee that disk_write holds; it is judged for policies
// that have that limit.
const diskWrite = "disk-write"

// openMeter prepares the counting of bytes written. Without it disk_write is
// missing, nothing else.
func (s *Server) openMeter() error {
	m, err := meter.Open()
	if err != nil {
		s.log.Warn("bytes written are not counted", "error", err)
		s.unmetered = err
		return nil
	}
	s.meter = m
	return nil
}

// diskLacks says what is missing of disk_write here.
func (s *Server) diskLacks(r *policy.Resolved) []rpc.Missing {
	if r.Resources.DiskWrite == 0 || s.meter != nil {
		return nil
	}
	return []rpc.Missing{{Guarantee: diskWrite, Why: s.meterText(), Hint: "set a quota on the file system of the workspace"}}
}

// meterText says how disk_write is held here.
func (s *Server) meterText() string {
	switch {
	case s.meter != nil:
		return fmt.Sprintf("disk_write is noticed within %s, near the limit within %s", meter.Slowest, meter.Fastest)
	case s.unmetered != nil:
		return "bytes written are not counted: " + s.unmetered.Error()
	}
	return "bytes written are not counted"
}

// meterDisk ends the jail when it has written what the policy gives it.
func (l *launch) meterDisk() error {
	v, limit := l.v, l.v.res.Resources.DiskWrite
	if limit == 0 || v.s.meter == nil {
		return nil // judged
	}
	reached := func(wrote uint64) {
		text := fmt.Sprintf("disk_write = %s reached: the jail has written %d bytes to disk and was ended; %s sets the limit", limit, wrote, v.res.Where["resources.disk_write"])
		v.record.Load().put(event.Event{Kind: event.Limit, Verdict: event.Deny, Name: "disk_write", Count: wrote, Detail: text})
		v.notice(text)
		if err := v.group.Kill(); err != nil {
			v.s.log.Error("end jail at disk_write", "session", v.id, "error", err)
		}
	}
	lost := func() {
		v.record.Load().put(event.Event{Kind: event.Loss, Verdict: event.Deny, Count: 1, Detail: "bytes written by some threads were not counted: disk_write may be passed"})
	}
	stop, err := v.s.meter.Watch(v.group.FD(), l.b.sp.base, jail.RangeSize, uint64(limit), reached, lost)
	if err != nil {
		return err
	}
	v.push(func() error { stop(); return nil })
	return nil
}

// brokenGlass says without what the session does, nil if without nothing.
func (v *session) brokenGlass() *rpc.Glass {
	g := v.glass
	if g.ID == "" {
		return nil
	}
	return &rpc.Glass{Record: g.ID, Reason: g.Reason, Files: g.Files, Until: g.Until}
}

// glassPause is how late the end of a grant may be noticed.
const glassPause = time.Second

// watchGlass ends the jail when the grant that it lives by is over.
func (l *launch) watchGlass() error {
	v := l.v
	if v.glass.ID == "" {
		return nil
	}
	if !v.s.glass.Holds(v.glass) {
		return &rpc.Error{Code: rpc.Refused, Text: "the breaking of the glass that this session was made under is over", Hint: "start it again"}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(glassPause)
		defer tick.Stop()
		for v.s.glass.Holds(v.glass) {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
		text := fmt.Sprintf("the breaking of the glass (%s) is over: the session did without %d of the organisation's files and was ended", v.glass.Reason, len(v.glass.Files))
		v.record.Load().put(event.Event{Kind: event.Limit, Verdict: event.Deny, Name: "break-glass", Detail: text})
		v.notice(text)
		if err := v.group.Kill(); err != nil {
			v.s.log.Error("end jail at the end of its grant", "session", v.id, "error", err)
		}
	}()
	v.push(func() error { close(stop); <-stopped; return nil })
	return nil
}
