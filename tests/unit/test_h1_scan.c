/* test_h1_scan.c -- the end of a head, however its bytes come; what is wrong at once; limits. */
#include "h1_case.h"

#define REQ(text, detail) case_is(c, H1_REQUEST, text, detail)
#define RSP(text, detail) case_is(c, H1_RESPONSE, text, detail)
#define TRL(text, detail) case_is(c, H1_TRAILERS, text, detail)

static void test_end_of_head(void **state)
{
	struct h1_case *c = *state;
	static const char two[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\n";

	assert_int_equal(case_scan_all_cuts(c, H1_REQUEST, two, sizeof(two) - 1), 27);
	assert_int_equal(c->scan.lines, 2);
	assert_int_equal(c->scan.skip, 0);
	assert_int_equal(c->scan.ends[0], 14);
	assert_int_equal(c->scan.ends[1], 23);
	REQ("GET / HTTP/1.1\r\nHost: a\r\n", "more");
	REQ("GET / HTTP/1.1\r\nHost: a\r\n\r", "more");
	REQ("G", "more");
	RSP("HTTP/1.1 200 OK\r\n\r", "more");
	RSP("HTTP/1.1 200 OK\r\n\r\n", "");
	assert_int_equal(case_scan_all_cuts(c, H1_TRAILERS, "\r\n", 2), 2);
	assert_int_equal(c->scan.lines, 0);
	assert_int_equal(case_scan_all_cuts(c, H1_TRAILERS, "A: b\r\n\r\nX", 9), 8);
	assert_int_equal(c->scan.lines, 1);
}

/* RFC 9112 §2.2: one empty line before a request line, not two, and none before a response. */
static void test_leading_empty_line(void **state)
{
	struct h1_case *c = *state;
	static const char text[] = "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";

	assert_int_equal(case_scan_all_cuts(c, H1_REQUEST, text, sizeof(text) - 1), 29);
	assert_int_equal(c->scan.skip, 2);
	REQ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "");
	str_is(c->h.host, "a");
	REQ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "start_line");
	REQ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "bare_lf");
	REQ("\r\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", "bare_cr");
	REQ("\r", "more");
	REQ("\r\n", "more");
	RSP("\r\nHTTP/1.1 200 OK\r\n\r\n", "start_line");
}

static void test_a06_bare_lf(void **state)
{
	struct h1_case *c = *state;

	REQ("GET / HTTP/1.1\nHost: a\n\n", "bare_lf");
	REQ("GET / HTTP/1.1\nHost: a\r\n\r\n", "bare_lf");
	REQ("GET / HTTP/1.1\r\nHost: a\n\r\n", "bare_lf");
	REQ("GET / HTTP/1.1\r\nHost: a\r\n\n", "bare_lf");
	REQ("GET / HTTP/1.1\r\nFoo: x\nTransfer-Encoding: chunked\r\n\r\n", "bare_lf");
	RSP("HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\n", "bare_lf");
	RSP("HTTP/1.1 200 OK\r\nContent-Length: 5\n\n", "bare_lf");
	TRL("A: b\n\r\n", "bare_lf");
	TRL("\n", "bare_lf");
	/* in every place of a block, also as the first byte after a line end */
	for (unsigned k = 16; k < 90; k++) {
		char text[128];

		memset(text, 'a', sizeof(text));
		memcpy(text, "GET / HTTP/1.1\r\nX: ", 19);
		text[k] = '\n';
		memcpy(text + 100, "\r\n\r\n", 4);
		case_is_at(c, H1_REQUEST, text, 104, "bare_lf", (int)k);
	}
}

static void test_a07_bare_cr(void **state)
{
	struct h1_case *c = *state;

	REQ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rEvil: b\r\n\r\n", "bare_cr");
	REQ("GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", "bare_cr");
	REQ("GET / HTTP/1.1\rHost: a\r\n\r\n", "bare_cr");
	REQ("GET / HTTP/1.1\r\nHost: a\r\n\rX\r\n\r\n", "bare_cr");
	REQ("GET / HTTP/1.1\r\nHost: a\r\n\r\r\n", "bare_cr");
	RSP("HTTP/1.1 200 OK\r\nX: a\r\r\n\r\n", "bare_cr");
	TRL("A: b\r\n\rX", "bare_cr");
}

