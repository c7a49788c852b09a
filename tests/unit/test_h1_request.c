/* test_h1_request.c -- request heads: framing, syntax, targets, fields, limits. */
#include "h1_case.h"

#define IS(text, detail) case_is(c, H1_REQUEST, text, detail)
/* A POST with these lines. */
#define POST(lines, detail) IS("POST / HTTP/1.1\r\nHost: a\r\n" lines "\r\n", detail)
#define GET(lines, detail)  IS("GET / HTTP/1.1\r\nHost: a\r\n" lines "\r\n", detail)
#define CL                  "Content-Length: 5\r\n"
#define TE                  "Transfer-Encoding: chunked\r\n"

static void test_plain_request(void **state)
{
	struct h1_case *c = *state;
	const struct head *h = &c->h;

	IS("GET /a/b?c=d HTTP/1.1\r\nHost: WWW.Example.com:8080\r\nUser-Agent: x\r\nX-Foo:bar\r\n"
	   "Accept: \t */* \t\r\nEmpty:\r\n\r\n",
	   "");
	assert_int_equal(h->method, METHOD_GET);
	assert_int_equal(h->form, TARGET_ORIGIN);
	assert_int_equal(h->version, 11);
	assert_int_equal(h->body, BODY_NONE);
	assert_int_equal(h->flags, 0);
	assert_int_equal(h->port, 8080);
	assert_int_equal(h->status, 0);
	str_is(h->method_text, "GET");
	str_is(h->host, "www.example.com");
	str_is(h->path, "/a/b");
	str_is(h->query, "?c=d");
	str_is(h->target, "/a/b?c=d");
	str_is(h->scheme, "");
	assert_int_equal(h->n_fields, 4);
	assert_true(h->cap_fields >= h->n_fields + 5);
	str_is(field_name(&h->fields[0]), "User-Agent");
	assert_int_equal(h->fields[0].id, HDR_USER_AGENT);
	str_is(field_name(&h->fields[1]), "X-Foo");
	str_is(field_value(&h->fields[1]), "bar");
	assert_int_equal(h->fields[1].id, HDR_OTHER);
	str_is(field_value(&h->fields[2]), "*/*");
	str_is(field_value(&h->fields[3]), "");
}

