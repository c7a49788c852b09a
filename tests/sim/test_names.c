/* Names, in time: how long their servers are waited for, how long answers and refusals are
 * remembered, and when they are asked again.  The resolver is the real one; the name servers behind
 * it are played here. */
#include "scene.h"

#define door door_of_serve /* world.h has one of its own */
#include "serve/priv.h"
#undef door

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>

#define SILENT 1 /* no res: no answer comes */

struct names {
	struct scene sc;
	unsigned asked;
	int res; /* what is answered: 0, -errno, SILENT */
	const char *addr[3];
	uint32_t ttl_s;
	uint64_t after_us;
	char name[64];
};

static void answer(void *arg)
{
	struct names *n = arg;
	struct addr a[3] = { 0 };
	uint32_t k = 0;

	for (; n->res == 0 && k < 3 && n->addr[k]; k++)
		must(addr_parse_ip(str_of(n->addr[k]), 0, &a[k]));
	resolver_fake_answer(n->sc.w.service->resolver, str_of(n->name), n->res, a, k, n->ttl_s);
}

static void on_question(void *arg, struct str name)
{
	struct names *n = arg;

	n->asked++;
	must(name.n < sizeof(n->name));
	memcpy(n->name, name.p, name.n);
	n->name[name.n] = 0;
	if (n->res != SILENT)
		sim_at(n->sc.w.sim, n->after_us ? n->after_us : 100, answer, n);
}

/* Answers with SERVER_1, for ten seconds. */
static void names_open(struct names *n, const char *resolver, const char *more)
{
	char text[300];
	struct knobs k = { .servers = "\"http://app.test:80\"", .more = text };

	snprintf(text, sizeof(text), "resolver: { servers: [10.1.0.53]%s }\n%s", resolver, more);
	memset(n, 0, sizeof(*n));
	scene_open(&n->sc, &k);
	n->addr[0] = SERVER_1;
	n->ttl_s = 10;
	resolver_fake(n->sc.w.service->resolver, on_question, n);
}

static void names_close(struct names *n)
{
	scene_close(&n->sc);
}