static void test_a11_controls(void **state)
{
	struct h1_case *c = *state;

	for (unsigned b = 0; b < 256; b++) {
		char text[] = "GET / HTTP/1.1\r\nHost: a\r\nX: a?b\r\n\r\n";
		const char *want = b < 0x20 || b == 0x7f ? "control_byte" : "";

		text[29] = (char)b;
		want = b == '\r' ? "bare_cr" : b == '\n' ? "bare_lf" : b == '\t' ? "" : want;
		case_is_at(c, H1_REQUEST, text, sizeof(text) - 1, want, (int)b);
	}
	REQ("GET / HTTP/1.1\r\nHost: good\0.evil\r\n\r\n", "control_byte");
	REQ("\0GET / HTTP/1.1\r\nHost: a\r\n\r\n", "control_byte");
	RSP("HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", "control_byte");
	RSP("HTTP/1.1 200 O\0K\r\n\r\n", "control_byte");
}

static void test_a24_first_byte(void **state)
{
	struct h1_case *c = *state;

	REQ("\x16\x03\x01\x02\x00\x01", "control_byte"); /* a TLS ClientHello */
	REQ("\x80", "method");
	REQ("(", "method");
	REQ("/ HTTP/1.1\r\n", "method");
	REQ(" GET / HTTP/1.1\r\n", "start_line");
	REQ("\tGET / HTTP/1.1\r\n", "start_line");
}

/* What cannot become a request of ours is answered at the end of its first line. */
static void test_a24_version_at_once(void **state)
{
	struct h1_case *c = *state;

	REQ("GET /\r\n", "start_line");
	REQ("GET / \r\n", "start_line");
	REQ("PRI * HTTP/2.0\r\n", "version");
	REQ("GET / HTTP/0.9\r\n", "version");
	REQ("GET / RTSP/1.0\r\n", "start_line");
	RSP("H", "more");
	RSP("HTTP/1", "more");
	RSP("ICY 200 OK\r\n", "start_line");
	RSP("<html>", "start_line");
	RSP("HTTP/2 200\r\n", "version");
	RSP("HTTP/0.9 200\r\n", "version");
	RSP("HTTP/1 200\r\n", "version");
	RSP("http/1.1 200 OK\r\n", "start_line");
}

/* N02, N03: each limit less one, itself, and one more. */
static void test_n03_head_limit(void **state)
{
	struct h1_case *c = *state;
	static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\nX: yyyyyyyyyyyyyyyyyyyy\r\n\r\n";
	uint32_t n = sizeof(text) - 1;

	for (uint32_t max = n - 20; max < n + 2; max++) {
		c->lim.head = max;
		case_is_at(c, H1_REQUEST, text, n, max < n ? "head_too_large" : "", (int)max);
	}
	/* skipped bytes do not count */
	c->lim.head = n - 27;
	REQ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", n - 27 < 27 ? "head_too_large" : "");
	c->lim.head = 27;
	REQ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "");
	/* the bytes behind a head do not count either */
	REQ("GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost: aaaaaaaaaaaaaa\r\n\r\n", "");
	c->lim.head = 40;
	RSP("HTTP/1.1 200 OK\r\nX: yyyyyyyyyyyyyyyyyy\r\n\r\n", "head_too_large");
	RSP("HTTP/1.1 200 OK\r\nX: yyyyyyyyyyyyyyyy\r\n\r\n", "");
	TRL("X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy", "head_too_large");
}

static void test_n02_target_limit(void **state)
{
	struct h1_case *c = *state;
	char text[256];
	int n;

	for (int more = -1; more <= 1; more++) {
		c->lim.target = 100;
		n = snprintf(text, sizeof(text), "GET /%0*d HTTP/1.1\r\nHost: a\r\n\r\n", 99 + more,
			     0);
		case_is_at(c, H1_REQUEST, text, (size_t)n, more > 0 ? "target_too_long" : "", more);
	}
	/* without an end in sight it is found before the limit of the head */
	memset(text, 'a', sizeof(text));
	memcpy(text, "GET /", 5);
	case_is_at(c, H1_REQUEST, text, 142, "more", 142);
	case_is_at(c, H1_REQUEST, text, 145, "target_too_long", 145);
	c->lim.head = 60;
	case_is_at(c, H1_REQUEST, text, 100, "target_too_long", 100);
}

