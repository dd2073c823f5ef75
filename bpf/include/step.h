/* SPDX-License-Identifier: GPL-2.0 */
/* match_*_component of match.h with its three loops cut in two: plain ones for the first
 * bytes of a name, which mostly decide, and bpf_loop, a call for each byte, for the rest, whose body
 * the verifier looks at once instead of 256 times (for each of 20 programs). Each loop is a global function: verified once in a
 * program, and not once more for each way in which the loop before it may end. Same tables, same answer: a test in audit/hook runs both.
 */
#ifndef AGENTOS_STEP_H
#define AGENTOS_STEP_H

#include "match.h"

#define STEP_NEAR 12 /* bytes in plain loops */

#define STEP(kind) \
	struct step_##kind { \
		const struct match_##kind *t; \
		const struct match_name *name; \
		u32 table, node, base, shift; /* of a name's end: shift is its length */ \
	}; \
	\
	static long kind##_forward_more(u32 i, struct step_##kind *s) \
	{ \
		u32 to = s->base + s->name->b[(i + STEP_NEAR) & 255]; \
		u32 e = match_##kind##_u32(s->t, s->table + 4 * to); \
		if (e >> 16 != s->node) { \
			s->shift = 0; \
			return 1; \
		} \
		s->node = to; \
		s->base = e & 0xffff; \
		return 0; \
	} \
	\
	/* symbol of a name's beginning */ \
	__noinline u32 kind##_forward(const struct match_##kind *t, const struct match_name *name, u32 len) \
	{ \
		if (!t || !name || len > 255) \
			return 0; \
		u32 table = match_##kind##_header(t, MATCH_H_FWD), base = match_##kind##_u32(t, table) & 0xffff; \
		u32 node = 0, shift = 16, i; \
	\
		for (i = 0; i < STEP_NEAR; i++) { \
			if (i >= len) \
				goto end; \
			u32 to = base + name->b[i]; \
			u32 e = match_##kind##_u32(t, table + 4 * to); \
			if (e >> 16 != node) { \
				shift = 0; \
				goto end; \
			} \
			node = to; \
			base = e & 0xffff; \
		} \
		struct step_##kind s = {.t = t, .name = name, .table = table, .node = node, .base = base, .shift = shift}; \
		bpf_loop(len - STEP_NEAR, kind##_forward_more, &s, 0); \
		node = s.node, shift = s.shift & 31; \
	end: \
		return match_##kind##_u32(t, match_##kind##_header(t, MATCH_H_FWDSYM) + 4 * node) >> shift & 0xffff; \
	} \
	\
	static long kind##_backward_more(u32 i, struct step_##kind *s) \
	{ \
		u32 j = s->shift - 1 - STEP_NEAR - i; \
		MATCH_KEEP(j); \
		j &= 255; \
		MATCH_KEEP(j); \
		u32 to = s->base + s->name->b[j]; \
		u32 e = match_##kind##_u32(s->t, s->table + 4 * to); \
		if (e >> 16 != s->node) \
			return 1; \
		s->node = to; \
		s->base = e & 0xffff; \
		return 0; \
	} \
	\
	/* symbol of a name's end */ \
	__noinline u32 kind##_backward(const struct match_##kind *t, const struct match_name *name, u32 len) \
	{ \
		if (!t || !name || len > 255) \
			return 0; \
		u32 table = match_##kind##_header(t, MATCH_H_BWD), base = match_##kind##_u32(t, table) & 0xffff; \
		u32 node = 0, i; \
	\
		for (i = 0; i < STEP_NEAR; i++) { \
			if (i >= len) \
				goto end; \
			u32 j = len - 1 - i; \
			MATCH_KEEP(j); \
			j &= 255; \
			MATCH_KEEP(j); \
			u32 to = base + name->b[j]; \
			u32 e = match_##kind##_u32(t, table + 4 * to); \
			if (e >> 16 != node) \
				goto end; \
			node = to; \
			base = e & 0xffff; \
		} \
		struct step_##kind s = {.t = t, .name = name, .table = table, .node = node, .base = base, .shift = len}; \
		bpf_loop(len - STEP_NEAR, kind##_backward_more, &s, 0); \
		node = s.node; \
	end: \
		return match_##kind##_u16(t, match_##kind##_header(t, MATCH_H_BWDSYM) + 2 * node); \
	} \
	\
	static long kind##_general_more(u32 i, struct step_##kind *s) \
	{ \
		u32 class = match_##kind##_u8(s->t, s->base + s->name->b[(i + STEP_NEAR) & 255]); \
		s->node = match_##kind##_u16(s->t, s->table + 2 * ((s->node << (s->shift & 15)) + class)); \
		return !s->node; \
	} \
	\
	/* symbol of a name in the patterns that have a DFA */ \
	__noinline u32 kind##_general(const struct match_##kind *t, const struct match_name *name, u32 len) \
	{ \
		if (!t || !name || len > 255) \
			return 0; \
		u32 table = match_##kind##_header(t, MATCH_H_GTAB), base = match_##kind##_header(t, MATCH_H_GMAP); \
		u32 shift = match_##kind##_header(t, MATCH_H_SHIFT) & 15, node = 1, i; \
	\
		for (i = 0; i < STEP_NEAR; i++) { \
			if (i >= len) \
				goto end; \
			u32 class = match_##kind##_u8(t, base + name->b[i]); \
			node = match_##kind##_u16(t, table + 2 * ((node << shift) + class)); \
			if (!node) \
				goto end; \
		} \
		struct step_##kind s = {.t = t, .name = name, .table = table, .node = node, .base = base, .shift = shift}; \
		bpf_loop(len - STEP_NEAR, kind##_general_more, &s, 0); \
		node = s.node; \
	end: \
		return match_##kind##_u16(t, match_##kind##_header(t, MATCH_H_GSYM) + 2 * node); \
	} \
	\
	__noinline u32 step_##kind(const struct match_##kind *t, u32 state, const struct match_name *name, u32 len) \
	{ \
		if (!t || !name || !len || len > 255 || state == MATCH_BAD) \
			return MATCH_BAD; \
		u32 rows = match_##kind##_header(t, MATCH_H_ROWS); \
		u32 v = match_##kind##_look(t, state & 0xffff, kind##_forward(t, name, len)); \
	\
		if (v < rows) \
			v = match_##kind##_look(t, v, kind##_backward(t, name, len)); \
		if (v < rows) \
			v = match_##kind##_look(t, v, kind##_general(t, name, len)); \
		if (v < rows) \
			return MATCH_BAD; \
		return match_##kind##_u32(t, match_##kind##_header(t, MATCH_H_FINAL) + 4 * (v - rows)); \
	}

STEP(small)
STEP(large)

#endif
