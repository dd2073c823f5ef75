// Package cgroup gives a jail its control group: limits, freeze, kill, counters.
//
// A jail's group is one directory on the cgroup v2 hierarchy, agentos/NAME, plus
// one on each v1 hierarchy that still holds a controller the jail's limits
// need (hybrid hosts). [Detect] finds out which controller lives where; limits are
// set there. A limit that cannot be set is returned as [Missing], never dropped:
// the caller decides whether the jail may start without it.
//
// Everything goes through directory descriptors that are opened once; names are
// checked. Nothing outside the groups called "agentos" is changed, except that
// on cgroup v2 the needed controllers are enabled in the root's
// cgroup.subtree_control. Where systemd owns the root this holds: the kernel
// refuses to disable a controller that a child has enabled. The jails are not below
// the helper's own unit, on purpose: they outlive it.
//
// # Joining
//
// On v2 a process is born in the group (CLONE_INTO_CGROUP with [Group.FD]). v1 has
// no such thing, and writing a pid to a cgroup.procs file that is not our own thread
// waits for an RCU grace period: 6 ms measured. So whoever clones calls
// [Group.Enter] on the cloning thread first: moving oneself takes no lock (30 µs),
// and children are born in the same v1 groups. [Group.Join] is for everything else.
//
// # What v1 cannot do
//
// memory.high and memory.oom.group have no twin: the first is a courtesy and is left
// out, the second is Missing when asked for. blkio bounds direct and synchronous I/O only.
//
// # containerd/cgroups
//
// Controllers are enabled and v2 limits written by github.com/containerd/cgroups/v3/cgroup2,
// given /proc/self/fd/N as its mount point, in unified_linux.go and nowhere else. The rest
// is our own: its manager takes paths, its freeze does not wait for the frozen state,
// its kill logs to a global logger and reaps children that are not its own, its
// statistics read every file of a group, and its cgroup1 joins by cgroup.procs. It
// costs the helper 3.7 MB of resident (file) pages and 0.6 ms of package init (dbus, protobuf).
package cgroup
