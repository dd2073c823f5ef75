// Package posture reads how a live process is confined, from outside, in /proc:
// ids, capabilities, filters, namespaces, mounts, descriptors, limits, groups. [Check]
// compares it with what a jail must look like.
//
// It believes nothing that AgentOS says about itself, which is why tests use it,
// and why the helper looks once more after a start.
//
// Parsing is pure and works on the bytes of the files. [Read] opens /proc/PID once
// and reads through that descriptor, so that a reused pid cannot mix two
// processes. A snapshot is not atomic: a process that changes meanwhile shows
// some old and some new values.
//
// Not visible in /proc, hence not here: what a seccomp filter says (only how
// many there are), Landlock rules, BPF programs on the cgroup.
package posture