static void test_methods(void **state)
{
	struct h1_case *c = *state;

	IS("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "");
	assert_int_equal(c->h.method, METHOD_HEAD);
	IS("OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n", "");
	assert_int_equal(c->h.method, METHOD_OPTIONS);
	IS("get / HTTP/1.1\r\nHost: a\r\n\r\n", ""); /* case-sensitive: J08 */
	assert_int_equal(c->h.method, METHOD_OTHER);
	str_is(c->h.method_text, "get");
	IS("PROPFIND / HTTP/1.1\r\nHost: a\r\n\r\n", "");
	assert_int_equal(c->h.method, METHOD_OTHER);
	IS("M / HTTP/1.1\r\nHost: a\r\n\r\n", "");
}

static void test_a01_a02_both_framings(void **state)
{
	struct h1_case *c = *state;

	POST("Content-Length: 6\r\n" TE, "length_and_coding");
	POST(TE "Content-Length: 4\r\n", "length_and_coding");
	POST(TE "Content-Length: 0\r\n", "length_and_coding");
	POST("content-length:6\r\nX: y\r\ntransfer-encoding:Chunked\r\n", "length_and_coding");
}

static void test_a03_transfer_encoding(void **state)
{
	struct h1_case *c = *state;

	POST("Transfer-Encoding : chunked\r\n", "space_before_colon");
	POST("Transfer-Encoding:\tchunked\r\n", "");
	assert_int_equal(c->h.body, BODY_STREAM);
	assert_int_equal(c->h.n_fields, 0);
	POST("Transfer-Encoding: Chunked\r\n", "");
	POST("TRANSFER-encoding: CHUNKED \t \r\n", "");
	POST("Transfer-Encoding:chunked\r\n", "");
	POST("Transfer-Encoding: xchunked\r\n", "transfer_encoding");
	POST("Transfer-Encoding: chunkedx\r\n", "transfer_encoding");
	POST("Transfer-Encoding: chunked;q=1\r\n", "transfer_encoding");
	POST("Transfer-Encoding: chunked ;q=1\r\n", "transfer_encoding");
	POST("Transfer-Encoding: chunked;\r\n", "transfer_encoding");
	POST("Transfer-Encoding: chunked x\r\n", "transfer_encoding");
	POST("Transfer-Encoding: \"chunked\"\r\n", "transfer_encoding");
	POST("Transfer-Encoding: \"x, chunked\r\n", "transfer_encoding");
	POST("Transfer-Encoding: \x0b"
	     "chunked\r\n",
	     "control_byte");
	POST("Transfer-Encoding: \xa0"
	     "chunked\r\n",
	     "transfer_encoding");
	POST("Transfer-Encoding: chunked\0\r\n", "control_byte");
	POST("Transfer-Encoding: ,chunked\r\n", "");
	assert_int_equal(c->h.body, BODY_STREAM);
	POST("Transfer-Encoding: chunked ,\t,\r\n", "");
	assert_int_equal(c->h.body, BODY_STREAM);
	POST("Transfer-Encoding: chunked, chunked\r\n", "transfer_encoding");
	POST(TE TE, "transfer_encoding");
	POST("Transfer-Encoding: chunked, identity\r\n", "transfer_encoding");
	POST("Transfer-Encoding: chunked, gzip\r\n", "transfer_encoding");
	POST(TE "Transfer-Encoding: gzip\r\n", "transfer_encoding");
	POST("Transfer-Encoding: gzip, chunked\r\n", "coding");
	POST("Transfer-Encoding: gzip\r\n" TE, "coding");
	POST("Transfer-Encoding: gzip;level=9, chunked\r\n", "coding");
	POST("Transfer-Encoding: gzip\r\n", "transfer_encoding");
	POST("Transfer-Encoding: identity\r\n", "transfer_encoding");
	POST("Transfer-Encoding:\r\n", "transfer_encoding");
	POST("Transfer-Encoding: \t\r\n", "transfer_encoding");
	POST("Transfer-Encoding: ,\r\n", "transfer_encoding");
	POST("Transfer-Encoding:\r\n chunked\r\n", "obs_fold");
	POST("Transfer_Encoding: chunked\r\n", "");
	assert_int_equal(c->h.body, BODY_NONE);
	assert_int_equal(c->h.n_fields, 1);
	IS("POST / HTTP/1.0\r\n" TE "\r\n", "transfer_encoding");
	POST("Foo: x\nTransfer-Encoding: chunked\r\n", "bare_lf");
	assert_int_equal(h1_error_why(H1_E_CODING), WHY_CODING);
	assert_int_equal(h1_error_why(H1_E_TRANSFER_ENCODING), WHY_BAD_REQUEST);
}

static void test_a04_content_length(void **state)
{
	struct h1_case *c = *state;
#define LENGTH(value, detail) POST("Content-Length: " value "\r\n", detail)

	LENGTH("5", "");
	assert_int_equal(c->h.body, BODY_LENGTH);
	assert_int_equal(c->h.length, 5);
	assert_int_equal(c->h.flags, HEAD_LENGTH_GIVEN);
	LENGTH("0", "");
	assert_int_equal(c->h.body, BODY_LENGTH);
	assert_int_equal(c->h.length, 0);
	LENGTH("005", "");
	assert_int_equal(c->h.length, 5);
	LENGTH("010", "");
	assert_int_equal(c->h.length, 10);
	LENGTH("0000000000000000000000000000000000000005", "");
	assert_int_equal(c->h.length, 5);
	LENGTH("9223372036854775807", "content_length"); /* rounded down to whole tens below */
	LENGTH("9223372036854775799", "");
	LENGTH("+5", "content_length");
	LENGTH("-1", "content_length");
	LENGTH("-0", "content_length");
	LENGTH("0x5", "content_length");
	LENGTH("5_0", "content_length");
	LENGTH("5 5", "content_length");
	LENGTH("5, 6", "content_length");
	LENGTH("5,6", "content_length");
	LENGTH("", "content_length");
	LENGTH(",", "content_length");
	LENGTH("5,", "content_length");
	LENGTH(",5", "content_length");
	LENGTH("5,,5", "content_length");
	LENGTH("5\0", "control_byte");
	LENGTH("5;", "content_length");
	LENGTH("5.0", "content_length");
	LENGTH("5e0", "content_length");
	LENGTH("\x0b"
	       "5",
	       "control_byte");
	LENGTH("\xd9\xa5", "content_length");
	LENGTH("18446744073709551617", "content_length");
	LENGTH("18446744073709551616", "content_length");
	LENGTH("9223372036854775808", "content_length");
	LENGTH("99999999999999999999999999", "content_length");
	/* identical duplicates are one */
	LENGTH("5,5", "");
	LENGTH("5 ,\t5", "");
	assert_int_equal(c->h.length, 5);
	POST(CL CL, "");
	assert_int_equal(c->h.length, 5);
	assert_int_equal(c->h.n_fields, 0);
	POST(CL "Content-Length: 6\r\n", "content_length");
	POST("Content-Length:\r\nContent-Length: 59\r\n", "content_length");
	POST(CL "Content-Length:\r\n", "content_length");
	POST("Content_Length: 5\r\n", "");
	assert_int_equal(c->h.body, BODY_NONE);
}

static void test_a08_obs_fold(void **state)
{
	struct h1_case *c = *state;

	IS("GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n  2\r\n\r\n", "obs_fold");
	IS("GET / HTTP/1.1\r\nHost: a\r\n\tX: 1\r\n\r\n", "obs_fold");
	IS("GET / HTTP/1.1\r\nHost: a\r\n .evil\r\n\r\n", "obs_fold");
	IS("GET / HTTP/1.1\r\nHost:\r\n a\r\n\r\n", "obs_fold");
	POST("Content-Length: 5\r\n \r\n", "obs_fold");
	POST("Expect:\r\n 100-continue\r\n" CL, "obs_fold");
}

static void test_a09_space_and_colon(void **state)
{
	struct h1_case *c = *state;

	POST("Content-Length : 5\r\n", "space_before_colon");
	POST("Content-Length\t: 5\r\n", "space_before_colon");
	POST("X : y\r\n", "space_before_colon");
	IS("GET / HTTP/1.1\r\n X: y\r\nHost: a\r\n\r\n", "obs_fold");
	IS("GET / HTTP/1.1\r\n \r\nHost: a\r\n\r\n", "obs_fold");
	POST("Content-Length 5\r\n", "field_name");
	POST("Content-Length\r\n", "field_name");
	POST("Content-Length\r\nX: y\r\n", "field_name");
	POST("Transfer-\r\n Encoding: chunked\r\n", "field_name");
}

static void test_a10_names(void **state)
{
	struct h1_case *c = *state;

	GET(":x: y\r\n", "field_name");
	GET(": y\r\n", "field_name");
	GET(":\r\n", "field_name");
	GET("a\x85: b\r\n", "field_name");
	GET("a b: c\r\n", "field_name");
	GET("a b : c\r\n", "field_name");
	GET("\"a\": b\r\n", "field_name");
	GET("a\0b: c\r\n", "control_byte");
	GET("a\tb: c\r\n", "field_name");
	GET("X!#$%&'*+-.^`|~09: v\r\n", "");
	str_is(field_name(&c->h.fields[0]), "X!#$%&'*+-.^`|~09");
	for (unsigned b = 0x20; b < 0x100; b++) {
		char text[] = "GET / HTTP/1.1\r\nHost: a\r\nab?d: y\r\n\r\n";
		bool token = strchr("!#$%&'*+-.^_`|~", (int)b) || (b >= '0' && b <= '9') ||
			     ((b | 0x20) >= 'a' && (b | 0x20) <= 'z' && b < 0x80);

		if (b == ':' || b == 0x7f)
			continue;
		text[27] = (char)b;
		case_is_at(c, H1_REQUEST, text, sizeof(text) - 1, token ? "" : "field_name",
			   (int)b);
	}
}

/* N04: what does not fit 16 bits is refused, never cut. */
static void test_n04_long_names_and_values(void **state)
{
	struct h1_case *c = *state;
	static char text[300000];
	static const unsigned names[] = { 255, 256, 257, 65535, 65536, 65537, 131072 };

	c->lim = (struct h1_limits){ .head = sizeof(text), .target = 100, .fields = 10 };
	for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
		struct h1_scan s = { 0 };
		int n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\n"), e;
		char *copy;

		memset(text + n, 'n', names[i]);
		n += (int)names[i];
		text[n++] = ':';
		memset(text + n, 'v', 70000);
		n += 70000;
		n += snprintf(text + n, 32, "\r\nX: y\r\n\r\n");
		assert_int_equal(h1_scan(&s, H1_REQUEST, &c->lim, text, (uint32_t)n), n);
		copy = arena_alloc(&c->arena, (size_t)n);
		memcpy(copy, text, (size_t)n);
		e = h1_request(&c->h, &c->arena, copy, (uint32_t)n, &s, &c->lim);
		assert_int_equal(e, names[i] > 65535 ? -H1_E_FIELD_NAME : 0);
		if (e)
			continue;
		assert_int_equal(c->h.n_fields, 2);
		assert_int_equal(c->h.fields[0].name_n, names[i]);
		assert_int_equal(c->h.fields[0].value_n, 70000);
		str_is(field_value(&c->h.fields[1]), "y");
	}
}

