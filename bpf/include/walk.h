/* SPDX-License-Identifier: GPL-2.0 */
/* From (mount, dentry) to a path and the automaton's state at its end.
 *
 * The walk goes up to the root of the task's mount namespace, not to fs->root: a
 * chroot changes nothing. It is lockless, so a rename may interfere: every dentry's
 * d_seq is noted on the way up and read again after the names were matched. When
 * none changed, all of (parent, name) held together at one moment in between;
 * else the walk starts again, four times, then fails closed.
 */
#ifndef AGENTOS_WALK_H
#define AGENTOS_WALK_H

#include "rules.h"

enum end {
	END_ROOT,     /* reached the root of the task's mount namespace */
	END_INTERNAL, /* a kernel-internal mount: pipes, memfd, overlay's real files */
	END_LOST,     /* disconnected, or in another mount namespace */
	END_DEEP,     /* more components than MAX_DEPTH */
	END_RACED,    /* renames kept interfering */
};

#define WALK_TRIES 4
#define MNT_NS_INTERNAL ((u64)-EINVAL)

struct walk {
	struct scratch *sc;
	struct rules rules;
};

static __always_inline u32 sequence(u64 dentry)
{
	return GET(dentry, dentry, d_seq.seqcount.sequence);
}

/* step_up is one level of the way to the root: a name or a mount crossing. */
static long step_up(u32 i, struct walk *w)
{
	struct scratch *sc = w->sc;
	u64 d = sc->dentry_now, m = sc->mnt_now;

	if (d == (u64)GET(mount, m, mnt.mnt_root)) {
		u64 up = (u64)GET(mount, m, mnt_parent);
		if (up == m) {
			sc->end = (u64)GET(mount, m, mnt_ns) == sc->ns ? END_ROOT : END_LOST;
			return 1;
		}
		sc->dentry_now = (u64)GET(mount, m, mnt_mountpoint);
		sc->mnt_now = up;
		return 0;
	}
	u32 seq = sequence(d);
	u64 parent = (u64)GET(dentry, d, d_parent);
	if (parent == d || !parent)
		return 1; /* disconnected: END_LOST stands */
	u32 n = sc->depth;
	if (n >= MAX_DEPTH) {
		sc->end = END_DEEP;
		return 1;
	}
	if (seq & 1)
		sc->moved = 1;
	sc->dentry[n] = d;
	sc->seq[n] = seq;
	sc->depth = n + 1;
	sc->dentry_now = parent;
	return 0;
}

/* step_down appends one name to the record and feeds it to the automaton. */
static long step_down(u32 i, struct walk *w)
{
	struct scratch *sc = w->sc;
	u32 n = sc->depth - 1 - i;

	if (n >= MAX_DEPTH)
		return 1;
	u64 d = sc->dentry[n];
	u32 len = GET(dentry, d, d_name.len);
	const unsigned char *name = GET(dentry, d, d_name.name);
	if (len > 255) {
		sc->moved = 1; /* cannot be: names are at most 255 bytes */
		return 1;
	}
	u32 at = sc->off;
	bool fits = at + 1 + len <= sc->limit;
	if (fits && at <= DATA_BYTES) {
		sc->off = at + 1 + len;
	} else {
		at = DATA_BYTES; /* spare room behind: matched, not recorded */
		sc->cut = 1;
		sc->limit = 0;
	}
	u8 *to = sc->data + at;
	to[0] = '/';
	bpf_probe_read_kernel(to + 1, len, name);
	sc->state = rules_step(&w->rules, sc->state, (struct match_name *)(to + 1), len);
	return 0;
}

static long step_check(u32 i, struct walk *w)
{
	struct scratch *sc = w->sc;

	if (i >= MAX_DEPTH)
		return 1;
	if (sequence(sc->dentry[i]) != sc->seq[i]) {
		sc->moved = 1;
		return 1;
	}
	return 0;
}

/* walk_once leaves path, state and end in sc. */
__noinline int walk_once(struct scratch *sc, u32 slot)
{
	if (!sc)
		return -1;
	struct walk w = {.sc = sc};
	u32 start = sc->off, limit = sc->limit;

	sc->moved = 0;
	sc->cut = 0;
	sc->depth = 0;
	sc->end = END_LOST;
	sc->dentry_now = sc->start_dentry;
	sc->mnt_now = sc->start_mnt;
	if (!rules_of(&w.rules, slot, sc->large))
		return -1;
	sc->state = rules_start(&w.rules);
	if ((u64)GET(mount, sc->mnt_now, mnt_ns) == MNT_NS_INTERNAL) {
		sc->end = END_INTERNAL;
		sc->off = start;
		return 0;
	}
	bpf_loop(MAX_DEPTH + 64, step_up, &w, 0);
	__sync_fetch_and_add(&sc->barrier, 1);
	bpf_loop(sc->depth, step_down, &w, 0);
	if (!sc->depth && start < DATA_BYTES) {
		sc->data[start] = '/';
		sc->off = start + 1;
	}
	__sync_fetch_and_add(&sc->barrier, 1);
	bpf_loop(sc->depth, step_check, &w, 0);
	if (sc->moved) {
		sc->off = start;
		sc->limit = limit;
		return 1;
	}
	return 0;
}

/* walk_path walks (sc->start_mnt, sc->start_dentry): appends the path to sc->data
 * at sc->off (at most PATH_BYTES), sets sc->state, sc->bits and sc->end. Answers the
 * length of the path.
 */
__noinline int walk_path(struct scratch *sc, u32 slot)
{
	if (!sc)
		return 0;
	u32 start = sc->off;
	struct task_struct *task = bpf_get_current_task_btf();

	sc->ns = (u64)BPF_CORE_READ(task, nsproxy, mnt_ns);
	sc->bits = 0;
	for (int try = 0; try < WALK_TRIES; try++) {
		sc->limit = start + PATH_BYTES > DATA_BYTES ? DATA_BYTES : start + PATH_BYTES;
		int err = walk_once(sc, slot);
		if (err < 0)
			return 0;
		if (!err)
			goto stable;
		struct count *c = bpf_map_lookup_elem(&counts, &slot);
		if (c)
			__sync_fetch_and_add(&c->retries, 1);
	}
	sc->end = END_RACED;
stable:
	sc->rec.depth = sc->depth;
	if (sc->cut)
		sc->rec.flags |= REC_CUT;
	struct rules rules;
	if (sc->end == END_ROOT && rules_of(&rules, slot, sc->large))
		sc->bits = rules_bits(&rules, sc->state);
	return sc->off - start;
}

#endif
