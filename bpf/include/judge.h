/* SPDX-License-Identifier: GPL-2.0 */
/* From a walked path to an answer, for LSM hooks: 0 or a negative errno. */
#ifndef AGENTOS_JUDGE_H
#define AGENTOS_JUDGE_H

#include "walk.h"

/* How two paths are judged together. */
enum pair {
	PAIR_LINK,     /* a second name for a file */
	PAIR_MOVE,     /* a file changes its name */
	PAIR_MOVE_DIR, /* a directory does, with all that is and will be in it */
};

/* begin opens a record. Answers the scratch, or 0 with *answer set. */
static __always_inline struct scratch *begin(struct who *w, u16 kind, int *answer)
{
	*answer = 0;
	enum entry entry = enter(w);
	if (entry == ENTRY_FREE || entry == ENTRY_TRUSTED)
		return 0;
	struct scratch *sc = entry == ENTRY_JAILED ? scratch_of(w) : 0;
	if (!sc) {
		*answer = -EACCES;
		if (w->jail) {
			emit_bare(w->slot, kind, REC_NO_STORAGE, EACCES, 0);
			if (!(w->jail->flags & JAIL_ENFORCE))
				*answer = 0;
		}
		return 0;
	}
	stamp(&sc->rec, kind);
	if (w->escaped)
		escape_of(w->slot, sc->rec.tgid, sc->rec.tid);
	sc->large = w->jail->flags & JAIL_LARGE;
	sc->off = 0;
	sc->taken = 0;
	sc->taken_rule = NO_RULE;
	return sc;
}

static __always_inline void identify(struct record *r, struct inode *inode)
{
	if (!inode)
		return;
	r->ino = LOAD(inode, inode, i_ino);
	r->dev = LOAD(super_block, LOAD(inode, inode, i_sb), s_dev);
}

/* reach folds the end of a walk into a verdict: 1 judged, 0 deny, 2 allow unjudged. */
static __always_inline int reach(struct scratch *sc, u32 end, u32 flags)
{
	if (end == END_ROOT)
		return 1;
	sc->rec.flags |= end == END_RACED ? REC_RACED : REC_UNREACHABLE;
	if ((end == END_LOST || end == END_INTERNAL) && !(flags & JAIL_STRICT))
		return 2;
	return 0;
}

/* answer records a verdict and turns it into the hook's result. */
static __always_inline int answer(struct scratch *sc, u32 slot, u32 flags, bool allow, bool record)
{
	if (allow) {
		sc->rec.flags |= REC_ALLOW;
	} else if (!(flags & JAIL_ENFORCE)) {
		sc->rec.flags |= REC_ALLOW | REC_PERMITTED;
		record = true;
		allow = true;
	} else {
		sc->rec.error = EACCES;
		record = true;
	}
	if (!record)
		return 0;
	int lost = emit(sc, slot);
	if (!allow)
		return -EACCES;
	return lost && (flags & JAIL_STRICT) && (flags & JAIL_ENFORCE) ? -EACCES : 0;
}

static __always_inline void fail_closed(u32 slot)
{
	struct count *c = bpf_map_lookup_elem(&counts, &slot);
	if (c)
		__sync_fetch_and_add(&c->fail_closed, 1);
}

/* judge answers for the one path that was walked. need: BIT_*, all of them. */
__noinline int judge(struct scratch *sc, u32 slot, u32 flags, u32 need)
{
	if (!sc)
		return -EACCES;
	bool exec = need & BIT_EXEC;
	if (sc->end == END_INTERNAL && !exec)
		return 0; /* pipes, memfd, the real files below an overlay: judged elsewhere */
	int how = reach(sc, sc->end, flags);
	bool allow = how == 2 || (how == 1 && (sc->bits & need) == need);
	if (!how)
		fail_closed(slot);
	struct rules rules;
	if (how == 1 && rules_of(&rules, slot, sc->large)) {
		u32 missing = need & ~sc->bits, asked = missing ? missing : need;
		u32 op = asked & BIT_READ ? MATCH_READ : asked & BIT_WRITE ? MATCH_WRITE : MATCH_EXEC;
		sc->rec.rule = rules_rule(&rules, sc->state, op);
		if (missing && !(missing & ~sc->taken)) {
			sc->rec.rule = sc->taken_rule;
			sc->rec.flags |= REC_LINKED;
		}
	}
	bool record = flags & JAIL_AUDIT_ALL;
	if ((need & BIT_WRITE) && (flags & JAIL_AUDIT_WRITE))
		record = true;
	if (exec)
		record = false; /* sched_process_exec records what ran */
	return answer(sc, slot, flags, allow, record);
}

static __always_inline void keep_first(struct scratch *sc)
{
	sc->first_state = sc->state;
	sc->first_bits = sc->bits;
	sc->first_end = sc->end;
}

/* gained says whether a file gets an access by its new name that it could not have
 * by being copied there: who may read it may also execute a copy. The broker judges the same.
 */
static __always_inline bool gained(u32 from, u32 to)
{
	u32 more = to & ~from;

	if (from & BIT_READ)
		more &= ~BIT_EXEC;
	return more;
}

/* judge_pair answers for two paths: the first moves, or gets another name, to the
 * second. Nothing may become allowed that was not, on it or on anything below it.
 * both: they change places.
 */
__noinline int judge_pair(struct scratch *sc, u32 slot, u32 flags, u32 pair, u32 both)
{
	if (!sc)
		return -EACCES;
	if (sc->first_end == END_INTERNAL && sc->end == END_INTERNAL)
		return 0;
	struct rules rules;
	int one = reach(sc, sc->first_end, flags), two = reach(sc, sc->end, flags);
	bool allow = one && two;
	u32 from = sc->first_bits, to = sc->bits;

	if (!allow)
		fail_closed(slot);
	if (one == 1 && two == 1) {
		if (!rules_of(&rules, slot, sc->large))
			return -EACCES;
		allow = to & BIT_WRITE;
		sc->rec.rule = rules_rule(&rules, from & BIT_WRITE ? sc->state : sc->first_state, MATCH_WRITE);
		if (!(from & BIT_WRITE))
			allow = false;
		if (pair == PAIR_LINK && !(from & BIT_READ))
			allow = false; /* what can be read and written under one name, another gives nothing */
		if (pair == PAIR_MOVE && (gained(from, to) || (both && gained(to, from))))
			allow = false;
		if (allow && pair == PAIR_MOVE_DIR) {
			allow = rules_no_gain(&rules, sc->first_state, sc->state);
			if (allow && both)
				allow = rules_no_gain(&rules, sc->state, sc->first_state);
		}
	} else if (one == 2 || two == 2) {
		/* not strict, and one of them has no path: the other must still be writable */
		if (one == 1 && !(from & BIT_WRITE) && pair != PAIR_LINK)
			allow = false;
		if (two == 1 && !(to & BIT_WRITE))
			allow = false;
	}
	return answer(sc, slot, flags, allow, flags & (JAIL_AUDIT_ALL | JAIL_AUDIT_WRITE));
}

/* walk_at walks dentry below the mount of dir. */
static __always_inline u32 walk_at(struct scratch *sc, u32 slot, struct vfsmount *mnt, struct dentry *dentry)
{
	sc->start_dentry = (u64)dentry;
	sc->start_mnt = MNT(mnt);
	return walk_path(sc, slot);
}

#endif
