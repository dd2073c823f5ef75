// Package jail holds the blueprint of a jail and the helper's hands for making
// one: [Plan] (a tree that jails share, and the [Spec] of what one init does, pure
// data), [Compile] (policy's view to plan, pure), and on Linux [Start] (clone init
// into its namespaces and cgroup), [Trees] (the shared trees), and the private id
// ranges and idmapped mounts that they need.
//
// What runs inside, as pid 1, is package jail/inside. The two talk over two
// sockets that init inherits:
//
//	helper                                   init (pid 1 of the jail)
//	clone3 into cgroup, all namespaces  -->  what no policy decides; then it waits
//	Build {} + [spec, filter, rules, tree, mounts ...], when limits and rules
//	hold                                -->  steps of jail/inside, in order
//	                                    <--  Ready {steps, check} | Failed {step, text}
//	                                         a jail that stands: nothing has run in it
//	Look, if it stood for a while     -->
//	                                    <--  Look: the view is as it would be now | Failed
//	Run {terminal} + [process, in out err]
//	                                    -->  forks the agent from the launch thread
//	                                    <--  Running {proc, pid} + [pty master] | Failed
//	Run, Signal, Resize, Rules at any time ->
//	                                    <--  Changed {proc, exited | stopped}
//	Why {answer}                       <-->  Why {question of a process of the jail}
//	(events socket)                     <--  batches of audit/event in binary form
//	close                               -->  init ends; the kernel ends the rest
//
// An init may wait for Build for a while, so that most of a start is done before
// it is asked for. Until then it is nobody's: it holds no file of anyone, and its
// group, ids and namespaces have had no other process. It may wait for the first
// Run as well: a Spec names no command, variable, working directory or terminal.
//
// Promises: a [Plan] is deterministic (golden-tested without root); init never
// resolves a path that the user chose, it only moves mounts that were made from
// descriptors; a shared tree is read-only for every jail and belongs to the host's
// user namespace, so that no jail can change a part of it; everything the helper makes is undone by [Jail.Close], also after
// a partial start. Nothing here parses policy or decides anything.
//
// Ids: every jail has 65536 host ids of its own ([Range]), so that per-uid kernel
// quotas (inotify, keys, pending signals) are its own too. Mounts are idmapped:
// what is the caller's on disk is the agent's inside, and the other way round
// for what the agent creates. A caller without an ordinary uid (root, or above
// the range) becomes one inside that is nobody's on the host.
//
// Home: a Bind of the session's own directory on disk (jail/layer). A directory of the
// user's home may lie over it as an overlayfs (kind Overlay): the helper sends the
// detached lower mount, idmapped and read-only, and the directory with upper and work,
// and init mounts it in its own user namespace (userxattr), so that what the file system
// does in the agent's name needs no right on the host. It works with the ids of Linux
// 6.1, 6.12 and 6.18. What the jail made is handed to its user by [Handout], with the
// ids mapped back.
//
// Limits: in this version init ends when its helper does; sessions that outlive
// the helper come with the daemon.
package jail
