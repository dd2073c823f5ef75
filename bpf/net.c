//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 */
/* Sockets of jails, at the cgroup hooks, on every tier: none but the loopback of the
 * jail's own network namespace and, where netd serves the jail, TCP to what is within reach
 * and DNS, which steer.c hands to netd. Attached once, to the parent group of all jails.
 * They cover TCP, UDP, MPTCP, fast open and io_uring; not AF_PACKET, VSOCK, ALG or
 * UNIX (guard.c, seccomp), nor sockets made before their owner joined its group.
 */
#include "include/emit.h"
#include "include/reach.h"

char _license[] SEC("license") = "GPL";
const struct address *_address __attribute__((unused)); /* keeps the type in the BTF for Go */

#define SOCK_RAW 3
#define IPPROTO_ICMP 1
#define IPPROTO_ICMPV6 58

#define REFUSE 0 /* the caller gets EPERM, unless deny was said */
#define PASS 1

struct address {
	u16 family; /* host order */
	u16 port;   /* network order */
	u8 ip[16];  /* v4: the first four */
	u32 protocol;
};

struct net_record {
	struct record rec;
	struct address to;
};

/* deny refuses a connection or a datagram by the error that the kernel's own prohibitions have (routes,
 * Landlock): programs go on with their next address.
 */
static __always_inline int deny(u16 kind)
{
	if (kind != KIND_BIND)
		bpf_set_retval(-EACCES);
	return REFUSE;
}

/* jail_now is the slot of the calling task, -1 when its group is not a known jail. */
static __always_inline int jail_now(void)
{
	for (int level = 1; level < 10; level++) {
		u64 id = bpf_get_current_ancestor_cgroup_id(level);
		if (!id)
			return -1;
		u32 *slot = bpf_map_lookup_elem(&jails, &id);
		if (slot)
			return *slot & (MAX_JAILS - 1);
	}
	return -1;
}

static __always_inline bool loopback4(u32 ip)
{
	return (bpf_ntohl(ip) >> 24) == 127 || !ip; /* 0.0.0.0 is this host */
}

static __always_inline bool loopback6(const u32 *ip)
{
	if (ip[0] || ip[1])
		return false;
	if (ip[2] == bpf_htonl(0xffff)) /* v4-mapped */
		return loopback4(ip[3]);
	return !ip[2] && (!ip[3] || ip[3] == bpf_htonl(1));
}

/* steered says whether what goes to this address ends at netd: TCP to what is within reach, and
 * DNS, whatever server is asked. All else would wait for nobody.
 */
static __always_inline bool steered(struct bpf_sock_addr *ctx, u16 kind, u32 slot, bool v6)
{
	bool dns = ctx->user_port == bpf_htons(PORT_DNS);
	u32 ip[4] = {};

	/* Connecting sends nothing; getaddrinfo(3) does it to sort addresses. What is sent then finds
	 * nobody in the namespace, and is refused by that.
	 */
	if (ctx->protocol != IPPROTO_TCP && !(ctx->protocol == IPPROTO_UDP && (dns || kind == KIND_CONNECT)))
		return false;
	if (dns)
		return resolves(slot);
	if (!v6) {
		ip[0] = ctx->user_ip4;
		return reaches(slot, ip, false);
	}
	ip[0] = ctx->user_ip6[0];
	ip[1] = ctx->user_ip6[1];
	ip[2] = ctx->user_ip6[2];
	ip[3] = ctx->user_ip6[3];
	return reaches(slot, ip, true);
}

/* for_whom names in r the task that init acts for, on tier C. */
static __always_inline void for_whom(struct bpf_sock_addr *ctx, struct jail *jail, struct record *r)
{
	struct bpf_sock *sk = ctx->sk;

	if (r->tgid != jail->init || !sk)
		return;
	struct sender *s = bpf_sk_storage_get(&senders, sk, 0, 0);
	if (!s || s->id != jail->id)
		return;
	r->tgid = s->owner.tgid;
	r->tid = s->owner.tid;
	r->task_start = s->owner.start;
}

