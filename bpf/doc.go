// Package bpf holds the kernel programs of AgentOS and their generated loaders.
//
// C sources and headers are the truth; the .go and .o files beside them are made by `go generate ./bpf` (clang, llvm-strip, libbpf-dev) and
// committed, so that building AgentOS needs no compiler for BPF. One object serves every kernel from 6.1 on: it is relocated at load (CO-RE)
// against the running kernel's BTF, and include/kernel.h declares only the fields that are read.
//
//	trace.c   exec, fork, exit, leaving the group; opens at sys_exit    every tier
//	net.c     cgroup socket hooks; owner.c: whose a connection is       every tier
//	steer.c   a jail's connections and DNS to netd, by namespace        every tier
//	files.c   paths: open, create, rename, link, remove, attributes     tiers A, B
//	attr.c    times, extended attributes, ACLs, ioctl                   tiers A, B
//	guard.c   exec, mounts, sockets, ptrace, bpf, passed descriptors    tiers A, B
//
// files.c, attr.c and guard.c are written as BPF LSM programs. audit/hook loads the same object as fmod_ret/security_<hook> where bpf is not an
// active LSM (tier B): context and meaning are the same.
//
//	include/record.h    layouts shared with Go
//	include/maps.h      the maps, pinned by name, one set for all objects
//	include/identity.h  which jail is this task in
//	include/name.h      what is read of a dentry
//	include/walk.h      dentry to path and automaton state, safe under renames; taint.h: files with several names
//	include/match.h     the component automaton (policy/glob writes its tables)
//	include/emit.h      counted records; reach.h: what netd takes from a jail
//
// Every LSM hook of 6.1 to 6.12 by which a file, or what it is called, is read or changed:
//
//	file_open                       need by mode: read, write, exec; also io_uring, handles, O_PATH reopened
//	path_mknod mkdir symlink        write at the new name; mknod also is open(O_CREAT)
//	path_unlink rmdir               write at the name
//	path_link rename                both names, and what would become allowed
//	path_truncate file_truncate     write (file_truncate from 6.2 on; before, the descriptor was opened for writing)
//	path_chmod chown                write; set-ID bits never
//	path_notify                     read
//	inode_setattr                   times: write. Mode, owner and size were judged by the path hooks
//	inode_setxattr removexattr      write
//	inode_set_acl remove_acl        write (from 6.2 on; before, ACLs are extended attributes)
//	inode_getxattr                  read
//	file_ioctl                      write, but for a list of calls that read; btrfs calls that make trees: never
//	file_receive                    as file_open
//	bprm_check_security             exec
//	path_chroot                     not hooked: walks end at the root of the mount namespace, whatever the root directory
//	inode_getattr                   not hooked: metadata of denied names is visible, as names are
//	inode_listxattr get_acl         not hooked: names of attributes, and the mode in another form
//	inode_readlink                  not hooked: what a link points to is judged when it is opened
//	inode_permission follow_link    not hooked: no mount, once for every component of every path
//	inode_create link mkdir ...     not hooked: the same acts as the path hooks, without a mount
//	inode_post_* d_instantiate      not hooked: too late to refuse
//	file_permission                 not hooked: each read and write of an open descriptor; opens were judged
//	mmap_file file_mprotect         not hooked: of open descriptors. Mapping a file as code needs read only
//	file_lock file_fcntl            not hooked: nothing is read or changed; F_NOTIFY comes by path_notify
//	file_ioctl_compat               not hooked: seccomp refuses 32-bit calls
//	inode_copy_up killpriv ...      not hooked: the kernel's own act within one that was judged
//	sb_mount umount move_mount ...  never
//	quota_on kernel_read_file       not hooked: need privileges that no jail has
//	io_uring hooks                  not hooked: seccomp refuses io_uring; its opens come by file_open all the same
//
// Nothing here decides policy; programs answer from the automaton and flags they got.
//
// Stack: a chain of calls has 512 bytes in 8 frames, of which 6.1 rounds each up to 32. The deepest (check_file_open, check_link) take 448
// bytes and all 8 frames. 64 bytes are left, and no call; TestStack computes it from the objects.
package bpf
