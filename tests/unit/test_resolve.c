/* test_resolve.c -- names to addresses against a scripted name server, on both real back ends
 * (Q01-Q06). */
#include "dns_peer.h"

#include <sys/stat.h>

struct bench {
	struct rig *rig;
	struct dns_peer peer;
	struct addr server[2];
	struct resolver_conf conf;
	struct resolver *res;
	uint64_t cells[RESOLVE_COUNTS + 1];
	char dir[64], hosts[96], resolv[96];
};

struct asked {
	struct resolve *q;
	unsigned calls;
	int res;
	struct answer *answer;
	bool inside;
};

static void on_answer(void *arg, int res, struct answer *a)
{
	struct asked *k = arg;

	assert_false(k->inside);
	k->calls++;
	k->res = res;
	k->q = NULL;
	if (a) {
		answer_ref(a);
		k->answer = a;
	}
}

static const uint32_t slots[RESOLVE_COUNTS] = { 1, 2, 3, 4, 5, 6 };
static uint64_t counted(const struct bench *b, enum resolve_count c)
{
	return b->cells[slots[c]];
}

static void bench_open(struct bench *b, struct rig *r, struct dns_row *rows, unsigned n)
{
	memset(b, 0, sizeof(*b));
	b->rig = r;
	dns_peer_open(&b->peer, rows, n);
	assert_true(addr_parse_ip(STR("127.0.0.1"), b->peer.port, &b->server[0]));
	b->conf = (struct resolver_conf){ .servers = b->server,
					  .n_servers = 1,
					  .timeout_ms = 2000,
					  .attempts = 2,
					  .negative_ttl_ms = 5000,
					  .stale_ms = 3600000,
					  .hosts_path = "",
					  .resolv_path = "" };
}

static void bench_start(struct bench *b)
{
	b->res = resolver_new(b->rig->loop, &b->conf, b->cells, slots);
	assert_non_null(b->res);
}

static void bench_close(struct bench *b)
{
	resolver_free(&b->res);
	dns_peer_close(&b->peer);
	if (b->dir[0]) {
		unlink(b->hosts);
		unlink(b->resolv);
		assert_int_equal(rmdir(b->dir), 0);
	}
}

/* A resolver with these rows, all else as usual. */
#define BENCH(b, state, rows)                               \
	RIG(r, state);                                      \
	struct bench b;                                     \
	bench_open(&b, r, rows, (unsigned)ARRAY_LEN(rows)); \
	bench_start(&b)

static void ask(struct bench *b, struct asked *k, const char *name, unsigned flags)
{
	memset(k, 0, sizeof(*k));
	k->inside = true;
	k->q = resolve_name(b->res, str_of(name), flags, on_answer, k);
	k->inside = false;
	assert_non_null(k->q);
}

static void finish(struct bench *b, struct asked *k)
{
	dns_until(b->rig, &b->peer, k->calls > 0);
	assert_int_equal(k->calls, 1);
}

/* Asks, waits, drops the answer; the result. */
static int result(struct bench *b, const char *name, unsigned flags)
{
	struct asked k;

	ask(b, &k, name, flags);
	finish(b, &k);
	answer_drop(&k.answer);
	return k.res;
}

static const char *ip_text(const struct addr *a)
{
	static char buf[4][64];
	static unsigned turn;
	char *to = buf[turn++ & 3];
	struct out o;

	out_init(&o, to, 63);
	addr_ip_out(&o, a);
	*o.p = '\0';
	return to;
}

static void assert_answer(struct bench *b, const char *name, unsigned flags, const char *first)
{
	struct asked k;

	ask(b, &k, name, flags);
	finish(b, &k);
	assert_int_equal(k.res, 0);
	assert_string_equal(ip_text(&k.answer->addr[0]), first);
	answer_drop(&k.answer);
}

static void pass(struct bench *b, uint64_t until_ms)
{
	while (loop_now_ms(b->rig->loop) < until_ms) {
		loop_turn(b->rig->loop, 20);
		dns_peer_serve(&b->peer);
	}
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	fclose(f);
}

static void bench_files(struct bench *b, const char *hosts, const char *resolv)
{
	strcpy(b->dir, "/tmp/culvert-resolve-XXXXXX");
	assert_non_null(mkdtemp(b->dir));
	snprintf(b->hosts, sizeof(b->hosts), "%s/hosts", b->dir);
	snprintf(b->resolv, sizeof(b->resolv), "%s/resolv.conf", b->dir);
	write_file(b->hosts, hosts);
	write_file(b->resolv, resolv);
	b->conf.hosts_path = b->hosts;
	b->conf.resolv_path = b->resolv;
}