static void test_a12_host(void **state)
{
	struct h1_case *c = *state;
#define HOST(value, detail) IS("GET / HTTP/1.1\r\nHost: " value "\r\n\r\n", detail)

	IS("GET / HTTP/1.1\r\n\r\n", "host_missing");
	IS("GET / HTTP/1.1\r\nX: y\r\n\r\n", "host_missing");
	IS("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "host_twice");
	IS("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nhost: b\r\n\r\n", "host_twice");
	IS("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", "host_twice");
	IS("GET / HTTP/1.0\r\n\r\n", "");
	assert_int_equal(c->h.flags, HEAD_NO_HOST);
	assert_int_equal(c->h.version, 10);
	assert_int_equal(c->h.host.n, 0);
	HOST("", "host");
	HOST("a, b", "host");
	HOST("a,b", "host");
	HOST("a b", "host");
	HOST("a@b", "host");
	HOST("a:99999", "host");
	HOST("a:b", "host");
	HOST("[::1", "host");
	HOST("::1", "host");
	HOST("a#b", "host");
	HOST("a/b", "host");
	HOST("a?b", "host");
	HOST("http://a", "host");
	HOST("a.", "");
	str_is(c->h.host, "a");
	HOST("A.Example.:80", "");
	str_is(c->h.host, "a.example");
	assert_int_equal(c->h.port, 80);
	HOST("[::1]:8080", "");
	str_is(c->h.host, "::1");
	assert_true(c->h.host_is_v6);
	assert_int_equal(c->h.port, 8080);
}

static void test_a13_absolute_form(void **state)
{
	struct h1_case *c = *state;
	const struct head *h = &c->h;

	IS("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", "");
	assert_int_equal(h->form, TARGET_ABSOLUTE);
	str_is(h->host, "a");
	str_is(h->path, "/");
	str_is(h->scheme, "http");
	assert_int_equal(h->n_fields, 0);
	IS("GET http://a?x=1 HTTP/1.1\r\nHost: b\r\n\r\n", "");
	str_is(h->host, "a");
	str_is(h->path, "/");
	str_is(h->query, "?x=1");
	IS("GET HTTP://User.A:80/P?Q HTTP/1.1\r\nHost: b\r\n\r\n", "");
	str_is(h->scheme, "http");
	str_is(h->host, "user.a");
	assert_int_equal(h->port, 80);
	str_is(h->path, "/P");
	str_is(h->query, "?Q");
	str_is(h->target, "HTTP://User.A:80/P?Q"); /* as received */
	IS("GET https://a/ HTTP/1.1\r\nHost: b\r\n\r\n", "");
	str_is(h->scheme, "https");
	IS("GET http://a#f HTTP/1.1\r\nHost: b\r\n\r\n", "target");
	IS("GET http://a/#f HTTP/1.1\r\nHost: b\r\n\r\n", "target");
	IS("GET http://u:p@a/ HTTP/1.1\r\nHost: a\r\n\r\n", "target");
	IS("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", "target");
	IS("GET http:/x HTTP/1.1\r\nHost: a\r\n\r\n", "target");
	IS("GET http://a:0/ HTTP/1.1\r\nHost: a\r\n\r\n", "target");
	/* Host must be there and valid all the same */
	IS("GET http://a/ HTTP/1.1\r\n\r\n", "host_missing");
	IS("GET http://a/ HTTP/1.1\r\nHost: b\r\nHost: b\r\n\r\n", "host_twice");
	IS("GET http://a/ HTTP/1.1\r\nHost: b c\r\n\r\n", "host");
	IS("GET http://a/ HTTP/1.0\r\n\r\n", "");
	assert_int_equal(h->flags, 0);
	str_is(h->host, "a");
}

static void test_a14_other_forms(void **state)
{
	struct h1_case *c = *state;
	const struct head *h = &c->h;
#define TARGET(method, target, detail) IS(method " " target " HTTP/1.1\r\nHost: a\r\n\r\n", detail)

	TARGET("GET", "foo", "target");
	TARGET("GET", "*", "target");
	TARGET("GET", "?x", "target");
	TARGET("GET", "a:80", "target");
	TARGET("GET", "/a b", "target");
	TARGET("GET", "/a\tb", "target");
	TARGET("GET", "/\x80", "target");
	TARGET("GET", "/a\x7f", "control_byte");
	TARGET("GET", "", "target");
	TARGET("GET", " /", "target");
	TARGET("OPTIONS", "*", "");
	assert_int_equal(h->form, TARGET_ASTERISK);
	assert_int_equal(h->path.n, 0);
	str_is(h->host, "a");
	TARGET("OPTIONS", "*x", "target");
	TARGET("OPTIONS", "http://b", "");
	assert_int_equal(h->form, TARGET_ABSOLUTE);
	assert_int_equal(h->path.n, 0);
	TARGET("OPTIONS", "http://b?q", "");
	str_is(h->path, "/");
	TARGET("GET", "//x", "");
	str_is(h->path, "//x");
	TARGET("GET", "/%zz|^{}\"<>", ""); /* the forward direction passes on what it is given */
}

static void test_a14_connect(void **state)
{
	struct h1_case *c = *state;
	static const char *const bad[] = { "a",          "a:",     "a:0",     "a:70000",
					   "http://a:1", "a:b",    ":443",    "/",
					   "*",          "a:443/", "u@a:443", "[::1:443",
					   "a:+1",       "a:1:1",  "a#:443",  "[a]:443" };
	char text[128];
	int n;

	for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
		n = snprintf(text, sizeof(text), "CONNECT %s HTTP/1.1\r\nHost: a\r\n\r\n", bad[i]);
		case_is_at(c, H1_REQUEST, text, (size_t)n, "target", (int)i);
	}
	TARGET("CONNECT", "B.Example.:443", "");
	assert_int_equal(c->h.form, TARGET_AUTHORITY);
	str_is(c->h.host, "b.example");
	assert_int_equal(c->h.port, 443);
	assert_int_equal(c->h.path.n, 0);
	str_is(c->h.target, "B.Example.:443");
	TARGET("CONNECT", "[::1]:443", "");
	assert_true(c->h.host_is_v6);
	/* Host says nothing here, not even an invalid one, but RFC 9112 §3.2 wants it */
	IS("CONNECT b:443 HTTP/1.1\r\nHost: other:1\r\n\r\n", "");
	IS("CONNECT b:443 HTTP/1.1\r\n\r\n", "host_missing");
	IS("CONNECT b:443 HTTP/1.0\r\n\r\n", "");
	/* G13, A19: no body */
	IS("CONNECT b:443 HTTP/1.1\r\nHost: b\r\n" CL "\r\n", "connect_body");
	IS("CONNECT b:443 HTTP/1.1\r\nHost: b\r\n" TE "\r\n", "connect_body");
	IS("CONNECT b:443 HTTP/1.1\r\nHost: b\r\nContent-Length: 0\r\n\r\n", "");
	assert_int_equal(c->h.body, BODY_NONE);
}

