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
//     was built for, who asks for exactly that jail, by descriptor; nothing but
//     init and its check has run in it, and what is one session's is not in it.
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
package helper
