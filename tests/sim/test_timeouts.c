/* Every timeout, to the millisecond: what its victim sees, what the log says, and that nothing
 * rings before. */
#include "world.h"

#define GET "GET / HTTP/1.1\r\nHost: s\r\n\r\n"

static void a_get_passes(void **state)
{
	struct world w;
	struct sim_peer *c;
	const char *line;

	(void)state;
	world_open(&w, "");
	world_serve(&w, SERVER_1, SIM_ACCEPTS);
	c = world_call(&w, WEB);
	world_say(c, GET);
	run_until(&w, w.server && world_head(w.server));
	assert_string_equal(world_field(w.server, "Host"), "s");
	world_say(w.server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
	run_until(&w, world_head(c) == 200);
	line = world_line(&w);
	assert_string_equal(world_logged(line, "status"), "200");
	sim_fin(c);
	run_until(&w, c->eof);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_get_passes),
	};

	return cmocka_run_group_tests_name("timeouts", tests, world_group_setup,
					   world_group_teardown);
}
