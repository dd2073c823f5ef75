// Package inside is what runs as pid 1 of a jail: it executes the Spec it was
// given, step by step, checks the result, starts the agent and reaps.
//
// Promises:
//   - The steps run in the order of two tables: [early] at once, [steps] when the
//     helper says for whom. The first failure is reported with its name and ends
//     the jail before anything ran in it.
//   - The agent and every later process are forked from one thread, the launch
//     thread, which has taken the agent's posture for good: its ids, no
//     capability in any of the five sets, no_new_privs, the seccomp filter. There
//     is no way from a forked process back to init's rights.
//   - Init itself keeps, in the jail's own user namespace only, what it needs to
//     serve: CAP_KILL (signals), CAP_SETUID and CAP_SETGID (terminals and files in
//     the agent's name), CAP_SYS_PTRACE (the broker reads arguments). It is another
//     uid than the agent and not dumpable.
//   - Ctrl-Z stops a program on the jail's first terminal: it is a process group in
//     init's session. A session has one terminal, so a program on a further one is
//     started by a session leader of its own (jail/job).
//   - Whoever is denied something may ask why, at a socket that one thread serves which
//     has no capability and no right to any file; what is said comes from the helper.
//   - Init ends when its control socket does.
//
// Why the launch thread and not a re-exec: seccomp, ids and capabilities belong to
// threads on Linux; a thread that never leaves its posture costs nothing per
// process, needs no second program, and can hand the notification descriptor of
// its filter to the broker threads without any message.
//
// A trap that shapes the code: between fork and exec the Go runtime holds its
// processor, so nothing on that path may wait for the broker. execve is therefore
// not brokered (DESIGN section 6 decides it in the kernel), and descriptors are
// opened before the fork.
package inside