/* A request, by the forward direction; whose connection is not pooled.  The line it left. */
static const char *get(struct names *n)
{
	struct scene *sc = &n->sc;

	sc->c = world_call(&sc->w, FWD);
	scene_call(sc, "GET http://x.test/ HTTP/1.1\r\nHost: x.test\r\nConnection: close\r\n\r\n");
	run_until(&sc->w, sc->c->eof || scene_asked(sc));
	if (!sc->c->eof) {
		world_eat_all(sc->s);
		scene_says(sc, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
		run_until(&sc->w, sc->c->eof);
	}
	return world_line(&sc->w);
}

static void must_get(struct names *n, const char *status, const char *reason)
{
	const char *line = get(n);

	if (strcmp(world_logged(line, "status"), status) != 0 ||
	    strcmp(world_logged(line, "reason"), reason) != 0)
		fail_msg("not %s %s: %s", status, reason, line);
}

static void until(struct names *n, uint64_t ms)
{
	struct world *w = &n->sc.w;

	world_pass(w, ms * 1000 - (sim_now_us(w->sim) - w->began_us));
}

/* ---------------------------------------------------------------- waiting */
static const struct silence {
	const char *name;
	const char *resolver, *more;
	enum door door;
	const char *request;
	uint64_t ms;
	const char *status, *reason;
} silences[] = {
	{ "no answer: a target", "", "", FWD, "GET http://x.test/ HTTP/1.1\r\nHost: x.test\r\n\r\n",
	  4050, "504", "dns_timeout" },
	{ "no answer: CONNECT", "", "", FWD,
	  "CONNECT x.test:443 HTTP/1.1\r\nHost: x.test:443\r\n\r\n", 4050, "504", "dns_timeout" },
	{ "no answer: a server's name", "", "", WEB, GET, 4050, "503", "no_server" },
	{ "no answer: as timeout and attempts are set", ", timeout: 300ms, attempts: 3", "", FWD,
	  "GET http://x.test/ HTTP/1.1\r\nHost: x.test\r\n\r\n", 950, "504", "dns_timeout" },
	{ "no answer: connect ends it before", "", "timeouts: { connect: 1s }", FWD,
	  "GET http://x.test/ HTTP/1.1\r\nHost: x.test\r\n\r\n", 1000, "504", "dns_timeout" },
};

static void a_silence(void **state)
{
	const struct silence *s = *state;
	struct names n;

	names_open(&n, s->resolver, s->more);
	n.res = SILENT;
	n.sc.door = s->door;
	world_mark(&n.sc.w);
	scene_call(&n.sc, s->request);
	must_ring(&n.sc, world_head(n.sc.c), s->ms);
	scene_page(&n.sc, (unsigned)strtoul(s->status, NULL, 10), false);
	scene_log(&n.sc, s->status, s->reason, true);
	assert_int_equal(n.asked, 1);
	names_close(&n);
}

/* Resolving takes its part of `connect`. */
static void connect_covers_resolving_and_all_addresses(void **state)
{
	struct names n;

	(void)state;
	names_open(&n, "", "");
	n.after_us = SECONDS(2);
	n.addr[1] = SERVER_2;
	scene_server(&n.sc, 1, SIM_SILENT);
	scene_server(&n.sc, 2, SIM_SILENT);
	n.sc.door = FWD;
	world_mark(&n.sc.w);
	scene_call(&n.sc, "GET http://x.test/ HTTP/1.1\r\nHost: x.test\r\n\r\n");
	must_ring(&n.sc, world_head(n.sc.c), 5000);
	scene_page(&n.sc, 504, false);
	scene_log(&n.sc, "504", "connection_timeout", true);
	assert_int_equal(sim_sockets(n.sc.w.sim), DOORS + 1);
	names_close(&n);
}

static void the_next_address_is_tried_after_250_ms(void **state)
{
	struct names n;

	(void)state;
	names_open(&n, "", "");
	n.addr[1] = SERVER_2;
	scene_server(&n.sc, 1, SIM_SILENT);
	world_mark(&n.sc.w);
	scene_call(&n.sc, GET);
	must_ring(&n.sc, scene_asked(&n.sc), 250);
	assert_int_equal(n.sc.at, 2);
	assert_int_equal(sim_sockets(n.sc.w.sim), DOORS + 2);
	scene_says(&n.sc, OKAY);
	scene_log(&n.sc, "200", "", true);
	names_close(&n);
}

static void the_next_address_is_tried_at_once_when_one_refuses(void **state)
{
	struct names n;

	(void)state;
	names_open(&n, "", "");
	n.addr[1] = SERVER_2;
	scene_server(&n.sc, 1, SIM_REFUSES);
	world_mark(&n.sc.w);
	scene_call(&n.sc, GET);
	must_ring(&n.sc, scene_asked(&n.sc), 0);
	assert_int_equal(n.sc.at, 2);
	scene_says(&n.sc, OKAY);
	scene_log(&n.sc, "200", "", true);
	names_close(&n);
}

static void the_family_that_prefer_names_goes_first(void **state)
{
	static const struct {
		const char *resolver;
		uint64_t ms;
	} rows[] = { { "", 250 }, { ", prefer: ipv6", 250 }, { ", prefer: ipv4", 0 } };
	struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_port = htons(80) };

	(void)state;
	must(inet_pton(AF_INET6, "fd00::1", &at.sin6_addr) == 1);
	for (unsigned i = 0; i < ARRAY_LEN(rows); i++) {
		struct names n;

		names_open(&n, rows[i].resolver, "");
		sim_answer(n.sc.w.sim, (struct sockaddr *)&at, sizeof(at), SIM_SILENT, NULL, NULL);
		n.addr[0] = "fd00::1";
		n.addr[1] = SERVER_1;
		world_mark(&n.sc.w);
		scene_call(&n.sc, GET);
		must_ring(&n.sc, scene_asked(&n.sc), rows[i].ms);
		scene_says(&n.sc, OKAY);
		scene_log(&n.sc, "200", "", true);
		names_close(&n);
	}
}

static bool is_up(struct names *n)
{
	return world_metric(&n->sc.w, "culvert_upstream_server_up{upstream=\"app\","
				      "server=\"http://app.test:80\"}") == 1;
}

