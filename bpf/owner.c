//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 */
/* Which process a connection is of. netd sees two addresses, the kernel the task; and on tier C the task is init.
 * A socket remembers who made it and who connected it, or sent from it last (on tier C init does
 * that for the agent, and does not count); when it has its port (TCP: just
 * before the SYN; UDP: with the datagram), that goes into owners, for what netd takes. Nothing is refused here.
 * Attached with net.c, to the parent group of all jails.
 */
#include "include/emit.h"
#include "include/reach.h"

char _license[] SEC("license") = "GPL";
const struct flow *_flow __attribute__((unused));
const struct owner *_owner __attribute__((unused));

/* flow is one end of a jail's connection as netd sees it. Of a DNS question to is zero and
 * remote the port, whatever the protocol.
 */
struct flow {
	u32 id;	    /* of the jail */
	u16 local;  /* the jail's port, host order */
	u16 remote; /* host order */
	u8 to[16];  /* IPv4 as ::ffff:a.b.c.d */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct flow);
	__type(value, struct owner);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} owners SEC(".maps");

/* jail_here is the jail of the calling task, and whether netd serves it. */
static __always_inline struct jail *jail_here(bool *served)
{
	for (int level = 1; level < 10; level++) {
		u64 group = bpf_get_current_ancestor_cgroup_id(level);
		if (!group)
			return 0;
		u32 *slot = bpf_map_lookup_elem(&jails, &group);
		if (slot) {
			u32 key = *slot & (MAX_JAILS - 1);
			*served = resolves(key);
			return bpf_map_lookup_elem(&slots, &key);
		}
	}
	return 0;
}

/* note puts the calling task into its socket. Without memory for that, events name no process. */
static __always_inline void note(struct sender *s, struct jail *jail, bool served)
{
	u64 both = bpf_get_current_pid_tgid();

	if (!s || both >> 32 == jail->init)
		return;
	s->owner.start = task_start();
	s->owner.tgid = both >> 32;
	s->owner.tid = both;
	s->id = jail->id;
	s->served = served;
}

static __always_inline int remember(struct bpf_sock_addr *ctx)
{
	bool served = false;
	struct jail *jail = jail_here(&served);
	struct bpf_sock *sk = ctx->sk;

	if (jail && sk)
		note(bpf_sk_storage_get(&senders, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE), jail, served);
	return 1;
}

SEC("cgroup/sock_create")
int remember_sock_create(struct bpf_sock *sk)
{
	bool served = false;
	struct jail *jail = jail_here(&served);

	if (jail)
		note(bpf_sk_storage_get(&senders, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE), jail, served);
	return 1;
}

SEC("cgroup/connect4")
int remember_connect4(struct bpf_sock_addr *ctx)
{
	return remember(ctx);
}

SEC("cgroup/connect6")
int remember_connect6(struct bpf_sock_addr *ctx)
{
	return remember(ctx);
}

SEC("cgroup/sendmsg4")
int remember_sendmsg4(struct bpf_sock_addr *ctx)
{
	return remember(ctx);
}

SEC("cgroup/sendmsg6")
int remember_sendmsg6(struct bpf_sock_addr *ctx)
{
	return remember(ctx);
}

SEC("sockops")
int own_connection(struct bpf_sock_ops *ctx)
{
	if (ctx->op != BPF_SOCK_OPS_TCP_CONNECT_CB)
		return 1;
	struct bpf_sock *sk = ctx->sk;
	if (!sk)
		return 1;
	struct sender *s = bpf_sk_storage_get(&senders, sk, 0, 0);
	if (!s || !s->served)
		return 1;
	struct flow f = {.id = s->id, .local = ctx->local_port, .remote = bpf_ntohl(ctx->remote_port)};
	if (f.remote != PORT_DNS) {
		u32 ip[4] = {ctx->remote_ip4, 0, 0, 0};
		if (ctx->family == AF_INET6) {
			ip[0] = ctx->remote_ip6[0];
			ip[1] = ctx->remote_ip6[1];
			ip[2] = ctx->remote_ip6[2];
			ip[3] = ctx->remote_ip6[3];
		}
		mapped(f.to, ip, ctx->family == AF_INET6);
	}
	struct owner owner = s->owner;
	bpf_map_update_elem(&owners, &f, &owner, BPF_ANY);
	return 1;
}

/* Datagrams to port 53; all other packets pass after a look at their first bytes. */
SEC("cgroup_skb/egress")
int own_question(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	u8 head[10]; /* of IPv4 or IPv6, up to the protocol */
	u16 ports[2];

	if (!sk || bpf_skb_load_bytes(skb, 0, head, sizeof(head)))
		return 1;
	bool v4 = head[0] >> 4 == 4;
	if ((v4 ? head[9] : head[6]) != IPPROTO_UDP) /* nobody answers a question behind extension headers */
		return 1;
	if (bpf_skb_load_bytes(skb, v4 ? (head[0] & 15) * 4 : 40, ports, sizeof(ports)) || ports[1] != bpf_htons(PORT_DNS))
		return 1;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 1;
	struct sender *s = bpf_sk_storage_get(&senders, sk, 0, 0);
	if (!s || !s->served)
		return 1;
	struct flow f = {.id = s->id, .local = bpf_ntohs(ports[0]), .remote = PORT_DNS};
	struct owner owner = s->owner;
	bpf_map_update_elem(&owners, &f, &owner, BPF_ANY);
	return 1;
}
