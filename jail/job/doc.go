// Package job is the program between init and a command on a jail's second and
// further terminals: what a shell with job control is to a command, without a shell.
//
//	init                     pid 1; its session has the jail's first terminal
//	  `- agentos-job         leads a session whose terminal is the further one
//	       `- the command    a process group of that session, in the foreground
//
// The kernel drops the SIGTSTP of Ctrl-Z for a process group that nobody could
// continue: one without a member whose parent is in another group of the same session
// (setpgid(2), kernel/exit.c will_become_orphaned_pgrp). A session has one terminal
// and init leads one session, so a parent that is there is needed for each further
// terminal.
//
// Promises:
//   - When the command stops, this program stops too, so that init hears of it; when
//     it is continued, it continues the command.
//   - What is sent to it goes to the command's process group, and it ends with the
//     command's status: 128 and the signal's number when a signal ended that.
//   - It never reads or writes the terminal while the command runs.
//
// It has the posture of every process of the jail, and the agent may kill it: the
// kernel then hangs the terminal up.
package job
