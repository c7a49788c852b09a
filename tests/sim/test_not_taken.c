/* Requests that their server does not take: what becomes of the client, of the log, of the server's
 * connection. */
#include "world.h"

#include <errno.h>

/* More than a server's window, culvert's writer and its pipe hold: 64 KiB each. */
#define MUCH 270000u

static const char body[MUCH];

/* A POST of MUCH + 10 bytes, ten of which are not sent, to a server that reads its head only. */
static struct sim_peer *call_stuck(struct world *w)
{
	struct sim_peer *c = world_call(w, WEB);

	world_say(c, "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: %u\r\n\r\n", MUCH + 10);
	sim_say(c, body, MUCH);
	run_until(w, w->server && world_head(w->server));
	sim_hold(w->server, true);
	return c;
}

static void nothing_is_taken_for_send_idle(void **state)
{
	struct world w;
	struct sim_peer *c;
	const char *line;

	(void)state;
	world_open(&w, "timeouts: { send_idle: 7s, request_idle: 90s }\n");
	world_serve(&w, SERVER_1, SIM_ACCEPTS);
	world_serve(&w, SERVER_2, SIM_ACCEPTS);
	c = call_stuck(&w);
	world_pass(&w, SECONDS(6) + 900000);
	assert_int_equal(c->n_got, 0);
	world_pass(&w, SECONDS(1) / 5);
	assert_int_equal(world_head(c), 504);
	assert_string_equal(world_field(c, "Proxy-Status"),
			    "culvert; error=connection_write_timeout");
	run_until(&w, w.server->reset);
	assert_int_equal(w.n_served, 1);
	assert_null(world_field(c, "Connection"));
	world_say(c, "0123456789");
	world_pass(&w, SECONDS(1));
	line = world_line(&w);
	assert_string_equal(world_logged(line, "status"), "504");
	assert_string_equal(world_logged(line, "reason"), "connection_write_timeout");
	assert_string_equal(world_logged(line, "complete"), "true");
	sim_fin(c);
	run_until(&w, c->eof);
	world_close(&w);
}

