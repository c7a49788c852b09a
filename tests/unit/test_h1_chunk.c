/* test_h1_chunk.c -- the framing of chunked bodies: A05, A06, A07, A21, A22, E10. */
#include "h1_case.h"

struct result {
	char body[512];
	size_t n;
	uint32_t rest;      /* bytes behind the last chunk's line */
	const char *detail; /* "": complete; "more" */
};

/* Feeds text in pieces of `step` bytes, as a reader does. */
static struct result feed(const char *text, size_t n, size_t step)
{
	struct h1_chunk c = { 0 };
	struct result r = { .detail = "more" };
	size_t at = 0;

	while (at < n) {
		size_t have = n - at < step ? n - at : step;
		char *piece = malloc(have);
		size_t i = 0;

		assert_non_null(piece);
		memcpy(piece, text + at, have);
		at += have;
		while (i < have) {
			uint32_t used = 0;
			int e = h1_chunk_next(&c, piece + i, (uint32_t)(have - i), &used);

			assert_true(used <= have - i);
			i += used;
			if (e < 0) {
				r.detail = h1_error_detail((enum h1_error) - e);
				free(piece);
				return r;
			}
			if (e == H1_CHUNK_LAST) {
				r.detail = "";
				r.rest = (uint32_t)(n - at + have - i);
				free(piece);
				return r;
			}
			if (e == H1_CHUNK_MORE)
				assert_int_equal(i, have);
			while (e == H1_CHUNK_DATA && c.left && i < have) {
				assert_true(r.n < sizeof(r.body));
				r.body[r.n++] = piece[i++];
				c.left--;
			}
		}
		free(piece);
	}
	return r;
}

static void chunks_are(const char *text, size_t n, const char *detail, const char *body, int line)
{
	struct result want = feed(text, n, n);

	if (strcmp(want.detail, detail) != 0 ||
	    (body && (want.n != strlen(body) || memcmp(want.body, body, want.n) != 0)))
		fail_msg("line %d: \"%s\" with %zu bytes, expected \"%s\"", line, want.detail,
			 want.n, detail);
	for (size_t step = 1; step < n && step < 40; step++) {
		struct result got = feed(text, n, step);

		if (strcmp(got.detail, want.detail) != 0 || got.n != want.n ||
		    got.rest != want.rest || memcmp(got.body, want.body, want.n) != 0)
			fail_msg("line %d: in steps of %zu another result: %s", line, step,
				 got.detail);
	}
}
#define IS(text, detail, body) chunks_are(text, sizeof(text) - 1, detail, body, __LINE__)
#define SIZE(size, detail)     IS(size "\r\nhello\r\n0\r\n\r\n", detail, NULL)

static void test_plain(void **state)
{
	(void)state;
	IS("5\r\nhello\r\n0\r\n", "", "hello");
	IS("5\r\nhello\r\n1\r\n!\r\n000\r\n", "", "hello!");
	IS("0\r\n", "", "");
	IS("a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n", "", "01234567890123456789");
	IS("1\r\n\n\r\n1\r\n\r\r\n2\r\n\0X\r\n0\r\n", "", NULL); /* any byte is data */
	IS("5\r\nhel", "more", "hel");
	IS("5\r\nhello", "more", "hello");
	IS("5\r\nhello\r", "more", "hello");
	IS("5\r\nhello\r\n", "more", "hello");
	assert_int_equal(feed("0\r\nX: y\r\n\r\n", 11, 11).rest, 8);
}

static void test_a05_size(void **state)
{
	static char zeros[2048];
	struct h1_chunk c = { 0 };
	uint32_t used;
	size_t n;

	(void)state;
	SIZE("5", "");
	SIZE("00000005", "");
	SIZE("+5", "chunk_size");
	SIZE("-5", "chunk_size");
	SIZE("0x5", "chunk_size");
	SIZE(" 5", "chunk_size");
	SIZE("\t5", "chunk_size");
	SIZE("5 ", "chunk_size");
	SIZE("5\t", "chunk_size");
	SIZE("5 ;a", "chunk_size");
	SIZE("5_", "chunk_size");
	SIZE("5z", "chunk_size");
	SIZE("5g", "chunk_size");
	SIZE("5@", "chunk_size");
	SIZE("5`", "chunk_size");
	SIZE("", "chunk_size");
	SIZE(";a", "chunk_size");
	SIZE("5\0", "chunk_size");
	SIZE("\x95", "chunk_size");
	SIZE("FFFFFFFFFFFFFFFFF", "chunk_size");
	SIZE("FFFFFFFFFFFFFFFF", "chunk_size");
	SIZE("8000000000000000", "chunk_size");
	SIZE("10000000000000005", "chunk_size");
	SIZE("100000005", "more"); /* 4 GiB and 5 */
	SIZE("7fffffffffffffff", "more");
	assert_int_equal(h1_chunk_next(&c, "100000005\r\n", 11, &used), H1_CHUNK_DATA);
	assert_true(c.left == 0x100000005u);
	assert_int_equal(used, 11);
	/* leading zeros are legal, a line of a thousand is not */
	memset(zeros, '0', sizeof(zeros));
	memcpy(zeros + 1000, "5\r\nhello\r\n0\r\n", 14);
	chunks_are(zeros, 1013, "chunk_line", NULL, __LINE__);
	n = 1000 - (H1_CHUNK_LINE_MAX - 3);
	chunks_are(zeros + n, 1013 - n, "", "hello", __LINE__);
	chunks_are(zeros + n - 1, 1013 - n + 1, "chunk_line", NULL, __LINE__);
}