/* --- answers --- */
static void both_families_v6_first(void **state)
{
	struct dns_row rows[] = {
		{ .name = "two.test",
		  .type = DNS_A,
		  .ttl = 60,
		  .ip = { "192.0.2.1", "192.0.2.2" } },
		{ .name = "two.test", .type = DNS_AAAA, .ttl = 30, .ip = { "2001:db8::1" } },
	};
	BENCH(b, state, rows);
	struct asked k;

	ask(&b, &k, "TWO.test", 0);
	finish(&b, &k);
	assert_int_equal(k.res, 0);
	assert_int_equal(k.answer->n, 3);
	assert_string_equal(ip_text(&k.answer->addr[0]), "2001:db8::1");
	assert_string_equal(ip_text(&k.answer->addr[1]), "192.0.2.1");
	assert_string_equal(ip_text(&k.answer->addr[2]), "192.0.2.2");
	assert_int_equal(addr_port(&k.answer->addr[0]), 0);
	assert_in_range(k.answer->expires_ms - loop_now_ms(r->loop), 29000, 30000);
	assert_false(k.answer->stale);
	answer_drop(&k.answer);
	assert_int_equal(counted(&b, RESOLVE_OK), 1);
	bench_close(&b);
}

static void the_cache_answers_until_the_ttl_ends(void **state)
{
	struct dns_row rows[] = {
		{ .name = "a.test", .type = DNS_A, .ttl = 1, .ip = { "192.0.2.1" } },
	};
	BENCH(b, state, rows);

	assert_answer(&b, "a.test", 0, "192.0.2.1");
	rows[0].ip[0] = "192.0.2.9";
	assert_answer(&b, "a.test", 0, "192.0.2.1");
	assert_answer(&b, "a.test.", 0, "192.0.2.1"); /* the same name */
	assert_int_equal(rows[0].asked, 1);
	assert_int_equal(counted(&b, RESOLVE_HIT), 2);
	pass(&b, loop_now_ms(r->loop) + 1001);
	assert_answer(&b, "a.test", 0, "192.0.2.9"); /* Q03 */
	assert_int_equal(rows[0].asked, 2);
	bench_close(&b);
}

static void ttl_has_bounds(void **state)
{
	struct dns_row rows[] = {
		{ .name = "zero.test", .type = DNS_A, .ttl = 0, .ip = { "192.0.2.1" } },
		{ .name = "week.test", .type = DNS_A, .ttl = 604800, .ip = { "192.0.2.1" } },
	};
	BENCH(b, state, rows);
	struct asked k;

	ask(&b, &k, "zero.test", 0);
	finish(&b, &k);
	assert_in_range(k.answer->expires_ms - loop_now_ms(r->loop), 900, 1000);
	answer_drop(&k.answer);
	ask(&b, &k, "week.test", 0);
	finish(&b, &k);
	assert_in_range(k.answer->expires_ms - loop_now_ms(r->loop), 3599000, 3600000);
	answer_drop(&k.answer);
	bench_close(&b);
}

static void an_alias_is_followed_and_its_ttl_counts(void **state)
{
	struct dns_row rows[] = {
		{ .name = "www.test",
		  .type = DNS_A,
		  .ttl = 600,
		  .ip = { "192.0.2.1" },
		  .cname = "host.test",
		  .cname_ttl = 7 },
	};
	BENCH(b, state, rows);
	struct asked k;

	ask(&b, &k, "www.test", 0);
	finish(&b, &k);
	assert_int_equal(k.res, 0);
	assert_string_equal(ip_text(&k.answer->addr[0]), "192.0.2.1");
	assert_in_range(k.answer->expires_ms - loop_now_ms(r->loop), 6000, 7000);
	answer_drop(&k.answer);
	bench_close(&b);
}

static void no_such_name_is_remembered(void **state)
{
	struct dns_row rows[] = {
		{ .name = "empty.test", .type = 16 },
	};
	BENCH(b, state, rows);
	unsigned asked;

	assert_int_equal(result(&b, "none.test", 0), -ENOENT);
	/* it is there, but has no address */
	assert_int_equal(result(&b, "empty.test", 0), -ENOENT);
	asked = b.peer.asked;
	assert_int_equal(result(&b, "none.test", 0), -ENOENT);
	assert_int_equal(result(&b, "empty.test", 0), -ENOENT);
	assert_int_equal(b.peer.asked, asked);
	assert_int_equal(counted(&b, RESOLVE_NXDOMAIN), 2);
	bench_close(&b);
}