static void test_a24_long_method(void **state)
{
	struct h1_case *c = *state;
	char text[512];

	memset(text, 'M', sizeof(text));
	c->lim.target = 100;
	case_is_at(c, H1_REQUEST, text, 512, "method", 512);
	memcpy(text + 32, " / HTTP/1.1\r\nHost: a\r\n\r\n", 25);
	case_is_at(c, H1_REQUEST, text, 57, "", 32);
	memcpy(text + 32, "M / HTTP/1.1\r\nHost: a\r\n\r\n", 26);
	case_is_at(c, H1_REQUEST, text, 58, "method", 33);
}

static void test_n02_field_limit(void **state)
{
	struct h1_case *c = *state;

	c->lim.fields = 3;
	REQ("GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\n\r\n", "");
	REQ("GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n", "too_many_fields");
	RSP("HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n", "");
	RSP("HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n", "too_many_fields");
	TRL("A: 1\r\nB: 2\r\nC: 3\r\n\r\n", "");
	TRL("A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n", "too_many_fields");
	c->lim.fields = 0;
	TRL("\r\n", "");
	TRL("A: 1\r\n", "too_many_fields");
	c->lim.fields = UINT32_MAX;
	c->lim.head = UINT32_MAX;
	c->lim.target = UINT32_MAX;
	REQ("GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n", "");
}

/* More lines than the scan remembers, and a head beyond 64 KiB. */
static void test_many_and_long_lines(void **state)
{
	struct h1_case *c = *state;
	static char text[200 * 1024];
	struct h1_scan s = { 0 };
	int n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\n");
	int32_t len;
	char *copy;

	c->lim = (struct h1_limits){ .head = sizeof(text), .target = 100, .fields = 100 };
	for (int i = 0; i < 60; i++) {
		n += snprintf(text + n, 64, "Name-%d: ", i);
		memset(text + n, 'v', 2000);
		n += 2000;
		n += snprintf(text + n, 64, "\r\n");
	}
	n += snprintf(text + n, 64, "\r\n");
	for (int32_t have = 1; (len = h1_scan(&s, H1_REQUEST, &c->lim, text, (uint32_t)have)) == 0;)
		have += 777 < n - have ? 777 : n - have;
	assert_int_equal(len, n);
	copy = arena_alloc(&c->arena, (size_t)n);
	memcpy(copy, text, (size_t)n);
	assert_int_equal(h1_request(&c->h, &c->arena, copy, (uint32_t)n, &s, &c->lim), 0);
	assert_int_equal(c->h.n_fields, 60);
	str_is(field_name(&c->h.fields[59]), "Name-59");
	assert_int_equal(c->h.fields[59].value_n, 2000);
}

/* However a head is mutated and cut, the result is that of the whole. */
static void test_n03_mutations(void **state)
{
	static const char *const seeds[] = {
		"GET /a/b?c HTTP/1.1\r\nHost: a.example\r\nX: y\r\nAccept: */*\r\n\r\nnext",
		"\r\nPOST http://a.example/ HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: today\r\n\r\nhello",
		"X-Check: 1\r\nY: 2\r\n\r\n",
	};
	static const char bytes[] = "\r\n\r\n\r\n \t\0:\x80\x7f\x01HTP/1.0aA";
	struct h1_case *c = *state;
	uint64_t x = 88172645463325252u;

	for (unsigned round = 0; round < 40000; round++) {
		const char *seed = seeds[round % 4];
		size_t n = strlen(seed);
		char text[128];

		memcpy(text, seed, n);
		for (unsigned k = 0; k < 1 + round % 3; k++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			text[x % n] = bytes[(x >> 32) % (sizeof(bytes) - 1)];
		}
		c->lim = (struct h1_limits){ .head = 20 + x % 60,
					     .target = x >> 8 & 31,
					     .fields = x >> 16 & 3 };
		for (unsigned role = 0; role < 3; role++)
			case_scan_all_cuts(c, role, text, n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_end_of_head),         CASE(test_leading_empty_line),
		CASE(test_a06_bare_lf),         CASE(test_a07_bare_cr),
		CASE(test_a11_controls),        CASE(test_a24_first_byte),
		CASE(test_a24_version_at_once), CASE(test_a24_long_method),
		CASE(test_n03_head_limit),      CASE(test_n02_target_limit),
		CASE(test_n02_field_limit),     CASE(test_many_and_long_lines),
		CASE(test_n03_mutations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
