//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 */
/* Runs step.h and match.h on the same question. */
#include "../include/rules.h"

char _license[] SEC("license") = "GPL";

struct question {
	u32 slot;
	u32 large;
	u32 start; /* 1: from the state of "/" */
	u32 state;
	u32 len;
	u32 step_state;  /* answers */
	u32 match_state;
	u32 bits;
	u32 rule[3];
	u32 _hole;
	u8 name[256];
};

const struct question *_question __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct question);
} questions SEC(".maps");

#define ANSWER(kind, t)                                                                     \
	do {                                                                                \
		if (q->start)                                                               \
			q->state = match_##kind##_start(t);                                 \
		q->step_state = step_##kind(t, q->state, name, q->len);                     \
		q->match_state = match_##kind##_component(t, q->state, name, q->len);       \
		q->bits = match_##kind##_bits(t, q->step_state);                            \
		for (int op = 0; op < 3; op++)                                              \
			q->rule[op] = match_##kind##_rule(t, q->step_state, op);            \
	} while (0)

SEC("syscall")
int step(void *ctx)
{
	u32 zero = 0;
	struct question *q = bpf_map_lookup_elem(&questions, &zero);

	if (!q)
		return 1;
	u32 slot = q->slot & (MAX_JAILS - 1);
	const struct match_name *name = (const struct match_name *)q->name;
	void *inner = q->large ? 0 : bpf_map_lookup_elem(&rules_small, &slot);
	if (inner) {
		const struct match_small *small = bpf_map_lookup_elem(inner, &zero);
		if (!small)
			return 1;
		ANSWER(small, small);
		return 0;
	}
	inner = bpf_map_lookup_elem(&rules_large, &slot);
	if (!inner)
		return 1;
	const struct match_large *large = bpf_map_lookup_elem(inner, &zero);
	if (!large)
		return 1;
	ANSWER(large, large);
	return 0;
}