/* settle records and answers. quiet: do not record what is allowed. */
static __always_inline int settle(struct bpf_sock_addr *ctx, u16 kind, bool v6, bool quiet)
{
	struct net_record r;
	int slot = jail_now();

	if (slot < 0)
		return deny(kind); /* below the parent of all jails, but none of them */
	u32 key = slot;
	struct jail *jail = bpf_map_lookup_elem(&slots, &key);
	if (!jail || !jail->id)
		return deny(kind);
	/* Not init either: on tier C its broker connects for the agent. */
	if (jail->flags & JAIL_SETUP)
		return PASS;
	__builtin_memset(&r, 0, sizeof(r));
	stamp(&r.rec, kind);
	bool allow;
	if (v6) {
		u32 ip[4] = {ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3]};
		__builtin_memcpy(r.to.ip, ip, 16);
		allow = loopback6(ip);
		r.to.family = AF_INET6;
	} else {
		u32 ip = ctx->user_ip4;
		__builtin_memcpy(r.to.ip, &ip, 4);
		allow = loopback4(ip);
		r.to.family = AF_INET;
	}
	if (!allow && kind != KIND_BIND) {
		allow = steered(ctx, kind, key, v6);
		quiet |= ctx->protocol == IPPROTO_UDP; /* netd records what is asked */
	}
	for_whom(ctx, jail, &r.rec);
	if (kind == KIND_BIND)
		allow = true; /* the namespace has nothing but its loopback to bind to */
	r.to.port = ctx->user_port;
	r.to.protocol = ctx->protocol;
	r.rec.len2 = sizeof(r.to);
	u32 flags = jail->flags;
	if (allow && quiet)
		return PASS;
	if (allow)
		r.rec.flags = REC_ALLOW;
	else if (flags & JAIL_ENFORCE)
		r.rec.error = EACCES;
	else
		r.rec.flags = REC_ALLOW | REC_PERMITTED;
	int lost = send_record(&r.rec, key, sizeof(r));
	if (!(r.rec.flags & REC_ALLOW) || (lost && (flags & JAIL_STRICT) && (flags & JAIL_ENFORCE)))
		return deny(kind);
	return PASS;
}

SEC("cgroup/connect4")
int check_connect4(struct bpf_sock_addr *ctx)
{
	return settle(ctx, KIND_CONNECT, false, false);
}

SEC("cgroup/connect6")
int check_connect6(struct bpf_sock_addr *ctx)
{
	return settle(ctx, KIND_CONNECT, true, false);
}

SEC("cgroup/sendmsg4")
int check_sendmsg4(struct bpf_sock_addr *ctx)
{
	return settle(ctx, KIND_SEND, false, true);
}

SEC("cgroup/sendmsg6")
int check_sendmsg6(struct bpf_sock_addr *ctx)
{
	return settle(ctx, KIND_SEND, true, true);
}

SEC("cgroup/bind4")
int check_bind4(struct bpf_sock_addr *ctx)
{
	return settle(ctx, KIND_BIND, false, false);
}

SEC("cgroup/bind6")
int check_bind6(struct bpf_sock_addr *ctx)
{
	return settle(ctx, KIND_BIND, true, false);
}

/* Only AF_INET and AF_INET6 come by here. */
SEC("cgroup/sock_create")
int check_sock_create(struct bpf_sock *ctx)
{
	struct net_record r;
	int slot = jail_now();

	if (slot < 0)
		return REFUSE;
	u32 key = slot;
	struct jail *jail = bpf_map_lookup_elem(&slots, &key);
	if (!jail || !jail->id)
		return REFUSE;
	u32 type = ctx->type, protocol = ctx->protocol;
	if (type != SOCK_RAW && protocol != IPPROTO_ICMP && protocol != IPPROTO_ICMPV6)
		return PASS;
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	if (tgid == jail->init || (jail->flags & JAIL_SETUP))
		return PASS;
	__builtin_memset(&r, 0, sizeof(r));
	stamp(&r.rec, KIND_SOCKET);
	r.to.family = ctx->family;
	r.to.protocol = protocol;
	r.rec.op_flags = type;
	r.rec.len2 = sizeof(r.to);
	bool enforce = jail->flags & JAIL_ENFORCE;
	if (enforce)
		r.rec.error = EPERM;
	else
		r.rec.flags = REC_ALLOW | REC_PERMITTED;
	send_record(&r.rec, key, sizeof(r));
	return enforce ? REFUSE : PASS;
}
