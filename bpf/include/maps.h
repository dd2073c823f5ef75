/* SPDX-License-Identifier: GPL-2.0 */
/* The maps. Every object declares all of them; pinned by name they are one set. */
#ifndef AGENTOS_MAPS_H
#define AGENTOS_MAPS_H

#include "kernel.h"
#include "record.h"

#define RULES_SMALL (256U << 10)
#define RULES_LARGE (2048U << 10)

#define MAX_TAINTS 16384 /* of all jails */

#define NEAR 16 /* names and steps of a walk in plain loops; deeper ones cost a call each */

/* known is a name of the last walk and the automaton's state behind it. */
struct known {
	u64 word[2]; /* the name, with zeros behind */
	u32 len;
	u32 state;
};

/* scratch is the working memory of one jailed task. Programs are preemptible, so
 * it belongs to the task and not to the CPU. rec and data must stay neighbours:
 * they leave in one bpf_ringbuf_output.
 */
struct scratch {
	u64 start_dentry, start_mnt; /* in: what to walk */
	u64 dentry_now, mnt_now;
	u64 ns; /* the task's mount namespace */
	u32 depth;
	u32 end;   /* enum end */
	u32 off;   /* where the next byte of data goes */
	u32 limit; /* and where this path must stop */
	u32 cut;
	u32 moved; /* a rename interfered */
	u32 barrier;
	u32 large; /* in: rules are in rules_large */
	u32 state; /* of the automaton after the last component */
	u32 bits;
	u32 first_state; /* the same three of the first path, when there are two */
	u32 first_bits;
	u32 first_end;
	u32 passed; /* steps that a loop before did */
	u64 head[4]; /* the beginning of a dentry */
	u64 table; /* id of the table that known is about */
	u32 knows; /* how many of known hold, from the root on */
	u32 taken; /* bits that other names of the file take from this one */
	u32 taken_rule;
	u32 names; /* enum names, of the look at them */
	u32 seen;  /* how many were looked at */
	u32 taking; /* what they say */
	u32 own;    /* what a rule refuses of the name itself */
	u32 kept_state; /* the walk of that name, while others are walked: the stack is short */
	u32 kept_bits;
	u32 kept_depth;
	u32 kept_flags;
	u32 _hole;
	struct linked linked;
	struct taint taint;
	u64 inode; /* whose names */
	u64 alias; /* the hlist_node of the next */
	u64 noted; /* the mount that the task reached last by a path, or wants to write to: see attr.c */
	u64 opened; /* the dentry of the one that is judged */
	struct known known[NEAR];
	u64 dentry[MAX_DEPTH];
	u32 seq[MAX_DEPTH];
	struct record rec;
	u8 data[DATA_BYTES + 1536]; /* spare room: names that are matched but not recorded */
};

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} agents SEC(".maps"); /* [0] = the parent group of all jails */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_JAILS);
	__type(key, u64);
	__type(value, u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} jails SEC(".maps"); /* kernfs id of a jail's group -> slot */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_JAILS);
	__type(key, u32);
	__type(value, struct jail);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct machine);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} machines SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct member);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct scratch);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} scratches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_JAILS);
	__type(key, u32);
	__type(value, struct count);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct unix_peer);
	__type(value, u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} unix_peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_TAINTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct linked);
	__type(value, struct taint);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} taints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_JAILS);
	__type(key, u32);
	__type(value, u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} untold SEC(".maps"); /* slot -> 1: not all of its taints could be kept */

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_JAILS);
	__type(key, u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__array(values, struct ring);
} crit SEC(".maps"), bulk SEC(".maps");

struct rules_small_inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, RULES_SMALL);
	__uint(map_flags, BPF_F_MMAPABLE);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_JAILS);
	__type(key, u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__array(values, struct rules_small_inner);
} rules_small SEC(".maps"); /* slot -> automaton; a swap replaces the inner map */

struct rules_large_inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, RULES_LARGE);
	__uint(map_flags, BPF_F_MMAPABLE);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_JAILS);
	__type(key, u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__array(values, struct rules_large_inner);
} rules_large SEC(".maps");

#endif
