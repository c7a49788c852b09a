/* test_accesslog.c -- whole lines, in both formats; escapes and limits; what must not be shown; the
 * record of a tunnel. */
#include "unit.h"

#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LINE_MOST 16384u
#define RING      (1u << 16)

static char text[1 << 20];

/* An exchange as serve/ leaves it, its head, and where lines go. */
struct desk {
	struct loop *loop;
	struct exchange x;
	struct head head;
	struct field fields[4];
	struct access_names names;
	struct access_log_conf conf;
	int fd;
	struct log_ring *ring;
};

static struct addr ip(const char *s, uint16_t port)
{
	struct addr a;

	assert_true(addr_parse_ip(str_of(s), port, &a));
	return a;
}

static void add_field(struct desk *d, enum hdr_id id, struct str value)
{
	struct field *f = &d->fields[d->head.n_fields++];

	*f = (struct field){ .id = (uint8_t)id, .value = value.p, .value_n = value.n };
	d->head.ids |= HDR_BIT(id);
	f->name = hdr_table[id].name.p;
	f->name_n = (uint16_t)hdr_table[id].name.n;
}

static void fill_exchange(struct exchange *x)
{
	x->why = why(WHY_NONE);
	x->conn_id = 0x1f;
	x->request_id = 0xfedcba9876543210;
	x->peer = ip("192.0.2.7", 40000);
	x->client = ip("2001:db8::1", 0);
	x->facts = (struct exchange_facts){ .wall_us = 1796061600123456,
					    .open_us = 1000000,
					    .resolve_us = 250,
					    .connect_us = 1234,
					    .first_byte_us = 1012345,
					    .end_us = 1020001,
					    .bytes_in = 120,
					    .bytes_out = 5432,
					    .status = 200,
					    .upstream_status = 200,
					    .attempts = 1,
					    .complete = true,
					    .upstream = "app",
					    .server = "http://10.0.0.1:8080",
					    .address = ip("10.0.0.1", 8080) };
}

static int setup(void **state)
{
	struct desk *d = calloc(1, sizeof(*d));
	struct loop_params par = { .io = LOOP_EPOLL, .fds_max = 64 };
	char name[] = "/tmp/test_accesslog.XXXXXX", said[128];

	d->loop = loop_new(&par, said);
	assert_non_null(d->loop);
	d->x.loop = d->loop;
	fill_exchange(&d->x);
	d->head = (struct head){ .method = METHOD_GET,
				 .version = 11,
				 .method_text = STR("GET"),
				 .host = STR("www.example.com"),
				 .target = STR("/a/b?c=d"),
				 .fields = d->fields };
	d->x.req.head = &d->head;
	d->names = (struct access_names){ .listener = STR("public"),
					  .site = STR("shop"),
					  .route = STR("rest") };
	d->conf = (struct access_log_conf){ .format = ACCESS_JSON, .query = true };
	d->fd = mkstemp(name);
	assert_true(d->fd >= 0);
	unlink(name);
	d->ring = log_ring_new(log_sink_new("access", d->fd), RING);
	assert_non_null(d->ring);
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	struct desk *d = *state;

	loop_free(&d->loop);
	close(d->fd);
	free(d);
	return 0;
}

