// Package steer gives jails a network that consists of netd: no route, no
// address and no device of the host's, and every connection a socket that netd
// accepts.
//
//	helper                    the jail's network namespace            netd
//	  | setns, once             |                                       |
//	  | lo: one address, local default routes: every address is ours    |
//	  | four sockets, made by us; the sk_lookup program picks them      |
//	  |------------------------>|                                       |
//	  | add {jail, rules} + the four sockets                            |
//	  |---------------------------------------------------------------->|
//	  |                         | connect, anywhere ==================> | accept; getsockname says to whom
//	  | event {opened, denied, asked, ...}                              |
//	  |<----------------------------------------------------------------|
//
// [Open] makes the first half, [Daemon] is the second: it starts netd without
// privilege, keeps copies of all sockets, and when netd dies hands them to the
// next one. Until that answers, connections wait in the sockets' queues and
// questions are dropped: nothing passes, because there is nothing else that a
// packet of a jail could reach.
//
// What it promises:
//
//   - A namespace that was not opened here has its loopback and nothing else.
//   - 127.0.0.0/8 and ::1 stay the jail's own: the program does not touch them.
//   - The program and its link live as long as [Net]; when they go, nobody
//     listens any more and connections are refused.
//   - Rules are netd's to judge. A netd that does not take them is an error of
//     [Daemon.Add] and [Daemon.Set], and what held before holds.
//
// What it does not do: it knows no policy (package jail/reach does), refuses no
// socket (bpf/net.c and seccomp do), and writes no log.
//
// The kernel must have IPv6, at least on the loopback: programs ask for both
// families, and a jail without IPv6 differs from the host in ways they notice.
package steer
