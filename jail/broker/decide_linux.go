package broker

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

var (
	deletedMark = []byte(" (deleted)")
	memfdMark   = []byte("/memfd:")
)

// check decides the object w.st whose canonical path is path, and leaves the
// answer in w.acc.
//
// An object without a name (pipe, memfd, O_TMPFILE on an internal mount) can only be
// reached through a descriptor that somebody holds: there is nothing to
// decide. An unlinked object is decided by the name it had, both as the kernel prints
// it and without the mark, because a file may really be called "x (deleted)".
func (w *worker) check(path []byte, need uint8) bool {
	if w.rules == nil || len(path) == 0 {
		return false
	}
	if path[0] != '/' {
		return !bytes.HasPrefix(path, []byte("(unreachable)"))
	}
	stripped, deleted := bytes.CutSuffix(path, deletedMark)
	if deleted && w.st.Nlink == 0 && bytes.HasPrefix(path, memfdMark) {
		return true
	}
	w.acc = w.rules.Match(view(path))
	if deleted && len(stripped) > 0 && need&^w.acc.Bits == 0 {
		w.acc = w.rules.Match(view(stripped))
	}
	return need&^w.acc.Bits == 0
}

// checkObject is check on an object that may have other names: what a rule refuses one of
// them, none gives. It goes by w.st.
func (w *worker) checkObject(path []byte, need uint8) bool {
	ok, l := w.check(path, need), w.b.c.Linked
	if l == nil || w.rules == nil || w.st.Nlink < 2 || w.st.Mode&unix.S_IFMT != unix.S_IFREG || len(path) == 0 || path[0] != '/' {
		return ok
	}
	if !ok {
		if ruled(w.acc, need) {
			l.Met(w.st.Dev, w.st.Ino, path)
		}
		return false
	}
	return !l.Refused(w.st.Dev, w.st.Ino, func(name string) bool {
		acc := w.rules.Match(name)
		if ruled(acc, need) {
			w.acc = acc // what the report names
			return false
		}
		return true
	})
}

// ruled reports whether a rule refuses some of need. That no rule allows to write says
// nothing of other names: a cache that is not writable shares files with the workspace.
func ruled(acc Answer, need uint8) bool {
	missing := need &^ acc.Bits
	return missing&^canWrite != 0 || missing&canWrite != 0 && acc.Rule[opWrite] != noRule
}

// checkName is checkObject on what has a name in a directory now, before it is opened
// by that name. The caller holds the lock of names.
func (w *worker) checkName(p *spot, need uint8) bool {
	l := w.b.c.Linked
	ok := w.check(p.full, need)
	if l == nil || ok && !l.Some() {
		return ok
	}
	if unix.Fstatat(p.dir, string(p.name[:len(p.name)-1]), &w.st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return ok // nothing is there
	}
	return w.checkObject(p.full, need)
}

// rule is the text of the rule that refused need.
func (w *worker) rule(need uint8) string {
	if w.rules == nil {
		return ""
	}
	missing := need &^ w.acc.Bits
	if missing == 0 {
		missing = need
	}
	for op, rule := range w.acc.Rule {
		if missing&(1<<op) != 0 && rule != noRule && rule != someRule {
			return w.rules.Text(rule)
		}
	}
	return w.rules.Text(noRule) // the helper's recorder names one of several
}

// about is what a report says besides the caller.
type about struct {
	kind        event.Kind
	path, path2 []byte
	name        string // of a call that is refused as such
	flags       uint64
	need        uint8
}

// deny reports a refusal and returns its errno.
func (w *worker) deny(a about, e unix.Errno) unix.Errno {
	w.told = true
	w.report(a, event.Deny, e)
	return e
}

// done reports a decision to allow and the errno of the act, which it returns.
func (w *worker) done(a about, e unix.Errno) unix.Errno {
	if w.b.auditAll || w.b.auditSome && (a.need&canWrite != 0 || a.kind != event.Open && a.kind != event.Watch) {
		w.report(a, event.Allow, e)
	}
	return e
}

func (w *worker) report(a about, v event.Verdict, e unix.Errno) {
	if w.b.c.Emit == nil {
		return
	}
	pid, exe := w.who()
	now, boot := w.now.read()
	ev := event.Event{
		Time: now, Mono: boot, Kind: a.kind, Verdict: v, Errno: int(e),
		JailPid: int32(pid), Exe: exe,
		Path: string(a.path), Path2: string(a.path2), Flags: uint32(a.flags),
		Rule: w.rule(a.need),
	}
	if a.kind == event.Syscall { // by the seccomp profile
		ev.Name, ev.Rule = a.name, "[syscalls]"
	}
	if a.kind == event.Open || a.kind == event.Create {
		ev.Dev, ev.Ino = w.st.Dev, w.st.Ino
	}
	w.b.emit(ev)
}

// clock reads the boot time, which is a system call, ten times a second, and in between
// adds what time.Now knows.
type clock struct {
	wall time.Time
	boot uint64
}

func (c *clock) read() (wall time.Time, boot uint64) {
	now := time.Now()
	past := now.Sub(c.wall) // of the monotonic clock, which stands still only while the machine sleeps
	if c.boot == 0 || past < 0 || past > 100*time.Millisecond {
		var ts unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
		c.wall, c.boot, past = now, uint64(ts.Nano()), 0
	}
	return now, c.boot + uint64(past)
}
