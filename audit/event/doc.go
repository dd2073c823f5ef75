// Package event is the vocabulary of the audit: one [Event] is one observation
// of what a jail did, stated as a fact about kernel objects.
//
// It holds data and its two stored forms only, builds on every OS and imports
// nothing of this module. Producers are the BPF programs (through audit/hook),
// the broker in a jail's init and the helper; the log (audit/segment) stores
// them.
//
// Every string of an event may be chosen by a hostile agent. Names stay bytes
// in Go strings:
//
//   - JSON ([Event.AppendJSON]) is always valid, plain ASCII where a character
//     could act on a terminal, and loses nothing: a string that is not UTF-8
//     has U+FFFD in its readable key and every byte in a twin key ("path" and
//     "path_b64").
//   - Binary ([Event.AppendBinary], [Coder]) is fields by ascending tag, with
//     hard limits. Decoders skip tags they do not know, so that an old reader
//     reads a new log. What is over a limit is cut when it is encoded, and Cut
//     says so; a decoder refuses it.
//   - Terminals get [Printable] only.
//
// Times are kept to the nanosecond as UTC, from 1678 to 2262; a time outside
// of that is stored as none.
package event
