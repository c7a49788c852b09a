/* out.c -- numbers, escapes and dates into a bounded buffer.  Pure; nothing allocates but out_fmt
 * at one rare edge.
 *
 * Escaping: four targets (JSON, log for machines, log for people, HTML) share the table that tells
 * clean bytes from others; runs of clean bytes are copied as they are, sixteen at a time where the
 * machine can. */
#include "base/out.h"

#include "base/digits.h"
#include "base/panic.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* --- numbers --- */

/* Near the end of the buffer: it may fit, or not. */
static COLD void u64_at_end(struct out *o, uint64_t v)
{
	char text[DIGITS_MAX], *end = digits_put(text, v);

	out_mem(o, text, (size_t)(end - text));
}

void out_u64(struct out *o, uint64_t v)
{
	if (__builtin_expect(o->end - o->p >= (ptrdiff_t)DIGITS_MAX, 1))
		o->p = digits_put(o->p, v);
	else
		u64_at_end(o, v);
}

static const char hex[] = "0123456789abcdef";

void out_hex(struct out *o, uint64_t v)
{
	char buf[16], *end = buf + sizeof(buf), *p = end;

	do {
		*--p = hex[v & 15];
		v >>= 4;
	} while (v);
	out_mem(o, p, (size_t)(end - p));
}

void out_ms(struct out *o, uint64_t us)
{
	char text[DIGITS_MAX + 4], *p = digits_put(text, us / 1000);
	unsigned part = (unsigned)(us % 1000);

	p[0] = '.';
	p[1] = (char)('0' + part / 100);
	digits_put2(p + 2, part % 100);
	out_mem(o, text, (size_t)(p + 4 - text));
}

/* --- escapes --- */

/* controls and DEL; " and \; 0x80 on; & < > " ' */
enum { CTL = 1, QUOTE = 2, HIGH = 4, MARKUP = 8 };

/* clang-format off */
#define CTL4   CTL, CTL, CTL, CTL
#define CTL16  CTL4, CTL4, CTL4, CTL4
#define HIGH4  HIGH, HIGH, HIGH, HIGH
#define HIGH16 HIGH4, HIGH4, HIGH4, HIGH4

static const uint8_t kind[256] = {
	CTL16, CTL16,
	['"'] = QUOTE | MARKUP, ['\\'] = QUOTE,
	['&'] = MARKUP, ['<'] = MARKUP, ['>'] = MARKUP, ['\''] = MARKUP,
	[0x7f] = CTL,
	HIGH16, HIGH16, HIGH16, HIGH16, HIGH16, HIGH16, HIGH16, HIGH16,
};
/* clang-format on */

#ifdef __SSE2__
/* Copies blocks of sixteen bytes while they hold nothing to escape for JSON; the caller has seen
 * that all of s fits. */
static inline uint32_t copy_clean16(struct out *o, struct str s)
{
	const __m128i quote = _mm_set1_epi8('"'), back = _mm_set1_epi8('\\'),
		      del = _mm_set1_epi8(0x7f);
	const __m128i space = _mm_set1_epi8(' ');
	uint32_t i = 0;

	while (s.n - i >= 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)(const void *)(s.p + i));
		__m128i bad = _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, back));
		unsigned mask;

		/* signed: controls and everything from 0x80 on are below the space */
		bad = _mm_or_si128(bad,
				   _mm_or_si128(_mm_cmplt_epi8(v, space), _mm_cmpeq_epi8(v, del)));
		mask = (unsigned)_mm_movemask_epi8(bad);
		_mm_storeu_si128((__m128i *)(void *)o->p, v);
		if (mask) {
			unsigned clean = (unsigned)__builtin_ctz(mask);

			o->p += clean;
			return i + clean;
		}
		o->p += 16;
		i += 16;
	}
	return i;
}
#else
static inline uint32_t copy_clean16(struct out *o, struct str s)
{
	(void)o;
	(void)s;
	return 0;
}
#endif

/* Copies bytes as long as none is of a kind in `stop`; returns how many. */
static inline uint32_t copy_clean(struct out *o, struct str s, uint8_t stop)
{
	const uint8_t *p = (const uint8_t *)s.p;
	uint32_t i = 0;

	if (__builtin_expect((size_t)(o->end - o->p) < s.n, 0)) {
		while (i < s.n && !(kind[p[i]] & stop))
			i++;
		out_mem(o, s.p, i);
		return i;
	}
	if (stop == (CTL | QUOTE | HIGH))
		i = copy_clean16(o, s);
	while (i < s.n && !(kind[p[i]] & stop))
		*o->p++ = (char)p[i++];
	return i;
}

static void out_x(struct out *o, uint8_t c)
{
	char esc[4] = { '\\', 'x', hex[c >> 4], hex[c & 15] };

	out_mem(o, esc, sizeof(esc));
}

