/* h1_fuzz.h -- what the harnesses of HTTP/1 syntax share: exact copies, random cuts, comparisons.
 *
 * Every input lies in a block that ends where its bytes end.  Chance comes from the input alone, so
 * that an input always does the same. */
#ifndef FUZZ_H1_FUZZ_H
#define FUZZ_H1_FUZZ_H

#include "wire/h1_syntax.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define INPUT_MAX (256u * 1024)

struct chance {
	uint64_t x;
};

static inline struct chance chance_of(const uint8_t *data, size_t len)
{
	struct chance c = { 0xcbf29ce484222325u };

	for (size_t i = 0; i < len; i++)
		c.x = (c.x ^ data[i]) * 0x100000001b3u;
	c.x |= 1;
	return c;
}

/* 0 .. n-1 */
static inline uint32_t chance_below(struct chance *c, uint32_t n)
{
	c->x ^= c->x << 13;
	c->x ^= c->x >> 7;
	c->x ^= c->x << 17;
	return (uint32_t)(c->x >> 32) % n;
}

static inline char *exact_copy(const void *p, size_t n)
{
	char *copy = calloc(1, n ? n : 1);

	must(copy);
	if (n)
		memcpy(copy, p, n);
	return copy;
}

/* --- scanning --- */

static inline int32_t scan_exact(struct h1_scan *s, enum h1_role role, const struct h1_limits *lim,
				 const char *text, uint32_t n)
{
	char *copy = exact_copy(text, n);
	int32_t r = h1_scan(s, role, lim, copy, n);

	free(copy);
	must(r <= (int32_t)n && r > -(int32_t)H1_ERRORS);
	return r;
}

/* The whole, and the same in up to six pieces: the results must agree. */
static inline int32_t scan_cut(struct chance *c, struct h1_scan *s, enum h1_role role,
			       const struct h1_limits *lim, struct str text)
{
	struct h1_scan pieces = { 0 };
	int32_t want, got = 0;
	uint32_t at = 0;

	memset(s, 0, sizeof(*s));
	want = scan_exact(s, role, lim, text.p, text.n);
	for (unsigned i = 0; i < 5 && got == 0 && at < text.n; i++) {
		at += chance_below(c, text.n - at) + 1;
		got = scan_exact(&pieces, role, lim, text.p, at);
	}
	if (got == 0)
		got = scan_exact(&pieces, role, lim, text.p, text.n);
	must(got == want);
	if (want > 0)
		must(memcmp(&pieces, s, sizeof(*s)) == 0);
	return want;
}

/* --- heads --- */

static inline bool is_within(struct str s, const char *p, uint32_t n)
{
	return s.n == 0 || (s.p >= p && s.p + s.n <= p + n);
}

static inline void check_value(struct str s)
{
	for (uint32_t i = 0; i < s.n; i++)
		must(((uint8_t)s.p[i] >= 0x20 && s.p[i] != 0x7f) || s.p[i] == '\t');
}

/* What every list of fields from the buffer must be. */
static inline void check_fields(const struct head *h, const char *buf, uint32_t n)
{
	must(h->n_fields <= h->cap_fields);
	for (uint32_t i = 0; i < h->n_fields; i++) {
		const struct field *f = &h->fields[i];
		struct str name = field_name(f), value = field_value(f);

		must(name.n > 0 && is_within(name, buf, n) && is_within(value, buf, n));
		for (uint32_t k = 0; k < name.n; k++)
			must(name.p[k] > ' ' && name.p[k] < 0x7f && name.p[k] != ':');
		check_value(value);
		must(str_eq(value, str_trim(value)));
		must(hdr_lookup(name) == f->id && (h->ids & HDR_BIT(f->id)));
		must(!(f->flags & HDR_F_NOMINATED) || h->nominated);
		must((f->flags & ~HDR_F_NOMINATED) == hdr_table[f->id].flags);
		must(f->id != HDR_CONTENT_LENGTH && f->id != HDR_TRANSFER_ENCODING);
		must(f->id != HDR_CONNECTION && f->id != HDR_KEEP_ALIVE && f->id != HDR_UPGRADE &&
		     f->id != HDR_TE && f->id != HDR_PROXY_CONNECTION);
	}
}

static inline void check_same_fields(const struct head *a, const struct head *b)
{
	must(a->n_fields == b->n_fields);
	for (uint32_t i = 0; i < a->n_fields; i++) {
		must(str_eq(field_name(&a->fields[i]), field_name(&b->fields[i])));
		must(str_eq(field_value(&a->fields[i]), field_value(&b->fields[i])));
	}
}

/* How a head must be written so that it says what it says. */
static inline struct h1_write write_as_read(const struct head *h)
{
	return (struct h1_write){
		.close = h->flags & HEAD_CLOSE,
		.keep_alive = h->flags & HEAD_KEEP_ALIVE && !(h->flags & HEAD_CLOSE),
		.chunked = h->body == BODY_STREAM,
		.length = h->flags & HEAD_LENGTH_GIVEN && h->body != BODY_STREAM,
		.upgrade = h->flags & HEAD_UPGRADE,
		.te_trailers = h->flags & HEAD_TE_TRAILERS,
	};
}

/* Memory stays below 100 times the bytes received, with a floor of 4 KiB. */
static inline void check_memory(const struct arena *a, uint32_t n)
{
	must(a->taken <= 100 * (uint64_t)n + 4096);
}

#endif
