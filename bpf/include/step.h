/* SPDX-License-Identifier: GPL-2.0 */
/* match_*_component of match.h with bpf_loop in place of its three loops: the verifier
 * looks at each body once instead of 256 times (2,000 instead of 56,000 instructions
 * for each of 20 programs). Same tables, same answer: a test in audit/hook runs both.
 */
#ifndef AGENTOS_STEP_H
#define AGENTOS_STEP_H

#include "match.h"

#define STEP(kind)                                                                          \
	struct step_##kind {                                                                \
		const struct match_##kind *t;                                               \
		const struct match_name *name;                                              \
		u32 len, table, node, base, shift;                                          \
	};                                                                                  \
                                                                                            \
	static long kind##_forward(u32 i, struct step_##kind *s)                            \
	{                                                                                   \
		u32 to = s->base + s->name->b[i & 255];                                     \
		u32 e = match_##kind##_u32(s->t, s->table + 4 * to);                        \
		if (e >> 16 != s->node) {                                                   \
			s->shift = 0;                                                       \
			return 1;                                                           \
		}                                                                           \
		s->node = to;                                                               \
		s->base = e & 0xffff;                                                       \
		return 0;                                                                   \
	}                                                                                   \
                                                                                            \
	static long kind##_backward(u32 i, struct step_##kind *s)                           \
	{                                                                                   \
		u32 j = s->len - 1 - i;                                                     \
		MATCH_KEEP(j);                                                              \
		j &= 255;                                                                   \
		MATCH_KEEP(j);                                                              \
		u32 to = s->base + s->name->b[j];                                           \
		u32 e = match_##kind##_u32(s->t, s->table + 4 * to);                        \
		if (e >> 16 != s->node)                                                     \
			return 1;                                                           \
		s->node = to;                                                               \
		s->base = e & 0xffff;                                                       \
		return 0;                                                                   \
	}                                                                                   \
                                                                                            \
	static long kind##_general(u32 i, struct step_##kind *s)                            \
	{                                                                                   \
		u32 class = match_##kind##_u8(s->t, s->base + s->name->b[i & 255]);         \
		s->node = match_##kind##_u16(s->t, s->table + 2 * ((s->node << (s->shift & 15)) + class)); \
		return !s->node;                                                            \
	}                                                                                   \
                                                                                            \
	__noinline u32 step_##kind(const struct match_##kind *t, u32 state, const struct match_name *name, u32 len) \
	{                                                                                   \
		if (!t || !name || !len || len > 255 || state == MATCH_BAD)                 \
			return MATCH_BAD;                                                   \
		u32 rows = match_##kind##_header(t, MATCH_H_ROWS);                          \
		struct step_##kind s = {.t = t, .name = name, .len = len, .shift = 16};     \
                                                                                            \
		s.table = match_##kind##_header(t, MATCH_H_FWD);                            \
		s.base = match_##kind##_u32(t, s.table) & 0xffff;                           \
		bpf_loop(len, kind##_forward, &s, 0);                                       \
		u32 sym = match_##kind##_u32(t, match_##kind##_header(t, MATCH_H_FWDSYM) + 4 * s.node); \
		u32 v = match_##kind##_look(t, state & 0xffff, sym >> (s.shift & 31) & 0xffff); \
		if (v < rows) {                                                             \
			s.table = match_##kind##_header(t, MATCH_H_BWD);                    \
			s.node = 0;                                                         \
			s.base = match_##kind##_u32(t, s.table) & 0xffff;                   \
			bpf_loop(len, kind##_backward, &s, 0);                              \
			v = match_##kind##_look(t, v, match_##kind##_u16(t,                 \
				match_##kind##_header(t, MATCH_H_BWDSYM) + 2 * s.node));    \
		}                                                                           \
		if (v < rows) {                                                             \
			s.table = match_##kind##_header(t, MATCH_H_GTAB);                   \
			s.base = match_##kind##_header(t, MATCH_H_GMAP);                    \
			s.shift = match_##kind##_header(t, MATCH_H_SHIFT) & 15;             \
			s.node = 1;                                                         \
			bpf_loop(len, kind##_general, &s, 0);                               \
			v = match_##kind##_look(t, v, match_##kind##_u16(t,                 \
				match_##kind##_header(t, MATCH_H_GSYM) + 2 * s.node));      \
		}                                                                           \
		if (v < rows)                                                               \
			return MATCH_BAD;                                                   \
		return match_##kind##_u32(t, match_##kind##_header(t, MATCH_H_FINAL) + 4 * (v - rows)); \
	}

STEP(small)
STEP(large)

#endif
