// Command bench measures the built programs from outside and prints one table.
//
// Promises: every contestant of a section runs once per round, in an order that
// rotates, so that a busy second of the machine hits all of them alike; figures
// are medians, ratios are to the plain contestant of the same rounds. A contestant
// that is not installed or does not start is named with its reason, not left out.
//
// Sections: start to exit of /bin/true (plain, bubblewrap with a seccomp filter,
// crun, runc, docker, agentos through a resident helper, a second process in a
// running jail); start of a command to its first byte to a daemon; what a policy of 10 to
// 1,000 mixed globs costs to compile, to hold and to ask; system calls in a
// loop and real work (git status, grep -r, a C project, tar, a Go build, npm ci from local
// tarballs) outside and inside, timed by this same program from within, so that the
// start of the jail is not in them; memory of helper and init; and, when asked for by -only
// tree, the start in a workspace of 300,000 files against that in an empty one. Inside means under
// permissive, under strict, and under strict without its limit on the processors.
//
// It asserts nothing: figures depend on the machine. Docker is left out unless its
// daemon answers (DOCKER_HOST); its image is made here, of busybox.
package main
