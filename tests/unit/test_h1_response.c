/* test_h1_response.c -- response heads and trailers: O06, O07, O09, O10, A08-A11, A20, N02. */
#include "h1_case.h"

#define IS(text, detail)     case_is(c, H1_RESPONSE, text, detail)
#define OK200(lines, detail) IS("HTTP/1.1 200 OK\r\n" lines "\r\n", detail)
#define CL                   "Content-Length: 5\r\n"
#define TE                   "Transfer-Encoding: chunked\r\n"

static void test_plain_response(void **state)
{
	struct h1_case *c = *state;
	const struct head *h = &c->h;

	OK200("Date: today\r\n" CL "Connection: keep-alive\r\nX-A: b\r\n", "");
	assert_int_equal(h->status, 200);
	assert_int_equal(h->version, 11);
	str_is(h->reason, "OK");
	assert_int_equal(h->body, BODY_LENGTH);
	assert_int_equal(h->length, 5);
	assert_int_equal(h->flags, HEAD_LENGTH_GIVEN | HEAD_KEEP_ALIVE);
	assert_int_equal(h->n_fields, 2);
	assert_int_equal(h->fields[0].id, HDR_DATE);
	OK200("Connection: close\r\n", "");
	assert_int_equal(h->flags, HEAD_CLOSE);
	IS("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" CL "\r\n", "");
	assert_int_equal(h->version, 10);
	assert_int_equal(h->flags, HEAD_LENGTH_GIVEN | HEAD_KEEP_ALIVE);
	/* of a request only: ordinary fields here */
	OK200("Host: a b\r\nExpect: x\r\nHost: c\r\n", "");
	assert_int_equal(h->n_fields, 3);
}

static void test_o09_status_line(void **state)
{
	struct h1_case *c = *state;
	static const struct {
		const char *line, *detail;
		unsigned status;
	} lines[] = {
		{ "HTTP/1.1 2000 OK", "status", 0 },
		{ "HTTP/1.1 2000", "status", 0 },
		{ "HTTP/1.1 99", "status", 0 },
		{ "HTTP/1.1 099 X", "status", 0 },
		{ "HTTP/1.1 99 OK", "status", 0 },
		{ "HTTP/1.1 20x OK", "status", 0 },
		{ "HTTP/1.1  200 OK", "status", 0 },
		{ "HTTP/1.1 -20 OK", "status", 0 },
		{ "HTTP/1.1", "status", 0 },
		{ "HTTP/1.1 ", "status", 0 },
		{ "HTTP/1.1 20", "status", 0 },
		{ "HTTP/1.1\t200 OK", "status", 0 },
		{ "HTTP/1.1200 OK", "status", 0 },
		{ "HTTP/1.1 200OK", "status", 0 },
		{ "HTTP/1.1 200\tOK", "status", 0 },
		{ "HTTP/2 200 OK", "version", 0 },
		{ "HTTP/2.0 200 OK", "version", 0 },
		{ "HTTP/0.9 200 OK", "version", 0 },
		{ "HTTP/1.x 200 OK", "start_line", 0 },
		{ "HTTP/11 200 OK", "version", 0 },
		{ "ICY 200 OK", "start_line", 0 },
		{ "200 OK", "start_line", 0 },
		{ "HTTP/1.1 200", "", 200 },
		{ "HTTP/1.1 200 ", "", 200 },
		{ "HTTP/1.1 599 X", "", 599 },
		{ "HTTP/1.1 999 Denied", "", 999 },
		{ "HTTP/1.2 200 OK", "", 200 },
		{ "HTTP/1.1 404 N\xc3\xb6 \t way", "", 404 },
	};
	char text[128];

	for (unsigned i = 0; i < ARRAY_LEN(lines); i++) {
		int n = snprintf(text, sizeof(text), "%s\r\nA: b\r\n\r\n", lines[i].line);

		case_is_at(c, H1_RESPONSE, text, (size_t)n, lines[i].detail, (int)i);
		if (lines[i].status)
			assert_int_equal(c->h.status, lines[i].status);
	}
	IS("HTTP/1.\r\n\r\n", "status");
	IS("HTTP/1.1 200\r\n\r\n", "");
	str_is(c->h.reason, "");
	IS("HTTP/1.1 200 \r\n\r\n", "");
	str_is(c->h.reason, "");
	IS("HTTP/1.1 200  x \r\n\r\n", "");
	str_is(c->h.reason, " x ");
}

