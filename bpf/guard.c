//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 */
/* Everything else that jails may not do on tiers A and B: what to execute, mounts,
 * socket families, unix sockets and descriptors from outside, ptrace across the
 * border, bpf. See files.c for how these are loaded.
 */
#include "include/taint.h"

char _license[] SEC("license") = "GPL";

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define AF_NETLINK 16
#define SOCK_RAW 3
#define SOCK_PACKET 10
#define NETLINK_ROUTE 0
#define PTRACE_MODE_ATTACH 2
#define FMODE_READ 1
#define FMODE_WRITE 2

SEC("lsm/bprm_check_security")
int BPF_PROG(check_exec, struct linux_binprm *bprm)
{
	struct who w;
	int result;
	struct scratch *sc = begin(&w, KIND_EXEC, &result);

	if (!sc)
		return result;
	struct file *file = BPF_CORE_READ(bprm, file);
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	identify(&sc->rec, inode);
	sc->rec.len1 = walk_at(sc, w.slot, BPF_CORE_READ(file, f_path.mnt), BPF_CORE_READ(file, f_path.dentry));
	other_names(sc, &w, inode, LOAD(inode, inode, __i_nlink));
	return refusal(judge(sc, w.slot, w.jail->flags, BIT_EXEC), EACCES);
}

/* refuse denies an operation that no jail may do, whatever its rules. */
static __always_inline int refuse(u16 kind, u32 op)
{
	struct who w;
	enum entry entry = enter(&w);

	if (entry == ENTRY_FREE || entry == ENTRY_TRUSTED)
		return 0;
	if (!w.jail)
		return -EPERM;
	bool enforce = w.jail->flags & JAIL_ENFORCE;
	emit_bare(w.slot, kind, enforce ? 0 : REC_ALLOW | REC_PERMITTED, enforce ? EPERM : 0, op);
	return refusal(enforce, EPERM);
}

/* op of a mount record */
enum { OP_MOUNT = 1, OP_UMOUNT, OP_MOVE_MOUNT, OP_PIVOT_ROOT, OP_REMOUNT };

SEC("lsm/sb_mount")
int BPF_PROG(check_mount)
{
	return refuse(KIND_MOUNT, OP_MOUNT);
}

SEC("lsm/sb_umount")
int BPF_PROG(check_umount)
{
	return refuse(KIND_MOUNT, OP_UMOUNT);
}

SEC("lsm/move_mount")
int BPF_PROG(check_move_mount)
{
	return refuse(KIND_MOUNT, OP_MOVE_MOUNT);
}

SEC("lsm/sb_pivotroot")
int BPF_PROG(check_pivot_root)
{
	return refuse(KIND_MOUNT, OP_PIVOT_ROOT);
}

SEC("lsm/sb_remount")
int BPF_PROG(check_remount)
{
	return refuse(KIND_MOUNT, OP_REMOUNT);
}

SEC("lsm/bpf")
int BPF_PROG(check_bpf, int cmd)
{
	return refuse(KIND_BPF, cmd);
}

SEC("lsm/perf_event_open")
int BPF_PROG(check_perf)
{
	return refuse(KIND_BPF, 0xffff);
}

struct address {
	u16 family;
	u16 port;
	u8 ip[16];
	u32 protocol;
};

struct socket_record {
	struct record rec;
	struct address what;
};

SEC("lsm/socket_create")
int BPF_PROG(check_socket_create, int family, int type, int protocol, int kern)
{
	if (kern)
		return 0;
	bool known = family == AF_UNIX || family == AF_INET || family == AF_INET6 ||
		     (family == AF_NETLINK && protocol == NETLINK_ROUTE);
	if (known && family != AF_NETLINK && (type == SOCK_RAW || type == SOCK_PACKET))
		known = family == AF_UNIX;
	if (known)
		return 0;
	struct who w;
	enum entry entry = enter(&w);
	if (entry == ENTRY_FREE || entry == ENTRY_TRUSTED)
		return 0;
	if (!w.jail)
		return -EPERM;
	struct socket_record r;
	__builtin_memset(&r, 0, sizeof(r));
	stamp(&r.rec, KIND_SOCKET);
	bool enforce = w.jail->flags & JAIL_ENFORCE;
	r.rec.flags = enforce ? 0 : REC_ALLOW | REC_PERMITTED;
	r.rec.error = enforce ? EPERM : 0;
	r.rec.op_flags = type;
	r.rec.len2 = sizeof(r.what);
	r.what.family = family;
	r.what.protocol = protocol;
	send_record(&r.rec, w.slot, sizeof(r));
	return refusal(enforce, EPERM);
}

