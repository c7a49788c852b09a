/* put.h -- plain writers of the access log: numbers, ids, times and texts without a check on the
 * way.  Only for accesslog.c, which knows beforehand that the room will do.
 *
 * Each writes at p and returns where it ended; some write up to SLACK bytes behind that.  x86-64
 * looks at 16 bytes a step (SSE2, always there), other machines at 8. */
#ifndef POLICY_PUT_H
#define POLICY_PUT_H

#include "base/digits.h"
#include "base/load.h"
#include "base/out.h"

#include <endian.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { SLACK = 24 };

#define LIT(p, lit) ((char *)memcpy((p), (lit), sizeof(lit) - 1) + sizeof(lit) - 1)

static inline char *put_str(char *p, struct str s)
{
	if (!s.n)
		return p;
	memcpy(p, s.p, s.n);
	return p + s.n;
}

/* Microseconds as milliseconds with three decimals. */
static inline char *put_ms(char *p, uint64_t us)
{
	unsigned part;

	if (!us)
		return LIT(p, "0.000");
	part = (unsigned)(us % 1000);
	p = digits_put(p, us / 1000);
	p[0] = '.';
	p[1] = (char)('0' + part / 100);
	digits_put2(p + 2, part % 100);
	return p + 4;
}

#ifdef __SSE2__
/* Sixteen hexadecimal digits at once. */
static inline char *put_hex16(char *p, uint64_t v)
{
	const __m128i low = _mm_set1_epi8(0x0f);
	__m128i b = _mm_cvtsi64_si128((int64_t)htobe64(v));
	__m128i d =
		_mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi64(b, 4), low), _mm_and_si128(b, low));
	__m128i letter =
		_mm_and_si128(_mm_cmpgt_epi8(d, _mm_set1_epi8(9)), _mm_set1_epi8('a' - '0' - 10));

	d = _mm_add_epi8(_mm_add_epi8(d, _mm_set1_epi8('0')), letter);
	_mm_storeu_si128((void *)p, d);
	return p + 16;
}
#else
/* Eight hexadecimal digits at once: nibbles are spread over the bytes of a word. */
static inline void put_hex8(char *p, uint32_t v)
{
	uint64_t x = v;

	x = (x << 16 | x) & 0x0000ffff0000ffff;
	x = (x << 8 | x) & 0x00ff00ff00ff00ff;
	x = (x << 4 | x) & 0x0f0f0f0f0f0f0f0f;
	x += 0x3030303030303030 +
	     ((x + 0x0606060606060606) >> 4 & 0x0101010101010101) * ('a' - '0' - 10);
	x = htobe64(x);
	memcpy(p, &x, sizeof(x));
}

static inline char *put_hex16(char *p, uint64_t v)
{
	put_hex8(p, (uint32_t)(v >> 32));
	put_hex8(p + 8, (uint32_t)v);
	return p + 16;
}
#endif

/* Microseconds change, the second seldom does. */
static inline char *put_time(char *p, int64_t wall_us)
{
	static _Thread_local int64_t second = -1;
	static _Thread_local char text[27] = "....................000000Z";
	int64_t s = wall_us / 1000000;
	unsigned us = (unsigned)(wall_us % 1000000);

	if (__builtin_expect(s != second, 0)) {
		struct out o;

		out_init(&o, text, sizeof(text));
		out_time_rfc3339(&o, s * 1000000);
		second = s;
	}
	memcpy(p, text, sizeof(text));
	digits_put2(p + 20, us / 10000);
	digits_put2(p + 22, us / 100 % 100);
	digits_put2(p + 24, us % 100);
	return p + sizeof(text);
}

/* --- texts: nearly all hold nothing to escape --- */

#ifdef __SSE2__
static inline bool all_clean(uint64_t a, uint64_t b)
{
	const __m128i v = _mm_set_epi64x((int64_t)b, (int64_t)a);
	/* signed: controls and everything from 0x80 on are below the space */
	__m128i bad = _mm_cmplt_epi8(v, _mm_set1_epi8(' '));

	bad = _mm_or_si128(bad, _mm_cmpeq_epi8(v, _mm_set1_epi8('"')));
	bad = _mm_or_si128(bad, _mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));
	bad = _mm_or_si128(bad, _mm_cmpeq_epi8(v, _mm_set1_epi8(0x7f)));
	return _mm_movemask_epi8(bad) == 0;
}
#else
#define EACH(c) (UINT64_C(0x0101010101010101) * (c))
static inline uint64_t has(uint64_t x, uint8_t c)
{
	x ^= EACH(c);
	return (x - EACH(1)) & ~x & EACH(0x80);
}

static inline bool all_clean(uint64_t a, uint64_t b)
{
	uint64_t low = ((a - EACH(0x20)) & ~a) | ((b - EACH(0x20)) & ~b);

	return !(((a | b | low) & EACH(0x80)) | has(a, '"') | has(b, '"') | has(a, '\\') |
		 has(b, '\\') | has(a, 0x7f) | has(b, 0x7f));
}
#endif

static inline bool copy16(char *to, const char *p)
{
	memcpy(to, p, 16);
	return all_clean(load64(p), load64(p + 8));
}

/* Copies; false: something in it has to be escaped.  Reads no byte that is not its own: a rest is
 * read by loads that overlap. */
static inline bool copy_clean(char *to, struct str s)
{
	const char *p = s.p;
	uint64_t blank = 0x2020202020202020, few;
	uint32_t n = s.n;
	bool clean = true;

	if (n >= 16) {
		for (uint32_t i = 0; i + 16 <= n; i += 16)
			clean &= copy16(to + i, p + i);
		return clean & copy16(to + n - 16, p + n - 16);
	}
	if (n >= 8) {
		memcpy(to, p, 8);
		memcpy(to + n - 8, p + n - 8, 8);
		return all_clean(load64(p), load64(p + n - 8));
	}
	if (n >= 4) {
		memcpy(to, p, 4);
		memcpy(to + n - 4, p + n - 4, 4);
		return all_clean(load32(p) | (uint64_t)load32(p + n - 4) << 32, blank);
	}
	to[0] = p[0];
	to[n / 2] = p[n / 2];
	to[n - 1] = p[n - 1];
	few = (uint8_t)p[0] | (uint64_t)(uint8_t)p[n / 2] << 8 | (uint64_t)(uint8_t)p[n - 1] << 16;
	return all_clean(few | blank << 24, blank);
}

#endif
