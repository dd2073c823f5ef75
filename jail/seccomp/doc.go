// Package seccomp builds the system call filter of a jail: a classic BPF
// program that init loads on the agent's launch thread (package install does
// that without cgo; this package is the only one that links libseccomp).
//
// The filter is an allow list. Every system call number of the machine has one
// of these answers, see table.go, where each row says why:
//
//   - Allow: run it.
//   - Check: run it unless an argument is refused (checks.go).
//   - Refuse: EPERM. A policy may allow it.
//   - Never: EPERM. No policy may allow it: the jail would stop being one.
//   - Hide: ENOSYS. No policy may allow it.
//   - Absent: ENOSYS, so that a libc falls back to the older call. Whatever no
//     row names is absent too, as is every number newer than this package.
//
// A policy changes the table by name. Deny beats Notify beats Allow.
//
// # How the list is expressed
//
// libseccomp can say "refuse these arguments" only in a filter that allows by
// default, and has no "this number or above". So the default of the libseccomp
// filter is allow, every number below the newest known one that is not allowed
// gets its own rule, and a guard of a few instructions goes in front: a foreign
// architecture (i386 by int 0x80), the x32 bit, unused ranges and numbers above
// the newest known one answer ENOSYS before libseccomp's code is reached. Tests
// run the program for every number and compare it with the table.
//
// Only the number -1 (a tracer cancelled the call) passes, as the kernel wants.
//
// # Cost
//
// The kernel keeps a bitmap of numbers that are always allowed; those cost the
// same whatever the size of the filter. Checked and notified calls run the
// program; the test TestBitmap lists them. The rules are a binary tree.
//
// # What it does not do
//
// A filter sees numbers, never what a pointer points to. Paths, addresses and
// struct arguments (clone3, hence absent) are the business of the kernel rule
// engine or of the broker. fork-like calls of a filtered process inherit the
// filter; nothing removes it.
//
// process_vm_readv and process_vm_writev are allowed: they ask the kernel the same
// question as ptrace, which debuggers in the jail need, and the pid namespace
// leaves no process outside to name. Init has another uid and is not dumpable.
package seccomp
