// Package helper is the root server of AgentOS: it takes requests through the
// gate (jail/rpc), checks who asks and everything they say, and composes what the
// other root-side packages make: id range, cgroup, seccomp program, rules in the
// kernel, detached mounts, init, audit log.
//
// Promises:
//   - A request is answered by SO_PEERCRED alone: a user sees, signals, reads and
//     ends their own sessions, root all. Another user's session is "not found".
//   - The policy is resolved again here, with the organisation layer that only the
//     helper reads; an unreadable organisation layer refuses every start.
//   - A descriptor is mounted only under the path that the kernel says it has and
//     only if the policy's view names that path. The helper never resolves a path
//     that a user wrote.
//   - A required guarantee that this machine does not give refuses the start; a
//     preferred one goes into the report and the first record.
//   - What is made is undone in reverse order when a session ends, when its start
//     fails at any step, and, for a helper that was killed, at the next start.
//   - A jail that was built before anybody asked for it is given only to the user it
//     was built for, who asks for exactly that jail, see below.
//   - No audit record is dropped: when the log cannot be written the jail is frozen
//     until it can.
//
// It has no SQL, no HTTP, no yamux, no TLS and no shell.
//
// Session states, forward only: draft, starting, running, ended. A jail comes to be
// beside its session, and may be there first:
//
//	spare    groups, ids, namespaces, a waiting init: anybody's (spare_linux.go)
//	build    spare + order (user, policy, view): it stands, checked, and knows no
//	         command; made by buildSteps, at a start or ahead of it (start_linux.go)
//	launch   build + session: log, receipt, and then the agent (launch_linux.go)
//
// A jail that was built ahead was made by the same steps as every other, for whoever
// starts the same for the third time. Nothing but init and the jail
// check has run in it, and nobody has a way into it. It is used if what would be built
// now is the same, which is known so:
//
//	user, group             SO_PEERCRED of who asks now
//	policy, organisation    the caller's document and the organisation's files, read now,
//	                        have the hash of those it was built from (resolved); with it
//	                        limits, seccomp filter, rules, variables, places in the view
//	objects of the view     device, inode, mount, kind, mode and owner of each descriptor that
//	                        the caller has opened now (build.key); the jail's mounts hold its
//	                        objects, so no number of theirs is another's meanwhile
//	system's part of it     the same, and the time of the object's last change
//	names, covers, devices  looked up now, word for word (build.key)
//	mounts of the host      none came, went or changed since before it was built, or none that
//	                        holds an object of the view or is below one ([jail.Ground])
//	FIFOs in the workspace  init looks again for those that a rule denies (opens.Missed)
//	init                    has not ended (pidfd), and takes the order; else a jail is built
//	home layer, /tmp, /run  made with it, on no path but its own; nothing has written there
//	persist, overlay        a policy that has them is not built ahead (order.mayWait)
//
// A session's own id, name in the record, command, variables, working directory and
// terminal are not in it: they come with the order to run. What the kernel saw of its check
// goes into the record of the session that uses it, after the receipt, which says when
// the check was.
package helper