/* --- failures --- */
static void servers_that_fail_are_an_error(void **state)
{
	struct dns_row rows[] = {
		{ .name = "a.test", .type = DNS_A, .rcode = 2 },
		{ .name = "a.test", .type = DNS_AAAA, .rcode = 2 },
	};
	BENCH(b, state, rows);

	assert_int_equal(result(&b, "a.test", 0), -EIO);
	assert_int_equal(counted(&b, RESOLVE_ERROR), 1);
	bench_close(&b);
}

static void silence_is_a_timeout(void **state)
{
	struct dns_row rows[] = {
		{ .name = "a.test", .type = DNS_A, .how = DNS_SILENT },
		{ .name = "a.test", .type = DNS_AAAA, .how = DNS_SILENT },
	};
	RIG(r, state);
	struct bench b;

	bench_open(&b, r, rows, 2);
	b.conf.timeout_ms = 60;
	bench_start(&b);
	assert_int_equal(result(&b, "a.test", 0), -ETIMEDOUT);
	assert_true(rows[0].asked >= 2); /* attempts */
	assert_int_equal(counted(&b, RESOLVE_TIMEOUT), 1);
	bench_close(&b);
}

static void one_silent_family_costs_50_ms(void **state)
{
	struct dns_row rows[] = {
		{ .name = "a.test", .type = DNS_A, .ttl = 60, .ip = { "192.0.2.1" } },
		{ .name = "a.test", .type = DNS_AAAA, .how = DNS_SILENT },
	};
	BENCH(b, state, rows);
	uint64_t from = loop_now_ms(r->loop);

	assert_answer(&b, "a.test", 0, "192.0.2.1");
	assert_in_range(loop_now_ms(r->loop) - from, 50, 1000);
	bench_close(&b);
}

static void the_second_server_is_asked(void **state)
{
	struct dns_row rows[] = {
		{ .name = "a.test", .type = DNS_A, .ttl = 60, .ip = { "192.0.2.1" } },
	};
	RIG(r, state);
	struct bench b;
	struct dns_peer silent;

	bench_open(&b, r, rows, 1);
	dns_peer_open(&silent, NULL, 0); /* never served */
	b.server[1] = b.server[0];
	addr_set_port(&b.server[0], silent.port);
	b.conf.n_servers = 2;
	b.conf.timeout_ms = 60;
	bench_start(&b);
	assert_answer(&b, "a.test", 0, "192.0.2.1");
	bench_close(&b);
	dns_peer_close(&silent);
}

/* Q04: nobody listens at first. */
static void a_resolver_recovers(void **state)
{
	struct dns_row rows[] = {
		{ .name = "a.test", .type = DNS_A, .ttl = 60, .ip = { "192.0.2.1" } },
	};
	RIG(r, state);
	struct bench b;
	int udp;

	bench_open(&b, r, rows, 1);
	b.conf.timeout_ms = 50;
	b.conf.negative_ttl_ms = 0;
	bench_start(&b);
	udp = b.peer.udp;
	b.peer.udp = -1;
	close(udp);
	for (int i = 0; i < 10; i++) /* enough for a new channel */
		assert_int_not_equal(result(&b, "a.test", 0), 0);
	b.peer.udp = dns_peer_bind(SOCK_DGRAM, &b.peer.port);
	assert_true(b.peer.udp >= 0);
	assert_answer(&b, "a.test", 0, "192.0.2.1");
	bench_close(&b);
}

static void stale_answers_when_servers_fail(void **state)
{
	struct dns_row rows[] = {
		{ .name = "a.test", .type = DNS_A, .ttl = 1, .ip = { "192.0.2.1" } },
		{ .name = "a.test", .type = DNS_AAAA },
	};
	BENCH(b, state, rows);
	struct asked k;
	unsigned asked;

	assert_answer(&b, "a.test", 0, "192.0.2.1");
	rows[0].rcode = rows[1].rcode = 2;
	pass(&b, loop_now_ms(r->loop) + 1001);
	ask(&b, &k, "a.test", 0);
	finish(&b, &k);
	assert_int_equal(k.res, 0);
	assert_true(k.answer->stale);
	answer_drop(&k.answer);
	asked = b.peer.asked;
	assert_answer(&b, "a.test", 0, "192.0.2.1"); /* for negative_ttl nobody is asked */
	assert_int_equal(b.peer.asked, asked);
	assert_int_equal(counted(&b, RESOLVE_STALE), 2);
	bench_close(&b);
}