static void test_a15_fragment(void **state)
{
	struct h1_case *c = *state;

	TARGET("GET", "/app/admin#x", "target");
	TARGET("GET", "/#", "target");
	TARGET("GET", "/a?b#c", "target");
	TARGET("GET", "/0123456789abcdef0123456789#", "target");
}

static void test_a17_expect(void **state)
{
	struct h1_case *c = *state;

	POST("Expect: 100-continue\r\n" CL, "");
	assert_int_equal(c->h.flags, HEAD_EXPECT_100 | HEAD_LENGTH_GIVEN);
	assert_int_equal(c->h.n_fields, 0);
	POST("expect: 100-Continue\r\n" TE, "");
	assert_int_equal(c->h.flags, HEAD_EXPECT_100);
	POST("Expect: 100-continue, 100-continue\r\n" CL, "");
	assert_int_equal(c->h.flags, HEAD_EXPECT_100 | HEAD_LENGTH_GIVEN);
	POST("Expect: 100-continue\r\nExpect: 100-continue\r\n" CL, "");
	POST("Expect: x\r\n" CL, "expect");
	POST("Expect: 100-continue, x\r\n" CL, "expect");
	POST("Expect: 100-continue;a=b\r\n" CL, "expect");
	GET("Expect: x\r\n", "expect");
	GET("Expect: 100-continue\r\n", ""); /* nothing to wait for */
	assert_int_equal(c->h.flags, 0);
	POST("Expect: 100-continue\r\nContent-Length: 0\r\n", "");
	assert_int_equal(c->h.flags, HEAD_LENGTH_GIVEN);
	POST("Expect:\r\n" CL, "");
	IS("POST / HTTP/1.0\r\n" CL "Expect: x, 100-continue\r\n\r\n", ""); /* ignored */
	assert_int_equal(c->h.flags, HEAD_LENGTH_GIVEN | HEAD_NO_HOST);
	assert_int_equal(h1_error_why(H1_E_EXPECT), WHY_EXPECT_UNKNOWN);
}

