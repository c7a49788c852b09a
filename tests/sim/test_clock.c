/* The wall clock is set while connections are pooled and requests run: it is for Date and the log's
 * time only.  (Timeouts: test_timeouts.c, test_aborts.c.) */
#include "scene.h"

#define YEAR ((int64_t)SECONDS(365u * 86400u))

static const int64_t jumps[] = { YEAR, -YEAR, 3600 * 1000000ll, -3600 * 1000000ll };

/* A pooled connection is used as long as upstream_keep_alive says, and no longer. */
static void the_pool_does_not_notice(void **state)
{
	struct scene sc;

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(jumps); i++) {
		world_context("jump %lld", (long long)jumps[i]);
		scene_open(&sc, &(struct knobs){ .servers = "\"http://" SERVER_1 ":80\"" });
		scene_round(&sc);
		world_pass(&sc.w, SECONDS(1));
		sim_set_wall(sc.w.sim, jumps[i]);
		scene_round(&sc);
		assert_int_equal(sc.n_served, 1);
		sim_set_wall(sc.w.sim, -2 * jumps[i]);
		world_mark(&sc.w);
		must_ring(&sc, sc.s->eof, 30000);
		scene_round(&sc);
		assert_int_equal(sc.n_served, 2);
		scene_close(&sc);
	}
}

/* What took two seconds took two seconds. */
static void durations_do_not_notice(void **state)
{
	struct scene sc;

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(jumps); i++) {
		const char *line;
		double ms;

		world_context("jump %lld", (long long)jumps[i]);
		scene_open(&sc, NULL);
		scene_ask(&sc, GET);
		sim_set_wall(sc.w.sim, jumps[i]);
		world_pass(&sc.w, SECONDS(2));
		world_eat_all(sc.s);
		scene_says(&sc, OKAY);
		line = world_line(&sc.w);
		ms = strtod(world_logged(line, "total_ms"), NULL);
		assert_in_range((unsigned)ms, 2000, 2002);
		ms = strtod(world_logged(line, "first_byte_ms"), NULL);
		assert_in_range((unsigned)ms, 2000, 2002);
		world_eat_all(sc.c);
		scene_close(&sc);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_pool_does_not_notice),
		cmocka_unit_test(durations_do_not_notice),
	};

	return cmocka_run_group_tests_name("clock", tests, world_group_setup, world_group_teardown);
}
