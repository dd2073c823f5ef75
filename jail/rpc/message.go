package rpc

import (
	"encoding/json"
	"fmt"
	"time"
)

// Request is the envelope of every message to the helper.
type Request struct {
	Verb Verb            `json:"verb"`
	ID   uint64          `json:"id"`
	Body json.RawMessage `json:"body"`
}

// Reply is the envelope of every message from the helper. Exactly one of Error
// and Body is set.
type Reply struct {
	ID    uint64          `json:"id"`
	Error *Error          `json:"error,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// Code classifies an [Error] for those who branch on it.
type Code string

// Codes. An exit status follows from each: see [Error.ExitStatus].
const (
	Refused     Code = "refused"     // the policy, or who is asking, does not allow it
	NotFound    Code = "not-found"   // no such session, process or command
	Invalid     Code = "invalid"     // the request makes no sense
	Unsupported Code = "unsupported" // this machine cannot give a required guarantee
	Busy        Code = "busy"        // a limit of the caller is used up
	Failed      Code = "failed"      // anything else
)

// Error is a failure that crossed the gate.
type Error struct {
	Code Code   `json:"code"`
	Step string `json:"step,omitempty"` // the named step of init or of the helper
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
}

// Error returns the text, with the step before it where there is one.
func (e *Error) Error() string {
	if e.Step != "" {
		return fmt.Sprintf("step %s: %s", e.Step, e.Text)
	}
	return e.Text
}

// ExitStatus is what the CLI exits with: 127 command not found, 126 refused by
// policy, 125 AgentOS failed.
func (e *Error) ExitStatus() int {
	switch e.Code {
	case NotFound:
		return 127
	case Refused, Unsupported:
		return 126
	default:
		return 125
	}
}

// Hello is the first message of both sides.
type Hello struct {
	Protocol int    `json:"protocol"`
	Build    string `json:"build"`
}

// HelloReply answers [Hello].
type HelloReply struct {
	Protocol int    `json:"protocol"`
	Build    string `json:"build"`
	Tier     string `json:"tier"` // "A" to "D", DESIGN section 6
}

// Document is the content of the sealed memfd of create (at most [MaxDocument]).
type Document struct {
	Name   string          `json:"name"`   // session name wanted; "" = chosen by the helper
	Agent  string          `json:"agent"`  // plugin name or the command's base name
	Policy json.RawMessage `json:"policy"` // PolicyDocument of package policy: layers and vars
	Argv   []string        `json:"argv"`   // Argv[0] is an absolute path in the jail
	Env    []string        `json:"env"`    // K=V, complete
	Cwd    string          `json:"cwd"`    // absolute, in the jail
}

// Drafted answers create.
type Drafted struct {
	Session string `json:"session"` // id
	Name    string `json:"name"`
}

// GiveItems labels the descriptors of one give, in order.
type GiveItems struct {
	Paths []string `json:"paths"` // absolute path of each descriptor on the host
}

// Terminal is a window size in cells.
type Terminal struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// StartJail asks for the start of the draft. With a Terminal the reply carries
// the PTY master; without, the request carries three pipe ends.
type StartJail struct {
	Session  string    `json:"-"` // of the draft; the helper fills it in
	Terminal *Terminal `json:"terminal,omitempty"`
}

// Started answers start.
type Started struct {
	Session string          `json:"session"`
	Proc    int             `json:"proc"` // 1 for the agent
	Report  Report          `json:"report"`
	Receipt json.RawMessage `json:"receipt,omitempty"`
}

// Report says what is enforced and what is not.
type Report struct {
	Tier     string    `json:"tier"`
	Enforced []string  `json:"enforced"`
	Missing  []Missing `json:"missing,omitempty"`
	Refused  []string  `json:"refused,omitempty"` // what lower layers asked for and did not get
	Glass    *Glass    `json:"break_glass,omitempty"`
}

// Glass says that a session does without files of the organisation.
type Glass struct {
	Record string    `json:"record"` // session id of the record of it
	Reason string    `json:"reason"`
	Files  []string  `json:"files"`
	Until  time.Time `json:"until"` // the session is ended then
}

// Missing is a guarantee this machine does not give.
type Missing struct {
	Guarantee string `json:"guarantee"`
	Why       string `json:"why"`
	Hint      string `json:"hint,omitempty"`
}

// SpawnProc asks for a further process in a running jail.
type SpawnProc struct {
	Session  string    `json:"session"`
	Argv     []string  `json:"argv"` // at most a datagram
	Env      []string  `json:"env,omitempty"`
	Cwd      string    `json:"cwd,omitempty"`
	Terminal *Terminal `json:"terminal,omitempty"`
}

// Spawned answers spawn.
type Spawned struct {
	Proc int `json:"proc"`
}

// ProcRef names a process of a session; Proc 1 is the agent.
type ProcRef struct {
	Session string `json:"session"`
	Proc    int    `json:"proc"`
}

// Happened answers wait.
type Happened struct {
	What   string `json:"what"`             // "exited", "stopped", "notice"
	Code   int    `json:"code,omitempty"`   // exit status
	Signal int    `json:"signal,omitempty"` // signal that ended or stopped it
	Text   string `json:"text,omitempty"`   // notice: one sentence for the user

	Totals *Totals `json:"totals,omitempty"` // exited: of the session, with the agent's exit
}

// Totals sums up the record of a session at the end of its agent. Everything
// that the agent did is in it.
type Totals struct {
	Records uint64   `json:"records"` // without what init did in the jail check
	Denied  uint64   `json:"denied,omitempty"`
	Lost    uint64   `json:"lost,omitempty"`
	Escapes uint64   `json:"escapes,omitempty"`
	Altered uint64   `json:"altered,omitempty"` // events that altered files, see event.Event.Alters
	Limits  []string `json:"limits,omitempty"`  // that were hit
}

// SignalProc sends Signal to the foreground process group of a process.
type SignalProc struct {
	ProcRef
	Signal int `json:"signal"`
}

// ResizeProc sets the window size of a process' terminal.
type ResizeProc struct {
	ProcRef
	Terminal
}

// SetPolicy comes with a sealed memfd: the JSON of a PolicyDocument of package policy, whose
// variables are not read; those of the jail hold.
type SetPolicy struct {
	Session string `json:"session"`
	// Profile: of the document's layers only the profile is taken; the layers of
	// the user and of the project stay those of the start.
	Profile bool `json:"profile,omitempty"`
}

// PolicySet answers policy.
type PolicySet struct {
	Session    string   `json:"session"` // name
	Policy     string   `json:"policy"`
	Generation uint32   `json:"generation"`          // of the rules that hold; 0 are those of the start
	Changed    bool     `json:"changed"`             // false: these rules held before
	Took       int64    `json:"took"`                // microseconds, from the compiled rules to the answer
	Refused    []string `json:"refused,omitempty"`   // what lower layers asked for and did not get
	Remaining  string   `json:"remaining,omitempty"` // a sentence about acts that began before and go on
}

// SessionRef names a session by id or name.
type SessionRef struct {
	Session string `json:"session"`
}

// ListSessions asks for the caller's sessions (root: everybody's).
type ListSessions struct {
	All   bool   `json:"all,omitempty"`   // also those that have ended and left a log
	After string `json:"after,omitempty"` // id of the last one that is known already
}

// Session is one row of list.
type Session struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Agent     string    `json:"agent"`
	Policy    string    `json:"policy"`
	Swaps     uint32    `json:"swaps,omitempty"` // how often its rules were changed while it ran
	Workspace string    `json:"workspace"`
	UID       int       `json:"uid"`
	State     string    `json:"state"` // "starting", "running", "held", "ending", "ended"
	Started   time.Time `json:"started"`
	Procs     int       `json:"procs"`
	Memory    uint64    `json:"memory"`               // bytes
	CPU       float64   `json:"cpu"`                  // seconds used
	Denied    uint64    `json:"denied"`               // denied acts recorded
	Records   uint64    `json:"records"`              // records in the log
	Glass     time.Time `json:"break_glass,omitzero"` // until when it may do without files of the organisation; zero: it may not
}

// Sessions answers list: running ones first, newest first; as many as fit a message.
type Sessions struct {
	Sessions []Session `json:"sessions"`
	More     bool      `json:"more,omitempty"` // ask with After for those that follow
}

// LogFiles answers log: as many descriptors as Names, in order. At most 15 of
// the newest segments; More is true when older ones exist (ask with Before).
type LogFiles struct {
	Session string   `json:"session"`
	Name    string   `json:"name"`
	Names   []string `json:"names"`
	More    bool     `json:"more"`
	Public  []byte   `json:"public"` // Ed25519 public key of the log, 32 bytes
	Live    bool     `json:"live"`   // still being written
}

// LogRef asks for the segments of a session older than Before ("" = newest).
type LogRef struct {
	Session string `json:"session"`
	Before  string `json:"before,omitempty"`
}

// Machine answers probe.
type Machine struct {
	Kernel   string   `json:"kernel"`
	Tier     string   `json:"tier"`
	Features []Fact   `json:"features"`
	Builtins []Misses `json:"builtins"` // what each builtin policy would miss
}

// Fact is one probed property of the machine.
type Fact struct {
	Name string `json:"name"`
	Good bool   `json:"good"`
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
}

// Misses names what a policy would miss here.
type Misses struct {
	Policy  string    `json:"policy"`
	Starts  bool      `json:"starts"`
	Missing []Missing `json:"missing,omitempty"`
}
