/* SPDX-License-Identifier: GPL-2.0 */
/* From (mount, dentry) to a path and the automaton's state at its end.
 *
 * The walk goes up to the root of the task's mount namespace, not to fs->root: a
 * chroot changes nothing. It is lockless, so a rename may interfere: every dentry's
 * d_seq is noted on the way up and read again after the names were matched. When
 * none changed, all of (parent, name) held together at one moment in between;
 * else the walk starts again, four times, then fails closed.
 *
 * What a name does to the automaton depends on nothing but the state before it and the table. So the task's
 * scratch keeps the first names of its last walk with the states behind them, and a name that is still the
 * same byte for byte is not matched again. Nothing about dentries is remembered. A table has an id of its own, so
 * a swap of the policy forgets everything; so does a walk that was disturbed, whose names may be torn.
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
	return LOAD(dentry, dentry, d_seq.seqcount.sequence);
}

/* step_up is one level of the way to the root: a name or a mount crossing. */
static long step_up(u32 i, struct walk *w)
{
	struct scratch *sc = w->sc;
	u64 d = sc->dentry_now, m = sc->mnt_now;

	if (d == (u64)LOAD(mount, m, mnt.mnt_root)) {
		u64 up = (u64)LOAD(mount, m, mnt_parent);
		if (up == m) {
			sc->end = (u64)LOAD(mount, m, mnt_ns) == sc->ns ? END_ROOT : END_LOST;
			return 1;
		}
		sc->dentry_now = (u64)LOAD(mount, m, mnt_mountpoint);
		sc->mnt_now = up;
		return 0;
	}
	u32 seq = sequence(d);
	u64 parent = (u64)LOAD(dentry, d, d_parent);
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

#define SHORT_NAME 32 /* bytes that every kernel keeps within a dentry */

/* short_name copies a name that lies in its dentry, word by word. to is followed by enough bytes that are free. */
static __always_inline bool short_name(u64 d, u64 name, u8 *to, u32 len)
{
	const u64 *words;
	u64 off;

	if (!typed || len > SHORT_NAME)
		return false;
	struct dentry *t = bpf_rdonly_cast((void *)d, bpf_core_type_id_kernel(struct dentry));
	if (bpf_core_field_exists(t->d_iname)) {
		off = bpf_core_field_offset(struct dentry, d_iname);
		words = (const u64 *)&t->d_iname;
	} else {
		off = bpf_core_field_offset(struct dentry___named, d_shortname);
		words = (const u64 *)&((struct dentry___named *)t)->d_shortname;
	}
	if (name != d + off)
		return false;
	*(u64 *)to = words[0];
	if (len > 8)
		*(u64 *)(to + 8) = words[1];
	if (len > 16) {
		*(u64 *)(to + 16) = words[2];
		*(u64 *)(to + 24) = words[3];
	}
	return true;
}

/* append adds one name to the record. Answers its length, or 0 if it changes just now. */
static __always_inline u32 append(struct scratch *sc, u64 d, u8 **name)
{
	u32 len, at = sc->off;
	u64 from;

	if (typed) {
		len = LOAD(dentry, d, d_name.len);
		from = (u64)LOAD(dentry, d, d_name.name);
	} else { /* both in one call */
		struct qstr q = {};
		bpf_probe_read_kernel(&q, sizeof(q), (void *)MEMBER(dentry, d, d_name));
		len = q.len;
		from = (u64)q.name;
	}
	if (!len || len > 255) { /* cannot be */
		sc->moved = 1;
		return 0;
	}
	if (at + 1 + len <= sc->limit && at <= DATA_BYTES) {
		sc->off = at + 1 + len;
	} else {
		at = DATA_BYTES; /* spare room behind: matched, not recorded */
		sc->cut = 1;
		sc->limit = 0;
	}
	u8 *to = sc->data + at;
	to[0] = '/';
	if (!short_name(d, from, to + 1, len))
		bpf_probe_read_kernel(to + 1, len, (void *)from);
	*name = to + 1;
	return len;
}

/* step_down appends one name to the record and feeds it to the automaton. */
static long step_down(u32 i, struct walk *w)
{
	struct scratch *sc = w->sc;
	u32 n = sc->depth - 1 - sc->passed - i;
	u8 *name;

	if (n >= MAX_DEPTH)
		return 1;
	u32 len = append(sc, sc->dentry[n], &name);
	if (!len)
		return 1;
	sc->state = rules_step(&w->rules, sc->state, (struct match_name *)name, len);
	return 0;
}

/* near_name is step_down for the i-th name from the root, of the first NEAR. Many are those of the task's last
 * walk: then so is the state behind them. What is compared is the names themselves, so neither the dentries nor
 * anything that happened in between matter. Answers the name's length, 0 to stop. A global function, as the verifier looks at
 * it once and not for every name.
 */
__noinline u32 near_name(struct scratch *sc, const struct match_small *small, const struct match_large *large, u32 n, u32 i)
{
	if (!sc)
		return 0;
	struct rules rules = {.small = small, .large = large};
	u8 *name;
	u32 len = append(sc, sc->dentry[n & (MAX_DEPTH - 1)], &name);

	if (!len)
		return 0;
	i &= NEAR - 1;
	struct known *k = &sc->known[i];
	u64 one = *(u64 *)name, two = 0;
	if (len > 8)
		two = *(u64 *)(name + 8) & ~0ULL >> (-8 * len & 63);
	else
		one &= ~0ULL >> (-8 * len & 63);
	if (i < sc->knows && len <= 16 && k->len == len && k->word[0] == one && k->word[1] == two) {
		sc->state = k->state;
		return len;
	}
	u32 state = rules_step(&rules, sc->state, (struct match_name *)name, len);
	sc->state = state;
	if (i > sc->knows)
		return len;
	k->word[0] = one;
	k->word[1] = two;
	k->len = len;
	k->state = state;
	sc->knows = len <= 16 ? i + 1 : i;
	return len;
}

static long step_check(u32 i, struct walk *w)
{
	struct scratch *sc = w->sc;

	i += sc->passed;
	if (i >= MAX_DEPTH)
		return 1;
	if (sequence(sc->dentry[i]) != sc->seq[i]) {
		sc->moved = 1;
		return 1;
	}
	return 0;
}

/* rise reads what a step up needs of a dentry, in one call where a load is one. */
static __always_inline u64 rise(struct scratch *sc, u64 d, u32 *seq)
{
	u64 from = bpf_core_field_offset(struct dentry, d_seq) & ~7ULL;
	u64 parent = bpf_core_field_offset(struct dentry, d_parent) - from;

	if (typed || parent > sizeof(sc->head) - 8) {
		*seq = sequence(d);
		return (u64)LOAD(dentry, d, d_parent);
	}
	bpf_probe_read_kernel(sc->head, sizeof(sc->head), (void *)(d + from)); /* upward: the sequence first */
	*seq = *(u32 *)((u8 *)sc->head + (bpf_core_field_offset(struct dentry, d_seq) & 7));
	return *(u64 *)((u8 *)sc->head + parent);
}

/* near_up is step_up for the first levels. Answers whether that was all of them. */
__noinline int near_up(struct scratch *sc)
{
	if (!sc)
		return 1;
	u64 d = sc->start_dentry, m = sc->start_mnt, root = (u64)LOAD(mount, m, mnt.mnt_root);
	u32 moved = 0, i;

	sc->depth = 0;

	for (i = 0; i < NEAR + 4; i++) {
		if (d == root) {
			u64 up = (u64)LOAD(mount, m, mnt_parent);
			if (up == m) {
				if ((u64)LOAD(mount, m, mnt_ns) == sc->ns)
					sc->end = END_ROOT;
				break;
			}
			d = (u64)LOAD(mount, m, mnt_mountpoint);
			m = up;
			root = (u64)LOAD(mount, m, mnt.mnt_root);
			continue;
		}
		u32 seq;
		u64 parent = rise(sc, d, &seq);
		if (parent == d || !parent)
			break; /* disconnected: END_LOST stands */
		u32 n = sc->depth & (MAX_DEPTH - 1); /* in memory, else the verifier tries every i with every n */
		sc->dentry[n] = d;
		sc->seq[n] = seq;
		sc->depth = n + 1;
		moved |= seq;
		d = parent;
	}
	sc->moved = moved & 1;
	sc->dentry_now = d;
	sc->mnt_now = m;
	return i < NEAR + 4;
}

/* near_check is step_check for the first levels. */
__noinline int near_check(struct scratch *sc, u32 depth)
{
	u32 moved = 0, i;

	if (!sc)
		return 1;
	for (i = 0; i < NEAR && i < depth; i++)
		moved |= sequence(sc->dentry[i]) ^ sc->seq[i];
	return moved != 0;
}

/* walk_once leaves path, state and end in sc. */
__noinline int walk_once(struct scratch *sc, u32 slot)
{
	if (!sc)
		return -1;
	struct walk w = {.sc = sc};
	u32 start = sc->off, limit = sc->limit, i;

	sc->cut = 0;
	sc->passed = 0;
	sc->end = END_LOST;
	if (!rules_of(&w.rules, slot, sc->large))
		return -1;
	sc->state = rules_start(&w.rules);
	u64 table = rules_id(&w.rules);
	if (!table || table != sc->table)
		sc->knows = 0;
	sc->table = table;
	if ((u64)LOAD(mount, sc->start_mnt, mnt_ns) == MNT_NS_INTERNAL) {
		sc->end = END_INTERNAL;
		sc->depth = 0;
		sc->moved = 0;
		return 0;
	}
	if (!near_up(sc))
		bpf_loop(MAX_DEPTH + 64, step_up, &w, 0);
	__sync_fetch_and_add(&sc->barrier, 1);
	u32 depth = sc->depth;
	for (i = 0; i < NEAR && i < depth; i++)
		if (!near_name(sc, w.rules.small, w.rules.large, depth - 1 - i, i))
			break;
	if (i == NEAR && depth > NEAR) {
		sc->passed = NEAR;
		bpf_loop(depth - NEAR, step_down, &w, 0);
	}
	u32 at = sc->off;
	if (!depth && at < DATA_BYTES) {
		sc->data[at] = '/';
		sc->off = at + 1;
	}
	__sync_fetch_and_add(&sc->barrier, 1);
	if (near_check(sc, depth))
		sc->moved = 1;
	if (depth > NEAR) {
		sc->passed = NEAR;
		bpf_loop(depth - NEAR, step_check, &w, 0);
	}
	if (sc->moved) {
		sc->knows = 0; /* a name may have been half of one and half of another */
		sc->off = start;
		sc->limit = limit;
		return 1;
	}
	if (sc->end == END_ROOT)
		sc->bits = rules_bits(&w.rules, sc->state);
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

	sc->ns = (u64)task->nsproxy->mnt_ns;
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
	return sc->off - start;
}

#endif