static void out_u(struct out *o, unsigned c)
{
	char digits[4] = { hex[c >> 12 & 15], hex[c >> 8 & 15], hex[c >> 4 & 15], hex[c & 15] };

	out_lit(o, "\\u");
	out_mem(o, digits, sizeof(digits));
}

static inline bool is_tail(uint8_t c)
{
	return (c & 0xc0) == 0x80;
}

/* Length of the well-formed UTF-8 sequence of two to four bytes at p (Unicode 15, table 3-7); 0:
 * there is none. */
static uint32_t utf8_len(const uint8_t *p, uint32_t n)
{
	uint8_t c = p[0];

	if (c < 0xc2 || c > 0xf4 || n < 2 || !is_tail(p[1]))
		return 0;
	if (c < 0xe0)
		return 2;
	if (n < 3 || !is_tail(p[2]))
		return 0;
	if (c < 0xf0)
		return (c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f) ? 0 : 3;
	if (n < 4 || !is_tail(p[3]))
		return 0;
	return (c == 0xf0 && p[1] < 0x90) || (c == 0xf4 && p[1] > 0x8f) ? 0 : 4;
}

/* U+0080 to U+009F steer terminals as the controls below the space do. */
static inline bool is_c1(const uint8_t *p, uint32_t len)
{
	return len == 2 && p[0] == 0xc2 && p[1] < 0xa0;
}

static uint32_t json_high(struct out *o, const uint8_t *p, uint32_t n)
{
	uint32_t len = utf8_len(p, n);

	if (!len)
		out_lit(o, "\\ufffd");
	else if (is_c1(p, len))
		out_u(o, p[1]);
	else
		out_mem(o, p, len);
	return len ? len : 1;
}

static void json_low(struct out *o, uint8_t c)
{
	switch (c) {
	case '"': out_lit(o, "\\\""); break;
	case '\\': out_lit(o, "\\\\"); break;
	case '\n': out_lit(o, "\\n"); break;
	case '\r': out_lit(o, "\\r"); break;
	case '\t': out_lit(o, "\\t"); break;
	default: out_u(o, c);
	}
}

static inline struct str after(struct str s, uint32_t n)
{
	return (struct str){ .p = s.p + n, .n = s.n - n };
}

void out_json(struct out *o, struct str s)
{
	while (s.n) {
		s = after(s, copy_clean(o, s, CTL | QUOTE | HIGH));
		if (!s.n || o->over)
			return;
		if ((uint8_t)s.p[0] < 0x80) {
			json_low(o, (uint8_t)s.p[0]);
			s = after(s, 1);
		} else {
			s = after(s, json_high(o, (const uint8_t *)s.p, s.n));
		}
	}
}

void out_text(struct out *o, struct str s)
{
	while (s.n) {
		const uint8_t *p;
		uint32_t len;

		s = after(s, copy_clean(o, s, CTL | HIGH));
		if (!s.n || o->over)
			return;
		p = (const uint8_t *)s.p;
		len = utf8_len(p, s.n);
		if (len && !is_c1(p, len)) {
			out_mem(o, p, len);
		} else {
			len = len ? len : 1;
			for (uint32_t i = 0; i < len; i++)
				out_x(o, p[i]);
		}
		s = after(s, len);
	}
}

void out_html(struct out *o, struct str s)
{
	while (s.n) {
		s = after(s, copy_clean(o, s, CTL | MARKUP));
		if (!s.n || o->over)
			return;
		switch (s.p[0]) {
		case '&': out_lit(o, "&amp;"); break;
		case '<': out_lit(o, "&lt;"); break;
		case '>': out_lit(o, "&gt;"); break;
		case '"': out_lit(o, "&quot;"); break;
		case '\'': out_lit(o, "&#39;"); break;
		default: break; /* a control */
		}
		s = after(s, 1);
	}
}

void out_quoted_log(struct out *o, struct str s)
{
	while (s.n) {
		uint8_t c;

		s = after(s, copy_clean(o, s, CTL | QUOTE | HIGH));
		if (!s.n || o->over)
			return;
		c = (uint8_t)s.p[0];
		if (c == '"')
			out_lit(o, "\\\"");
		else if (c == '\\')
			out_lit(o, "\\\\");
		else
			out_x(o, c);
		s = after(s, 1);
	}
}

/* --- dates --- */

struct date {
	unsigned year, month, day; /* month and day from 1 */
	unsigned hour, min, sec, us;
	unsigned weekday; /* 0 is Sunday */
};