static void test_a18_upgrade(void **state)
{
	struct h1_case *c = *state;

	GET("Connection: Upgrade\r\nUpgrade: websocket\r\n", "");
	assert_int_equal(c->h.flags, HEAD_UPGRADE);
	str_is(c->h.upgrade, "websocket");
	assert_int_equal(c->h.n_fields, 0);
	GET("Upgrade: foo, h2c\r\nUpgrade: bar\r\nConnection: keep-alive, upgrade\r\n", "");
	assert_int_equal(c->h.flags, HEAD_UPGRADE | HEAD_KEEP_ALIVE);
	str_is(c->h.upgrade, "foo, bar");
	GET("Upgrade: h2c\r\nConnection: upgrade, HTTP2-Settings\r\nHTTP2-Settings: x\r\n", "");
	assert_int_equal(c->h.flags, 0);
	assert_int_equal(c->h.n_fields, 0);
	GET("Upgrade: H2C,\r\nConnection: upgrade\r\n", "");
	assert_int_equal(c->h.flags, 0);
	GET("Upgrade: a,b,,c\r\nConnection: upgrade\r\n", "");
	str_is(c->h.upgrade, "a, b, c");
	GET("Connection: upgrade\r\n", "");
	assert_int_equal(c->h.flags, 0);
	GET("Upgrade: foo\r\n", "");
	assert_int_equal(c->h.flags, 0);
	assert_int_equal(c->h.n_fields, 0);
	IS("GET / HTTP/1.0\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\n", "");
	assert_int_equal(c->h.flags, 0);
}

