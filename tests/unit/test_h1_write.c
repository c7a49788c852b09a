/* test_h1_write.c -- heads written anew from their parsed form. */
#include "h1_case.h"

static char text[8192];
static struct out o;

static void begin(void)
{
	out_init(&o, text, sizeof(text));
}

static void written_is(const struct h1_case *c, const char *want, int line)
{
	assert_true(out_ok(&o));
	assert_true(out_len(&o) <= h1_write_bound(&c->h));
	str_is_at((struct str){ .p = text, .n = out_len(&o) }, want, line);
}

static void request_is(struct h1_case *c, struct h1_write w, const char *want, int line)
{
	begin();
	h1_write_request(&o, &c->h, &w);
	written_is(c, want, line);
}

static void response_is(struct h1_case *c, struct h1_write w, const char *want, int line)
{
	begin();
	h1_write_response(&o, &c->h, &w);
	written_is(c, want, line);
}

#define REQ(text)       case_is(c, H1_REQUEST, text, "")
#define RSP(text)       case_is(c, H1_RESPONSE, text, "")
#define W(...)          ((struct h1_write){ __VA_ARGS__ })
#define REQ_IS(w, want) request_is(c, w, want, __LINE__)
#define RSP_IS(w, want) response_is(c, w, want, __LINE__)

static void test_request(void **state)
{
	struct h1_case *c = *state;

	REQ("GET /a?b HTTP/1.1\r\nUser-AGENT:x\r\nHost: A.example.:81\r\nAccept:\t*/*\t\r\nX:\r\n"
	    "Connection: keep-alive\r\nA: 1\r\nB: 2\r\n\r\n");
	REQ_IS(W(0),
	       "GET /a?b HTTP/1.1\r\nHost: a.example:81\r\nUser-AGENT: x\r\nAccept: */*\r\nX: \r\n"
	       "A: 1\r\nB: 2\r\n\r\n");
	REQ_IS(W(.close = true), "GET /a?b HTTP/1.1\r\nHost: a.example:81\r\nConnection: close\r\n"
				 "User-AGENT: x\r\nAccept: */*\r\nX: \r\nA: 1\r\nB: 2\r\n\r\n");
	REQ_IS(W(.absolute = true), "GET http://a.example:81/a?b HTTP/1.1\r\nHost: a.example:81\r\n"
				    "User-AGENT: x\r\nAccept: */*\r\nX: \r\nA: 1\r\nB: 2\r\n\r\n");
	assert_true(head_add_id(&c->h, &c->arena, HDR_VIA, STR("1.1 x")));
	assert_true(head_add(&c->h, &c->arena, STR("X-New"), STR("")));
	head_remove(&c->h, HDR_ACCEPT);
	REQ_IS(W(0), "GET /a?b HTTP/1.1\r\nHost: a.example:81\r\nUser-AGENT: x\r\nX: \r\n"
		     "A: 1\r\nB: 2\r\nVia: 1.1 x\r\nX-New: \r\n\r\n");
}

static void test_request_framing(void **state)
{
	struct h1_case *c = *state;

	REQ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 005, 5\r\nExpect: 100-continue\r\n\r\n");
	REQ_IS(W(.length = true), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
				  "Expect: 100-continue\r\n\r\n");
	c->h.flags &= ~(uint32_t)HEAD_EXPECT_100;
	REQ_IS(W(.chunked = true, .te_trailers = true),
	       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
	       "Connection: TE\r\nTE: trailers\r\n\r\n");
	REQ("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c, websocket\r\n\r\n");
	REQ_IS(W(.upgrade = true), "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n"
				   "Upgrade: websocket\r\n\r\n");
	REQ_IS(W(.upgrade = true, .te_trailers = true),
	       "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade, TE\r\nTE: trailers\r\n"
	       "Upgrade: websocket\r\n\r\n");
	REQ_IS(W(.close = true, .te_trailers = true),
	       "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, TE\r\nTE: trailers\r\n\r\n");
	c->h.length = UINT64_MAX;
	REQ_IS(W(.length = true),
	       "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551615\r\n\r\n");
}

static void test_request_targets(void **state)
{
	struct h1_case *c = *state;

	REQ("GET HTTP://B.test?x HTTP/1.0\r\n\r\n");
	REQ_IS(W(0), "GET /?x HTTP/1.1\r\nHost: b.test\r\n\r\n");
	REQ_IS(W(.absolute = true), "GET http://b.test/?x HTTP/1.1\r\nHost: b.test\r\n\r\n");
	REQ("OPTIONS http://b.test HTTP/1.1\r\nHost: x\r\n\r\n");
	REQ_IS(W(0), "OPTIONS * HTTP/1.1\r\nHost: b.test\r\n\r\n");
	REQ_IS(W(.absolute = true), "OPTIONS http://b.test HTTP/1.1\r\nHost: b.test\r\n\r\n");
	REQ("OPTIONS * HTTP/1.1\r\nHost: [::1]:8\r\n\r\n");
	REQ_IS(W(0), "OPTIONS * HTTP/1.1\r\nHost: [::1]:8\r\n\r\n");
	REQ("CONNECT B.test:443 HTTP/1.1\r\nHost: y\r\n\r\n");
	REQ_IS(W(0), "CONNECT b.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n");
	REQ("CONNECT [::1]:443 HTTP/1.1\r\nHost: y\r\n\r\n");
	REQ_IS(W(0), "CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n\r\n");
	REQ("GET / HTTP/1.0\r\n\r\n");
	REQ_IS(W(0), "GET / HTTP/1.1\r\nHost: \r\n\r\n");
}

