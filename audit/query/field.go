package query

import (
	"iter"
	"net/netip"
	"strings"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/audit/segment"
)

// valueKind says what the values of a field are, and so which operators it takes.
type valueKind uint8

const (
	textValue    valueKind = iota // = != ~ !~; "*" and "?" are wildcards
	pathValue                     // as text, with the globs of policies
	hostValue                     // as text, without regard to case
	addressValue                  // as text; an address or a CIDR names addresses
	numberValue                   // = != < <= > >=
	errnoValue                    // as a number; names, too
	wordValue                     // = !=; one of a few words
	flagValue                     // = != with yes or no
	timeValue                     // < <= > >=
	boundValue                    // = only: since, until
)

// takes are the operators of each kind of value.
var takes = [...]string{
	textValue: "= != ~ !~", pathValue: "= != ~ !~", hostValue: "= != ~ !~", addressValue: "= != ~ !~",
	numberValue: "= != < <= > >=", errnoValue: "= != < <= > >=", wordValue: "= !=", flagValue: "= !=", timeValue: "< <= > >=", boundValue: "=",
}

// field is one thing that can be asked of a record.
type field struct {
	name, doc string
	kind      valueKind

	texts   func(r *segment.Record, m *Matcher) iter.Seq[string] // of text, path, host and address: those there are
	numbers func(r *segment.Record) [2]number                    // of number and errno: a zero says nothing
	flag    func(r *segment.Record, m *Matcher) bool             // of flag
	words   func(word string) (func(r *segment.Record) bool, error)
}

// Field tells about a field, for help texts and completion.
type Field struct {
	Name      string // "path"
	Doc       string // half a sentence
	Operators string // "= != ~ !~"
}

// Fields returns every field, in the order in which help should show them.
func Fields() []Field {
	out := make([]Field, len(fields))
	for i, f := range fields {
		out[i] = Field{f.name, f.doc, takes[f.kind]}
	}
	return out
}

func findField(name string) *field {
	for i := range fields {
		if fields[i].name == name {
			return &fields[i]
		}
	}
	return nil
}

// otherNames are what people call fields elsewhere, for hints.
var otherNames = map[string]string{
	"type": "kind", "event": "kind", "action": "verdict", "result": "verdict", "decision": "verdict", "file": "path", "filename": "path",
	"program": "exe", "prog": "exe", "process": "comm", "command": "cmd", "cmdline": "cmd", "args": "arg", "argv": "arg", "ip": "addr", "address": "addr",
	"dst": "addr", "domain": "host", "hostname": "host", "from": "since", "after": "since", "start": "since", "to": "until", "before": "until",
	"end": "until", "jail": "session", "id": "session", "deny": "denied", "allow": "verdict", "error": "errno", "mode": "flags", "op": "access",
	"exit": "code", "status": "code", "message": "detail", "text": "any", "inode": "ino", "device": "dev", "parent": "ppid", "policy": "rule",
}

// fields is all there is to ask, in the order of the help texts.
var fields = []field{
	{name: "kind", kind: wordValue, words: kindWord, doc: "what happened: open, exec, connect, ..., or a class: file, net, session, system"},
	{name: "class", kind: wordValue, words: classWord, doc: "what it is about: file, exec (exec, fork, exit), net, session, system"},
	{name: "verdict", kind: wordValue, words: verdictWord, doc: "allow, deny, or none for what is only reported"},
	{name: "denied", kind: flagValue, flag: func(r *segment.Record, m *Matcher) bool { return r.Denied() && !m.tried }, doc: "it was refused, and not to the jail check"},
	{name: "failed", kind: flagValue, flag: func(r *segment.Record, _ *Matcher) bool { return !r.Denied() && r.Errno != 0 }, doc: "it was allowed and failed on its own"},
	{name: "altered", kind: flagValue, flag: func(r *segment.Record, _ *Matcher) bool { return r.Alters() }, doc: "a file was made, written to, renamed or got other attributes"},
	{name: "check", kind: flagValue, flag: func(_ *segment.Record, m *Matcher) bool { return m.tried }, doc: "the jail check tried it, which must be refused"},
	{name: "access", kind: wordValue, words: accessWord, doc: "what was asked of the rules about files: read, write or exec"},
	{name: "rule", kind: textValue, texts: one(func(e *event.Event) string { return e.Rule }), doc: "the rule that decided, as file:line:column and text"},
	{name: "path", kind: pathValue, texts: paths, doc: "the file, the second one of a rename or link, or a unix socket"},
	{name: "exe", kind: pathValue, texts: one(func(e *event.Event) string { return e.Exe }), doc: "the program of the process"},
	{name: "cmd", kind: textValue, texts: commands, doc: "the arguments of an exec, joined by spaces"},
	{name: "arg", kind: textValue, texts: arguments, doc: "any one argument of an exec"},
	{name: "comm", kind: textValue, texts: one(func(e *event.Event) string { return e.Comm }), doc: "the name of the task, which it chooses itself"},
	{name: "host", kind: hostValue, texts: hosts, doc: "the name that was asked for or connected to, or the address"},
	{name: "addr", kind: addressValue, texts: one(func(e *event.Event) string { return e.Addr }), doc: "the socket address: an address, a CIDR, address:port, or text"},
	{name: "port", kind: numberValue, numbers: port, doc: "the port of the address"},
	{name: "session", kind: textValue, texts: sessions, doc: "the name or the id of the session"},
	{name: "since", kind: boundValue, doc: "not before: 90s, 15m, 2h, 3d ago; 10:30; 2026-11-21T10:30; today; yesterday"},
	{name: "until", kind: boundValue, doc: "before, as since"},
	{name: "time", kind: timeValue, doc: "when, with < <= > >="},
	{name: "pid", kind: numberValue, numbers: pids, doc: "the process, by its id in the jail or on the host"},
	{name: "ppid", kind: numberValue, numbers: signed(func(e *event.Event) int64 { return int64(e.Ppid) }), doc: "the parent, by its id on the host"},
	{name: "tid", kind: numberValue, numbers: signed(func(e *event.Event) int64 { return int64(e.Tid) }), doc: "the thread, by its id on the host"},
	{name: "errno", kind: errnoValue, numbers: signed(func(e *event.Event) int64 { return int64(max(e.Errno, -e.Errno)) }), doc: "the error that the caller got: a number or a name (ENOENT)"},
	{name: "code", kind: numberValue, numbers: signed(func(e *event.Event) int64 { return int64(e.Code) }), doc: "the exit status or the signal"},
	{name: "name", kind: textValue, texts: one(func(e *event.Event) string { return e.Name }), doc: "the name of a host, syscall or limit"},
	{name: "detail", kind: textValue, texts: one(func(e *event.Event) string { return e.Detail }), doc: "what else is told"},
	{name: "any", kind: textValue, texts: anything, doc: "any text of the record"},
	{name: "seq", kind: numberValue, numbers: func(r *segment.Record) [2]number { return [2]number{{lo: r.Seq}} }, doc: "the number of the record in its session"},
	{name: "count", kind: numberValue, numbers: unsigned(func(e *event.Event) uint64 { return e.Count }), doc: "how often, or how many were lost"},
	{name: "flags", kind: numberValue, numbers: unsigned(func(e *event.Event) uint64 { return uint64(e.Flags) }), doc: "open flags, rename flags or mode"},
	{name: "ino", kind: numberValue, numbers: unsigned(func(e *event.Event) uint64 { return e.Ino }), doc: "the inode"},
	{name: "dev", kind: numberValue, numbers: unsigned(func(e *event.Event) uint64 { return e.Dev }), doc: "the device"},
	{name: "cut", kind: flagValue, flag: func(r *segment.Record, _ *Matcher) bool { return r.Cut }, doc: "some text of it was cut to fit"},
}