static uint32_t nominated(const struct head *h)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < h->n_fields; i++)
		n += (h->fields[i].flags & HDR_F_NOMINATED) != 0;
	return n;
}

static void test_a23_connection(void **state)
{
	struct h1_case *c = *state;
	struct head *h = &c->h;

	GET("Connection: close\r\n", "");
	assert_int_equal(h->flags, HEAD_CLOSE);
	GET("Connection: Keep-Alive\r\nKeep-Alive: timeout=5\r\nProxy-Connection: x\r\n", "");
	assert_int_equal(h->flags, HEAD_KEEP_ALIVE);
	assert_int_equal(h->n_fields, 0);
	/* before and after the fields that it names, in two lines, any case */
	GET("X-A: 1\r\nConnection: x-a, close\r\nConnection: X-b\r\nX-B: 2\r\nx-a: 3\r\nX-C: 4\r\n",
	    "");
	assert_int_equal(h->flags, HEAD_CLOSE);
	assert_int_equal(h->n_fields, 4);
	assert_int_equal(nominated(h), 3);
	assert_int_equal(head_find_name(h, STR("X-C"))->flags, 0);
	head_remove_flags(h, HDR_F_NOMINATED);
	assert_int_equal(h->n_fields, 1);
	/* what frames, routes, authenticates or identifies is not nominated away */
	POST("Connection: X-Forwarded-For, Host, Content-Length, Transfer-Encoding, "
	     "Authorization, Via\r\n"
	     "Authorization: Basic eDp5\r\nX-Forwarded-For: 1.1.1.1\r\nVia: 1.1 x\r\n" CL,
	     "");
	assert_int_equal(h->n_fields, 3);
	assert_int_equal(nominated(h), 0);
	assert_int_equal(h->length, 5);
	str_is(h->host, "a");
	GET("Connection: User-Agent\r\nUser-Agent: x\r\n", "");
	assert_int_equal(nominated(h), 1);
	GET("Connection: TE\r\nTE: gzip, Trailers\r\n", "");
	assert_int_equal(h->flags, HEAD_TE_TRAILERS);
	assert_int_equal(h->n_fields, 0);
	GET("TE: gzip\r\n", "");
	assert_int_equal(h->flags, 0);
	/* kept in the list, for those who judge them */
	GET("Proxy-Authorization: Basic eDp5\r\nProxy: x\r\n", "");
	assert_int_equal(h->n_fields, 2);
	assert_true(h->fields[0].flags & HDR_F_HOP);
	assert_true(h->fields[0].flags & HDR_F_SECRET);
}

