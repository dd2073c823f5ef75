// Package meter counts the bytes that the tasks of a jail have written to disks
// since the jail began, and says when a limit is reached.
//
// A jail's count is what its live threads have written (/proc/TID/task/TID/io)
// plus what its threads had written when they ended (taskstats, one message for
// each thread that ends on the machine, told apart by the private uids of the jail).
// Both are the kernel's own accounting, write_bytes of proc_pid_io(5): bytes that a
// task made dirty in the page cache, or wrote past it, on a file system with a disk.
//
// Why not less: the sum over the live processes alone can be evaded. A parent that
// ignores SIGCHLD keeps nothing of its children's counts. Why not io.stat of the
// cgroup: it needs the io controller on v2, and knows buffered writes only when
// the kernel writes them back, up to half a minute later.
//
// Limits:
//   - A limit is noticed up to [Slowest] after it was passed; what can be written
//     meanwhile is the overshoot. The nearer the limit, the oftener is looked, down to
//     [Fastest]: from what is left an agent is taken to write at most [Rate].
//   - Not counted: files on tmpfs (they are memory, and have limits of their own), the
//     inodes and directories themselves, space that is reserved without a write
//     (fallocate), shared extents (reflink copies). Writing a page again before it
//     reached the disk counts once.
//   - Messages are lost when more threads end than the socket's buffer holds;
//     Watch is told, so that the record can say so.
package meter
