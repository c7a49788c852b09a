/* out.h -- bounded text writer: heads, pages, log lines, metrics.  Never writes beyond the end;
 * what did not fit sets `over`.  Every producer checks out_ok() once, at its end. */
#ifndef BASE_OUT_H
#define BASE_OUT_H

#include "base/str.h"

struct out {
	char *p, *end;
	char *base;
	bool over;
};

static inline void out_init(struct out *o, void *buf, size_t n)
{
	o->p = o->base = buf;
	o->end = o->p + n;
	o->over = false;
}

static inline bool out_ok(const struct out *o)
{
	return !o->over;
}
static inline uint32_t out_len(const struct out *o)
{
	return (uint32_t)(o->p - o->base);
}

static inline void out_mem(struct out *o, const void *p, size_t n)
{
	if (__builtin_expect((size_t)(o->end - o->p) < n, 0)) {
		o->over = true;
		return;
	}
	memcpy(o->p, p, n);
	o->p += n;
}

#define out_lit(o, lit) out_mem((o), (lit), sizeof(lit) - 1)
static inline void out_str(struct out *o, struct str s)
{
	if (s.n)
		out_mem(o, s.p, s.n);
}

static inline void out_char(struct out *o, char c)
{
	if (__builtin_expect(o->p == o->end, 0))
		o->over = true;
	else
		*o->p++ = c;
}

void out_u64(struct out *o, uint64_t v);
/* lower case, no prefix, no leading zeros */
void out_hex(struct out *o, uint64_t v);
/* microseconds as milliseconds with three decimals: 12345 -> 12.345 */
void out_ms(struct out *o, uint64_t us);
/* escaped content, without the quotes; invalid UTF-8 becomes \ufffd */
void out_json(struct out *o, struct str s);
void out_html(struct out *o, struct str s); /* & < > " ' escaped; controls dropped */
/* for people: controls and invalid UTF-8 as \xnn, else as it is */
void out_text(struct out *o, struct str s);
/* combined format: \" \\ and controls, bytes >= 0x7f as \xnn */
void out_quoted_log(struct out *o, struct str s);
void out_time_rfc3339(struct out *o, int64_t wall_us); /* 2026-11-30T18:00:00.123456Z */
void out_time_http(struct out *o, int64_t wall_us);    /* IMF-fixdate, RFC 9110 §5.6.7 */
void out_time_clf(struct out *o, int64_t wall_us);     /* 30/Nov/2026:18:00:00 +0000 */
void out_fmt(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