static void test_g12_connection_list(void **state)
{
	struct h1_case *c = *state;
	char text[4096];
	int n;

	GET("Connection: Connection\r\n", "");
	GET("Connection: ,,, ,\r\n", "");
	GET("Connection:\r\n", "");
	for (int count = 99; count <= 101; count++) {
		n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\nConnection: ");
		for (int i = 0; i < count; i++)
			n += snprintf(text + n, 16, "x%d,", i);
		n += snprintf(text + n, 32, "\r\nX50: y\r\n\r\n");
		case_is_at(c, H1_REQUEST, text, (size_t)n, count > 100 ? "connection" : "", count);
		if (count <= 100)
			assert_int_equal(nominated(&c->h), 1);
	}
}

static void test_authentication_of_connections(void **state)
{
	struct h1_case *c = *state;

	GET("Authorization: NTLM TlRM\r\n", "");
	assert_int_equal(c->h.flags, HEAD_NTLM);
	assert_int_equal(c->h.n_fields, 1);
	GET("Authorization: negotiate YII=\r\n", "");
	assert_int_equal(c->h.flags, HEAD_NTLM);
	GET("Proxy-Authorization: NTLM\r\n", "");
	assert_int_equal(c->h.flags, HEAD_NTLM);
	GET("Authorization: NTLMx y\r\n", "");
	assert_int_equal(c->h.flags, 0);
	GET("Authorization: Basic TlRM\r\n", "");
	assert_int_equal(c->h.flags, 0);
}

