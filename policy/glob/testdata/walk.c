/* Walks paths over a blob with bpf/include/match.h, for TestC.
 * stdin: u32 size of the blob, blob, then paths: u16 length, bytes. For each path, stdout
 * gets u32: state, bits, rule[3], no_gain from the path before, and bits of the small table.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "match.h"

static struct match_large large;
static struct match_small small;

static void name(struct match_name *n, const unsigned char *from, unsigned len)
{
	memset(n, 0xaa, sizeof *n);
	memcpy(n, from, len > 255 ? 255 : len);
}

int main(void)
{
	static unsigned char path[65536];
	unsigned size, before;
	unsigned short len;

	if (fread(&size, 4, 1, stdin) != 1 || size > sizeof large || fread(large.b, size, 1, stdin) != 1)
		return 1;
	memcpy(small.b, large.b, sizeof small);
	if (match_large_start(0) != MATCH_BAD || match_large_component(0, 0, 0, 1) != MATCH_BAD ||
	    match_large_bits(&large, MATCH_BAD) || match_large_no_gain(&large, MATCH_BAD, 0) ||
	    match_large_rule(&large, MATCH_BAD, 0) != MATCH_NO_RULE)
		return 2;
	before = match_large_start(&large);
	while (fread(&len, 2, 1, stdin) == 1) {
		unsigned s = match_large_start(&large), s2 = match_small_start(&small), at = 1;
		if (fread(path, 1, len, stdin) != len)
			return 3;
		while (at < len) {
			unsigned end = at;
			struct match_name n;
			while (end < len && path[end] != '/')
				end++;
			name(&n, path + at, end - at);
			s = match_large_component(&large, s, &n, end - at);
			if (size <= sizeof small)
				s2 = match_small_component(&small, s2, &n, end - at);
			at = end + 1;
		}
		unsigned out[7] = {
			s, match_large_bits(&large, s), match_large_rule(&large, s, MATCH_READ),
			match_large_rule(&large, s, MATCH_WRITE), match_large_rule(&large, s, MATCH_EXEC),
			match_large_no_gain(&large, before, s),
			size <= sizeof small ? match_small_bits(&small, s2) : match_large_bits(&large, s),
		};
		fwrite(out, sizeof out, 1, stdout);
		before = s;
	}
	return 0;
}