static void a_server_without_an_address_is_down(void **state)
{
	struct names n;

	(void)state;
	names_open(&n, ", negative_ttl: off", "");
	assert_true(is_up(&n));
	n.res = -ENOENT;
	scene_call(&n.sc, GET);
	run_until(&n.sc.w, world_head(n.sc.c) == 503);
	scene_log(&n.sc, "503", "no_server", true);
	assert_false(is_up(&n));
	n.res = 0;
	n.sc.c = NULL;
	scene_ask(&n.sc, GET);
	assert_true(is_up(&n));
	scene_says(&n.sc, OKAY);
	scene_log(&n.sc, "200", "", true);
	names_close(&n);
}

/* ---------------------------------------------------------------- remembering */
static void an_answer_is_kept_for_its_ttl(void **state)
{
	struct names n;

	(void)state;
	names_open(&n, "", "");
	world_mark(&n.sc.w);
	must_get(&n, "200", "");
	until(&n, 9990);
	must_get(&n, "200", "");
	assert_int_equal(n.asked, 1);
	until(&n, 10003);
	must_get(&n, "200", "");
	assert_int_equal(n.asked, 2);
	names_close(&n);
}

static void a_refusal_is_kept_for_negative_ttl(void **state)
{
	struct names n;

	(void)state;
	names_open(&n, "", "");
	n.res = -ENOENT;
	world_mark(&n.sc.w);
	must_get(&n, "502", "dns_error");
	n.res = 0;
	until(&n, 4990);
	must_get(&n, "502", "dns_error");
	assert_int_equal(n.asked, 1);
	until(&n, 5003);
	must_get(&n, "200", "");
	assert_int_equal(n.asked, 2);
	names_close(&n);
}

static void a_refusal_is_not_kept_when_negative_ttl_is_off(void **state)
{
	struct names n;

	(void)state;
	names_open(&n, ", negative_ttl: off", "");
	n.res = -ENOENT;
	must_get(&n, "502", "dns_error");
	must_get(&n, "502", "dns_error");
	assert_int_equal(n.asked, 2);
	names_close(&n);
}

/* ---------------------------------------------------------------- stale */
static void a_stale_answer_serves_while_the_servers_fail(void **state)
{
	struct names n;

	(void)state;
	names_open(&n, ", stale: 20m", "");
	world_mark(&n.sc.w);
	must_get(&n, "200", "");
	n.res = -EIO;
	until(&n, 11000);
	must_get(&n, "200", "");
	assert_int_equal(n.asked, 2);
	until(&n, 15900); /* the failure is remembered as long as a refusal */
	must_get(&n, "200", "");
	assert_int_equal(n.asked, 2);
	until(&n, 16100);
	must_get(&n, "200", "");
	assert_int_equal(n.asked, 3);
	until(&n, 10000 + 20 * 60000 - 50);
	must_get(&n, "200", "");
	until(&n, 10000 + 20 * 60000 + 10000);
	must_get(&n, "502", "dns_error");
	n.res = 0;
	world_pass(&n.sc.w, SECONDS(5));
	must_get(&n, "200", "");
	names_close(&n);
}

static void a_stale_answer_serves_after_a_second_of_silence(void **state)
{
	struct names n;

	(void)state;
	names_open(&n, "", "");
	must_get(&n, "200", "");
	n.res = SILENT;
	world_pass(&n.sc.w, SECONDS(11));
	world_mark(&n.sc.w);
	must_get(&n, "200", "");
	scene_rang(&n.sc, 1000, 5, __FILE__, __LINE__, "a second of silence");
	world_mark(&n.sc.w);
	must_get(&n, "200", ""); /* and now at once */
	scene_rang(&n.sc, 0, 5, __FILE__, __LINE__, "no further wait");
	assert_int_equal(n.asked, 2);
	names_close(&n);
}

static void nothing_stale_is_served_when_that_is_off(void **state)
{
	struct names n;

	(void)state;
	names_open(&n, ", stale: off", "");
	must_get(&n, "200", "");
	n.res = -EIO;
	world_pass(&n.sc.w, SECONDS(11));
	must_get(&n, "502", "dns_error");
	names_close(&n);
}