/* Each piece that is taken begins send_idle anew. */
static void a_slow_server_lives(void **state)
{
	struct world w;
	struct sim_peer *c;

	(void)state;
	world_open(&w, "timeouts: { send_idle: 7s, first_byte: 20s, request_idle: 90s }\n");
	world_serve(&w, SERVER_1, SIM_ACCEPTS);
	world_serve(&w, SERVER_2, SIM_ACCEPTS);
	c = call_stuck(&w);
	world_eat_all(w.server);
	for (unsigned i = 0; i < 3; i++) {
		world_pass(&w, SECONDS(5));
		sim_hold(w.server, false);
		world_turn(&w);
		sim_hold(w.server, true);
		world_eat_all(w.server);
	}
	sim_hold(w.server, false);
	world_say(c, "0123456789");
	world_pass(&w, SECONDS(15));
	world_say(w.server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
	run_until(&w, world_head(c) == 200);
	assert_string_equal(world_logged(world_line(&w), "status"), "200");
	sim_fin(c);
	run_until(&w, c->eof);
	world_close(&w);
}

/* The answer has begun: it goes on although nothing of the request is taken any more. */
static void an_answer_outlives_its_stuck_request(void **state)
{
	struct world w;
	struct sim_peer *c;
	const char *line;

	(void)state;
	world_open(&w, "timeouts: { send_idle: 3s, response_idle: 8s, request_idle: 90s }\n");
	world_serve(&w, SERVER_1, SIM_ACCEPTS);
	world_serve(&w, SERVER_2, SIM_ACCEPTS);
	c = call_stuck(&w);
	world_say(w.server, "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n");
	for (unsigned i = 0; i < 6; i++) {
		world_pass(&w, SECONDS(2));
		world_say(w.server, "ab");
	}
	run_until(&w, c->n_all > 12 && !memcmp(c->got + c->n_got - 12, "abababababab", 12));
	assert_int_equal(world_head(c), 200);
	line = world_line(&w);
	assert_string_equal(world_logged(line, "reason"), "");
	assert_string_equal(world_logged(line, "complete"), "true");
	sim_hold(w.server, false);
	run_until(&w, w.server->eof || w.server->reset);
	run_until(&w, c->eof || c->reset);
	world_close(&w);
}

/* Time in which the server took nothing is not the client's (body_rate_min) ... */
static void a_pause_is_not_the_clients(void **state)
{
	struct world w;
	struct sim_peer *c;

	(void)state;
	world_open(&w, "timeouts: { send_idle: 1h }\n");
	world_serve(&w, SERVER_1, SIM_ACCEPTS);
	world_serve(&w, SERVER_2, SIM_ACCEPTS);
	c = call_stuck(&w);
	world_pass(&w, SECONDS(MUCH / 100)); /* 100 bytes a second, in all */
	sim_hold(w.server, false);
	for (unsigned i = 0; i < 10; i++) {
		world_pass(&w, SECONDS(1));
		world_say(c, "x");
	}
	world_pass(&w, SECONDS(1));
	world_eat_all(w.server);
	world_say(w.server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
	run_until(&w, world_head(c) == 200);
	assert_string_equal(world_logged(world_line(&w), "status"), "200");
	sim_fin(c);
	run_until(&w, c->eof);
	world_close(&w);
}

/* ... but only in that request. */
static void a_pause_is_not_the_next_requests(void **state)
{
	struct world w;
	struct sim_peer *c;

	(void)state;
	world_open(&w, "");
	world_serve(&w, SERVER_1, SIM_ACCEPTS);
	world_serve(&w, SERVER_2, SIM_ACCEPTS);
	c = call_stuck(&w);
	world_pass(&w, SECONDS(50));
	sim_hold(w.server, false);
	world_say(c, "0123456789");
	world_pass(&w, SECONDS(1));
	world_eat_all(w.server);
	world_say(w.server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
	run_until(&w, world_head(c) == 200);
	assert_string_equal(world_logged(world_line(&w), "status"), "200");
	world_eat_all(c);
	world_say(c, "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 1000\r\n\r\n");
	for (unsigned i = 0; i < 4; i++) { /* below body_rate_min: dies with the byte after 20 s */
		assert_int_equal(world_head(c), 0);
		world_pass(&w, SECONDS(9));
		world_say(c, "x");
	}
	world_pass(&w, SECONDS(1));
	assert_int_equal(world_head(c), 408);
	assert_string_equal(world_logged(world_line(&w), "reason"), "request_idle");
	sim_fin(c);
	run_until(&w, c->eof || c->reset);
	world_close(&w);
}

/* ---------------------------------------------------------------- sends that fail */
#define GET "GET / HTTP/1.1\r\nHost: s\r\n\r\n"

static const struct fault_plan broken_pipe = {
	.n_rules = 1,
	.rules = { { .kind = OP_SEND, .nth = 1, .res = -EPIPE } }
};

static struct sim_peer *call_broken(struct world *w)
{
	struct sim_peer *c;

	world_open_faulty(w, world_conf, world_seed(), false, &broken_pipe);
	world_serve(w, SERVER_1, SIM_ACCEPTS);
	world_serve(w, SERVER_2, SIM_ACCEPTS);
	c = world_call(w, WEB);
	world_say(c, GET);
	world_pass(w, SECONDS(1) / 2);
	return c;
}

/* The system says that the connection is dead and nothing else comes of it: that is what is told,
 * after a second, and not that the server was slow. */
static void a_dead_connection_is_not_a_slow_server(void **state)
{
	struct world w;
	struct sim_peer *c;
	const char *line;

	(void)state;
	c = call_broken(&w);
	assert_int_equal(c->n_got, 0);
	world_pass(&w, SECONDS(1) / 2 + 10000);
	assert_int_equal(world_head(c), 502);
	assert_string_equal(world_field(c, "Proxy-Status"), "culvert; error=connection_terminated");
	line = world_line(&w);
	assert_string_equal(world_logged(line, "reason"), "connection_terminated");
	assert_string_equal(world_logged(line, "attempts"), "1"); /* bytes may have gone out */
	sim_fin(c);
	run_until(&w, c->eof);
	world_close(&w);
}

/* RFC 9112 §9.5: the answer may be there all the same. */
static void an_answer_to_a_send_that_failed(void **state)
{
	struct world w;
	struct sim_peer *c;

	(void)state;
	c = call_broken(&w);
	world_say(w.server, "HTTP/1.1 403 No\r\nContent-Length: 12\r\n\r\nno ");
	run_until(&w, world_head(c) == 403);
	world_pass(&w, SECONDS(30)); /* the head has come: response_idle counts now */
	world_say(w.server, "no no no!");
	run_until(&w, w.server->eof || w.server->reset); /* never pooled */
	assert_string_equal(world_logged(world_line(&w), "complete"), "true");
	sim_fin(c);
	run_until(&w, c->eof);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_taken_for_send_idle),
		cmocka_unit_test(a_slow_server_lives),
		cmocka_unit_test(an_answer_outlives_its_stuck_request),
		cmocka_unit_test(a_pause_is_not_the_clients),
		cmocka_unit_test(a_pause_is_not_the_next_requests),
		cmocka_unit_test(a_dead_connection_is_not_a_slow_server),
		cmocka_unit_test(an_answer_to_a_send_that_failed),
	};

	return cmocka_run_group_tests_name("not_taken", tests, world_group_setup,
					   world_group_teardown);
}
