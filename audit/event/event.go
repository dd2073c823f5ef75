package event

import (
	"fmt"
	"strings"
	"time"
)

// Kind says what happened.
type Kind uint16

// Kinds. The numbers are stored in audit logs: never renumber, only append.
const (
	Unknown Kind = iota

	// Session life.
	Receipt // result of the jail check; the first record of a session
	Start   // the agent was started
	Spawn   // a further process was started from outside (agentos exec)
	End     // the session is over

	// Processes.
	Exec
	Fork
	Exit

	// Files.
	Open
	Create
	Mkdir
	Mknod
	Symlink
	Link
	Rename
	Unlink
	Rmdir
	Truncate
	Chmod
	Chown
	Setattr // times and extended attributes
	Watch   // inotify
	Receive // a descriptor arrived over a socket

	// Network and other sockets.
	Socket
	Connect
	Send
	Bind
	UnixConnect
	Resolve

	// Everything else that is refused or bounded.
	Syscall
	Ptrace
	Signal
	Mount
	BPF
	Limit  // a resource limit was hit
	Escape // a task left its cgroup, or an impossible state was seen
	Loss   // Count events were lost
	Gap    // the recorder was not running

	Policy // other rules were put in place of those that held, or that was refused

	Disconnect // a connection that netd opened has ended

	Grant // a user let a running session reach more or less, took that back, or its time was over
)

// Verdict is the answer the kernel or the broker gave. The zero value is Deny.
type Verdict uint8

// Verdicts.
const (
	Deny Verdict = iota
	Allow
)

// Event is one observation. Fields that do not apply are zero.
type Event struct {
	Time    time.Time // wall clock
	Mono    uint64    // CLOCK_BOOTTIME in ns
	Jail    string    // session id; set by the recorder
	Kind    Kind
	Verdict Verdict
	Rule    string // file:line:col of the deciding rule and its text, "" if none decided
	Errno   int    // errno the caller got, 0 on success

	Pid       int32  // host process id (tgid), 0 if unknown
	Tid       int32  // host thread id
	JailPid   int32  // process id inside the jail, 0 if unknown
	Ppid      int32  // host process id of the parent
	TaskStart uint64 // start time of the process, CLOCK_BOOTTIME ns; with Pid a unique key
	Exe       string // path of the executable as the jail sees it
	Comm      string // name of the task; chosen by the agent, proves nothing

	Path  string // object, as the jail sees it
	Path2 string // second object: rename or link target, interpreter
	Dev   uint64
	Ino   uint64
	Flags uint32   // open flags, rename flags or mode, by Kind
	Argv  []string // Exec; may be cut, see Cut
	Cut   bool     // some string was cut to fit

	Addr   string // socket address, host:port or unix path ("@" for abstract)
	Name   string // DNS name asked for, name of a syscall or of a limit
	Code   int    // exit status or signal, by Kind
	Count  uint64 // Loss: how many; others: how often when collapsed
	Detail string // free text by us; JSON for Receipt, Policy and Grant
}

// Key identifies the process of an event uniquely during one boot.
func (e *Event) Key() string { return fmt.Sprintf("%d@%d", e.Pid, e.TaskStart) }

// Host is the DNS name that a network event is about, "" if none is known. What the
// kernel tells of a connection has the protocol in the place of a name.
func (e *Event) Host() string {
	if e.Kind.Class() != Net || e.Name == "tcp" || e.Name == "udp" || strings.Trim(e.Name, "0123456789") == "" || strings.Contains(e.Name, " ") {
		return ""
	}
	return e.Name
}

// Denied reports that the event is a refusal: a denied act, a limit that was
// hit, an escape. Kinds that report a fact (a start, a fork, a loss) carry no
// verdict and are never denied.
func (e *Event) Denied() bool {
	switch e.Kind {
	case Fork, Exit, Unknown:
		return false
	}
	return e.Verdict != Allow && e.Kind.Class() != Session
}