static void stale_answers_when_servers_are_silent(void **state)
{
	struct dns_row rows[] = {
		{ .name = "a.test", .type = DNS_A, .ttl = 1, .ip = { "192.0.2.1" } },
		{ .name = "a.test", .type = DNS_AAAA },
	};
	BENCH(b, state, rows);
	struct asked k;

	assert_answer(&b, "a.test", 0, "192.0.2.1");
	rows[0].how = rows[1].how = DNS_SILENT;
	pass(&b, loop_now_ms(r->loop) + 1001);
	ask(&b, &k, "a.test", 0);
	finish(&b, &k); /* after a second, long before the deadline of 4 s */
	assert_true(k.answer->stale);
	answer_drop(&k.answer);
	ask(&b, &k, "a.test", 0);
	loop_turn(r->loop, 0);
	assert_int_equal(k.calls, 1); /* and then at once */
	answer_drop(&k.answer);
	bench_close(&b);
}

/* NXDOMAIN is an answer; the operator's own names keep their last good one all the same. */
static void a_name_that_goes(void **state)
{
	struct dns_row rows[] = {
		{ .name = "a.test", .type = DNS_A, .ttl = 1, .ip = { "192.0.2.1" } },
		{ .name = "a.test", .type = DNS_AAAA },
	};
	BENCH(b, state, rows);

	assert_answer(&b, "a.test", 0, "192.0.2.1");
	rows[0].rcode = rows[1].rcode = 3;
	pass(&b, loop_now_ms(r->loop) + 1001);
	assert_int_equal(result(&b, "a.test", 0), -ENOENT);
	assert_answer(&b, "a.test", RESOLVE_SEARCH, "192.0.2.1");
	bench_close(&b);
}

/* --- Q05, Q02, Q01 --- */
static void truncated_means_tcp(void **state)
{
	struct dns_row rows[] = {
		{ .name = "big.test",
		  .type = DNS_A,
		  .ttl = 60,
		  .ip = { "192.0.2.1" },
		  .how = DNS_TRUNCATE },
	};
	BENCH(b, state, rows);

	assert_answer(&b, "big.test", 0, "192.0.2.1");
	assert_int_equal(rows[0].asked_tcp, 1);
	bench_close(&b);
}

static void spoofed_answers_are_ignored(void **state)
{
	struct dns_row rows[] = {
		{ .name = "id.test",
		  .type = DNS_A,
		  .ttl = 60,
		  .ip = { "192.0.2.2" },
		  .how = DNS_SPOOF_ID },
		{ .name = "question.test",
		  .type = DNS_A,
		  .ttl = 60,
		  .ip = { "192.0.2.4" },
		  .how = DNS_SPOOF_QUESTION },
		{ .name = "source.test",
		  .type = DNS_A,
		  .ttl = 60,
		  .ip = { "192.0.2.6" },
		  .how = DNS_SPOOF_SOURCE },
	};
	BENCH(b, state, rows);

	assert_answer(&b, "id.test", 0, "192.0.2.2");
	assert_answer(&b, "question.test", 0, "192.0.2.4");
	assert_answer(&b, "source.test", 0, "192.0.2.6");
	bench_close(&b);
}

static void broken_packets_end_in_an_error(void **state)
{
	static const struct {
		const void *p;
		unsigned n, count;
	} raw[] = {
		{ "", 0, 1 },                                  /* a record that is not there */
		{ "\xc0\x0c\0\1\0\1\0\0\0\1\0\4\1\2", 14, 1 }, /* rdata cut */
		/* a name that points to itself */
		{ "\xc0\x1a\0\1\0\1\0\0\0\1\0\4\1\2\3\4", 16, 1 },
		{ "\xff\xff\0\1\0\1\0\0\0\1\0\4\1\2\3\4", 16, 1 },   /* beyond the end */
		{ "\x80\0\1\0\1\0\0\0\1\0\4\1\2\3\4", 15, 1 },       /* label type 10 */
		{ "\xc0\x0c\0\1\0\1\0\0\0\1\0\5\1\2\3\4\5", 17, 1 }, /* an A of 5 bytes */
		{ "\xc0\x0c\0\1\0\1\0\0\0\1\xff\xff\1\2\3\4", 16, 1 },
		{ "\xc0\x0c\0\1\0\1\0\0\0\1\0\4\1\2\3\4", 16, 65535 },
	};
	struct dns_row rows[] = {
		{ .name = "a.test", .type = DNS_A, .how = DNS_RAW },
		{ .name = "a.test", .type = DNS_AAAA },
	};
	RIG(r, state);
	struct bench b;

	bench_open(&b, r, rows, 2);
	b.conf.timeout_ms = 40;
	b.conf.negative_ttl_ms = 0;
	bench_start(&b);
	for (size_t i = 0; i < ARRAY_LEN(raw); i++) {
		rows[0].raw = raw[i].p;
		rows[0].raw_n = raw[i].n;
		rows[0].raw_count = raw[i].count;
		assert_int_not_equal(result(&b, "a.test", 0), 0);
	}
	bench_close(&b);
}