/* peer judges talking to a unix socket: made in this jail, or granted by its inode. */
static __always_inline int peer(struct sock *other)
{
	struct who w;
	int result;
	struct scratch *sc = begin(&w, KIND_UNIX_CONNECT, &result);

	if (!sc)
		return result;
	u32 slot = w.slot, flags = w.jail->flags;
	struct unix_sock *unix_sock = (struct unix_sock *)other;
	struct unix_address *addr = BPF_CORE_READ(unix_sock, addr);
	struct dentry *d = BPF_CORE_READ(unix_sock, path.dentry);
	bool allow = slot_of_group((u64)BPF_CORE_READ(other, sk_cgrp_data.cgroup)) == (int)slot;

	if (d) {
		identify(&sc->rec, BPF_CORE_READ(d, d_inode));
		sc->rec.len1 = walk_at(sc, slot, BPF_CORE_READ(unix_sock, path.mnt), d);
		struct unix_peer key = {.ino = sc->rec.ino, .dev = sc->rec.dev, .slot = slot};
		if (!allow && bpf_map_lookup_elem(&unix_peers, &key))
			allow = true;
	}
	u32 at = sc->rec.len1;
	int len = addr ? BPF_CORE_READ(addr, len) - 2 : 0; /* without sun_family */
	if (len > 0 && len <= 108 && at <= PATH_BYTES) {
		u32 n = len;
		__asm__ volatile("" : "+r"(n)); /* keep the mask: the verifier forgot the bound */
		bpf_probe_read_kernel(sc->data + at, n & 127, (void *)(MEMBER(unix_address, addr, name) + 2));
		sc->rec.len2 = len;
	}
	if (allow)
		sc->rec.flags = REC_ALLOW;
	else if (flags & JAIL_ENFORCE)
		sc->rec.error = EPERM;
	else
		sc->rec.flags = REC_ALLOW | REC_PERMITTED;
	if (emit(sc, slot) && (flags & JAIL_STRICT) && (flags & JAIL_ENFORCE))
		return -EPERM;
	return refusal(sc->rec.error, EPERM);
}

SEC("lsm/unix_stream_connect")
int BPF_PROG(check_unix_connect, struct sock *sock, struct sock *other, struct sock *newsk)
{
	u64 at = 0;
	bpf_probe_read_kernel(&at, sizeof(at), &other);
	return peer((struct sock *)at);
}

/* Datagrams: each one comes by here, so within a jail they are neither walked nor recorded. */
SEC("lsm/unix_may_send")
int BPF_PROG(check_unix_send, struct socket *sock, struct socket *other)
{
	struct who w;
	enum entry entry = enter(&w);

	if (entry == ENTRY_FREE || entry == ENTRY_TRUSTED)
		return 0;
	struct sock *to = BPF_CORE_READ(other, sk);
	if (w.jail && slot_of_group((u64)BPF_CORE_READ(to, sk_cgrp_data.cgroup)) == (int)w.slot)
		return 0;
	return peer(to);
}

/* across judges one task acting on another. */
static __always_inline int across(struct task_struct *task, bool record, u32 op)
{
	struct who w;
	enum entry entry = enter(&w);

	if (entry == ENTRY_FREE || entry == ENTRY_TRUSTED)
		return 0;
	if (!w.jail)
		return -EPERM;
	bool inside = slot_of_task(task) == (int)w.slot;
	if (inside && !record)
		return 0;
	if (inside) {
		emit_bare(w.slot, KIND_PTRACE, REC_ALLOW, 0, op);
		return 0;
	}
	bool enforce = w.jail->flags & JAIL_ENFORCE;
	emit_bare(w.slot, KIND_PTRACE, enforce ? 0 : REC_ALLOW | REC_PERMITTED, enforce ? EPERM : 0, op);
	return refusal(enforce, EPERM);
}

SEC("lsm/ptrace_access_check")
int BPF_PROG(check_ptrace, struct task_struct *child, unsigned mode)
{
	return across(child, mode & PTRACE_MODE_ATTACH, mode);
}

SEC("lsm/ptrace_traceme")
int BPF_PROG(check_traceme, struct task_struct *parent)
{
	return across(parent, true, 0);
}

/* A descriptor arrives over a unix socket: as if it were opened here. */
SEC("lsm/file_receive")
int BPF_PROG(check_receive, struct file *file)
{
	struct who w;
	int result;
	struct scratch *sc = begin(&w, KIND_RECEIVE, &result);

	if (!sc)
		return result;
	u32 mode = BPF_CORE_READ(file, f_mode), need = 0;
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	sc->rec.op_flags = BPF_CORE_READ(file, f_flags);
	identify(&sc->rec, inode);
	if ((BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFSOCK) {
		/* The cgroup hooks judge a socket by the group it was made in. */
		struct socket *socket = BPF_CORE_READ(file, private_data);
		struct sock *sk = BPF_CORE_READ(socket, sk);
		u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
		if (family == AF_UNIX || slot_of_group((u64)BPF_CORE_READ(sk, sk_cgrp_data.cgroup)) == (int)w.slot)
			return 0;
		fail_closed(w.slot);
		sc->rec.flags |= REC_UNREACHABLE;
		return refusal(answer(sc, w.slot, w.jail->flags, false, true), EACCES);
	}
	if (mode & FMODE_READ)
		need |= BIT_READ;
	if (mode & FMODE_WRITE)
		need |= BIT_WRITE;
	sc->rec.len1 = walk_at(sc, w.slot, BPF_CORE_READ(file, f_path.mnt), BPF_CORE_READ(file, f_path.dentry));
	other_names(sc, &w, inode, LOAD(inode, inode, __i_nlink));
	return refusal(judge(sc, w.slot, w.jail->flags, need), EACCES);
}
