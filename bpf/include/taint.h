/* SPDX-License-Identifier: GPL-2.0 */
/* A file with several names: what one of them is refused by a rule, none of them gives.
 *
 * Links that a jail makes are judged when they are made (judge_pair): none crosses a rule. What is left are
 * links from before the jail, or made outside. The names of an inode that the kernel has in memory hang
 * on it (i_dentry), so a look at an open of a file with more than one link walks each of them that lies below
 * the same mount. What is found, and any refused name that the jail itself comes by, is kept in
 * taints until the jail ends: names leave the memory, and with it this list.
 *
 * A name that nobody used since it last left the memory is not found: to know it means to
 * read the directories of the whole file system, and no start and no open waits for that.
 *
 * Only what a rule refuses counts (a deny or protect glob), not what no rule allows: a cache
 * and the workspace share files by links, and the cache need not be writable here.
 *
 * The list is read without its lock, as walks are: a dentry that leaves it changes its d_seq meanwhile, and
 * then the look begins again. Names that come are put in front: they are found the next time, like
 * any name that comes a moment later.
 */
#ifndef AGENTOS_TAINT_H
#define AGENTOS_TAINT_H

#include "judge.h"

enum names {
	NAMES_ALL,     /* each was looked at */
	NAMES_MOVED,   /* one left meanwhile */
	NAMES_UNKNOWN, /* one could not be walked */
	NAMES_MORE,    /* more than MAX_NAMES are in memory */
};

#define MAX_NAMES 512
#define ALL_BITS (BIT_READ | BIT_WRITE | BIT_EXEC)

/* rule_at answers which rule decided on op at the end of the path that was walked last. */
__noinline u32 rule_at(struct scratch *sc, u32 slot, u32 op)
{
	struct rules rules;

	if (!sc || !rules_of(&rules, slot, sc->large))
		return MATCH_NO_RULE;
	return rules_rule(&rules, sc->state, op);
}

/* ruled answers what a rule refuses of the path that was walked last. */
__noinline u32 ruled(struct scratch *sc, u32 slot)
{
	u32 bits = 0, op;

	if (!sc || sc->end != END_ROOT)
		return 0;
	for (op = MATCH_READ; op <= MATCH_EXEC; op++) {
		u32 rule = rule_at(sc, slot, op);
		if ((sc->bits >> op & 1) || rule == MATCH_NO_RULE)
			continue;
		bits |= 1 << op;
		sc->taken_rule = rule;
	}
	return bits;
}

struct look {
	struct scratch *sc;
	u32 slot;
};

/* next_name looks at one more name. */
static long next_name(u32 i, struct look *l)
{
	struct scratch *sc = l->sc;
	u64 node = sc->alias;

	if (!node)
		return 1;
	u64 d = node - bpf_core_field_offset(struct dentry, d_u.d_alias);
	u32 seq = sequence(d);
	u64 next = (u64)LOAD(hlist_node, node, next), inode = (u64)LOAD(dentry, d, d_inode);
	if ((seq & 1) || inode != sc->inode || sequence(d) != seq) {
		sc->names = NAMES_MOVED;
		return 1;
	}
	sc->alias = next;
	sc->seen++;
	if (d == sc->opened)
		return 0;
	u32 off = sc->off;
	sc->start_dentry = d;
	walk_path(sc, l->slot);
	sc->off = off; /* its text goes where the next one's will */
	sc->taking |= ruled(sc, l->slot);
	if (sc->end == END_RACED || sc->end == END_DEEP) {
		sc->names = NAMES_UNKNOWN;
		return 1;
	}
	return 0;
}

/* keep_taint writes down what is known of a file, or that it was not possible. */
static __always_inline void keep_taint(struct scratch *sc, u32 slot, u32 bits)
{
	u32 yes = 1;

	sc->taint.bits = bits;
	sc->taint.rule = sc->taken_rule;
	if (bpf_map_update_elem(&taints, &sc->linked, &sc->taint, BPF_ANY))
		bpf_map_update_elem(&untold, &slot, &yes, BPF_ANY);
}

/* known_names answers whether the taint that is kept leaves no more to be taken. */
static __always_inline bool known_names(struct scratch *sc, struct taint *t)
{
	if (t->gen != sc->taint.gen || ((sc->bits | sc->own) & ~t->bits))
		return false;
	sc->taken = t->bits & ~sc->own;
	sc->taken_rule = t->rule;
	sc->bits &= ~t->bits;
	return true;
}

/* other_names takes from the path that was just walked what another name of the inode, or the lack of knowledge of
 * them, refuses. links: of the inode. To call between walk_at and judge.
 */
static __always_inline void other_names(struct scratch *sc, struct who *w, struct inode *inode, u32 links)
{
	if (links < 2 || sc->end != END_ROOT || (LOAD(inode, inode, i_mode) & S_IFMT) == S_IFDIR)
		return;
	struct look l = {.sc = sc, .slot = w->slot};
	sc->inode = (u64)inode;
	sc->linked.ino = sc->rec.ino;
	sc->linked.dev = sc->rec.dev;
	sc->linked.generation = LOAD(inode, sc->inode, i_generation);
	sc->linked.slot = l.slot;
	sc->linked._hole = 0;
	sc->taint.gen = w->jail->gen;
	sc->own = ruled(sc, l.slot);
	struct taint *t = bpf_map_lookup_elem(&taints, &sc->linked);
	if (t && known_names(sc, t))
		return;
	sc->kept_state = sc->state;
	sc->kept_bits = sc->bits;
	sc->kept_depth = sc->rec.depth;
	sc->kept_flags = sc->rec.flags;
	sc->opened = sc->start_dentry;
	sc->taking = sc->own;
	for (int try = 0; try < WALK_TRIES; try++) {
		sc->seen = 0;
		sc->names = NAMES_ALL;
		sc->alias = (u64)LOAD(inode, sc->inode, i_dentry.first);
		if (bpf_loop(MAX_NAMES, next_name, &l, 0) >= MAX_NAMES && sc->alias)
			sc->names = NAMES_MORE;
		if (sc->names != NAMES_MOVED)
			break;
	}
	u32 take = sc->taking;
	if (t && (t->gen == sc->taint.gen || sc->names != NAMES_ALL || sc->seen < links))
		take |= t->bits; /* of rules before, that name may be out of memory */
	if (take)
		keep_taint(sc, l.slot, take);
	else if (t)
		bpf_map_delete_elem(&taints, &sc->linked);
	u32 *lacking = bpf_map_lookup_elem(&untold, &l.slot);
	if (sc->names != NAMES_ALL || !lacking || *lacking)
		take = ALL_BITS;
	sc->taken = take & ~sc->own;
	sc->end = END_ROOT;
	sc->state = sc->kept_state;
	sc->bits = sc->kept_bits & ~take;
	sc->rec.depth = sc->kept_depth;
	sc->rec.flags = sc->kept_flags;
}

/* place walks what a path is, and looks at its other names. */
static __always_inline void place(struct scratch *sc, struct who *w, const struct path *path)
{
	struct inode *inode = BPF_CORE_READ(path, dentry, d_inode);

	identify(&sc->rec, inode);
	sc->rec.len1 = walk_at(sc, w->slot, BPF_CORE_READ(path, mnt), BPF_CORE_READ(path, dentry));
	other_names(sc, w, inode, LOAD(inode, inode, __i_nlink));
}

#endif