/* --- questions --- */
static void one_flight_for_all(void **state)
{
	struct dns_row rows[] = {
		{ .name = "a.test", .type = DNS_A, .ttl = 60, .ip = { "192.0.2.1" } },
		{ .name = "a.test", .type = DNS_AAAA },
	};
	BENCH(b, state, rows);
	struct asked k[4];

	for (int i = 0; i < 4; i++)
		ask(&b, &k[i], i & 1 ? "a.test" : "A.TEST.", 0);
	resolve_cancel(&k[2].q);
	for (int i = 0; i < 4; i++)
		if (i != 2)
			finish(&b, &k[i]);
	assert_int_equal(k[2].calls, 0);
	assert_int_equal(rows[0].asked, 1);
	assert_int_equal(rows[1].asked, 1);
	for (int i = 0; i < 4; i++)
		answer_drop(&k[i].answer);
	bench_close(&b);
}

static void a_decided_question_can_be_cancelled(void **state)
{
	struct dns_row rows[] = {
		{ .name = "a.test", .type = DNS_A, .ttl = 60, .ip = { "192.0.2.1" } },
	};
	BENCH(b, state, rows);
	struct asked k;

	assert_answer(&b, "a.test", 0, "192.0.2.1");
	ask(&b, &k, "a.test", 0); /* the cache has it */
	resolve_cancel(&k.q);
	for (int i = 0; i < 3; i++)
		loop_turn(r->loop, 1);
	assert_int_equal(k.calls, 0);
	bench_close(&b);
}

static void freeing_cancels(void **state)
{
	struct dns_row rows[] = {
		{ .name = "a.test", .type = DNS_A, .how = DNS_SILENT },
		{ .name = "b.test", .type = DNS_A, .ttl = 60, .ip = { "192.0.2.1" } },
	};
	BENCH(b, state, rows);
	struct asked k[3];

	assert_answer(&b, "b.test", 0, "192.0.2.1");
	ask(&b, &k[0], "a.test", 0); /* on its way */
	loop_turn(r->loop, 1);
	ask(&b, &k[1], "c.test", 0); /* not asked yet */
	ask(&b, &k[2], "b.test", 0); /* decided, not told */
	resolver_free(&b.res);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(k[i].calls, 1);
		assert_int_equal(k[i].res, -ECANCELED);
		assert_null(k[i].answer);
	}
	bench_close(&b);
}

static void fresh_asks_again_once_a_second(void **state)
{
	struct dns_row rows[] = {
		{ .name = "a.test", .type = DNS_A, .ttl = 60, .ip = { "192.0.2.1" } },
	};
	BENCH(b, state, rows);

	assert_answer(&b, "a.test", 0, "192.0.2.1");
	rows[0].ip[0] = "192.0.2.2";
	assert_answer(&b, "a.test", RESOLVE_FRESH, "192.0.2.1"); /* it was asked just now */
	assert_int_equal(rows[0].asked, 1);
	pass(&b, loop_now_ms(r->loop) + 1001);
	assert_answer(&b, "a.test", RESOLVE_FRESH, "192.0.2.2");
	assert_int_equal(rows[0].asked, 2);
	bench_close(&b);
}

/* --- names --- */
static void what_is_no_name_is_not_asked(void **state)
{
	static const char *const bad[] = {
		"",          ".",          "..",
		"a..b",      ".a",         "a b",
		"a/b",       "a\r\nb",     "caf\xc3\xa9.test",
		"a\\.b",     "127.1",      "2130706433",
		"0x7f.1",    "0x7f000001", "017700000001",
		"1.2.3.4.5", "*.test",     "x.invalid",
		"y.onion",
	};
	struct dns_row rows[1] = { { .name = "a.test" } };
	BENCH(b, state, rows);
	char longest[256];

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(result(&b, bad[i], 0), -ENOENT);
	memset(longest, 'a', sizeof(longest));
	for (int i = 50; i < 253; i += 51)
		longest[i] = '.';
	longest[254] = '\0';
	assert_int_equal(result(&b, longest, 0), -ENOENT);
	assert_int_equal(b.peer.asked, 0);
	longest[64] = 'a';
	longest[50] = 'a';
	longest[80] = '\0'; /* a label of 80 */
	assert_int_equal(result(&b, longest, 0), -ENOENT);
	assert_int_equal(b.peer.asked, 0);
	bench_close(&b);
}

