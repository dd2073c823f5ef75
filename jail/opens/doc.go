// Package opens decides which files a jail reads and runs, by fanotify permission events
// (fanotify(7)), where the kernel cannot run the rules itself (tier C). The broker
// (jail/broker) decides everything else: the filter lets opens that cannot change anything
// go to the kernel, which asks here.
//
//	agent thread           kernel                            judge thread in init
//	open(path, O_RDONLY)   path looked up, rights checked
//	                       mount marked?  no: opened
//	                       inode ignored? yes: opened
//	                       event, with the object  --------> path of the object -> Rules
//	   fd or EPERM <------ opened or not  <----------------- answer, and where it was yes:
//	                                                         ignore this inode until it is written
//
// The root side ([NewGroup], [Mark]) makes the group and marks the mounts of a jail on which
// something is refused; init ([Judge]) reads and answers. A file that no rule refuses
// costs one event, then nothing but the kernel's look at its inode.
//
// Promises:
//   - What is decided is the object that is opened, by the path it was reached by.
//   - An answer is remembered for an inode only where that gives nothing: it was allowed, by
//     a path it had before and after, has no second link, and nobody has it open for
//     writing. The kernel forgets it when the file is written (that is what a plain ignore mask
//     does), so what is read without a question is what could be read when the question was
//     answered; who opened it then and kept the descriptor has more. [Judge.Forget] drops all answers.
//     Stores to a shared mapping are no write: a file that the host gives a denied name and then
//     changes by mapping it only, can be read until its inode leaves memory.
//   - The group has two holders, helper and init. While one lives, nothing passes unjudged: opens
//     wait. Init's end is the end of the jail.
//   - On file systems that change behind the kernel's back (network, FUSE) nothing is remembered,
//     nor in overlays of the jail, whose lower files have other inodes.
//
// Differences to rules in the kernel: the errno is EPERM. Only files and directories raise
// events. Denied FIFOs that are there at the start are covered ([Fifos]), which is the one walk of
// the workspace, by levels and bounded in time: 0.12 s for 300,000 files that the kernel knows. Who opens one
// that was not found, or that the host or a change of rules makes later, is killed at the end of the call
// (trace_open in package bpf), but a thread that reads the same descriptor at that moment may
// get what was written. Procfs cannot be marked: policies that refuse reading there beyond what
// every jail covers keep the broker for all opens ([Covered]).
//
// Why not the broker alone: it costs every open 5 us, eight times what it takes, and a stranger
// to the jail's rules (a compiler's headers, an interpreter's modules) pays like the
// workspace. Why not masks over what matches at the start: they need a walk, miss what
// appears later, and fall off when the host renames a file over them. Why not an answer for a
// directory: its files change without an event that we could wait for.
//
// Cost: an event is two switches, like a notification. With the second event in a
// directory its other files are answered for too (scout), half a microsecond each.
package opens
