/* Clients and servers at random (actors.h), on a rough sea: whatever they do, what is promised
 * holds, everything ends, and everything is given back.
 *
 * Each run has a seed of its own, counted from CULVERT_SEED; a run that fails prints it, and with
 * it and CULVERT_RUNS=1 the same run happens again. */
#include "actors.h"

#include "relay/relay.h"

#define RUNS    100
#define CLIENTS 8
/* A connection's buffers are bounded by their marks (exchange.h), both directions and both ends. */
#define MEMORY_PER_CLIENT (700u << 10)

static unsigned runs(void)
{
	const char *text = getenv("CULVERT_RUNS");

	return text ? (unsigned)strtoul(text, NULL, 0) : RUNS;
}

static void watch(struct actors *a)
{
	uint64_t used = atomic_load(&a->w->budget.used);

	if (used > a->memory_max)
		a->memory_max = used;
	world_must(a->w, used < (uint64_t)MEMORY_PER_CLIENT * (a->n_clients + 1));
}

static bool at_rest(struct actors *a)
{
	watch(a);
	return actors_over(a) && service_connections(a->w->service) == 0 &&
	       exchange_count(a->w->loop) == 0 && relay_count(a->w->loop) == 0;
}

static void run(uint64_t seed, bool good)
{
	struct world w;
	struct actors a;

	world_open_as(&w, world_conf, seed, seed % 4 != 0);
	actors_open(&a, &w, good);
	if (sim_random(w.sim, 2))
		sim_window(w.sim, 1 + sim_random(w.sim, 20000));
	for (int i = 0; i < CLIENTS; i++)
		actors_client(&a);
	if (!good && sim_random(w.sim, 4) == 0) {
		world_pass(&w, sim_random(w.sim, 4000000));
		world_stop(&w);
	}
	run_until(&w, at_rest(&a));
	actors_check(&a);
	world_close(&w);
	actors_close(&a);
}

static void when_nobody_misbehaves_everybody_is_served(void **state)
{
	(void)state;
	for (unsigned i = 0; i < runs(); i++)
		run(world_seed() + i, true);
}

static void whatever_they_do_what_is_promised_holds(void **state)
{
	(void)state;
	for (unsigned i = 0; i < runs(); i++)
		run(world_seed() + i, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(when_nobody_misbehaves_everybody_is_served),
		cmocka_unit_test(whatever_they_do_what_is_promised_holds),
	};

	return cmocka_run_group_tests_name("seeds", tests, world_group_setup, world_group_teardown);
}
