/* h1_scan.c -- finds the end of a head while its bytes come in.  Exports: h1_token  [RFC 9112 §2.2]
 *
 *        skip     line                 at
 *   buf: |\r\n|GET / HTTP/1.1\r\nHost: exam|ple\r\n\r\n
 *         0..2 bytes            `lines` = 1        not here yet
 *
 * Only bytes that are no plain text are looked at one by one: the CR of each line, and whatever is
 * wrong.  So when the end is found, every CR and LF of the head is part of a line end and there is
 * no control byte in it; the parsers build on that.
 *
 * However the bytes were cut, the result is the same: what is wrong is found in the order of the
 * bytes, and what is too long is never looked at beyond its limit. */
#include "wire/h1_bytes.h"

/* clang-format off */
const uint8_t h1_token[256] = {
	['!'] = 1, ['#'] = 1, ['$'] = 1, ['%'] = 1, ['&'] = 1, ['\''] = 1, ['*'] = 1, ['+'] = 1,
	['-'] = 1, ['.'] = 1, ['^'] = 1, ['_'] = 1, ['`'] = 1, ['|'] = 1, ['~'] = 1,
	['0' ... '9'] = 1, ['A' ... 'Z'] = 1, ['a' ... 'z'] = 1,
};
/* clang-format on */

uint32_t h1_mask_few(const char *p, uint32_t n, h1_mask_fn *mask_fn, char c)
{
	char block[H1_BLOCK];

	memset(block, 'a', sizeof(block));
	memcpy(block, p, n);
	return mask_fn(block, c) & ((1u << n) - 1);
}

/* Room for the first line of a request beside the target: method, two spaces, version, CR LF. */
#define FIRST_LINE_MORE (H1_METHOD_MAX + sizeof("  HTTP/1.1\r\n") - 1)
#define SCAN_MAX        (1u << 30) /* a length fits the result, whatever the limits say */

/* The end of what may be looked at: at most n. */
static uint32_t end_of_look(const struct h1_scan *s, enum h1_role role, const struct h1_limits *lim,
			    uint32_t n)
{
	uint64_t max = lim->head < SCAN_MAX ? lim->head : SCAN_MAX;

	if (role == H1_REQUEST && s->lines == 0 && max > (uint64_t)lim->target + FIRST_LINE_MORE)
		max = (uint64_t)lim->target + FIRST_LINE_MORE;
	max += s->skip;
	return n < max ? n : (uint32_t)max;
}

/* Nothing ended before `end`, and there is more. */
static int too_large(const struct h1_scan *s, enum h1_role role, const char *buf, uint32_t end)
{
	uint32_t method_end = s->skip + H1_METHOD_MAX + 1;

	if (role != H1_REQUEST || s->lines > 0)
		return -H1_E_HEAD_TOO_LARGE;
	if (end > method_end && h1_next_char(buf, s->skip, method_end, ' ') == method_end)
		return -H1_E_METHOD;
	return -H1_E_TARGET_TOO_LONG;
}

static int bad_byte(char c)
{
	return c == '\n' ? -H1_E_BARE_LF : -H1_E_CONTROL;
}

/* 1: go on, 0: more bytes are needed. */
static int begin_request(struct h1_scan *s, const char *buf, uint32_t n)
{
	char c;

	if (s->skip == 0 && buf[0] == '\r') {
		if (n < 2)
			return 0;
		if (buf[1] != '\n')
			return -H1_E_BARE_CR;
		s->skip = s->line = s->at = 2;
	}
	if (n == s->skip)
		return 0;
	c = buf[s->skip];
	if (h1_token[(uint8_t)c])
		return 1;
	if (c == '\r' || h1_is_space(c))
		return -H1_E_START_LINE;
	return (uint8_t)c < 0x20 || c == 0x7f ? bad_byte(c) : -H1_E_METHOD;
}

static int begin_response(const char *buf, uint32_t n)
{
	if (memcmp(buf, "HTTP/", n < 5 ? n : 5) != 0)
		return -H1_E_START_LINE;
	if (n > 5 && memcmp(buf + 5, "1.", n < 7 ? n - 5 : 2) != 0)
		return -H1_E_VERSION;
	return 1;
}