static void test_a24_request_line(void **state)
{
	struct h1_case *c = *state;
	static const struct {
		const char *line, *detail;
	} lines[] = {
		{ "GET / HTTP/1.32", "start_line" },
		{ "GET / HTTP/1", "start_line" },
		{ "GET / HTTP/1.", "start_line" },
		{ "GET / HTTP/x.y", "start_line" },
		{ "GET / http/1.1", "start_line" },
		{ "GET / HTTP/01.1", "start_line" },
		{ "GET / HTTP /1.1", "start_line" },
		{ "GET / HTTP/1.1 ", "start_line" },
		{ "GET / HTTP/-1.1", "start_line" },
		{ "GET / HTTP/1.1.1", "start_line" },
		{ "GET /", "start_line" },
		{ "GET / ", "start_line" },
		{ "GET", "start_line" },
		{ "RTSP / RTSP/1.0", "start_line" },
		{ "GET / HTTPS/1.1", "start_line" },
		{ "GET /\tHTTP/1.1", "start_line" },
		{ "GET  / HTTP/1.1", "target" },
		{ "GET /  HTTP/1.1", "target" },
		{ "GET\t/ HTTP/1.1", "method" },
		{ "G(T / HTTP/1.1", "method" },
		{ "G\x80T / HTTP/1.1", "method" },
		{ "GET HTTP/1.1", "target" },
		{ "GET  HTTP/1.1", "target" },
		{ "GET / HTTP/2.0", "version" },
		{ "GET / HTTP/0.9", "version" },
		{ "GET / HTTP/3.0", "version" },
		{ "GET / HTTP/9.9", "version" },
		{ "GET / HTTP/1.2", "" },
		{ "GET / HTTP/1.0", "" },
		{ "GET /HTTP/1.1 HTTP/1.1", "" },
	};
	char text[128];

	for (unsigned i = 0; i < ARRAY_LEN(lines); i++) {
		int n = snprintf(text, sizeof(text), "%s\r\nHost: a\r\n\r\n", lines[i].line);

		case_is_at(c, H1_REQUEST, text, (size_t)n, lines[i].detail, (int)i);
	}
	IS("G\0T / HTTP/1.1\r\nHost: a\r\n\r\n", "control_byte");
	IS("GET / HTTP/1.9\r\nHost: a\r\n\r\n", "");
	assert_int_equal(c->h.version, 11);
	assert_int_equal(h1_error_why(H1_E_VERSION), WHY_BAD_VERSION);
}

static void test_a26_http10(void **state)
{
	struct h1_case *c = *state;

	IS("POST / HTTP/1.0\r\n\r\n", "");
	assert_int_equal(c->h.body, BODY_NONE);
	IS("POST / HTTP/1.0\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n", "");
	assert_int_equal(c->h.body, BODY_LENGTH);
	assert_int_equal(c->h.flags, HEAD_KEEP_ALIVE | HEAD_LENGTH_GIVEN | HEAD_NO_HOST);
	IS("POST / HTTP/1.1\r\nHost: a\r\n\r\n", "");
	assert_int_equal(c->h.body, BODY_NONE);
}

static void test_out_of_memory(void **state)
{
	struct h1_case *c = *state;
	static const char text[] = "GET http://A/ HTTP/1.1\r\nHost: b\r\nConnection: upgrade\r\n"
				   "Upgrade: foo\r\n\r\n";
	struct budget none = { .max = 0 };
	unsigned failed = 0;

	for (size_t room = 0; room < 400; room += 8) {
		char copy[sizeof(text)], block[400];
		struct slab empty;
		struct arena a = { .p = block, .end = block + room, .home = &empty };
		struct h1_scan s = { 0 };
		int32_t n = h1_scan(&s, H1_REQUEST, &c->lim, text, sizeof(text) - 1);
		int e;

		slab_init(&empty, "empty", ARENA_FIRST, &none);
		memcpy(copy, text, sizeof(text));
		e = h1_request(&c->h, &a, copy, (uint32_t)n, &s, &c->lim);
		assert_true(e == 0 || e == -H1_E_MEMORY);
		failed += e != 0;
		slab_close(&empty);
	}
	assert_in_range(failed, 20, 49);
	assert_int_equal(h1_error_why(H1_E_MEMORY), WHY_MEMORY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_plain_request),
		CASE(test_methods),
		CASE(test_a01_a02_both_framings),
		CASE(test_a03_transfer_encoding),
		CASE(test_a04_content_length),
		CASE(test_a08_obs_fold),
		CASE(test_a09_space_and_colon),
		CASE(test_a10_names),
		CASE(test_n04_long_names_and_values),
		CASE(test_a12_host),
		CASE(test_a13_absolute_form),
		CASE(test_a14_other_forms),
		CASE(test_a14_connect),
		CASE(test_a15_fragment),
		CASE(test_a17_expect),
		CASE(test_a18_upgrade),
		CASE(test_a23_connection),
		CASE(test_g12_connection_list),
		CASE(test_authentication_of_connections),
		CASE(test_a24_request_line),
		CASE(test_a26_http10),
		CASE(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
