package rpc

import "github.com/agentos/agentos/jail/packet"

// Protocol is the version of the gate. Both ends must speak the same one.
const Protocol = 7

// Limits of the gate.
const (
	// MaxInFlight bounds the unanswered requests of one connection.
	MaxInFlight = 32
	// MaxDocument bounds the document of create, in bytes. It leaves room for
	// the largest argument list the kernel takes (2 MiB) in JSON form.
	MaxDocument = 6 << 20
	// MaxArgs bounds the bytes of argv and env together, as the kernel counts
	// them (a quarter of the usual 8 MiB stack, execve(2)).
	MaxArgs = 2 << 20
)

// Verb names one thing the helper may be asked to do.
type Verb string

// The verbs, in alphabetical order, each with why root may do it for any user.
const (
	// BreakGlass lets the caller's next sessions do without some files of the
	// organisation, for a time. Those files themselves say who may, and for how long;
	// it is recorded before it holds.
	BreakGlass Verb = "break-glass"
	// Changes hands out read-only descriptors of what a running jail of the caller
	// (root: of anybody) made in its home. Root reads none of it: the caller walks
	// it with their own rights, and can neither change it nor mount it.
	Changes Verb = "changes"
	// Create opens a draft of a jail, at most one in a conversation. It makes no
	// kernel object; the policy in it is resolved again under the helper's own
	// organisation layer.
	Create Verb = "create"
	// Drop removes a directory that is kept for the caller's jails and that no jail
	// uses. Root removes names below a descriptor and follows nothing.
	Drop Verb = "drop"
	// Give adds descriptors to the draft. The user opened them with their own
	// rights; the helper only mounts what the policy's view names, under the
	// path that the kernel says they have.
	Give Verb = "give"
	// GrantVerb lets a running jail of the caller reach more, for a time, or less. It
	// overrules the caller's own layers, which the caller could have left out at the start; what the
	// organisation's layer does not allow, or any layer denies, stays refused.
	GrantVerb Verb = "grant"
	// HelloVerb agrees on the protocol; nothing else is answered before it.
	HelloVerb Verb = "hello"
	// Kept hands out read-only descriptors of the directories that are kept for the
	// caller's jails (root: for anybody's), as Changes does.
	Kept Verb = "kept"
	// Kill ends a jail of the caller with cgroup.kill.
	Kill Verb = "kill"
	// List names the caller's own jails (root: all).
	List Verb = "list"
	// Log hands out read-only descriptors of the audit segments of a session
	// of the caller (root: of any).
	Log Verb = "log"
	// NetworkVerb tells the connections of a running jail of the caller, and what they moved.
	NetworkVerb Verb = "network"
	// Probe says what this machine can enforce; it reads, and tells nothing
	// that the user could not find out.
	Probe Verb = "probe"
	// Policy puts other file rules in place of those of a running jail of the
	// caller. They are resolved again under the helper's own organisation layer,
	// which may forbid it, and grant nothing beyond what the jail was given at its
	// start.
	Policy Verb = "policy"
	// Resize sets the window size of a terminal of the caller's jail.
	Resize Verb = "resize"
	// RulesVerb tells the network rules that hold for a running jail of the caller.
	RulesVerb Verb = "rules"
	// Signal sends a signal to the foreground of a process of the caller's jail.
	Signal Verb = "signal"
	// Spawn starts a further process in a jail of the caller, by its init and
	// under the same rules; it gains nothing the agent does not have.
	Spawn Verb = "spawn"
	// Start builds the drafted jail: the caller gets a process tree with less
	// rights than their own.
	Start Verb = "start"
	// Wait answers when something happened to a process of the caller's jail.
	Wait Verb = "wait"
)

// FDs returns how many descriptors a request of verb v must carry: at least
// min and at most max.
func (v Verb) FDs() (minimum, maximum int) {
	switch v {
	case Create, Policy:
		return 1, 1
	case Give:
		return 1, packet.MaxFDs
	case Start, Spawn:
		return 0, 3
	default:
		return 0, 0
	}
}

// Ordered reports whether requests of verb v are done one after another, as they
// came, before anything that came later.
func (v Verb) Ordered() bool { return v == HelloVerb || v == Create || v == Give }

// Valid reports whether v is one of the verbs.
func (v Verb) Valid() bool {
	switch v {
	case BreakGlass, Changes, Create, Drop, Give, GrantVerb, HelloVerb, Kept, Kill, List, Log, NetworkVerb, Policy, Probe, Resize, RulesVerb, Signal, Spawn, Start, Wait:
		return true
	}
	return false
}