static void test_o10_conflicts(void **state)
{
	struct h1_case *c = *state;

	OK200(CL TE, "length_and_coding");
	OK200(TE CL, "length_and_coding");
	OK200(CL "Content-Length: 6\r\n", "content_length");
	OK200("Content-Length:\r\n" CL, "content_length");
	OK200("Content-Length: 5, 6\r\n", "content_length");
	OK200("Content-Length: +5\r\n", "content_length");
	OK200("Content-Length: 18446744073709551617\r\n", "content_length");
	OK200(CL CL, "");
	assert_int_equal(c->h.length, 5);
	OK200("Transfer-Encoding: gzip\r\n", "transfer_encoding");
	OK200("Transfer-Encoding: gzip, chunked\r\n", "coding");
	OK200("Transfer-Encoding: identity\r\n", "transfer_encoding");
	OK200("Transfer-Encoding: chunked, gzip\r\n", "transfer_encoding");
	OK200(TE TE, "transfer_encoding");
	OK200("Transfer-Encoding:\r\n", "transfer_encoding");
	IS("HTTP/1.0 200 OK\r\n" TE "\r\n", "transfer_encoding");
	OK200("X: 1\r\n  2\r\n", "obs_fold");
	OK200("Content-Length:\r\n 5\r\n", "content_length"); /* empty, then folded */
	OK200("Content-Length: 5\r\n 5\r\n", "obs_fold");
	/* also where there is no body */
	c->method = METHOD_HEAD;
	OK200(CL TE, "length_and_coding");
	IS("HTTP/1.1 304 Not Modified\r\n" CL TE "\r\n", "length_and_coding");
}

static void test_framing(void **state)
{
	struct h1_case *c = *state;

	OK200("", "");
	assert_int_equal(c->h.body, BODY_CLOSE);
	OK200(TE, "");
	assert_int_equal(c->h.body, BODY_STREAM);
	assert_int_equal(c->h.flags, 0);
	OK200("Content-Length: 0\r\n", "");
	assert_int_equal(c->h.body, BODY_LENGTH);
	assert_int_equal(c->h.length, 0);
	IS("HTTP/1.0 200 OK\r\n\r\n", "");
	assert_int_equal(c->h.body, BODY_CLOSE);
	IS("HTTP/1.1 205 Reset Content\r\n" CL "\r\n", "");
	assert_int_equal(c->h.body, BODY_LENGTH);
}

/* RFC 9112 §6.3(1), (2): no body, whatever the framing says; a length only where one may be. */
static void test_o06_o07_bodiless(void **state)
{
	struct h1_case *c = *state;
#define NO_BODY(given)                                                                            \
	do {                                                                                      \
		assert_int_equal(c->h.body, BODY_NONE);                                           \
		assert_int_equal(c->h.flags &HEAD_LENGTH_GIVEN, (given) ? HEAD_LENGTH_GIVEN : 0); \
		assert_int_equal(c->h.length, (given) ? 5 : 0);                                   \
	} while (0)

	IS("HTTP/1.1 100 Continue\r\n\r\n", "");
	NO_BODY(false);
	IS("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n" CL "\r\n", "");
	NO_BODY(false);
	assert_int_equal(c->h.n_fields, 1);
	IS("HTTP/1.1 204 No Content\r\n" CL "\r\n", "");
	NO_BODY(false);
	IS("HTTP/1.1 204 No Content\r\n" TE "\r\n", "");
	NO_BODY(false);
	IS("HTTP/1.1 304 Not Modified\r\n" CL "\r\n", "");
	NO_BODY(true);
	IS("HTTP/1.1 304 Not Modified\r\n" TE "\r\n", "");
	NO_BODY(false);
	c->method = METHOD_HEAD;
	OK200(CL, "");
	NO_BODY(true);
	OK200(TE, "");
	NO_BODY(false);
	OK200("", "");
	NO_BODY(false);
	c->method = METHOD_CONNECT; /* G13 */
	OK200(CL, "");
	NO_BODY(false);
	OK200(TE, "");
	NO_BODY(false);
	IS("HTTP/1.1 407 No\r\n" CL "\r\n", "");
	assert_int_equal(c->h.body, BODY_LENGTH);
}

static void test_upgrade_of_responses(void **state)
{
	struct h1_case *c = *state;

	IS("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
	   "Sec-WebSocket-Accept: x\r\n\r\n",
	   "");
	assert_int_equal(c->h.status, 101);
	assert_int_equal(c->h.body, BODY_NONE);
	assert_int_equal(c->h.flags, HEAD_UPGRADE);
	str_is(c->h.upgrade, "websocket");
	assert_int_equal(c->h.n_fields, 1);
	OK200("Connection: upgrade\r\nUpgrade: h2c\r\n" CL, "");
	assert_int_equal(c->h.flags, HEAD_LENGTH_GIVEN);
}

