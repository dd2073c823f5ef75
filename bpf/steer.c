//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 */
/* Every connection and every DNS question of a jail ends at the sockets that netd has in the
 * jail's network namespace, whatever address it is to; what is to 127.0.0.0/8 and ::1 stays the
 * jail's own. One copy of program and map for each namespace, attached to it: the kernel asks
 * before it looks for a listener or a bound socket (Documentation/bpf/prog_sk_lookup.rst).
 */
#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

char _license[] SEC("license") = "GPL";

#define AF_INET 2
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define PORT_DNS 53

/* sockets has netpolicy's four, in its order. Sizes and no types: the kernel takes no BTF for
 * this kind of map, and to be refused costs a grace period (sock_map_free), 20 ms of a start.
 */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 4);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u64));
} sockets SEC(".maps");

static __always_inline bool own(struct bpf_sk_lookup *ctx)
{
	if (ctx->family == AF_INET)
		return bpf_ntohl(ctx->local_ip4) >> 24 == 127;
	if (ctx->local_ip6[0] || ctx->local_ip6[1])
		return false;
	if (ctx->local_ip6[2] == bpf_htonl(0xffff)) /* v4-mapped */
		return bpf_ntohl(ctx->local_ip6[3]) >> 24 == 127;
	return !ctx->local_ip6[2] && ctx->local_ip6[3] == bpf_htonl(1);
}

SEC("sk_lookup")
int steer(struct bpf_sk_lookup *ctx)
{
	if (own(ctx))
		return SK_PASS;
	__u32 key = ctx->family == AF_INET ? 0 : 1;
	if (ctx->protocol == IPPROTO_UDP) {
		if (ctx->local_port != PORT_DNS)
			return SK_PASS; /* the jail's own sockets, among themselves */
		key += 2;
	} else if (ctx->protocol != IPPROTO_TCP) {
		return SK_DROP;
	}
	struct bpf_sock *sk = bpf_map_lookup_elem(&sockets, &key);
	if (!sk)
		return SK_DROP;
	long err = bpf_sk_assign(ctx, sk, 0);
	bpf_sk_release(sk);
	return err ? SK_DROP : SK_PASS;
}
