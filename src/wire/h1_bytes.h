/* h1_bytes.h -- looking at many bytes at once; only for h1_*.c.
 *
 * Every function works on bytes [i, n) of a whole buffer, so that the last few can be read together
 * with those before them: nothing outside the buffer is ever touched.  x86-64 looks at 16 bytes a
 * step (SSE2, always there), other machines at 8. */
#ifndef WIRE_H1_BYTES_H
#define WIRE_H1_BYTES_H

#include "base/load.h"
#include "wire/h1_syntax.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Whether p[0..8) is the literal. */
#define H1_IS8(p, lit) (load64(p) == load64("" lit))
#define H1_IS2(p, lit) (load16(p) == load16("" lit))
#define H1_IS4(p, lit) (load32(p) == load32("" lit))

/* tchar of RFC 9110 §5.6.2 */
extern const uint8_t h1_token[256];

static inline bool h1_is_space(char c)
{
	return c == ' ' || c == '\t';
}

/* "HTTP/1.0" or "HTTP/1.x" at the end of a request line, begin of a status line: 10 or 11; else
 * -H1_E_START_LINE, or -H1_E_VERSION when it is a version that we do not speak. */
static inline int h1_version(const char *p)
{
	if (H1_IS8(p, "HTTP/1.1"))
		return 11;
	if (H1_IS8(p, "HTTP/1.0"))
		return 10;
	if (memcmp(p, "HTTP/", 5) != 0 || p[6] != '.' || (uint8_t)(p[5] - '0') > 9 ||
	    (uint8_t)(p[7] - '0') > 9)
		return -H1_E_START_LINE;
	/* A higher minor version is the highest that we know (RFC 9110 §2.5). */
	return p[5] == '1' ? 11 : -H1_E_VERSION;
}

/* --- masks: one bit per byte of a block --- */

typedef uint32_t h1_mask_fn(const char *p, char c);

#ifdef __SSE2__
#define H1_BLOCK 16u

/* No plain text: controls (HTAB too), DEL, 0x80-0xff.  Signed: 0x20..0x7e become 0x21..0x7f,
 * everything else is below. */
static inline uint32_t h1_mask_odd(const char *p, char c)
{
	__m128i b = _mm_loadu_si128((const void *)p);

	(void)c;
	b = _mm_cmpgt_epi8(_mm_add_epi8(b, _mm_set1_epi8(1)), _mm_set1_epi8(0x20));
	return 0xffffu ^ (uint32_t)_mm_movemask_epi8(b);
}

static inline uint32_t h1_mask_char(const char *p, char c)
{
	__m128i b = _mm_loadu_si128((const void *)p);

	return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(b, _mm_set1_epi8(c)));
}

/* What no request target holds: odd bytes, space, '#' (RFC 9112 §3.2, RFC 3986). */
static inline uint32_t h1_mask_no_target(const char *p, char c)
{
	__m128i b = _mm_loadu_si128((const void *)p), hash = _mm_cmpeq_epi8(b, _mm_set1_epi8('#'));

	(void)c;
	b = _mm_cmplt_epi8(_mm_add_epi8(b, _mm_set1_epi8(1)), _mm_set1_epi8(0x22));
	return (uint32_t)_mm_movemask_epi8(_mm_or_si128(b, hash));
}
#else
#define H1_BLOCK 8u

static inline uint32_t h1_mask_odd(const char *p, char c)
{
	const uint64_t each = 0x0101010101010101u;
	uint64_t x = load64(p);
	uint32_t mask = 0;

	(void)c;
	/* Bit 7 of no byte: none was set, none is DEL, none is below 0x20 (a borrow may ask too
	 * much). */
	if (!((x | (x + each) | ((x - 0x20 * each) & ~x)) & 0x80 * each))
		return 0;
	for (unsigned i = 0; i < H1_BLOCK; i++)
		mask |= (uint32_t)((uint8_t)(p[i] - 0x20) > 0x7e - 0x20) << i;
	return mask;
}

static inline uint32_t h1_mask_char(const char *p, char c)
{
	uint32_t mask = 0;

	for (unsigned i = 0; i < H1_BLOCK; i++)
		mask |= (uint32_t)(p[i] == c) << i;
	return mask;
}

static inline uint32_t h1_mask_no_target(const char *p, char c)
{
	uint32_t mask = 0;

	(void)c;
	for (unsigned i = 0; i < H1_BLOCK; i++)
		mask |= (uint32_t)((uint8_t)(p[i] - 0x21) > 0x7e - 0x21 || p[i] == '#') << i;
	return mask;
}
#endif

/* The mask of p[0, n), shorter than a block, with nothing before it. */
COLD uint32_t h1_mask_few(const char *p, uint32_t n, h1_mask_fn *mask_fn, char c);

/* The mask of buf[i, n), shorter than a block. */
static inline __attribute__((always_inline)) uint32_t h1_rest(const char *buf, uint32_t i,
							      uint32_t n, h1_mask_fn *mask_fn,
							      char c)
{
	if (__builtin_expect(n >= H1_BLOCK, 1)) /* together with some bytes before them */
		return mask_fn(buf + n - H1_BLOCK, c) >> (H1_BLOCK - (n - i));
	return h1_mask_few(buf + i, n - i, mask_fn, c);
}

/* The first byte of buf[i, n) that the mask has a bit for, or n. */
static inline __attribute__((always_inline)) uint32_t h1_next(const char *buf, uint32_t i,
							      uint32_t n, h1_mask_fn *mask_fn,
							      char c)
{
	uint32_t mask;

	for (; i + H1_BLOCK <= n; i += H1_BLOCK) {
		mask = mask_fn(buf + i, c);
		if (mask)
			return i + (uint32_t)__builtin_ctz(mask);
	}
	if (i >= n)
		return n;
	mask = h1_rest(buf, i, n, mask_fn, c);
	return mask ? i + (uint32_t)__builtin_ctz(mask) : n;
}

static inline uint32_t h1_next_char(const char *buf, uint32_t i, uint32_t n, char c)
{
	return h1_next(buf, i, n, h1_mask_char, c);
}

static inline uint32_t h1_next_no_target(const char *buf, uint32_t i, uint32_t n)
{
	return h1_next(buf, i, n, h1_mask_no_target, 0);
}

/* Where the line k ends that begins at buf[at]: the place of its CR. */
static inline uint32_t h1_line_end(const struct h1_scan *s, uint32_t k, const char *buf,
				   uint32_t at, uint32_t n)
{
	if (__builtin_expect(k < H1_SCAN_ENDS && s->ends[k], 1))
		return s->ends[k] - s->skip;
	return h1_next_char(buf, at, n, '\r');
}

static inline bool h1_is_token(const char *p, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && h1_token[(uint8_t)p[i]])
		i++;
	return i == n && n > 0;
}

/* The odd bytes of two blocks at buf[i], as far as they lie below n. */
#define H1_STEP (2 * H1_BLOCK)
static inline uint32_t h1_odd_bytes(const char *buf, uint32_t i, uint32_t n)
{
	uint32_t mask = 0, at = i;

	if (__builtin_expect(i + H1_STEP <= n, 1))
		return h1_mask_odd(buf + i, 0) | h1_mask_odd(buf + i + H1_BLOCK, 0) << H1_BLOCK;
	if (i + H1_BLOCK <= n) {
		mask = h1_mask_odd(buf + i, 0);
		at += H1_BLOCK;
	}
	return at < n ? mask | h1_rest(buf, at, n, h1_mask_odd, 0) << (at - i) : mask;
}

#endif