static void names_at_their_limits_are_asked(void **state)
{
	char longest[256], label[80];
	struct dns_row rows[] = {
		{ .name = longest, .type = DNS_A, .ttl = 9, .ip = { "192.0.2.1" } },
		{ .name = "_x-1._tcp.a_b.test", .type = DNS_A, .ttl = 9, .ip = { "192.0.2.2" } },
		{ .name = label, .type = DNS_A, .ttl = 9, .ip = { "192.0.2.3" } },
	};
	BENCH(b, state, rows);

	memset(longest, 'a', sizeof(longest));
	for (int i = 50; i < 253; i += 51)
		longest[i] = '.';
	longest[253] = '\0';
	memset(label, 'b', 63);
	strcpy(label + 63, ".test");
	assert_answer(&b, longest, 0, "192.0.2.1");
	assert_answer(&b, "_x-1._tcp.a_b.test", 0, "192.0.2.2");
	assert_answer(&b, label, 0, "192.0.2.3");
	bench_close(&b);
}

static void localhost_is_never_asked(void **state)
{
	struct dns_row rows[1] = { { .name = "a.test" } };
	BENCH(b, state, rows);
	static const char *const names[] = { "localhost", "LocalHost.", "a.b.localhost" };
	struct asked k;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		ask(&b, &k, names[i], 0);
		finish(&b, &k);
		assert_int_equal(k.answer->n, 2);
		assert_true(addr_is_loopback(&k.answer->addr[0]));
		assert_true(addr_is_loopback(&k.answer->addr[1]));
		answer_drop(&k.answer);
	}
	assert_int_equal(b.peer.asked, 0);
	assert_int_equal(result(&b, "notlocalhost", 0), -ENOENT);
	assert_int_equal(b.peer.asked, 2);
	bench_close(&b);
}

static void the_hosts_file_comes_first_and_is_read_anew(void **state)
{
	struct dns_row rows[] = {
		{ .name = "db.test", .type = DNS_A, .ttl = 60, .ip = { "192.0.2.99" } },
	};
	RIG(r, state);
	struct bench b;
	struct asked k;

	bench_open(&b, r, rows, 1);
	bench_files(&b,
		    "# comment\n\n127.0.0.1 localhost\n10.0.0.1\tDB.test db # the data base\n"
		    "fd00::1 db.test\nnonsense\n1.2.3 x.test\n10.0.0.2 last.test.",
		    "");
	bench_start(&b);
	ask(&b, &k, "db.Test", 0);
	finish(&b, &k);
	assert_int_equal(k.answer->n, 2);
	assert_string_equal(ip_text(&k.answer->addr[0]), "10.0.0.1");
	assert_string_equal(ip_text(&k.answer->addr[1]), "fd00::1");
	answer_drop(&k.answer);
	assert_answer(&b, "db", 0, "10.0.0.1");
	assert_answer(&b, "last.test", 0, "10.0.0.2");
	assert_int_equal(b.peer.asked, 0);
	write_file(b.hosts, "10.0.0.7 db.test\n");
	pass(&b, loop_now_ms(r->loop) + 1001);
	assert_answer(&b, "db.test", 0, "10.0.0.7");
	unlink(b.hosts);
	pass(&b, loop_now_ms(r->loop) + 1001);
	assert_answer(&b, "db.test", 0, "192.0.2.99");
	bench_close(&b);
}

static void the_search_list_is_for_own_names_only(void **state)
{
	struct dns_row rows[] = {
		{ .name = "db.b.test", .type = DNS_A, .ttl = 60, .ip = { "192.0.2.1" } },
		{ .name = "x.y.a.test", .type = DNS_A, .ttl = 60, .ip = { "192.0.2.2" } },
		{ .name = "x.y", .type = DNS_A, .ttl = 60, .ip = { "192.0.2.3" } },
		{ .name = "top", .type = DNS_A, .ttl = 60, .ip = { "192.0.2.4" } },
	};
	RIG(r, state);
	struct bench b;

	bench_open(&b, r, rows, 4);
	bench_files(&b, "", "search old.test\nsearch A.test. b.test\noptions ndots:1 rotate\n");
	bench_start(&b);
	assert_answer(&b, "db", RESOLVE_SEARCH, "192.0.2.1"); /* db.a.test is not there */
	assert_int_equal(result(&b, "db", 0), -ENOENT);
	assert_int_equal(result(&b, "db.", RESOLVE_SEARCH), -ENOENT);
	assert_answer(&b, "x.y", RESOLVE_SEARCH, "192.0.2.3"); /* as it is first: it has a dot */
	assert_answer(&b, "top", RESOLVE_SEARCH, "192.0.2.4"); /* as it is last */
	assert_answer(&b, "top", 0, "192.0.2.4");
	bench_close(&b);
}