static void test_a06_a07_line_ends(void **state)
{
	(void)state;
	IS("5\nhello\r\n0\r\n\r\n", "bare_lf", NULL);
	IS("5\r\nhello\n0\r\n\r\n", "bare_lf", NULL);
	IS("5\r\nhello\r\n0\n\r\n", "bare_lf", NULL);
	IS("5\r\rhello\r\n0\r\n\r\n", "bare_cr", NULL);
	IS("5\rhello\r\n0\r\n\r\n", "bare_cr", NULL);
	IS("5\r\nhello\r0\r\n\r\n", "bare_cr", NULL);
	IS("5\r\nhello\r\r\n0\r\n\r\n", "bare_cr", NULL);
	IS("\n5\r\nhello\r\n", "bare_lf", NULL);
	IS("\r\n5\r\nhello\r\n", "chunk_size", NULL);
}

static void test_a21_extensions(void **state)
{
	(void)state;
	IS("1;a=b\r\nh\r\n4;c=\"d\"\r\nello\r\n0;e\r\n", "", "hello");
	IS("5;a=\"x;y\\\"z\"\r\nhello\r\n0\r\n", "", "hello");
	IS("5;\r\nhello\r\n0\r\n", "", "hello");
	IS("5;a\t=\xe9 b\r\nhello\r\n0\r\n", "", "hello");
	IS("5;\nhello\r\n0\r\n\r\n", "bare_lf", NULL);
	IS("5;a\nb\r\nhello\r\n0\r\n\r\n", "bare_lf", NULL);
	IS("5;a\rb\r\nhello\r\n0\r\n\r\n", "bare_cr", NULL);
	IS("5;a=\"x\r\n0\r\n\r\nGET / HTTP/1.1\r\n", "chunk_extension", NULL);
	IS("5;a=\"x\\\r\n", "chunk_extension", NULL);
	IS("5;a=\"x\\\"\r\n", "chunk_extension", NULL);
	IS("5;a=\"x\n\"\r\n", "bare_lf", NULL);
	IS("5;a\0b\r\nhello\r\n", "chunk_extension", NULL);
	IS("5;a\x7f\r\nhello\r\n", "chunk_extension", NULL);
}

static void test_a21_caps(void **state)
{
	static char text[70000];
	struct h1_chunk c = { 0 };
	uint32_t used, chunks = 0;
	int e;

	(void)state;
	memset(text, 'x', sizeof(text));
	memcpy(text, "5;", 2);
	chunks_are(text, sizeof(text), "chunk_line", NULL, __LINE__);
	memcpy(text + H1_CHUNK_LINE_MAX - 2, "\r\nhello\r\n0\r\n", 12);
	chunks_are(text, H1_CHUNK_LINE_MAX + 10, "", "hello", __LINE__);
	memcpy(text + H1_CHUNK_LINE_MAX - 2, "x\r\nhello\r\n0\r\n", 13);
	chunks_are(text, H1_CHUNK_LINE_MAX + 11, "chunk_line", NULL, __LINE__);
	/* an extension on each one-byte chunk: the sum is capped */
	do {
		e = h1_chunk_next(&c, "1;a=b\r\n", 7, &used);
		if (e < 0)
			break;
		assert_int_equal(e, H1_CHUNK_DATA);
		c.left = 0;
		assert_int_equal(h1_chunk_next(&c, "\r\n", 2, &used), H1_CHUNK_MORE);
	} while (++chunks < 100000);
	assert_int_equal(e, -H1_E_CHUNK_EXTENSION);
	assert_in_range(chunks, H1_CHUNK_EXT_TOTAL_MAX / 5, H1_CHUNK_EXT_TOTAL_MAX / 3);
	assert_true(c.chunks == chunks);
}

static void test_a22_spill(void **state)
{
	(void)state;
	IS("5\r\nhelloX\r\n0\r\n", "chunk_end", NULL);
	IS("5\r\nhello!!0\r\n\r\n", "chunk_end", NULL);
	IS("5\r\nhello0\r\n\r\n", "chunk_end", NULL);
	IS("5\r\nhello \r\n0\r\n\r\n", "chunk_end", NULL);
	IS("0\rX\r\n", "bare_cr", NULL);
}

/* E10: tiny chunks without extensions are slow, and right. */
static void test_e10_tiny_chunks(void **state)
{
	struct h1_chunk c = { 0 };
	uint32_t used;

	(void)state;
	for (unsigned i = 0; i < 100000; i++) {
		assert_int_equal(h1_chunk_next(&c, "1\r\n", 3, &used), H1_CHUNK_DATA);
		assert_int_equal(h1_chunk_next(&c, "", 0, &used), H1_CHUNK_DATA);
		assert_int_equal(used, 0);
		c.left = 0;
		assert_int_equal(h1_chunk_next(&c, "\r\n", 2, &used), H1_CHUNK_MORE);
	}
	assert_int_equal(h1_chunk_next(&c, NULL, 0, &used), H1_CHUNK_MORE);
	assert_int_equal(h1_chunk_next(&c, "0\r\n\r\n", 5, &used), H1_CHUNK_LAST);
	assert_int_equal(used, 3);
	assert_int_equal(h1_chunk_next(&c, "\r\n", 2, &used), H1_CHUNK_LAST);
	assert_int_equal(used, 0);
	assert_true(c.chunks == 100001);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_a05_size),
		cmocka_unit_test(test_a06_a07_line_ends),
		cmocka_unit_test(test_a21_extensions),
		cmocka_unit_test(test_a21_caps),
		cmocka_unit_test(test_a22_spill),
		cmocka_unit_test(test_e10_tiny_chunks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
