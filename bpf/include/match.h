/* SPDX-License-Identifier: GPL-2.0 */
/* The component automaton of package policy/glob, walked over its blob.
 *
 * A path is walked from the root of its mount namespace, one component (name) at a
 * time:
 *
 *	u32 s = match_large_start(t);
 *	for each name:  s = match_large_component(t, s, name, len);
 *	if (match_large_bits(t, s) & (1 << MATCH_READ)) ...allowed
 *
 * Cost depends on the length of the name, never on the number of globs. The zero
 * answer is "no": a missing table, an empty or too long name and a damaged blob lead
 * to MATCH_BAD, whose bits are 0, whose rule is MATCH_NO_RULE, which it never leaves,
 * and to or from which no_gain is false.
 *
 * A state is opaque: low 16 bits the core state, high 16 bits the decision that holds
 * at this very path. Keep both halves; states of two blobs must not be mixed.
 *
 * Two sizes of table exist, for two maps of maps: the inner maps are ARRAYs with one
 * element of sizeof(struct match_small) or sizeof(struct match_large). A blob (its
 * length is its fourth u32) is copied to the element's beginning; what lies behind it
 * is never read. Every load is masked with a constant, so the verifier accepts the
 * table's contents as they are. This header does not check the blob: glob.Load does,
 * before it goes into a map.
 *
 * For the verifier: each loop is a global function of its own, so all of them are
 * verified once per object, and loaders drop the unused ones. Nothing here takes
 * kernel pointers or calls helpers: any program type and 5.15 or later will do. Needs
 * clang (-mcpu=v3) or, for tests, any C compiler on a little-endian machine.
 */
#ifndef AGENTOS_MATCH_H
#define AGENTOS_MATCH_H

typedef unsigned char match_u8;
typedef unsigned short match_u16;
typedef unsigned int match_u32;

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#ifndef __noinline
#define __noinline __attribute__((noinline))
#endif

enum match_op { MATCH_READ, MATCH_WRITE, MATCH_EXEC };

#define MATCH_BAD 0xffffffffU
#define MATCH_NO_RULE 0xffffU   /* no rule decided: the default did */
#define MATCH_SOME_RULE 0xfffeU /* one of several merged rules: ask user space with the path */
#define MATCH_SMALL_BYTES (256U << 10)
#define MATCH_LARGE_BYTES (2048U << 10)

/* One name: len bytes, then anything. All 256 bytes must be readable. */
struct match_name {
	match_u8 b[256];
};

struct match_small {
	match_u8 b[MATCH_SMALL_BYTES];
};

struct match_large {
	match_u8 b[MATCH_LARGE_BYTES];
};

/* The header: u32 each, little endian, at byte 4 * index. Offsets are in bytes from the
 * blob's beginning. policy/glob/blob.go is the definition; a test compares the two.
 */
enum match_header {
	MATCH_H_MAGIC,
	MATCH_H_VERSION,
	MATCH_H_GLOBS,   /* number of globs compiled, for reports */
	MATCH_H_SIZE,    /* of the blob, bytes */
	MATCH_H_START,   /* state of "/" */
	MATCH_H_ROWS,    /* number of rows; ids from here on are finals */
	MATCH_H_SHIFT,   /* log2 of the byte classes of the general DFA */
	MATCH_H_STRIDE,  /* u32 words per row of the inclusion matrix */
	MATCH_H_FWD,     /* u32 {base, parent << 16}: trie over names' beginnings */
	MATCH_H_FWDSYM,  /* u32 {symbol if more bytes follow, symbol at the end << 16} */
	MATCH_H_BWD,     /* u32: trie over names' ends, read backward */
	MATCH_H_BWDSYM,  /* u16 */
	MATCH_H_GMAP,    /* u8[256]: byte -> class */
	MATCH_H_GTAB,    /* u16[states << shift] */
	MATCH_H_GSYM,    /* u16[states] */
	MATCH_H_ROW,     /* u32[4]: {cells' offset, tag | parent row << 16, default, 0} */
	MATCH_H_CELL,    /* u32 {value, tag << 16} */
	MATCH_H_FINAL,   /* u32: states */
	MATCH_H_BITS,    /* u8 per decision */
	MATCH_H_RULE,    /* u16[8] per decision */
	MATCH_H_CLASS,   /* u16 per core state: row and column of the matrix */
	MATCH_H_GAIN,    /* u32: the matrix, bit (to) of row (from) */
	MATCH_H_WORDS = 64, /* size of the header in u32 */
};

#define MATCH_MAGIC 0x424c4741U /* "AGLB" */
#define MATCH_VERSION 1U

