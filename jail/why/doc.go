// Package why turns a denial into something that an agent and a person can act on:
// what was tried, with which errno, which rule of which file said no, and the exact
// line that would allow it, or who alone could write one.
//
// The same words are used in two places. On the host `agentos why` reads the record of
// a session. In a jail the agent asks through a socket, because it has no record:
//
//	agent              init                          helper
//	connect     ->     /run/agentos/why.sock
//	question    ->     one at a time     -- why -->  [Memory]: the last denials, the rules
//	            <-     answer            <---------
//
// A question is one datagram of at most jail.MaxQuestion bytes: nothing ("the last
// denials"), "why" and a path, or "read", "write" or "exec" and a path, the two parted by
// a zero byte. The answer is one datagram of at most jail.MaxAnswer bytes: "1" when what
// was asked about is allowed, else "0", then text for people.
//
// What is said is about this jail alone: its rules, and what its own processes tried.
// Nothing is looked up in any file system; paths are text. Everything is bounded: what is
// remembered, what a question and an answer may be, and how many are answered a second.
package why