static void servers_come_from_resolv_conf(void **state)
{
	struct dns_row rows[1] = { { .name = "a.test" } };
	RIG(r, state);
	struct bench b;

	bench_open(&b, r, rows, 1);
	bench_files(&b, "", "nameserver 127.0.0.1\n");
	b.conf.n_servers = 0;
	b.conf.timeout_ms = 30;
	b.conf.attempts = 1;
	bench_start(&b); /* port 53 of 127.0.0.1: nobody, or somebody who knows no such name */
	assert_int_not_equal(result(&b, "no.such.name.culvert-test.test", 0), 0);
	bench_close(&b);
}

/* --- fakes and bounds --- */
struct fake {
	unsigned asked;
	struct resolver *res;
	bool answers;
};

static void on_fake(void *arg, struct str name)
{
	struct fake *f = arg;
	struct addr a;

	f->asked++;
	assert_true(addr_parse_ip(STR("192.0.2.5"), 0, &a));
	if (f->answers)
		resolver_fake_answer(f->res, name, 0, &a, 1, 60);
}

static void a_fake_answers_from_inside_or_later(void **state)
{
	struct dns_row rows[1] = { { .name = "a.test" } };
	BENCH(b, state, rows);
	struct fake f = { .res = b.res, .answers = true };
	struct asked k;

	resolver_fake(b.res, on_fake, &f);
	assert_answer(&b, "a.test", 0, "192.0.2.5");
	assert_answer(&b, "a.test", 0, "192.0.2.5");
	assert_int_equal(f.asked, 1);
	f.answers = false;
	ask(&b, &k, "b.test", 0);
	loop_turn(r->loop, 1);
	assert_int_equal(f.asked, 2);
	assert_int_equal(k.calls, 0);
	resolver_fake_answer(b.res, STR("b.test"), -ENOENT, NULL, 0, 0);
	finish(&b, &k);
	assert_int_equal(k.res, -ENOENT);
	bench_close(&b);
}

static void cache_and_flights_are_bounded(void **state)
{
	struct dns_row rows[1] = { { .name = "a.test" } };
	BENCH(b, state, rows);
	struct fake f = { .res = b.res, .answers = true };
	struct asked *many = calloc(300, sizeof(*many));
	struct addr a;
	char name[32];

	assert_non_null(many);
	resolver_fake(b.res, on_fake, &f);
	for (int i = 0; i < 4200; i++) {
		snprintf(name, sizeof(name), "n%d.test", i);
		assert_answer(&b, name, 0, "192.0.2.5");
	}
	assert_answer(&b, "n4199.test", 0, "192.0.2.5");
	assert_int_equal(f.asked, 4200);
	assert_answer(&b, "n0.test", 0, "192.0.2.5"); /* the oldest had gone */
	assert_int_equal(f.asked, 4201);
	f.answers = false;
	f.asked = 0;
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "m%d.test", i);
		ask(&b, &many[i], name, 0);
	}
	loop_turn(r->loop, 1);
	assert_int_equal(f.asked, 256);
	assert_true(addr_parse_ip(STR("192.0.2.5"), 0, &a));
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "m%d.test", i);
		resolver_fake_answer(b.res, str_of(name), 0, &a, 1, 60);
		loop_turn(r->loop, 0);
	}
	for (int i = 0; i < 300; i++) {
		finish(&b, &many[i]);
		answer_drop(&many[i].answer);
	}
	assert_int_equal(f.asked, 300);
	free(many);
	bench_close(&b);
}

static uint64_t booked(const struct bench *b)
{
	struct budget *of = loop_budget(b->rig->loop);

	return atomic_load(&of->pool[budget_pool(of, "resolver")].held);
}

static void ask_for_names(struct bench *b, unsigned from, unsigned to)
{
	char name[32];

	for (unsigned i = from; i < to; i++) {
		snprintf(name, sizeof(name), "n%u.test", i);
		assert_answer(b, name, 0, "192.0.2.5");
	}
}

