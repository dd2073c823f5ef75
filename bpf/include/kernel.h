/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel structs that our programs read, and of each only the fields read.
 * The loader relocates every access against the running kernel's BTF (CO-RE),
 * so order and size mean nothing here; names and types do.
 */
#ifndef AGENTOS_KERNEL_H
#define AGENTOS_KERNEL_H

#include <linux/types.h>
#include <stdbool.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef int pid_t;
typedef unsigned short umode_t;

#include <linux/bpf.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	u32 val;
} kuid_t;

typedef struct {
	u32 val;
} kgid_t;

struct super_block {
	u32 s_dev;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct inode {
	umode_t i_mode;
	unsigned __i_nlink;
	u32 i_generation;
	unsigned long i_ino;
	struct super_block *i_sb;
	struct hlist_head i_dentry; /* its names that are in memory */
};

struct seqcount {
	unsigned sequence;
};

struct seqcount_spinlock {
	struct seqcount seqcount;
};

struct qstr {
	union {
		struct {
			u32 hash;
			u32 len;
		};
		u64 hash_len;
	};
	const unsigned char *name;
};

struct dentry {
	struct seqcount_spinlock d_seq;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	struct super_block *d_sb;
	unsigned char d_iname[1]; /* short names, up to 6.17 */
	union {
		struct hlist_node d_alias;
	} d_u;
};

union shortname_store {
	unsigned char string[1];
};

struct dentry___named {
	union shortname_store d_shortname; /* the same from 6.18 on */
};

struct vfsmount {
	struct dentry *mnt_root;
	struct super_block *mnt_sb;
};

struct mnt_namespace;

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	struct mnt_namespace *mnt_ns;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct iattr {
	unsigned ia_valid;
};

struct fs_struct {
	struct path pwd;
};

struct file {
	unsigned f_mode;
	unsigned f_flags;
	struct inode *f_inode;
	struct path f_path;
	void *private_data;
};

struct fdtable {
	unsigned max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct kernfs_node {
	u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct nsproxy {
	struct mnt_namespace *mnt_ns;
};

struct mm_struct {
	struct file *exe_file;
	unsigned long arg_start;
	unsigned long arg_end;
};

struct signal_struct {
	atomic_t live;
	int group_exit_code;
};

struct upid {
	int nr;
};

struct pid {
	unsigned level;
	struct upid numbers[1];
};

struct task_struct {
	unsigned flags;
	pid_t pid;
	pid_t tgid;
	u64 start_boottime;
	int exit_code;
	char comm[16];
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct pid *thread_pid;
	struct css_set *cgroups;
	struct nsproxy *nsproxy;
	struct fs_struct *fs;
	struct files_struct *files;
	struct mm_struct *mm;
	struct signal_struct *signal;
};

struct linux_binprm {
	struct file *file;
	const char *filename;
	const char *interp;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct sock_common {
	unsigned short skc_family;
};

struct sock {
	struct sock_common __sk_common;
	struct sock_cgroup_data sk_cgrp_data;
};

struct socket {
	short type;
	struct sock *sk;
};

struct unix_address {
	int len;
	char name[1]; /* struct sockaddr_un */
};

struct unix_sock {
	struct sock sk;
	struct unix_address *addr;
	struct path path;
};

struct sockaddr;

struct bpf_sock_addr_kern {
	struct sock *sk;
	struct sockaddr *uaddr;
	u32 uaddrlen;
};

struct pt_regs {
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
};

#pragma clang attribute pop

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* GET loads one field through bpf_probe_read_kernel; p may be a plain number. */
#define GET(type, p, field)                                                    \
	({                                                                     \
		typeof(((struct type *)0)->field) _v;                          \
		u64 _p = (u64)(p); /* else p itself would be relocated too */   \
		__builtin_memset(&_v, 0, sizeof(_v));                          \
		bpf_core_read(&_v, sizeof(_v), &((struct type *)_p)->field);   \
		_v;                                                            \
	})

extern void *bpf_rdonly_cast(const void *object, u32 type) __ksym __weak;

/* typed says that the kernel has bpf_rdonly_cast (6.2): then a field is one checked load and not a call.
 * The loader sets it; where it is false the verifier drops the calls.
 */
const volatile bool typed = false;

/* LOAD is GET at the price of this kernel; for what every walk reads. */
#define LOAD(type, p, field)                                                                \
	({                                                                                  \
		typeof(((struct type *)0)->field) _r;                                       \
		u64 _at = (u64)(p);                                                         \
		if (typed)                                                                  \
			_r = ((struct type *)bpf_rdonly_cast((void *)_at, bpf_core_type_id_kernel(struct type)))->field; \
		else                                                                        \
			_r = GET(type, _at, field);                                         \
		_r;                                                                         \
	})

/* MEMBER is the address of an embedded struct, MNT the mount around a vfsmount. */
#define MEMBER(type, p, field) ((u64)(p) + bpf_core_field_offset(struct type, field))
#define MNT(vfs) ((u64)(vfs) - bpf_core_field_offset(struct mount, mnt))

/* refusal is -err if deny, else 0, in a form whose range the verifier can see. */
static __always_inline int refusal(bool deny, int err)
{
	long result = 0;

	if (deny) {
		result = -err;
		__asm__ volatile("" : "+r"(result));
	}
	return result;
}

#define S_IFMT 00170000
#define S_IFSOCK 0140000
#define S_IFREG 0100000
#define S_IFDIR 0040000

#define EPERM 1
#define EACCES 13
#define EINVAL 22

#endif
