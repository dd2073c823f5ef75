// Package jail holds the blueprint of a jail and the helper's hands for making
// one: [Spec] (what init will do, pure data), [Compile] (policy's view to mount
// plan, pure), and on Linux [Start] (clone init into its namespaces and cgroup)
// and the private id ranges and idmapped mounts that it needs.
//
// What runs inside, as pid 1, is package jail/inside. The two talk over two
// sockets that init inherits:
//
//	helper                                   init (pid 1 of the jail)
//	clone3 into cgroup, all namespaces  -->
//	Go, when limits and rules hold      -->  steps of jail/inside, in order
//	                                    <--  Ready {steps, check} | Failed {step, text}
//	Run {proc, terminal} + [in out err] -->  forks the agent from the launch thread
//	                                    <--  Running {proc, pid} + [pty master] | Failed
//	Run, Signal, Resize at any time     -->
//	                                    <--  Changed {proc, exited | stopped}
//	(events socket)                     <--  batches of audit/event in binary form
//	close                               -->  init ends; the kernel ends the rest
//
// Promises: a [Spec] is deterministic (golden-tested without root); init never
// resolves a path that the user chose, it only moves mounts that were made from
// descriptors; everything the helper makes is undone by [Jail.Close], also after
// a partial start. Nothing here parses policy or decides anything.
//
// Ids: every jail has 65536 host ids of its own ([Range]), so that per-uid kernel
// quotas (inotify, keys, pending signals) are its own too. Mounts are idmapped:
// what is the caller's on disk is the agent's inside, and the other way round
// for what the agent creates. A caller without an ordinary uid (root, or above
// the range) becomes uid 1000 inside.
//
// Limits: in this version init ends when its helper does; sessions that outlive
// the helper come with the daemon.
package jail