/* What has been written since the last call. */
static const char *lines(struct desk *d)
{
	ssize_t n;

	assert_int_equal(log_writer_start(), 0);
	log_writer_stop();
	n = pread(d->fd, text, sizeof(text) - 1, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	assert_int_equal(ftruncate(d->fd, 0), 0);
	assert_int_equal(lseek(d->fd, 0, SEEK_SET), 0);
	return text;
}

static const char *line_of(struct desk *d)
{
	access_log_exchange(d->ring, &d->conf, &d->x, &d->names);
	return lines(d);
}

static void assert_has(const char *line, const char *part)
{
	if (!strstr(line, part))
		fail_msg("%s\nis not in\n%s", part, line);
}

static void assert_hasnt(const char *line, const char *part)
{
	if (strstr(line, part))
		fail_msg("%s\nis in\n%s", part, line);
}

static void json_request(void **state)
{
	struct desk *d = *state;

	add_field(d, HDR_USER_AGENT, STR("curl/8.5"));
	add_field(d, HDR_REFERER, STR("http://r.example/?q=1"));
	assert_string_equal(
		line_of(d),
		"{\"time\":\"2026-11-30T18:00:00.123456Z\",\"kind\":\"request\",\"conn_id\":\"000000000000001f\","
		"\"request_id\":\"fedcba9876543210\",\"shard\":0,\"listener\":\"public\",\"site\":\"shop\","
		"\"route\":\"rest\",\"peer\":\"192.0.2.7:40000\",\"client\":\"2001:db8::1\",\"proto\":\"HTTP/1.1\","
		"\"method\":\"GET\",\"scheme\":\"http\",\"host\":\"www.example.com\",\"target\":\"/a/b?c=d\","
		"\"status\":200,\"upstream_status\":200,\"upstream\":\"app\",\"server\":\"http://10.0.0.1:8080\","
		"\"address\":\"10.0.0.1:8080\",\"reused\":false,\"attempts\":1,\"bytes_in\":120,\"bytes_out\":5432,"
		"\"resolve_ms\":0.250,\"queue_ms\":0.000,\"connect_ms\":1.234,\"first_byte_ms\":12.345,"
		"\"total_ms\":20.001,\"complete\":true,\"user_agent\":\"curl/8.5\","
		"\"referer\":\"http://r.example/?q=1\"}\n");
}

static void json_without_head(void **state)
{
	struct desk *d = *state;

	d->x.req.head = NULL;
	d->x.why = why(WHY_HEAD_TIMEOUT);
	d->x.facts = (struct exchange_facts){ .wall_us = 1796061600000001, .status = 408 };
	d->names = (struct access_names){ .listener = STR("public") };
	assert_string_equal(
		line_of(d),
		"{\"time\":\"2026-11-30T18:00:00.000001Z\",\"kind\":\"request\",\"conn_id\":\"000000000000001f\","
		"\"request_id\":\"fedcba9876543210\",\"shard\":0,\"listener\":\"public\",\"peer\":\"192.0.2.7:40000\","
		"\"client\":\"2001:db8::1\",\"status\":408,\"reused\":false,\"attempts\":0,\"bytes_in\":0,"
		"\"bytes_out\":0,\"resolve_ms\":0.000,\"queue_ms\":0.000,\"connect_ms\":0.000,"
		"\"first_byte_ms\":0.000,\"total_ms\":0.000,\"complete\":false,"
		"\"reason\":\"request_head_timeout\"}\n");
}

static void status_of_none_and_detail(void **state)
{
	struct desk *d = *state;

	d->x.facts.status = 0;
	d->x.why = why(WHY_CLIENT_ABORT);
	assert_has(line_of(d), "\"status\":499,");
	assert_has(text, "\"reason\":\"client_abort\"}");
	d->x.why = why(WHY_BAD_REQUEST);
	d->x.facts.detail = "bare_lf";
	assert_has(line_of(d), "\"status\":400,");
	assert_has(text, "\"reason\":\"http_request_error:bare_lf\"}");
}

static void seconds_move_on(void **state)
{
	struct desk *d = *state;

	assert_has(line_of(d), "\"2026-11-30T18:00:00.123456Z\"");
	d->x.facts.wall_us += 900000;
	assert_has(line_of(d), "\"2026-11-30T18:00:01.023456Z\"");
	d->x.facts.wall_us -= 900000;
	assert_has(line_of(d), "\"2026-11-30T18:00:00.123456Z\"");
}

static void combined(void **state)
{
	struct desk *d = *state;

	d->conf.format = ACCESS_COMBINED;
	assert_string_equal(
		line_of(d),
		"2001:db8::1 - - [30/Nov/2026:18:00:00 +0000] \"GET /a/b?c=d HTTP/1.1\" 200 "
		"5432 \"-\" \"-\"\n");
	add_field(d, HDR_USER_AGENT, STR("a\"b\\c\x1b\xff"));
	add_field(d, HDR_REFERER, STR("http://r.example/"));
	assert_string_equal(
		line_of(d),
		"2001:db8::1 - - [30/Nov/2026:18:00:00 +0000] \"GET /a/b?c=d HTTP/1.1\" 200 "
		"5432 \"http://r.example/\" \"a\\\"b\\\\c\\x1b\\xff\"\n");
	d->x.req.head = NULL;
	assert_string_equal(
		line_of(d),
		"2001:db8::1 - - [30/Nov/2026:18:00:00 +0000] \"-\" 200 5432 \"-\" \"-\"\n");
}

static void texts_are_escaped(void **state)
{
	struct desk *d = *state;

	d->head.target = STR("/\r\n{\"\\\x1b[31m\xff\xc3\xa9\xc2\x9b");
	add_field(d, HDR_USER_AGENT, STR("\n{\"time\":1}"));
	assert_has(line_of(d), "\"target\":\"/\\r\\n{\\\"\\\\\\u001b[31m\\ufffd\xc3\xa9\\u009b\"");
	assert_has(text, "\"user_agent\":\"\\n{\\\"time\\\":1}\"");
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void host_as_in_a_uri(void **state)
{
	struct desk *d = *state;

	d->head.host = STR("::1");
	d->head.host_is_v6 = true;
	d->head.port = 8443;
	d->x.secure = true;
	assert_has(line_of(d), "\"scheme\":\"https\",\"host\":\"[::1]:8443\",");
	d->head.method = METHOD_CONNECT;
	assert_hasnt(line_of(d), "\"scheme\"");
}

static void unix_peer(void **state)
{
	struct desk *d = *state;
	struct addr a = { .len = sizeof(sa_family_t) };

	a.u.sa.sa_family = AF_UNIX;
	d->x.peer = d->x.client = d->x.facts.address = a;
	assert_has(line_of(d), "\"peer\":\"unix\",\"client\":\"unix\",");
	assert_has(text, "\"address\":\"unix\",");
}

static void query_hidden(void **state)
{
	struct desk *d = *state;

	d->conf.query = false;
	add_field(d, HDR_REFERER, STR("http://r.example/x?token=s3cret"));
	assert_has(line_of(d), "\"target\":\"/a/b\",");
	assert_has(text, "\"referer\":\"http://r.example/x\"");
	d->conf.format = ACCESS_COMBINED;
	assert_hasnt(line_of(d), "c=d");
	assert_hasnt(text, "s3cret");
}

static void no_credentials(void **state)
{
	static const struct str targets[] = { STR("http://user:s3cret@h.example/x"),
					      STR("user:s3cret@h.example:443"),
					      STR("http://a@b:s3cret@h.example"),
					      STR("HTTP://s3cret@h.example?x@y") };
	struct desk *d = *state;

	add_field(d, HDR_REFERER, STR("https://user:s3cret@r.example/?a@b"));
	add_field(d, HDR_AUTHORIZATION, STR("Basic s3cret"));
	add_field(d, HDR_PROXY_AUTHORIZATION, STR("Basic s3cret"));
	add_field(d, HDR_COOKIE, STR("s3cret"));
	for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
		d->head.target = targets[i];
		assert_hasnt(line_of(d), "s3cret");
		assert_has(text, "\"target\":\"h.example");
		assert_has(text, "\"referer\":\"r.example/?a@b\"");
	}
	d->head.target = STR("http://h.example/@x");
	assert_has(line_of(d), "\"target\":\"http://h.example/@x\"");
	d->head.target = STR("/x?to=http://a@b/");
	assert_has(line_of(d), "\"target\":\"/x?to=http://a@b/\"");
}

static char big[40000];

static struct str many(char c, uint32_t n)
{
	memset(big, c, sizeof(big));
	assert_true(n <= sizeof(big));
	return (struct str){ .p = big, .n = n };
}

static void long_target(void **state)
{
	struct desk *d = *state;

	d->head.target = many('a', 8192);
	assert_has(line_of(d), "aaa\",\"status\"");
	assert_hasnt(text, "\xe2\x80\xa6");
	d->head.target = many('a', 8193);
	assert_has(line_of(d), "aaa\xe2\x80\xa6\",\"status\"");
	d->head.target = many('\xc3', 8193);
	for (uint32_t i = 1; i < 8193; i += 2)
		big[i] = '\xa9'; /* 4,096 é, and half of one */
	assert_has(line_of(d), "\xc3\xa9\xe2\x80\xa6\",\"status\"");
	d->head.target = many('\x01', 3000);
	assert_has(line_of(d), "\\u0001\xe2\x80\xa6\",\"status\"");
	assert_true(strlen(text) > 4096);
}

/* Every text as long and as ugly as it can be. */
static void worst_line_fits(void **state)
{
	static const char chars[] = { 'a', '\x01', '"', '\xff' };
	struct desk *d = *state;

	d->x.facts.address = d->x.peer = d->x.client =
		ip("2001:db8:1111:2222:3333:4444:5555:6666", 65535);
	d->x.facts = (struct exchange_facts){ .wall_us = 1796061600000001,
					      .resolve_us = UINT64_MAX,
					      .queue_us = UINT64_MAX,
					      .connect_us = UINT64_MAX,
					      .first_byte_us = UINT64_MAX,
					      .end_us = UINT64_MAX,
					      .bytes_in = UINT64_MAX,
					      .bytes_out = UINT64_MAX,
					      .status = 65535,
					      .upstream_status = 65535,
					      .attempts = 65535,
					      .address = d->x.peer,
					      .detail = "a_detail_that_is_quite_long" };
	d->x.why = why(WHY_BAD_REQUEST);
	d->head.port = 65535;
	d->head.host_is_v6 = true;
	add_field(d, HDR_USER_AGENT, STR_NONE);
	add_field(d, HDR_REFERER, STR_NONE);
	for (size_t i = 0; i < 2 * ARRAY_LEN(chars); i++) {
		struct str s = many(chars[i / 2], 39999);

		big[39999] = '\0';
		d->names = (struct access_names){ s, s, s };
		d->x.facts.upstream = d->x.facts.server = big;
		d->head.method_text = d->head.scheme = d->head.host = d->head.target = s;
		d->fields[0].value = d->fields[1].value = s.p;
		d->fields[0].value_n = d->fields[1].value_n = s.n;
		d->conf.format = i % 2 ? ACCESS_COMBINED : ACCESS_JSON;
		assert_true(strlen(line_of(d)) > 8000);
		assert_true(strlen(text) <= LINE_MOST);
	}
}

/* 480 bytes of text go into the small room, however they escape. */
static void few_texts_fit(void **state)
{
	struct desk *d = *state;

	d->names = (struct access_names){ 0 };
	d->x.facts.upstream = d->x.facts.server = NULL;
	d->x.client = d->x.peer = d->x.facts.address =
		ip("2001:db8:1111:2222:3333:4444:5555:6666", 65535);
	d->head.method_text = d->head.scheme = d->head.host = STR_NONE;
	d->head.target = many('\xff', 480);
	assert_has(line_of(d), "\\ufffd\",\"status\"");
	assert_hasnt(text, "\xe2\x80\xa6");
}

static void full_ring_drops(void **state)
{
	struct desk *d = *state;

	for (unsigned i = 0; i < 1000; i++)
		access_log_exchange(d->ring, &d->conf, &d->x, &d->names);
	lines(d);
	assert_true(strlen(text) <= RING);
	assert_ptr_equal(strrchr(text, '\n'), text + strlen(text) - 1);
}

static void refused(void **state)
{
	struct desk *d = *state;
	struct access_refused r = { .wall_us = 1796061600123456,
				    .conn_id = 10,
				    .shard = 3,
				    .peer = &d->x.peer,
				    .why = why(WHY_CLIENT_DENIED),
				    .listener = STR("egress") };

	access_log_refused(d->ring, &d->conf, &r);
	assert_string_equal(
		lines(d),
		"{\"time\":\"2026-11-30T18:00:00.123456Z\",\"kind\":\"refused\",\"conn_id\":\"000000000000000a\",\"shard\":3,"
		"\"listener\":\"egress\",\"peer\":\"192.0.2.7:40000\",\"client\":\"192.0.2.7\",\"status\":403,"
		"\"reused\":false,\"attempts\":0,\"bytes_in\":0,\"bytes_out\":0,\"resolve_ms\":0.000,"
		"\"queue_ms\":0.000,\"connect_ms\":0.000,\"first_byte_ms\":0.000,\"total_ms\":0.000,"
		"\"complete\":false,\"reason\":\"client_denied\"}\n");
	d->conf.format = ACCESS_COMBINED;
	access_log_refused(d->ring, &d->conf, &r);
	assert_string_equal(lines(d),
			    "192.0.2.7 - - [30/Nov/2026:18:00:00 +0000] \"-\" 403 0 \"-\" \"-\"\n");
}

static uint8_t packed[ACCESS_PACKED_MAX];

static const uint8_t *packed_connect(struct desk *d)
{
	uint32_t n;

	d->head = (struct head){ .method = METHOD_CONNECT,
				 .version = 11,
				 .method_text = STR("CONNECT"),
				 .host = STR("h.example"),
				 .port = 443,
				 .target = STR("h.example:443"),
				 .fields = d->fields };
	add_field(d, HDR_USER_AGENT, STR("ssh"));
	d->names = (struct access_names){ .listener = STR("egress") };
	d->x.facts.upstream = d->x.facts.server = NULL;
	n = access_pack(packed, &d->x, &d->names);
	assert_in_range(n, 100, 160);
	/* the exchange and all its memory are gone when the tunnel ends */
	memset(&d->x, 0xa5, sizeof(d->x));
	memset(&d->head, 0xa5, sizeof(d->head));
	memset(d->fields, 0xa5, sizeof(d->fields));
	return packed;
}

static void tunnel(void **state)
{
	struct desk *d = *state;
	const uint8_t *rec = packed_connect(d);
	struct access_end end = { .why = why(WHY_TUNNEL_IDLE),
				  .bytes_in = 80,
				  .bytes_out = 1000000,
				  .end_us = 61000000 };

	access_log_packed(d->ring, &d->conf, rec, &end);
	assert_string_equal(
		lines(d),
		"{\"time\":\"2026-11-30T18:00:00.123456Z\",\"kind\":\"tunnel\",\"conn_id\":\"000000000000001f\","
		"\"request_id\":\"fedcba9876543210\",\"shard\":0,\"listener\":\"egress\",\"peer\":\"192.0.2.7:40000\","
		"\"client\":\"2001:db8::1\",\"proto\":\"HTTP/1.1\",\"method\":\"CONNECT\",\"host\":\"h.example:443\","
		"\"target\":\"h.example:443\",\"status\":200,\"upstream_status\":200,\"address\":\"10.0.0.1:8080\","
		"\"reused\":false,\"attempts\":1,\"bytes_in\":200,\"bytes_out\":1005432,\"resolve_ms\":0.250,"
		"\"queue_ms\":0.000,\"connect_ms\":1.234,\"first_byte_ms\":12.345,\"total_ms\":60000.000,"
		"\"complete\":false,\"reason\":\"tunnel_idle\",\"user_agent\":\"ssh\"}\n");
}

static void tunnel_texts_are_cut(void **state)
{
	struct desk *d = *state;
	struct access_end end = { .why = why(WHY_NONE), .end_us = 61000000 };

	d->head.target = many('a', 1024);
	add_field(d, HDR_USER_AGENT, (struct str){ .p = big, .n = 256 });
	access_pack(packed, &d->x, &d->names);
	access_log_packed(d->ring, &d->conf, packed, &end);
	assert_hasnt(lines(d), "\xe2\x80\xa6");
	assert_has(text, "\"complete\":true,\"user_agent\"");
	d->head.target = many('a', 1025);
	d->fields[0].value_n = 257;
	access_pack(packed, &d->x, &d->names);
	access_log_packed(d->ring, &d->conf, packed, &end);
	assert_has(lines(d), "aa\xe2\x80\xa6\",\"status\"");
	assert_has(text, "aa\xe2\x80\xa6\"}\n");
}

/* As worst_line_fits() does it, and what was packed says the same again. */
static void worst_tunnel_fits(void **state)
{
	struct desk *d = *state;
	struct access_end end = { .why = why(WHY_NONE), .end_us = UINT64_MAX };
	struct str s = many('\xff', 39999);

	d->x.facts.wall_us = INT64_MAX;
	d->x.facts.open_us = 1;
	d->x.facts.resolve_us = d->x.facts.queue_us = d->x.facts.connect_us = UINT64_MAX;
	d->x.facts.bytes_in = UINT64_MAX;
	d->x.facts.status = d->x.facts.upstream_status = d->x.facts.attempts = 65535;
	d->x.facts.address = d->x.peer = d->x.client =
		ip("2001:db8:1111:2222:3333:4444:5555:6666", 65535);
	d->names = (struct access_names){ s, s, s };
	big[39999] = '\0';
	d->x.facts.upstream = d->x.facts.server = big;
	d->head.host = d->head.target = d->head.method_text = s;
	add_field(d, HDR_USER_AGENT, s);
	add_field(d, HDR_REFERER, s);
	assert_in_range(access_pack(packed, &d->x, &d->names), 3400, ACCESS_PACKED_MAX);
	access_log_packed(d->ring, &d->conf, packed, &end);
	assert_has(lines(d), "\"status\":65535,\"upstream_status\":65535,");
	assert_has(text, "[2001:db8:1111:2222:3333:4444:5555:6666]:65535");
	assert_has(text, "\"bytes_in\":18446744073709551615,");
	assert_has(text, "\"connect_ms\":18446744073709551.615,");
}

static void tunnel_hides_query(void **state)
{
	struct desk *d = *state;
	struct access_end end = { .why = why(WHY_NONE), .end_us = 61000000 };

	access_pack(packed, &d->x, &d->names);
	d->conf.query = false;
	access_log_packed(d->ring, &d->conf, packed, &end);
	assert_has(lines(d), "\"target\":\"/a/b\",");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(json_request),
		T(json_without_head),
		T(status_of_none_and_detail),
		T(seconds_move_on),
		T(combined),
		T(texts_are_escaped),
		T(host_as_in_a_uri),
		T(unix_peer),
		T(query_hidden),
		T(no_credentials),
		T(long_target),
		T(worst_line_fits),
		T(few_texts_fit),
		T(full_ring_drops),
		T(refused),
		T(tunnel),
		T(tunnel_texts_are_cut),
		T(worst_tunnel_fits),
		T(tunnel_hides_query),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