/* Hides from the compiler what it knows of x, so that masks stay where the verifier
 * needs them.
 */
#define MATCH_KEEP(x) __asm__ volatile("" : "+r"(x))

#define MATCH_CAT_(a, b) match_##a##_##b
#define MATCH_CAT(a, b) MATCH_CAT_(a, b)
#define MATCH_FN(f) MATCH_CAT(MATCH_KIND, f)
#define MATCH_BODY

/* What one includes of this (KIND is small or large; T is const struct match_KIND *):
 *
 * u32  match_KIND_start(T)                          state of "/"
 * u32  match_KIND_component(T, state, name, len)    state after one more name (1..255 bytes)
 * u32  match_KIND_bits(T, state)                    bit n set = enum match_op n is allowed
 * u32  match_KIND_rule(T, state, op)                index of the deciding rule
 * u32  match_KIND_no_gain(T, from, to)              1: a directory may move from -> to; nothing
 *                                                   in it gains an access that it lacked
 */
#define MATCH_KIND small
#define MATCH_T struct match_small
#define MATCH_MASK (MATCH_SMALL_BYTES - 1)
#include "match.h"
#undef MATCH_KIND
#undef MATCH_T
#undef MATCH_MASK

#define MATCH_KIND large
#define MATCH_T struct match_large
#define MATCH_MASK (MATCH_LARGE_BYTES - 1)
#include "match.h"
#undef MATCH_KIND
#undef MATCH_T
#undef MATCH_MASK
#undef MATCH_BODY

#elif defined(MATCH_BODY) /* once per size */

static __always_inline match_u32 MATCH_FN(u32)(const MATCH_T *t, match_u32 at)
{
	MATCH_KEEP(at);
	at &= MATCH_MASK & ~3U;
	MATCH_KEEP(at);
	return *(const volatile match_u32 *)(t->b + at);
}

static __always_inline match_u32 MATCH_FN(u16)(const MATCH_T *t, match_u32 at)
{
	MATCH_KEEP(at);
	at &= MATCH_MASK & ~1U;
	MATCH_KEEP(at);
	return *(const volatile match_u16 *)(t->b + at);
}

static __always_inline match_u32 MATCH_FN(u8)(const MATCH_T *t, match_u32 at)
{
	MATCH_KEEP(at);
	at &= MATCH_MASK;
	MATCH_KEEP(at);
	return *(const volatile match_u8 *)(t->b + at);
}

static __always_inline match_u32 MATCH_FN(header)(const MATCH_T *t, enum match_header h)
{
	return *(const volatile match_u32 *)(t->b + 4 * h);
}

/* forward answers the symbol of the name's beginning. */
__noinline match_u32 MATCH_FN(forward)(const MATCH_T *t, const struct match_name *name, match_u32 len)
{
	if (!t || !name)
		return 0;
	match_u32 fwd = MATCH_FN(header)(t, MATCH_H_FWD), node = 0, shift = 16, i;
	match_u32 base = MATCH_FN(u32)(t, fwd) & 0xffff;

	for (i = 0; i < 256; i++) {
		if (i >= len)
			break;
		match_u32 to = base + name->b[i];
		match_u32 e = MATCH_FN(u32)(t, fwd + 4 * to);
		if (e >> 16 != node) {
			shift = 0;
			break;
		}
		node = to;
		base = e & 0xffff;
	}
	return MATCH_FN(u32)(t, MATCH_FN(header)(t, MATCH_H_FWDSYM) + 4 * node) >> shift & 0xffff;
}

/* backward answers the symbol of the name's end. */
__noinline match_u32 MATCH_FN(backward)(const MATCH_T *t, const struct match_name *name, match_u32 len)
{
	if (!t || !name)
		return 0;
	match_u32 bwd = MATCH_FN(header)(t, MATCH_H_BWD), node = 0, i;
	match_u32 base = MATCH_FN(u32)(t, bwd) & 0xffff;

	for (i = 0; i < 256; i++) {
		if (i >= len)
			break;
		match_u32 j = len - 1 - i;
		MATCH_KEEP(j);
		j &= 255;
		MATCH_KEEP(j);
		match_u32 to = base + name->b[j];
		match_u32 e = MATCH_FN(u32)(t, bwd + 4 * to);
		if (e >> 16 != node)
			break;
		node = to;
		base = e & 0xffff;
	}
	return MATCH_FN(u16)(t, MATCH_FN(header)(t, MATCH_H_BWDSYM) + 2 * node);
}

