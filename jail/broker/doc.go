// Package broker decides the file calls of a jail in user space, where the
// kernel cannot run the rules itself (tiers C and D). It runs in the jail's init:
// another uid than the agent, not dumpable, in the agent's namespaces and root, under the same
// Landlock domain, outside the agent's seccomp filter, with CAP_SYS_PTRACE in the jail's user namespace.
//
//	agent thread        kernel                      broker thread (in the agent's name)
//	open(path) ----->   filter: notify  ----------> copy the path once
//	                                                resolve it as the caller would, hold the object
//	                                                canonical path -> Rules.Match
//	   fd or errno <--- install, answer <---------- open the held object, hand it over
//
// Promises:
//   - What is decided is what is acted on: an object held by descriptor, or a name in a
//     directory held by descriptor that no link is followed from. Arguments are
//     read once. CONTINUE is answered only where no access is decided: O_PATH opens, whose
//     flags are in registers, bind and connect without [Config].Sockets, and looks at names.
//   - The act has the agent's rights and no others: effective and fs ids, groups, umask of the
//     caller. In procfs, where the kernel looks at who asks, "self" is the caller, init's own
//     entries are refused, and CAP_SYS_PTRACE is dropped for all but the caller's own.
//   - With [Config].Hide what a rule hides is in no listing, and is ENOENT to every call that
//     names it or leads through it. Listings are read at the caller's own place and written without
//     those names. Calls that only ask (stat and its like, [Looks]) go on in the kernel when their
//     name may be seen: who changes it meanwhile learns whether what was guessed is there. With
//     [Config].Kernel that is so of all calls but listing, and nothing else is decided here.
//   - Waiting calls (FIFOs, leases, blocking connects) wait on threads of their own and end
//     with their caller or its signals. More than 64 at once: EAGAIN.
//   - A broker that is gone passes nothing: the kernel answers ENOSYS.
//
// Races that remain, and why they give nothing. Names of one jail move only through
// its broker, under one lock that all acts on names hold. Another jail or the host may move a
// directory between decision and act: the result is that of doing the act first and the move
// then, which its mover was free to do. An object that moves after it was
// opened for reading was opened before it moved. A directory moved to where less is
// allowed carries what was made in it before; protecting a tree means protecting its name.
//
// Differences that a program can see: opening a terminal never makes it the controlling one
// (TIOCSCTTY does); /dev/tty gives the terminal under its own name; openat2 with O_PATH
// is ENOSYS; RESOLVE_CACHED is always EAGAIN; set-user-ID and set-group-ID bits are refused; /proc/*/mem
// cannot be opened for writing; a peer sees init's pid in SO_PEERCRED; execute-only programs
// cannot be served (their memory is not readable by us). A process that restricts itself further
// (own Landlock domain) is served by init's, and a process in a user namespace of its own by
// the agent's ids and root.
//
// Not covered: descriptors received over sockets; sendto and sendmsg to unix datagram sockets by
// path; names of a file from before the jail that nobody asked for (Config.Linked); execve (decided in the kernel).
//
// Cost: an open is one switch to the broker and one back, and what the broker itself asks
// of the kernel: 4 calls for a file that is not there, 10 for one that is read. One thread
// receives as long as it gets on; see crew.
//
// Why not "open in the caller, check afterwards": the caller would have the descriptor. Why
// not one thread: a slow disk would stop all others.
//
// Opens that change nothing need not come here: where the kernel has fanotify's permission
// events, package opens decides them, and the filter notifies of open and openat only
// what may create, write or cut (seccomp.Spec.Changes).
package broker