static void all_of_it_is_booked(void **state)
{
	struct dns_row rows[1] = { { .name = "a.test" } };
	BENCH(b, state, rows);
	struct fake f = { .res = b.res, .answers = true };
	uint64_t each;
	struct asked k;

	resolver_fake(b.res, on_fake, &f);
	assert_int_equal(booked(&b), 0);
	ask_for_names(&b, 0, 1);
	each = booked(&b);
	assert_true(each > sizeof(struct answer));
	ask_for_names(&b, 1, 50);
	assert_int_equal(booked(&b), 50 * each);
	f.answers = false;
	ask(&b, &k, "later.test", 0);
	loop_turn(r->loop, 1);
	/* a question and its flight are larger than an answer */
	assert_true(booked(&b) > 51 * each);
	resolve_cancel(&k.q);
	assert_true(booked(&b) > 50 * each);
	resolver_fake_answer(b.res, STR("later.test"), -ENOENT, NULL, 0, 0);
	loop_turn(r->loop, 1);
	assert_true(booked(&b) < 51 * each);
	resolver_free(&b.res);
	assert_int_equal(booked(&b), 0);
	bench_close(&b);
}

/* The cache gives way before anything of the shard is refused, the oldest names first; but not the
 * name that is being asked for. */
static void the_cache_gives_memory_back(void **state)
{
	struct dns_row rows[1] = { { .name = "a.test" } };
	BENCH(b, state, rows);
	struct fake f = { .res = b.res, .answers = true };
	struct budget *all = &r->budget;
	uint64_t each, full, max = all->max;
	struct slab slab;
	void *p;

	resolver_fake(b.res, on_fake, &f);
	ask_for_names(&b, 0, 1);
	each = booked(&b);
	ask_for_names(&b, 1, 200);
	full = booked(&b);
	slab_init(&slab, "test", 4096, loop_budget(r->loop));
	all->max = atomic_load(&all->used) + 4096 * 16 - 5 * each - 1;
	p = slab_get(&slab);
	assert_non_null(p);
	assert_int_equal(booked(&b), full - 6 * each);
	f.asked = 0;
	all->max = max;
	ask_for_names(&b, 6, 200);
	assert_int_equal(f.asked, 0);
	ask_for_names(&b, 5, 6);
	assert_int_equal(f.asked, 1);
	/* with room for one name and its question, questions go on */
	all->max = atomic_load(&all->used);
	ask_for_names(&b, 300, 500);
	assert_true(atomic_load(&all->used) <= all->max);
	/* with no room for a question they fail, and the cache is empty */
	all->max = atomic_load(&all->used) - booked(&b) + 10;
	assert_null(resolve_name(b.res, STR("n499.test"), 0, on_answer, NULL));
	assert_int_equal(booked(&b), 0);
	all->max = max;
	ask_for_names(&b, 499, 500);
	slab_put(&slab, p);
	slab_close(&slab);
	bench_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(both_families_v6_first),
		RIG_TEST(the_cache_answers_until_the_ttl_ends),
		RIG_TEST(ttl_has_bounds),
		RIG_TEST(an_alias_is_followed_and_its_ttl_counts),
		RIG_TEST(no_such_name_is_remembered),
		RIG_TEST(servers_that_fail_are_an_error),
		RIG_TEST(silence_is_a_timeout),
		RIG_TEST(one_silent_family_costs_50_ms),
		RIG_TEST(the_second_server_is_asked),
		RIG_TEST(a_resolver_recovers),
		RIG_TEST(stale_answers_when_servers_fail),
		RIG_TEST(stale_answers_when_servers_are_silent),
		RIG_TEST(a_name_that_goes),
		RIG_TEST(truncated_means_tcp),
		RIG_TEST(spoofed_answers_are_ignored),
		RIG_TEST(broken_packets_end_in_an_error),
		RIG_TEST(one_flight_for_all),
		RIG_TEST(a_decided_question_can_be_cancelled),
		RIG_TEST(freeing_cancels),
		RIG_TEST(fresh_asks_again_once_a_second),
		RIG_TEST(what_is_no_name_is_not_asked),
		RIG_TEST(names_at_their_limits_are_asked),
		RIG_TEST(localhost_is_never_asked),
		RIG_TEST(the_hosts_file_comes_first_and_is_read_anew),
		RIG_TEST(the_search_list_is_for_own_names_only),
		RIG_TEST(servers_come_from_resolv_conf),
		RIG_TEST(a_fake_answers_from_inside_or_later),
		RIG_TEST(cache_and_flights_are_bounded),
		RIG_TEST(all_of_it_is_booked),
		RIG_TEST(the_cache_gives_memory_back),
	};

	return cmocka_run_group_tests_name("resolve", tests, NULL, NULL);
}