/* general runs the DFA of all patterns that are no literal, pre*, *suf or pre*suf. */
__noinline match_u32 MATCH_FN(general)(const MATCH_T *t, const struct match_name *name, match_u32 len)
{
	if (!t || !name)
		return 0;
	match_u32 map = MATCH_FN(header)(t, MATCH_H_GMAP), tab = MATCH_FN(header)(t, MATCH_H_GTAB);
	match_u32 shift = MATCH_FN(header)(t, MATCH_H_SHIFT) & 15, at = 1, i;

	for (i = 0; i < 256; i++) {
		if (i >= len)
			break;
		at = MATCH_FN(u16)(t, tab + 2 * ((at << shift) + MATCH_FN(u8)(t, map + name->b[i])));
		if (!at)
			break;
	}
	return MATCH_FN(u16)(t, MATCH_FN(header)(t, MATCH_H_GSYM) + 2 * at);
}

/* look answers the value of a row for a symbol: its own cell, its parent's, its default. */
static __always_inline match_u32 MATCH_FN(look)(const MATCH_T *t, match_u32 row, match_u32 sym)
{
	match_u32 rows = MATCH_FN(header)(t, MATCH_H_ROW), cells = MATCH_FN(header)(t, MATCH_H_CELL);
	match_u32 at = rows + 16 * row;
	match_u32 x = MATCH_FN(u32)(t, at + 4);
	match_u32 e = MATCH_FN(u32)(t, cells + 4 * (MATCH_FN(u32)(t, at) + sym));

	if (e >> 16 == (x & 0xffff))
		return e & 0xffff;
	match_u32 up = rows + 16 * (x >> 16);
	e = MATCH_FN(u32)(t, cells + 4 * (MATCH_FN(u32)(t, up) + sym));
	if (e >> 16 == (MATCH_FN(u32)(t, up + 4) & 0xffff))
		return e & 0xffff;
	return MATCH_FN(u32)(t, at + 8) & 0xffff;
}

__noinline match_u32 MATCH_FN(component)(const MATCH_T *t, match_u32 state, const struct match_name *name,
					 match_u32 len)
{
	if (!t || !name || !len || len > 255 || state == MATCH_BAD)
		return MATCH_BAD;
	match_u32 rows = MATCH_FN(header)(t, MATCH_H_ROWS);
	match_u32 v = MATCH_FN(look)(t, state & 0xffff, MATCH_FN(forward)(t, name, len));

	if (v < rows)
		v = MATCH_FN(look)(t, v, MATCH_FN(backward)(t, name, len));
	if (v < rows)
		v = MATCH_FN(look)(t, v, MATCH_FN(general)(t, name, len));
	if (v < rows)
		return MATCH_BAD;
	return MATCH_FN(u32)(t, MATCH_FN(header)(t, MATCH_H_FINAL) + 4 * (v - rows));
}

static __always_inline match_u32 MATCH_FN(start)(const MATCH_T *t)
{
	return t ? MATCH_FN(header)(t, MATCH_H_START) : MATCH_BAD;
}

static __always_inline match_u32 MATCH_FN(bits)(const MATCH_T *t, match_u32 state)
{
	if (!t || state == MATCH_BAD)
		return 0;
	return MATCH_FN(u8)(t, MATCH_FN(header)(t, MATCH_H_BITS) + (state >> 16));
}

static __always_inline match_u32 MATCH_FN(rule)(const MATCH_T *t, match_u32 state, match_u32 op)
{
	if (!t || state == MATCH_BAD || op > 7)
		return MATCH_NO_RULE;
	return MATCH_FN(u16)(t, MATCH_FN(header)(t, MATCH_H_RULE) + 2 * (8 * (state >> 16) + op));
}

static __always_inline match_u32 MATCH_FN(no_gain)(const MATCH_T *t, match_u32 from, match_u32 to)
{
	if (!t || from == MATCH_BAD || to == MATCH_BAD)
		return 0;
	if (MATCH_FN(bits)(t, to) & ~MATCH_FN(bits)(t, from))
		return 0;
	match_u32 class = MATCH_FN(header)(t, MATCH_H_CLASS);
	match_u32 f = MATCH_FN(u16)(t, class + 2 * (from & 0xffff)), g = MATCH_FN(u16)(t, class + 2 * (to & 0xffff));
	match_u32 at = f * MATCH_FN(header)(t, MATCH_H_STRIDE) + (g >> 5);

	return MATCH_FN(u32)(t, MATCH_FN(header)(t, MATCH_H_GAIN) + 4 * at) >> (g & 31) & 1;
}

#endif
