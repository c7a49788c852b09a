/* Answers that come at an odd moment. */
#include "world.h"

/* More than the server took before it stopped, its window, culvert's writer and its pipe: 64 KiB
 * each. */
#define HELD 270000u

/* A server that takes nothing more answers all the same and leaves: what culvert holds of the
 * request must not keep the connection for ever, and the next request is served. */
static void an_early_answer_while_the_request_is_stuck(void **state)
{
	static const char body[HELD];
	struct world w;
	struct sim_peer *c;

	(void)state;
	world_open(&w, "");
	world_serve(&w, SERVER_1, SIM_ACCEPTS);
	world_serve(&w, SERVER_2, SIM_ACCEPTS);
	c = world_call(&w, WEB);
	world_say(c, "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: %u\r\n\r\n", HELD + 10);
	sim_say(c, body, HELD);
	run_until(&w, w.server && world_head(w.server));
	sim_hold(w.server, true);
	world_pass(&w, SECONDS(1));
	world_say(w.server, "HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno");
	run_until(&w, world_head(c) == 404);
	assert_null(world_field(c, "Connection"));
	world_eat_all(c);
	world_say(c, "0123456789GET /2 HTTP/1.1\r\nHost: s\r\n\r\n");
	w.server = NULL;
	run_until(&w, w.server && world_head(w.server));
	world_say(w.server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
	run_until(&w, world_head(c) == 200);
	assert_string_equal(world_logged(world_line(&w), "status"), "404");
	assert_string_equal(world_logged(world_line(&w), "status"), "200");
	sim_fin(c);
	run_until(&w, c->eof);
	world_close(&w);
}

static void without_a_pool_no_connection_is_kept(void **state)
{
	struct world w;
	struct sim_peer *c;

	(void)state;
	world_open(&w, "limits: { upstream_pool: off }\n");
	world_serve(&w, SERVER_1, SIM_ACCEPTS);
	world_serve(&w, SERVER_2, SIM_ACCEPTS);
	c = world_call(&w, WEB);
	world_say(c, "GET / HTTP/1.1\r\nHost: s\r\n\r\n");
	run_until(&w, w.server && world_head(w.server));
	world_say(w.server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
	world_mark(&w);
	run_until(&w, w.server->eof);
	assert_int_equal(world_ms(&w), 0);
	assert_string_equal(world_logged(world_line(&w), "status"), "200");
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_pool_no_connection_is_kept),
		cmocka_unit_test(an_early_answer_while_the_request_is_stuck),
	};

	return cmocka_run_group_tests_name("answers", tests, world_group_setup,
					   world_group_teardown);
}