#define US_PER_DAY 86400000000ll
/* from 0000-03-01, the first day of a 400-year era whose years begin in March */
#define DAYS_TO_1970 719468ll
#define WALL_MIN     (-719528ll * US_PER_DAY)     /* 0000-01-01 */
#define WALL_MAX     (2932897ll * US_PER_DAY - 1) /* 9999-12-31 */

/* Civil date of a day count in the proleptic Gregorian calendar: in a year that begins in March the
 * leap day is the last one, and the months' lengths 31 30 31 30 31 | 31 30 31 30 31 | 31 x make day
 * -> month a straight line. */
static void date_civil(struct date *d, int64_t days)
{
	uint32_t z = (uint32_t)(days + DAYS_TO_1970 + 146097); /* one era more: never negative */
	uint32_t era = z / 146097, doe = z % 146097;
	uint32_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	uint32_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	uint32_t mp = (5 * doy + 2) / 153;

	d->day = doy - (153 * mp + 2) / 5 + 1;
	d->month = mp < 10 ? mp + 3 : mp - 9;
	d->year = yoe + era * 400 + (d->month <= 2) - 400;
	/* 719530 is a multiple of 7; day 0 is a Thursday */
	d->weekday = (unsigned)((days + 719530 + 4) % 7);
}

static struct date date_of(int64_t wall_us)
{
	struct date d;
	int64_t days, rest;
	unsigned s;

	wall_us = wall_us < WALL_MIN ? WALL_MIN : wall_us > WALL_MAX ? WALL_MAX : wall_us;
	days = wall_us / US_PER_DAY;
	rest = wall_us - days * US_PER_DAY;
	if (rest < 0) {
		days--;
		rest += US_PER_DAY;
	}
	date_civil(&d, days);
	s = (unsigned)(rest / 1000000);
	d.us = (unsigned)(rest - (int64_t)s * 1000000);
	d.hour = s / 3600;
	d.min = s / 60 % 60;
	d.sec = s % 60;
	return d;
}

static inline void put4(char *p, unsigned v)
{
	digits_put2(p, v / 100);
	digits_put2(p + 2, v % 100);
}

/* "hh:mm:ss" */
static inline void put_clock(char *p, const struct date *d)
{
	digits_put2(p, d->hour);
	p[2] = ':';
	digits_put2(p + 3, d->min);
	p[5] = ':';
	digits_put2(p + 6, d->sec);
}

static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
static const char weekdays[] = "SunMonTueWedThuFriSat";

void out_time_rfc3339(struct out *o, int64_t wall_us)
{
	char t[27] = "0000-00-00T00:00:00.000000Z";
	struct date d = date_of(wall_us);

	put4(t, d.year);
	digits_put2(t + 5, d.month);
	digits_put2(t + 8, d.day);
	put_clock(t + 11, &d);
	digits_put2(t + 20, d.us / 10000);
	digits_put2(t + 22, d.us / 100 % 100);
	digits_put2(t + 24, d.us % 100);
	out_mem(o, t, sizeof(t));
}

void out_time_http(struct out *o, int64_t wall_us)
{
	char t[29] = "Sun, 00 Jan 0000 00:00:00 GMT";
	struct date d = date_of(wall_us);

	memcpy(t, weekdays + 3 * d.weekday, 3);
	digits_put2(t + 5, d.day);
	memcpy(t + 8, months + 3 * (d.month - 1), 3);
	put4(t + 12, d.year);
	put_clock(t + 17, &d);
	out_mem(o, t, sizeof(t));
}

void out_time_clf(struct out *o, int64_t wall_us)
{
	char t[26] = "00/Jan/0000:00:00:00 +0000";
	struct date d = date_of(wall_us);

	digits_put2(t, d.day);
	memcpy(t + 3, months + 3 * (d.month - 1), 3);
	put4(t + 7, d.year);
	put_clock(t + 12, &d);
	out_mem(o, t, sizeof(t));
}

/* --- printf --- */

static void fmt_exact(struct out *, const char *, va_list) __attribute__((format(printf, 2, 0)));

/* vsnprintf wants room for a NUL that nobody reads: text that fills the room to the last byte takes
 * a detour. */
static void fmt_exact(struct out *o, const char *fmt, va_list ap)
{
	char *text = NULL;
	int n = vasprintf(&text, fmt, ap);

	if (n < 0) {
		o->over = true;
		return;
	}
	out_mem(o, text, (size_t)n);
	free(text);
}

void out_fmt(struct out *o, const char *fmt, ...)
{
	size_t room = (size_t)(o->end - o->p);
	va_list ap, again;
	int n;

	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf(o->p, room, fmt, ap);
	if (n >= 0 && (size_t)n < room)
		o->p += n;
	else if (n >= 0 && (size_t)n == room)
		fmt_exact(o, fmt, again);
	else
		o->over = true;
	va_end(again);
	va_end(ap);
}
