/* What is counted when something ends: each end once, and durations when they are known. */
#include "world.h"

#include <stdio.h>

#define GET               "GET / HTTP/1.1\r\nHost: s\r\n\r\n"
#define OKAY              "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#define SECONDS_OF_TUNNEL 100

static unsigned ends(struct world *w, const char *reason)
{
	char name[128];

	snprintf(name, sizeof(name), "culvert_ends_total{reason=\"%s\"}", reason);
	return (unsigned)world_metric(w, name);
}

/* All ends but successes. */
static unsigned all_ends(struct world *w)
{
	unsigned sum = 0;

	for (unsigned i = 1; i < WHY_ROWS; i++)
		sum += ends(w, why_table[i].name);
	return sum;
}

#define assert_counted(w, reason, n, all)                 \
	do {                                              \
		assert_int_equal(ends((w), (reason)), n); \
		assert_int_equal(all_ends(w), all);       \
	} while (0)

static struct sim_peer *served(struct world *w)
{
	struct sim_peer *c;

	world_pass(w, SECONDS(2)); /* no pooled connection is left */
	c = world_call(w, WEB);
	world_say(c, GET);
	w->server = NULL;
	run_until(w, w->server && world_head(w->server));
	return c;
}

static void answered(struct world *w, struct sim_peer *c, const char *answer)
{
	world_say(w->server, "%s", answer);
	run_until(w, world_head(c));
	(void)world_line(w);
	world_eat_all(c);
}

/* Connections that end between requests, whether they had one or not. */
static void outside_a_request(void **state)
{
	struct world w;
	struct sim_peer *c;

	(void)state;
	world_open(&w, "timeouts: { upstream_keep_alive: 1s }\n");
	world_serve(&w, SERVER_1, SIM_ACCEPTS);
	world_serve(&w, SERVER_2, SIM_ACCEPTS);
	c = world_call(&w, WEB);
	run_until(&w, c->eof);
	assert_counted(&w, "idle_close", 1, 1);
	c = served(&w);
	answered(&w, c, OKAY);
	run_until(&w, c->eof);
	assert_counted(&w, "idle_close", 2, 2);
	c = served(&w);
	answered(&w, c, OKAY);
	sim_fin(c);
	run_until(&w, c->eof);
	assert_counted(&w, "peer_closed", 1, 3);
	c = served(&w);
	answered(&w, c, OKAY);
	sim_reset(c);
	world_pass(&w, SECONDS(2));
	assert_counted(&w, "client_abort", 1, 4);
	c = served(&w);
	answered(&w, c, OKAY);
	world_stop(&w);
	run_until(&w, c->eof);
	assert_counted(&w, "shutdown", 1, 5);
	world_close(&w);
}

/* Connections that end with a request: that request's end, once. */
static void with_a_request(void **state)
{
	struct world w;
	struct sim_peer *c;

	(void)state;
	world_open(&w, "timeouts: { upstream_keep_alive: 1s }\n");
	world_serve(&w, SERVER_1, SIM_ACCEPTS);
	world_serve(&w, SERVER_2, SIM_ACCEPTS);
	c = served(&w); /* a success that closes */
	sim_fin(c);
	world_pass(&w, SECONDS(1));
	answered(&w, c, OKAY);
	run_until(&w, c->eof);
	assert_int_equal(all_ends(&w), 0);
	c = served(&w);
	sim_reset(c);
	run_until(&w, w.server->reset);
	(void)world_line(&w);
	assert_counted(&w, "client_abort", 1, 1);
	c = world_call(&w, WEB);
	world_say(c, "nonsense\r\n\r\n");
	run_until(&w, world_head(c) == 400);
	(void)world_line(&w);
	sim_fin(c);
	run_until(&w, c->eof);
	assert_counted(&w, "http_request_error", 1, 2);
	c = served(&w);
	world_say(w.server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab");
	run_until(&w, world_head(c));
	sim_reset(w.server);
	run_until(&w, c->eof || c->reset);
	(void)world_line(&w);
	assert_counted(&w, "http_response_incomplete", 1, 3);
	world_close(&w);
}

/* A tunnel's duration is known when it has ended. */
static void a_tunnel_lasts(void **state)
{
	static const char count[] = "culvert_request_duration_seconds_count{listener=\"fwd\"}";
	static const char sum[] = "culvert_request_duration_seconds_sum{listener=\"fwd\"}";
	struct world w;
	struct sim_peer *c;

	(void)state;
	world_open(&w, "");
	world_serve(&w, SERVER_1, SIM_ACCEPTS);
	c = world_call(&w, FWD);
	world_say(c, "CONNECT " SERVER_1 ":80 HTTP/1.1\r\nHost: " SERVER_1 ":80\r\n\r\n");
	run_until(&w, world_head(c) == 200);
	world_pass(&w, SECONDS(SECONDS_OF_TUNNEL));
	assert_int_equal((unsigned)world_metric(&w, count), 0);
	assert_int_equal((unsigned)world_metric(
				 &w, "culvert_connections{listener=\"fwd\",state=\"tunnel\"}"),
			 1);
	sim_fin(c);
	sim_fin(w.server);
	run_until(&w, c->eof && w.server->eof);
	(void)world_line(&w);
	assert_int_equal((unsigned)world_metric(&w, count), 1);
	assert_int_equal((unsigned)world_metric(&w, sum), SECONDS_OF_TUNNEL);
	assert_int_equal(all_ends(&w), 0);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(outside_a_request),
		cmocka_unit_test(with_a_request),
		cmocka_unit_test(a_tunnel_lasts),
	};

	return cmocka_run_group_tests_name("counts", tests, world_group_setup,
					   world_group_teardown);
}