static void test_a09_a10_names(void **state)
{
	struct h1_case *c = *state;

	/* RFC 9112 §5.1: a proxy takes it out of a response */
	OK200("X-A : 1\r\nContent-Length \t : 5\r\nLast-Modified\t: x\r\n", "");
	assert_int_equal(c->h.length, 5);
	assert_int_equal(c->h.n_fields, 2);
	str_is(field_name(&c->h.fields[0]), "X-A");
	str_is(field_value(&c->h.fields[0]), "1");
	assert_int_equal(c->h.fields[1].id, HDR_LAST_MODIFIED);
	OK200("Transfer-Encoding : chunked\r\n" CL, "length_and_coding");
	OK200(" : x\r\n", "obs_fold");
	OK200(" X: y\r\n", "obs_fold");
	OK200(": y\r\n", "field_name");
	OK200(":x: y\r\n", "field_name");
	OK200("a b: y\r\n", "field_name");
	OK200("a b : y\r\n", "field_name");
	OK200("a\x85: y\r\n", "field_name");
	OK200("\"a\": y\r\n", "field_name");
	OK200("Content-Length 5\r\n", "field_name");
	OK200("X: \xc3\xa9\tb\r\n", "");
	str_is(field_value(&c->h.fields[0]), "\xc3\xa9\tb");
}

static void test_a23_nominations(void **state)
{
	struct h1_case *c = *state;

	OK200("Connection: close, X-One\r\nX-One: 1\r\nX-Two: 2\r\nKeep-Alive: timeout=5\r\n"
	      "Proxy-Connection: x\r\nTE: x\r\n" CL,
	      "");
	assert_int_equal(c->h.n_fields, 2);
	assert_true(c->h.fields[0].flags & HDR_F_NOMINATED);
	assert_int_equal(c->h.fields[1].flags, 0);
	OK200("Connection: Content-Length, Content-Type, Set-Cookie\r\nContent-Type: a/b\r\n"
	      "Set-Cookie: a\r\n" CL,
	      "");
	assert_int_equal(c->h.n_fields, 2);
	assert_false((c->h.fields[0].flags | c->h.fields[1].flags) & HDR_F_NOMINATED);
}

static void test_authentication_of_connections(void **state)
{
	struct h1_case *c = *state;

	IS("HTTP/1.1 401 No\r\nWWW-Authenticate: Negotiate\r\nWWW-Authenticate: NTLM\r\n\r\n", "");
	assert_int_equal(c->h.flags, HEAD_NTLM);
	assert_int_equal(c->h.n_fields, 2);
	IS("HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"x\", NTLM\r\n\r\n", "");
	assert_int_equal(c->h.flags, HEAD_NTLM);
	IS("HTTP/1.1 407 No\r\nProxy-Authenticate: NTLM\r\n\r\n", "");
	assert_int_equal(c->h.flags, HEAD_NTLM);
	IS("HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"a, NTLM b\"\r\n\r\n", "");
	assert_int_equal(c->h.flags, 0);
}

static void test_a20_trailers(void **state)
{
	struct h1_case *c = *state;
	const struct head *h = &c->h;
#define TRAILERS(text, detail) case_is(c, H1_TRAILERS, text, detail)

	TRAILERS("\r\n", "");
	assert_int_equal(h->n_fields, 0);
	TRAILERS("X-Check: 1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
		 "Host: evil\r\nAuthorization: x\r\nX-Forwarded-For: 1.1.1.1\r\n"
		 "Forwarded: for=x\r\nSet-Cookie: a\r\nCookie: a\r\nConnection: close\r\n"
		 "Keep-Alive: x\r\nUpgrade: x\r\nTE: x\r\nTrailer: y\r\n"
		 "Proxy-Authorization: x\r\nContent-Type: a/b\r\nContent-Encoding: gzip\r\n"
		 "Expect: x\r\nLocation: /\r\nCache-Control: x\r\nX_Forwarded_For: 1\r\n"
		 "Content_Length: 5\r\nVia: x\r\nX-Real-IP: 1\r\nX.Real.IP: 1\r\n"
		 "Max-Forwards: 0\r\nRange: x\r\nServer-Timing: x\r\n\r\n",
		 "");
	assert_int_equal(h->n_fields, 2);
	str_is(field_name(&h->fields[0]), "X-Check");
	str_is(field_value(&h->fields[0]), "1");
	str_is(field_name(&h->fields[1]), "Server-Timing");
	assert_int_equal(h->flags, 0);
	assert_int_equal(h->length, 0);
	TRAILERS("X: a\r\n b\r\n\r\n", "obs_fold");
	TRAILERS(": a\r\n\r\n", "field_name");
	TRAILERS("X : a\r\n\r\n", "space_before_colon");
	TRAILERS("XX\r\n\r\n", "field_name");
	TRAILERS("0\r\n\r\n", "field_name");
	TRAILERS("X:\r\n\r\n", "");
	TRAILERS("X: a\0\r\n\r\n", "control_byte");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_plain_response),
		CASE(test_o09_status_line),
		CASE(test_o10_conflicts),
		CASE(test_framing),
		CASE(test_o06_o07_bodiless),
		CASE(test_upgrade_of_responses),
		CASE(test_a09_a10_names),
		CASE(test_a23_nominations),
		CASE(test_authentication_of_connections),
		CASE(test_a20_trailers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
