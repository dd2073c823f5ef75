// Package hook puts the kernel programs of package bpf to work: it loads, pins and
// attaches them, registers jails with their rules, and reads what they record.
//
// It promises:
//   - Enforcement outlives us. Programs, links and maps are pinned below
//     [Options.PinDir]; a restarted helper adopts them, with the jails and the records
//     that waited in their rings meanwhile.
//   - Nothing is lost in silence. Each CPU counts what it attempted and lost per jail
//     and kind; a difference becomes an [event.Loss]. When a ring is half full
//     [Options.HighWater] asks for the jail to be frozen until the reader caught up.
//   - Unknown denies. A jailed task whose state is missing, a path that cannot be
//     walked, a removed jail that still has tasks: all are refused.
//   - Tiers are chosen by trying. A BPF LSM program attaches without an error and
//     without any effect where bpf is not an active LSM; only [Hook.Canary], which
//     tries denied operations in a throw-away jail, says what is enforced.
//
// Tiers (see research notes in docs): A is BPF LSM; B the same programs as
// fmod_ret/security_*, refused under full preemption, where the kernel skips them; C
// has no trampolines: exec is killed at sched_process_exec, sockets are refused at
// the cgroup hooks, files are left to the broker; D has no BPF at all.
//
// [Install] is heavy (it parses the kernel's BTF: tens of MB), [Open] is light. [Load]
// does both: with [Options.Executable] the first in a short-lived child, so that a helper
// stays small.
//
// Limits: x86-64 only; 256 jails at a time; paths of more than 256 components are
// refused; of a file that had several names before the jail started those are judged together that the
// kernel has in memory, or that the jail came by (bpf/include/taint.h).
package hook
