package event

import (
	"fmt"
	"strconv"
	"strings"
)

// kindNames are the stable names of the kinds, in the order of the constants.
// They are part of the JSON form and of command lines: never change one.
var kindNames = [...]string{
	Unknown: "unknown",
	Receipt: "receipt", Start: "start", Spawn: "spawn", End: "end",
	Exec: "exec", Fork: "fork", Exit: "exit",
	Open: "open", Create: "create", Mkdir: "mkdir", Mknod: "mknod", Symlink: "symlink", Link: "link", Rename: "rename",
	Unlink: "unlink", Rmdir: "rmdir", Truncate: "truncate", Chmod: "chmod", Chown: "chown", Setattr: "setattr",
	Watch: "watch", Receive: "receive",
	Socket: "socket", Connect: "connect", Send: "send", Bind: "bind", UnixConnect: "unix-connect", Resolve: "resolve",
	Syscall: "syscall", Ptrace: "ptrace", Signal: "signal", Mount: "mount", BPF: "bpf", Limit: "limit", Escape: "escape",
	Loss: "loss", Gap: "gap", Policy: "policy", Disconnect: "disconnect", Grant: "grant",
}

// Kinds returns every kind that has a name, in the order of their numbers.
func Kinds() []Kind {
	all := make([]Kind, len(kindNames))
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// String returns the stable lower-case name of k ("open", "unix-connect"), or
// "kind-N" for a number that this version does not know.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind-" + strconv.Itoa(int(k))
}

// ParseKind is the inverse of [Kind.String]; it accepts "kind-N" for numbers
// without a name, so that a new log survives an old reader.
func ParseKind(name string) (Kind, error) {
	for i, n := range kindNames {
		if n == name {
			return Kind(i), nil
		}
	}
	if digits, ok := strings.CutPrefix(name, "kind-"); ok {
		n, err := strconv.ParseUint(digits, 10, 16)
		if err == nil && int(n) >= len(kindNames) && Kind(n).String() == name {
			return Kind(n), nil
		}
	}
	return 0, fmt.Errorf("parse kind %q: no such kind", name)
}

// MarshalText returns the name of k; it never fails.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText sets k from its name.
func (k *Kind) UnmarshalText(text []byte) (err error) {
	*k, err = ParseKind(string(text))
	return err
}

// Class groups kinds by what they are about.
type Class uint8

// Classes. Other holds kinds that this version does not know.
const (
	Other   Class = iota
	File          // files and directories, by name or descriptor
	Program       // exec, fork, exit
	Net           // sockets and names
	Session       // life of the session and of its record, losses included
	System        // everything else that is refused or bounded
)

// classNames are what command lines and JSON call the classes.
var classNames = [...]string{Other: "other", File: "file", Program: "exec", Net: "net", Session: "session", System: "system"}

// String returns the stable name: "file", "exec", "net", "session", "system"
// or "other".
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return classNames[Other]
}

// ParseClass is the inverse of [Class.String].
func ParseClass(name string) (Class, error) {
	for i, n := range classNames {
		if n == name {
			return Class(i), nil
		}
	}
	return 0, fmt.Errorf("parse class %q: want file, exec, net, session or system", name)
}

// Class says what k is about.
func (k Kind) Class() Class {
	switch {
	case k >= Receipt && k <= End, k == Loss, k == Gap, k == Policy, k == Grant:
		return Session
	case k >= Exec && k <= Exit:
		return Program
	case k >= Open && k <= Receive:
		return File
	case k >= Socket && k <= Resolve, k == Disconnect:
		return Net
	case k >= Syscall && k <= Escape:
		return System
	}
	return Other
}

// String returns "deny", "allow", or "verdict-N" for a number that this
// version does not know (which permits nothing).
func (v Verdict) String() string {
	switch v {
	case Deny:
		return "deny"
	case Allow:
		return "allow"
	}
	return "verdict-" + strconv.Itoa(int(v))
}

// ParseVerdict is the inverse of [Verdict.String].
func ParseVerdict(name string) (Verdict, error) {
	switch name {
	case "deny":
		return Deny, nil
	case "allow":
		return Allow, nil
	}
	if digits, ok := strings.CutPrefix(name, "verdict-"); ok {
		n, err := strconv.ParseUint(digits, 10, 8)
		if err == nil && Verdict(n).String() == name {
			return Verdict(n), nil
		}
	}
	return Deny, fmt.Errorf("parse verdict %q: want deny or allow", name)
}

// MarshalText returns the name of v; it never fails.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText sets v from its name.
func (v *Verdict) UnmarshalText(text []byte) (err error) {
	*v, err = ParseVerdict(string(text))
	return err
}