/* A request line that ends at `end` must say its version: HTTP/0.9 and the preface of HTTP/2 end
 * here, and do not wait for more.  1: it is good. */
static int request_line(const struct h1_scan *s, const char *buf, uint32_t end)
{
	int version;

	if (end - s->skip < sizeof("M / HTTP/1.1") - 1 || buf[end - 9] != ' ')
		return -H1_E_START_LINE;
	version = h1_version(buf + end - 8);
	return version < 0 ? version : 1;
}

/* A byte that is no plain text and begins no line end: 1: allowed here, 0: more bytes are
 * needed. */
static NOINLINE int odd_byte(const char *buf, uint32_t i, uint32_t end)
{
	char c = buf[i];

	if (c == '\t' || (uint8_t)c >= 0x80)
		return 1; /* in values; the parsers know where they are not */
	if (c == '\r')
		return i + 1 == end ? 0 : -H1_E_BARE_CR;
	return bad_byte(c);
}

/* Looks at bytes up to `end` and lines up to `stop` and one more.  > 0: the head is complete. */
static inline int32_t look(struct h1_scan *s, const char *buf, uint32_t end, uint32_t stop)
{
	uint32_t line = s->line, lines = s->lines, at = s->at;
	int32_t r = 0;

	while (at < end) {
		uint64_t odd = h1_odd_bytes(buf, at, end);
		uint32_t base = at;

		at = base + H1_STEP < end ? base + H1_STEP : end;
		while (odd) {
			unsigned bit = (unsigned)__builtin_ctzll(odd);
			uint32_t i = base + bit;

			if (__builtin_expect(i + 1 >= end || !H1_IS2(buf + i, "\r\n"), 0)) {
				r = odd_byte(buf, i, end);
				if (r <= 0) {
					at = i;
					goto out;
				}
				r = 0;
				odd &= odd - 1;
				continue;
			}
			odd &= ~((uint64_t)3 << bit);
			if (i == line) {
				at = line = i + 2;
				r = (int32_t)at;
				goto out;
			}
			if (lines < H1_SCAN_ENDS)
				s->ends[lines] = i <= UINT16_MAX ? (uint16_t)i : 0;
			line = i + 2;
			if (++lines > stop) {
				at = line;
				goto out;
			}
		}
		if (at < line)
			at = line; /* its LF is the first byte of the next block */
	}
out:
	s->at = at;
	s->line = line;
	s->lines = lines;
	return r;
}

/* 1: the line is complete and good. */
static int first_line(struct h1_scan *s, enum h1_role role, const struct h1_limits *lim,
		      const char *buf, uint32_t n)
{
	int r = role == H1_REQUEST ? begin_request(s, buf, n) : begin_response(buf, n);
	uint32_t end;

	if (r <= 0)
		return r;
	end = end_of_look(s, role, lim, n);
	r = look(s, buf, end, 0);
	if (r < 0)
		return r;
	if (s->lines == 0)
		return n > end ? too_large(s, role, buf, end) : 0;
	return role == H1_REQUEST ? request_line(s, buf, s->line - 2) : 1;
}

int32_t h1_scan(struct h1_scan *s, enum h1_role role, const struct h1_limits *lim, const char *buf,
		uint32_t n)
{
	uint32_t first = role != H1_TRAILERS; /* lines that are no fields */
	uint32_t end, stop = lim->fields < UINT32_MAX - first ? lim->fields + first : UINT32_MAX;
	int32_t r;

	if (n == 0)
		return 0;
	if (s->lines == 0 && first) {
		r = first_line(s, role, lim, buf, n);
		if (r <= 0)
			return r;
	}
	end = end_of_look(s, role, lim, n);
	r = look(s, buf, end, stop);
	if (r)
		return r;
	if (s->lines > stop)
		return -H1_E_TOO_MANY_FIELDS;
	return n > end ? too_large(s, role, buf, end) : 0;
}
