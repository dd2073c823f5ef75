/* SPDX-License-Identifier: GPL-2.0 */
/* The automaton of a jail, whichever size its table has. */
#ifndef AGENTOS_RULES_H
#define AGENTOS_RULES_H

#include "emit.h"
#include "step.h"

_Static_assert(RULES_SMALL == sizeof(struct match_small), "rules_small");
_Static_assert(RULES_LARGE == sizeof(struct match_large), "rules_large");

#define BIT_READ (1 << MATCH_READ)
#define BIT_WRITE (1 << MATCH_WRITE)
#define BIT_EXEC (1 << MATCH_EXEC)

struct rules {
	const struct match_small *small; /* one of the two */
	const struct match_large *large;
};

static __always_inline bool rules_of(struct rules *r, u32 slot, u32 large)
{
	u32 zero = 0;
	void *inner;

	r->small = 0;
	r->large = 0;
	if (large) {
		inner = bpf_map_lookup_elem(&rules_large, &slot);
		if (inner)
			r->large = bpf_map_lookup_elem(inner, &zero);
		return r->large;
	}
	inner = bpf_map_lookup_elem(&rules_small, &slot);
	if (inner)
		r->small = bpf_map_lookup_elem(inner, &zero);
	return r->small;
}

/* rules_id is a number that no other table has. match.h leaves that part of the header alone. */
#define TABLE_ID (4 * 62)

static __always_inline u64 rules_id(struct rules *r)
{
	return r->small ? *(const volatile u64 *)(r->small->b + TABLE_ID) : *(const volatile u64 *)(r->large->b + TABLE_ID);
}

static __always_inline u32 rules_start(struct rules *r)
{
	return r->small ? match_small_start(r->small) : match_large_start(r->large);
}

static __always_inline u32 rules_step(struct rules *r, u32 state, const struct match_name *name, u32 len)
{
	if (r->small)
		return step_small(r->small, state, name, len);
	return step_large(r->large, state, name, len);
}

static __always_inline u32 rules_bits(struct rules *r, u32 state)
{
	return r->small ? match_small_bits(r->small, state) : match_large_bits(r->large, state);
}

static __always_inline u32 rules_rule(struct rules *r, u32 state, u32 op)
{
	return r->small ? match_small_rule(r->small, state, op) : match_large_rule(r->large, state, op);
}

static __always_inline bool rules_no_gain(struct rules *r, u32 from, u32 to)
{
	return r->small ? match_small_no_gain(r->small, from, to) : match_large_no_gain(r->large, from, to);
}

#endif
