/* SPDX-License-Identifier: GPL-2.0 */
/* Where a jail's packets may go at all, and who sent them: net.c and owner.c. */
#ifndef AGENTOS_REACH_H
#define AGENTOS_REACH_H

#include "maps.h"
#include <bpf/bpf_endian.h>

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define PORT_DNS 53

/* reach_key is a prefix of a jail; IPv4 is ::ffff:a.b.c.d. */
struct reach_key {
	u32 prefixlen; /* bits of what follows: 32 of the slot, then the prefix's */
	u32 slot;
	u8 ip[16];
};

/* reach holds what netd takes from a jail: the addresses that stand for names, the prefixes of
 * its rules. No entry: the jail has no network but its loopback. Ports and names are netd's to
 * judge; what is not here can be refused at once.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct reach_key);
	__type(value, u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} reach SEC(".maps");

struct owner {
	u64 start; /* of the thread group leader, CLOCK_BOOTTIME ns */
	u32 tgid;
	u32 tid;
};

/* sender is what a socket remembers of the task that made or last used it. */
struct sender {
	struct owner owner;
	u32 id; /* of the jail; 0 = nothing */
	u32 served; /* netd serves the jail: its connections are looked for in owners */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sender);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} senders SEC(".maps"); /* written by owner.c */

static __always_inline void mapped(u8 *to, const u32 *ip, bool v6)
{
	u32 all[4] = {0, 0, bpf_htonl(0xffff), ip[0]};

	__builtin_memcpy(to, v6 ? (const void *)ip : (const void *)all, 16);
}

static __always_inline bool reaches(u32 slot, const u32 *ip, bool v6)
{
	struct reach_key key = {.prefixlen = 32 + 128, .slot = slot};

	mapped(key.ip, ip, v6);
	return bpf_map_lookup_elem(&reach, &key) != 0;
}

/* resolves says whether netd answers the DNS of a jail: netpolicy.Resolver4 is within reach. */
static __always_inline bool resolves(u32 slot)
{
	u32 ip = bpf_htonl(0xc6120035); /* 198.18.0.53 */

	return reaches(slot, &ip, false);
}

#endif
