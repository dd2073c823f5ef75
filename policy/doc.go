// Package policy is the user's document: what an agent may read, write,
// execute and reach, what it may use up, and which guarantees the machine must
// give. It turns text into one [Resolved] policy and one automaton, and says
// for any path why.
//
//	TOML --Parse--> Document --+
//	TOML --Parse--> Document --+-- Layer... + Vars --Resolve--> Resolved
//	Builtin("strict") ---------+                                 |
//	                            Automaton, View, Explain, Hash --+
//
// What it promises:
//
//   - Strict: an unknown or duplicate key, a wrong type, unit or glob, a byte
//     order mark or more than 256 KiB is an [Error] with file:line:col.
//   - Layers only tighten. The profile grants; org, user and project layers
//     can only take away. No document can widen what another one withheld.
//   - A rule that hides denies, too: the fourth operation of the automaton is to see a name.
//   - Zero means no: what no rule of the profile allows is denied.
//   - Every rule knows its file:line:col. [Resolved.Explain] asks the very
//     automaton that the kernel programs walk, never a second implementation.
//   - [Layer] and [Vars] survive JSON without loss and are checked again by
//     [Resolve], because the root helper gets them from an untrusted caller.
//
// What it does not do: it touches no file except in [Load], knows no kernel
// and enforces nothing. It builds on every OS. It does not know which syscalls
// the default seccomp profile holds (package jail/seccomp does), nor whether a
// path exists. [Resolved.Refused] is found by sample paths, see [Refusal].
//
// Globs are byte-exact on the path as the kernel sees it inside the jail; no
// case folding. See package policy/glob for the syntax and docs/policy.md for
// the document.
package policy
