/* SPDX-License-Identifier: GPL-2.0 */
/* What a walk reads of a dentry: its sequence, its parent, its name. From 6.2 on each is a load; before, a load
 * is a call, and one call copies the beginning of the dentry on the way up, with the short name that lies in it.
 */
#ifndef AGENTOS_NAME_H
#define AGENTOS_NAME_H

#include "maps.h"

static __always_inline u32 sequence(u64 dentry)
{
	return LOAD(dentry, dentry, d_seq.seqcount.sequence);
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

/* Where struct dentry is copied from by rise, and where things are in the copy. */
#define HEAD_BYTES (8 * HEAD_WORDS)
#define HEAD_FROM (bpf_core_field_offset(struct dentry, d_seq) & ~7ULL)
#define IN_HEAD(field) (bpf_core_field_offset(struct dentry, field) - HEAD_FROM)

/* headed says that the copy holds short names too. */
static __always_inline bool headed(void)
{
	struct dentry *d = 0;

	return !typed && bpf_core_field_exists(d->d_iname) && IN_HEAD(d_name) <= HEAD_BYTES - 16 &&
	       IN_HEAD(d_iname) <= HEAD_BYTES - SHORT_NAME;
}

/* append adds one name to the record. head: the copy of its dentry, or 0. Answers its length, or 0 if it changes just now. */
static __always_inline u32 append(struct scratch *sc, u64 d, u8 **name, const u8 *head)
{
	u32 len, at = sc->off;
	const u64 *words = 0;
	u64 from;

	if (typed) {
		len = LOAD(dentry, d, d_name.len);
		from = (u64)LOAD(dentry, d, d_name.name);
	} else if (head) {
		len = *(const u64 *)(head + IN_HEAD(d_name)) >> 32;
		from = *(const u64 *)(head + IN_HEAD(d_name) + 8);
		if (from == MEMBER(dentry, d, d_iname) && len <= SHORT_NAME)
			words = (const u64 *)(head + IN_HEAD(d_iname));
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
	if (words) {
		u64 *name_words = (u64 *)(to + 1);
		name_words[0] = words[0];
		name_words[1] = words[1];
		if (len > 16) {
			name_words[2] = words[2];
			name_words[3] = words[3];
		}
	} else if (!short_name(d, from, to + 1, len))
		bpf_probe_read_kernel(to + 1, len, (void *)from);
	*name = to + 1;
	return len;
}

/* rise reads what a step up needs of the n-th dentry, in one call where a load is one. */
static __always_inline u64 rise(struct scratch *sc, u64 d, u32 n, u32 *seq)
{
	if (typed || IN_HEAD(d_parent) > HEAD_BYTES - 8) {
		*seq = sequence(d);
		return (u64)LOAD(dentry, d, d_parent);
	}
	u8 *head = (u8 *)sc->head[n & (NEAR - 1)];
	bpf_probe_read_kernel(head, headed() ? HEAD_BYTES : 32, (void *)(d + HEAD_FROM)); /* upward: the sequence first */
	*seq = *(u32 *)(head + (bpf_core_field_offset(struct dentry, d_seq) & 7));
	return *(u64 *)(head + IN_HEAD(d_parent));
}

#endif
