/* SPDX-License-Identifier: GPL-2.0 */
/* match_*_component of match.h with its three loops cut in two: plain ones for the first
 * bytes of a name, which mostly decide, and bpf_loop, a call for each byte, for the rest, whose body
 * the verifier looks at once instead of 256 times (for each of 20 programs). Same tables, same answer: a test in audit/hook runs both.
 */
#ifndef AGENTOS_STEP_H
#define AGENTOS_STEP_H

#include "match.h"

#define STEP_NEAR 12 /* bytes in plain loops */

#define STEP(kind)                                                                          \
	struct step_##kind {                                                                \
		const struct match_##kind *t;                                               \
		const struct match_name *name;                                              \
		u32 table, node, base, shift; /* of a name's end: shift is its length */    \
	};                                                                                  \
                                                                                            \
	static long kind##_forward(u32 i, struct step_##kind *s)                            \
	{                                                                                   \
		u32 to = s->base + s->name->b[(i + STEP_NEAR) & 255];                                     \
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
		u32 j = s->shift - 1 - STEP_NEAR - i;                                       \
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
		u32 class = match_##kind##_u8(s->t, s->base + s->name->b[(i + STEP_NEAR) & 255]);         \
		s->node = match_##kind##_u16(s->t, s->table + 2 * ((s->node << (s->shift & 15)) + class)); \
		return !s->node;                                                            \
	}                                                                                   \
                                                                                            \
	__noinline u32 step_##kind(const struct match_##kind *t, u32 state, const struct match_name *name, u32 len) \
	{                                                                                   \
		if (!t || !name || !len || len > 255 || state == MATCH_BAD)                 \
			return MATCH_BAD;                                                   \
		u32 rows = match_##kind##_header(t, MATCH_H_ROWS), i, e, node = 0, shift = 16; \
		u32 table = match_##kind##_header(t, MATCH_H_FWD);                          \
		u32 base = match_##kind##_u32(t, table) & 0xffff;                           \
		struct step_##kind s = {.t = t, .name = name};                              \
                                                                                            \
		for (i = 0; i < STEP_NEAR; i++) {                                           \
			if (i >= len)                                                       \
				goto begun;                                                 \
			u32 to = base + name->b[i];                                         \
			e = match_##kind##_u32(t, table + 4 * to);                          \
			if (e >> 16 != node) {                                              \
				shift = 0;                                                  \
				goto begun;                                                 \
			}                                                                   \
			node = to;                                                          \
			base = e & 0xffff;                                                  \
		}                                                                           \
		s.table = table, s.node = node, s.base = base, s.shift = shift;             \
		bpf_loop(len - STEP_NEAR, kind##_forward, &s, 0);                           \
		node = s.node, shift = s.shift & 31;                                        \
	begun:;                                                                             \
		u32 sym = match_##kind##_u32(t, match_##kind##_header(t, MATCH_H_FWDSYM) + 4 * node); \
		u32 v = match_##kind##_look(t, state & 0xffff, sym >> shift & 0xffff);      \
		if (v >= rows)                                                              \
			goto end;                                                           \
		table = match_##kind##_header(t, MATCH_H_BWD);                              \
		base = match_##kind##_u32(t, table) & 0xffff;                               \
		node = 0;                                                                   \
		for (i = 0; i < STEP_NEAR; i++) {                                           \
			if (i >= len)                                                       \
				goto ended;                                                 \
			u32 j = len - 1 - i;                                                \
			MATCH_KEEP(j);                                                      \
			j &= 255;                                                           \
			MATCH_KEEP(j);                                                      \
			u32 to = base + name->b[j];                                         \
			e = match_##kind##_u32(t, table + 4 * to);                          \
			if (e >> 16 != node)                                                \
				goto ended;                                                 \
			node = to;                                                          \
			base = e & 0xffff;                                                  \
		}                                                                           \
		s.table = table, s.node = node, s.base = base, s.shift = len;               \
		bpf_loop(len - STEP_NEAR, kind##_backward, &s, 0);                          \
		node = s.node;                                                              \
	ended:                                                                              \
		v = match_##kind##_look(t, v, match_##kind##_u16(t,                         \
			match_##kind##_header(t, MATCH_H_BWDSYM) + 2 * node));              \
		if (v >= rows)                                                              \
			goto end;                                                           \
		table = match_##kind##_header(t, MATCH_H_GTAB);                             \
		base = match_##kind##_header(t, MATCH_H_GMAP);                              \
		shift = match_##kind##_header(t, MATCH_H_SHIFT) & 15;                       \
		node = 1;                                                                   \
		for (i = 0; i < STEP_NEAR; i++) {                                           \
			if (i >= len)                                                       \
				goto known;                                                 \
			u32 class = match_##kind##_u8(t, base + name->b[i]);                \
			node = match_##kind##_u16(t, table + 2 * ((node << shift) + class)); \
			if (!node)                                                          \
				goto known;                                                 \
		}                                                                           \
		s.table = table, s.node = node, s.base = base, s.shift = shift;             \
		bpf_loop(len - STEP_NEAR, kind##_general, &s, 0);                           \
		node = s.node;                                                              \
	known:                                                                              \
		v = match_##kind##_look(t, v, match_##kind##_u16(t,                         \
			match_##kind##_header(t, MATCH_H_GSYM) + 2 * node));                \
	end:                                                                                \
		if (v < rows)                                                               \
			return MATCH_BAD;                                                   \
		return match_##kind##_u32(t, match_##kind##_header(t, MATCH_H_FINAL) + 4 * (v - rows)); \
	}

STEP(small)
STEP(large)

#endif