type texts = func(r *segment.Record, m *Matcher) iter.Seq[string]

// some yields the texts that are not empty.
func some(all ...string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, s := range all {
			if s != "" && !yield(s) {
				return
			}
		}
	}
}

func one(get func(e *event.Event) string) texts {
	return func(r *segment.Record, _ *Matcher) iter.Seq[string] { return some(get(&r.Event)) }
}

func paths(r *segment.Record, _ *Matcher) iter.Seq[string] {
	if strings.HasPrefix(r.Addr, "/") {
		return some(r.Path, r.Path2, r.Addr)
	}
	return some(r.Path, r.Path2)
}

func commands(r *segment.Record, _ *Matcher) iter.Seq[string] {
	return some(strings.Join(r.Argv, " "))
}

func arguments(r *segment.Record, _ *Matcher) iter.Seq[string] { return some(r.Argv...) }

func hosts(r *segment.Record, _ *Matcher) iter.Seq[string] {
	if r.Kind.Class() != event.Net {
		return some()
	}
	if at, err := netip.ParseAddrPort(r.Addr); err == nil {
		return some(r.Host(), at.Addr().String())
	}
	return some(r.Host())
}

func sessions(r *segment.Record, m *Matcher) iter.Seq[string] {
	if m.session == "" {
		return some(r.Jail)
	}
	return some(m.name, m.session)
}

func anything(r *segment.Record, _ *Matcher) iter.Seq[string] {
	return func(yield func(string) bool) {
		for s := range some(r.Path, r.Path2, r.Exe, r.Comm, r.Addr, r.Name, r.Rule, r.Detail) {
			if !yield(s) {
				return
			}
		}
		for s := range some(r.Argv...) {
			if !yield(s) {
				return
			}
		}
	}
}

// number is an integer from -2^64 to 2^64-1: hi is -1 for those below zero.
type number struct {
	hi int64
	lo uint64
}

func signedNumber(v int64) number {
	if v < 0 {
		return number{-1, uint64(v)}
	}
	return number{lo: uint64(v)}
}

func (n number) compare(o number) int {
	switch {
	case n == o:
		return 0
	case n.hi < o.hi || n.hi == o.hi && n.lo < o.lo:
		return -1
	}
	return 1
}

func signed(get func(e *event.Event) int64) func(r *segment.Record) [2]number {
	return func(r *segment.Record) [2]number { return [2]number{signedNumber(get(&r.Event))} }
}

func unsigned(get func(e *event.Event) uint64) func(r *segment.Record) [2]number {
	return func(r *segment.Record) [2]number { return [2]number{{lo: get(&r.Event)}} }
}

func pids(r *segment.Record) [2]number {
	return [2]number{signedNumber(int64(r.JailPid)), signedNumber(int64(r.Pid))}
}

func port(r *segment.Record) [2]number {
	at, err := netip.ParseAddrPort(r.Addr)
	if err != nil {
		return [2]number{}
	}
	return [2]number{{lo: uint64(at.Port())}}
}