static void test_response(void **state)
{
	struct h1_case *c = *state;

	RSP("HTTP/1.0 404 Nothing \r\nDate: x\r\nContent-Length: 5\r\nServer:y\r\n\r\n");
	RSP_IS(W(.length = true),
	       "HTTP/1.1 404 Nothing \r\nContent-Length: 5\r\nDate: x\r\nServer: y\r\n\r\n");
	RSP_IS(W(.length = true, .keep_alive = true),
	       "HTTP/1.1 404 Nothing \r\nContent-Length: 5\r\nConnection: keep-alive\r\n"
	       "Date: x\r\nServer: y\r\n\r\n");
	RSP_IS(W(.length = true, .keep_alive = true, .close = true),
	       "HTTP/1.1 404 Nothing \r\nContent-Length: 5\r\nConnection: close\r\n"
	       "Date: x\r\nServer: y\r\n\r\n");
	RSP_IS(W(.chunked = true), "HTTP/1.1 404 Nothing \r\nTransfer-Encoding: chunked\r\n"
				   "Date: x\r\nServer: y\r\n\r\n");
	RSP("HTTP/1.1 200\r\n\r\n");
	RSP_IS(W(0), "HTTP/1.1 200 OK\r\n\r\n");
	RSP("HTTP/1.1 999 \r\n\r\n");
	RSP_IS(W(0), "HTTP/1.1 999 \r\n\r\n");
	RSP("HTTP/1.1 101 Switching\r\nUpgrade: foo\r\nConnection: upgrade\r\n\r\n");
	RSP_IS(W(.upgrade = true),
	       "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\n");
}

static void test_fields(void **state)
{
	struct h1_case *c = *state;

	case_is(c, H1_TRAILERS, "X-Check: 1\r\nHost: evil\r\nY:2\r\nZ: \r\n\r\n", "");
	begin();
	h1_write_fields(&o, &c->h);
	written_is(c, "X-Check: 1\r\nY: 2\r\nZ: \r\n", __LINE__);
	case_is(c, H1_TRAILERS, "\r\n", "");
	begin();
	h1_write_fields(&o, &c->h);
	written_is(c, "", __LINE__);
}

/* Only what reads "name: value" in memory is copied as one; a pointer that happens to fit is not
 * enough. */
static void test_fields_that_only_look_contiguous(void **state)
{
	struct h1_case *c = *state;
	static const char memory[] = "Name=\nvalue\n\nNext: more";

	memset(&c->h, 0, sizeof(c->h));
	assert_true(head_add(&c->h, &c->arena, (struct str){ memory, 4 },
			     (struct str){ memory + 6, 5 }));
	assert_true(head_add(&c->h, &c->arena, (struct str){ memory + 13, 4 },
			     (struct str){ memory + 19, 4 }));
	begin();
	h1_write_fields(&o, &c->h);
	written_is(c, "Name: value\r\nNext: more\r\n", __LINE__);
}

/* Room for every length from nothing to all of it: never a byte beyond, and `over` says so. */
static void test_no_room(void **state)
{
	struct h1_case *c = *state;
	char small[160];

	REQ("POST /a?b HTTP/1.1\r\nHost: a:81\r\nA: 1\r\nB:2\r\nContent-Length: 7\r\nUpgrade: x\r\n"
	    "Connection: upgrade\r\n\r\n");
	begin();
	h1_write_request(&o, &c->h, &W(.length = true, .upgrade = true));
	for (uint32_t n = 0; n <= out_len(&o); n++) {
		struct out part;

		memset(small, '#', sizeof(small));
		out_init(&part, small, n);
		h1_write_request(&part, &c->h, &W(.length = true, .upgrade = true));
		assert_int_equal(out_ok(&part), n == out_len(&o));
		for (size_t k = n; k < sizeof(small); k++)
			assert_int_equal(small[k], '#');
	}
}

static void test_errors_have_names(void **state)
{
	(void)state;
	assert_string_equal(h1_error_detail(H1_OK), "");
	for (unsigned e = 1; e < H1_ERRORS; e++) {
		const char *detail = h1_error_detail(e);

		assert_true(detail[0] != 0);
		assert_true(h1_error_why(e) != WHY_NONE);
		for (unsigned d = e + 1; d < H1_ERRORS; d++)
			assert_string_not_equal(detail, h1_error_detail(d));
	}
	assert_int_equal(h1_error_why(H1_E_TARGET_TOO_LONG), WHY_TARGET_TOO_LONG);
	assert_int_equal(h1_error_why(H1_E_HEAD_TOO_LARGE), WHY_HEAD_TOO_LARGE);
	assert_int_equal(h1_error_why(H1_E_TOO_MANY_FIELDS), WHY_TOO_MANY_HEADERS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_request),         CASE(test_request_framing),
		CASE(test_request_targets), CASE(test_response),
		CASE(test_fields),          CASE(test_fields_that_only_look_contiguous),
		CASE(test_no_room),         cmocka_unit_test(test_errors_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