/* NXDOMAIN is an answer: a target's name is gone, an operator's own server is kept. */
static void a_name_that_is_gone_is_gone_but_for_servers(void **state)
{
	struct names n;

	(void)state;
	names_open(&n, "", "timeouts: { upstream_keep_alive: 1s }");
	must_get(&n, "200", "");
	n.sc.c = NULL;
	scene_round(&n.sc);
	n.res = -ENOENT;
	world_pass(&n.sc.w, SECONDS(11));
	scene_round(&n.sc);
	sim_fin(n.sc.c);
	must_get(&n, "502", "dns_error");
	names_close(&n);
}

/* ---------------------------------------------------------------- asking again */
static void try_server(struct names *n, unsigned status)
{
	scene_call(&n->sc, GET);
	run_until(&n->sc.w, world_head(n->sc.c) || scene_asked(&n->sc));
	if (!world_head(n->sc.c)) {
		world_eat_all(n->sc.s);
		scene_says(&n->sc, OKAY);
	}
	assert_int_equal(world_head(n->sc.c), status);
	world_eat_all(n->sc.c);
	(void)world_line(&n->sc.w);
}

static void after_a_failed_connect_a_name_is_asked_again_once_a_second(void **state)
{
	struct names n;

	(void)state;
	names_open(&n, "", "");
	n.ttl_s = 600;
	scene_server(&n.sc, 1, SIM_REFUSES);
	world_mark(&n.sc.w);
	try_server(&n, 502);
	assert_int_equal(n.asked, 1);
	until(&n, 500);
	try_server(&n, 502);
	until(&n, 990);
	try_server(&n, 502);
	assert_int_equal(n.asked, 1);
	n.addr[0] = SERVER_2; /* it has moved */
	until(&n, 1002);
	try_server(&n, 200);
	assert_int_equal(n.asked, 2);
	until(&n, 60000); /* all is well: its TTL counts again */
	try_server(&n, 200);
	assert_int_equal(n.asked, 2);
	names_close(&n);
}

/* A pooled connection does not outlive its address by more than the TTL. */
static void a_pooled_connection_follows_a_name_that_moves(void **state)
{
	struct names n;

	(void)state;
	names_open(&n, "", "");
	world_mark(&n.sc.w);
	try_server(&n, 200);
	assert_int_equal(n.sc.at, 1);
	n.addr[0] = SERVER_2;
	until(&n, 9990);
	try_server(&n, 200);
	assert_int_equal(n.asked, 1);
	until(&n, 10010);
	try_server(&n, 200); /* asks beside it */
	assert_int_equal(n.sc.at, 1);
	world_pass(&n.sc.w, SECONDS(1));
	assert_true(n.sc.s->eof);
	try_server(&n, 200);
	assert_int_equal(n.sc.at, 2);
	assert_int_equal(n.asked, 2);
	names_close(&n);
}

int main(void)
{
	static const struct CMUnitTest singles[] = {
		cmocka_unit_test(connect_covers_resolving_and_all_addresses),
		cmocka_unit_test(the_next_address_is_tried_after_250_ms),
		cmocka_unit_test(the_next_address_is_tried_at_once_when_one_refuses),
		cmocka_unit_test(the_family_that_prefer_names_goes_first),
		cmocka_unit_test(a_server_without_an_address_is_down),
		cmocka_unit_test(an_answer_is_kept_for_its_ttl),
		cmocka_unit_test(a_refusal_is_kept_for_negative_ttl),
		cmocka_unit_test(a_refusal_is_not_kept_when_negative_ttl_is_off),
		cmocka_unit_test(a_stale_answer_serves_while_the_servers_fail),
		cmocka_unit_test(a_stale_answer_serves_after_a_second_of_silence),
		cmocka_unit_test(nothing_stale_is_served_when_that_is_off),
		cmocka_unit_test(a_name_that_is_gone_is_gone_but_for_servers),
		cmocka_unit_test(after_a_failed_connect_a_name_is_asked_again_once_a_second),
		cmocka_unit_test(a_pooled_connection_follows_a_name_that_moves),
	};
	struct CMUnitTest tests[ARRAY_LEN(silences) + ARRAY_LEN(singles)];
	size_t n = 0;

	for (; n < ARRAY_LEN(silences); n++)
		tests[n] = (struct CMUnitTest){ silences[n].name, a_silence, NULL, NULL,
						(void *)&silences[n] };
	memcpy(tests + n, singles, sizeof(singles));
	return cmocka_run_group_tests_name("names", tests, world_group_setup, world_group_teardown);
}
