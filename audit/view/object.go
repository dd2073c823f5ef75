package view

import (
	"strconv"
	"strings"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

// AppendLine appends r as one line of JSON.
func AppendLine(dst []byte, r *segment.Record) []byte { return append(r.AppendJSON(dst), '\n') }

// Linux open(2) flags, as events carry them whatever system reads them.
const (
	openWrite     = 0o1
	openReadWrite = 0o2
	openAccess    = 0o3
	openCreate    = 0o100
	openTruncate  = 0o1000
	openAppend    = 0o2000
)

// what names the act in at most 12 cells: the kind, and how a file was opened.
func what(e *event.Event) string {
	if e.Kind != event.Open {
		return e.Kind.String()
	}
	switch e.Flags & openAccess {
	case openWrite:
		return "open w"
	case openReadWrite:
		return "open rw"
	}
	return "open r"
}

// writes reports whether an open asks for more than reading.
func writes(e *event.Event) bool {
	return e.Flags&openAccess != 0 || e.Flags&(openCreate|openTruncate|openAppend) != 0
}

// Object says on what e acted, for a terminal: already printable.
func Object(e *event.Event) string {
	var s string
	switch e.Kind {
	case event.Exec, event.Start, event.Spawn:
		s = Command(e)
	case event.Rename, event.Link, event.Symlink:
		s = event.Printable(e.Path) + " -> " + event.Printable(e.Path2)
	case event.Exit:
		s = "code " + strconv.Itoa(e.Code)
	case event.Signal:
		s = join("signal "+strconv.Itoa(e.Code), event.Printable(e.Name))
	case event.Loss:
		return join(strconv.FormatUint(e.Count, 10)+" events lost", event.Printable(e.Detail))
	case event.Gap:
		return event.Printable(e.Detail)
	default:
		s = first(e.Path, e.Addr, e.Name)
		if e.Name != "" && s != event.Printable(e.Name) { // the name that an address was asked for by
			s = join(s, "("+event.Printable(e.Name)+")")
		}
		s = join(s, event.Printable(e.Detail))
	}
	if e.Count > 1 {
		s = join(s, "x"+strconv.FormatUint(e.Count, 10))
	}
	if e.Cut {
		s += "..."
	}
	return s
}

func first(all ...string) string {
	for _, s := range all {
		if s != "" {
			return event.Printable(s)
		}
	}
	return ""
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + " " + b
}

// Command is the executable of an exec and its arguments, quoted where they need it:
// already printable.
func Command(e *event.Event) string {
	s := event.Printable(e.Path)
	for i, a := range e.Argv {
		if i == 0 { // chosen by the caller, says nothing
			continue
		}
		p := event.Printable(a)
		if p == "" || strings.ContainsAny(p, ` "'`) {
			p = "'" + strings.ReplaceAll(p, "'", `\'`) + "'"
		}
		s += " " + p
	}
	if e.Path2 != "" {
		s += " (by " + event.Printable(e.Path2) + ")"
	}
	return s
}

// process is comm[pid]: the id inside the jail where it is known.
func process(e *event.Event) string {
	name := e.Comm
	if name == "" {
		name = e.Exe[strings.LastIndexByte(e.Exe, '/')+1:]
	}
	pid := e.JailPid
	if pid == 0 {
		pid = e.Pid
	}
	if pid == 0 && name == "" {
		return "-"
	}
	return event.Printable(name) + "[" + strconv.Itoa(int(pid)) + "]"
}

// verdict is "deny", "allow", or nothing for kinds that only report; with the
// error that an allowed act got.
func verdict(e *event.Event) string {
	switch {
	case e.Denied():
		return event.Deny.String()
	case e.Kind.Class() == event.Session, e.Kind == event.Fork, e.Kind == event.Exit, e.Kind == event.Unknown:
		return ""
	case e.Errno != 0:
		return event.ErrnoName(e.Errno)
	}
	return e.Verdict.String()
}
