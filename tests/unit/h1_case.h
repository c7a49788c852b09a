/* h1_case.h -- one HTTP/1 head through scan and parser, in every way that it can be cut.
 *
 * Every buffer is exactly as long as its bytes, so that a sanitizer sees the first byte read
 * beyond. */
#ifndef TESTS_H1_CASE_H
#define TESTS_H1_CASE_H

#include "unit.h"

#include "wire/h1_syntax.h"

#include <stdio.h>
#include <stdlib.h>

struct h1_case {
	struct slab slab;
	struct arena arena;
	struct h1_limits lim;
	enum method method; /* of the request that a response answers */
	struct head h;
	struct h1_scan scan;
};

#define H1_CASE_LIMITS                                       \
	{                                                    \
		.head = 32768, .target = 8192, .fields = 100 \
	}

static inline void case_open(struct h1_case *c)
{
	memset(c, 0, sizeof(*c));
	c->lim = (struct h1_limits)H1_CASE_LIMITS;
	c->method = METHOD_GET;
	slab_init(&c->slab, "case", ARENA_FIRST, NULL);
	arena_init(&c->arena, &c->slab);
}

static inline void case_close(struct h1_case *c)
{
	arena_free(&c->arena);
	slab_close(&c->slab);
}

/* A case of its own for each test: cmocka_run_group_tests() gets CASE(test_x). */
static inline int case_setup(void **state)
{
	struct h1_case *c = malloc(sizeof(*c));

	assert_non_null(c);
	case_open(c);
	*state = c;
	return 0;
}

static inline int case_teardown(void **state)
{
	case_close(*state);
	free(*state);
	return 0;
}
#define CASE(test) cmocka_unit_test_setup_teardown(test, case_setup, case_teardown)

/* h1_scan() of the first n bytes, in a block of their own. */
static inline int32_t case_scan(struct h1_case *c, struct h1_scan *s, enum h1_role role,
				const char *text, size_t n)
{
	char *block = malloc(n ? n : 1);
	int32_t r;

	assert_non_null(block);
	memcpy(block, text, n);
	r = h1_scan(s, role, &c->lim, block, (uint32_t)n);
	free(block);
	return r;
}

/* What scanning in two pieces, cut at every byte, and byte by byte gives must be what it gives
 * whole. */
static inline int32_t case_scan_all_cuts(struct h1_case *c, enum h1_role role, const char *text,
					 size_t n)
{
	struct h1_scan whole = { 0 }, drip = { 0 };
	int32_t want = case_scan(c, &whole, role, text, n), got = 0;

	for (size_t cut = 1; cut < n; cut++) {
		struct h1_scan s = { 0 };

		got = case_scan(c, &s, role, text, cut);
		if (got == 0)
			got = case_scan(c, &s, role, text, n);
		if (got != want || (got > 0 && memcmp(&s, &whole, sizeof(s)) != 0))
			fail_msg("cut at %zu: %d, whole: %d: %.200s", cut, got, want, text);
	}
	got = 0;
	for (size_t k = 1; k <= n && got == 0; k++)
		got = case_scan(c, &drip, role, text, k);
	if (got != want || (got > 0 && memcmp(&drip, &whole, sizeof(drip)) != 0))
		fail_msg("byte by byte: %d, whole: %d: %.200s", got, want, text);
	c->scan = whole;
	return want;
}

/* The head at the begin of text: "" when it is good, "more" when it is not complete, else the
 * detail of its error.  Fills c->h; whatever was parsed before is gone. */
static inline const char *case_parse(struct h1_case *c, enum h1_role role, const char *text,
				     size_t n)
{
	int32_t len = case_scan_all_cuts(c, role, text, n);
	uint32_t skip = c->scan.skip;
	char *copy;
	int e;

	if (len <= 0)
		return len ? h1_error_detail((enum h1_error) - len) : "more";
	arena_free(&c->arena);
	memset(&c->h, 0xa5, sizeof(c->h));
	copy = arena_alloc(&c->arena, (uint32_t)len - skip);
	assert_non_null(copy);
	memcpy(copy, text + skip, (uint32_t)len - skip);
	if (role == H1_REQUEST)
		e = h1_request(&c->h, &c->arena, copy, (uint32_t)len - skip, &c->scan, &c->lim);
	else if (role == H1_RESPONSE)
		e = h1_response(&c->h, &c->arena, copy, (uint32_t)len, &c->scan, &c->lim,
				c->method);
	else
		e = h1_trailers(&c->h, &c->arena, copy, (uint32_t)len, &c->scan, &c->lim);
	return h1_error_detail((enum h1_error) - e);
}

/* text: a string literal, NUL bytes and all. */
#define case_is(c, role, text, detail) \
	case_is_at((c), (role), (text), sizeof(text) - 1, (detail), __LINE__)

static inline void case_is_at(struct h1_case *c, enum h1_role role, const char *text, size_t n,
			      const char *detail, int line)
{
	const char *got = case_parse(c, role, text, n);

	if (strcmp(got, detail) != 0)
		fail_msg("line %d: \"%s\", expected \"%s\": %.200s", line, got, detail, text);
}

static inline void str_is_at(struct str s, const char *want, int line)
{
	if (!str_eq(s, str_of(want)))
		fail_msg("line %d: \"%.*s\", expected \"%s\"", line, (int)s.n, s.p ? s.p : "",
			 want);
}
#define str_is(s, want) str_is_at((s), (want), __LINE__)

#endif
