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
#define MEMORY_PER_CLIENT (256u << 10)

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
	world_must(a->w, used <= a->w->budget.max);
	world_must(a->w, used < (uint64_t)MEMORY_PER_CLIENT * (a->n_clients + 1));
}

static bool at_rest(struct actors *a)
{
	watch(a);
	return actors_over(a) && service_connections(a->w->service) == 0 &&
	       exchange_count(a->w->loop) == 0 && relay_count(a->w->loop) == 0;
}

/* What else happens to the service: a drain, no memory, everything is cut. */
static void disturb(struct world *w, enum mood mood)
{
	if (mood == MOOD_GOOD || sim_random(w->sim, 4))
		return;
	world_pass(w, sim_random(w->sim, 4000000));
	world_stop(w);
	if (mood == MOOD_POOR && sim_random(w->sim, 2)) {
		world_pass(w, sim_random(w->sim, 4000000));
		(void)service_cut(w->service);
	}
}

static void run(uint64_t seed, enum mood mood)
{
	struct world w;
	struct actors a;

	world_open_as(&w, world_conf, seed, seed % 4 != 0);
	actors_open(&a, &w, mood);
	if (sim_random(w.sim, 2))
		sim_window(w.sim, 1 + sim_random(w.sim, 20000));
	if (mood == MOOD_POOR)
		w.budget.max = atomic_load(&w.budget.used) + sim_random(w.sim, 600000);
	for (int i = 0; i < CLIENTS; i++)
		actors_client(&a);
	disturb(&w, mood);
	run_until(&w, at_rest(&a));
	actors_check(&a);
	w.budget.max = UINT64_MAX;
	world_close(&w);
	actors_close(&a);
}

static void all_runs(enum mood mood)
{
	for (unsigned i = 0; i < runs(); i++)
		run(world_seed() + i, mood);
}

static void when_nobody_misbehaves_everybody_is_served(void **state)
{
	(void)state;
	all_runs(MOOD_GOOD);
}

static void whatever_they_do_what_is_promised_holds(void **state)
{
	(void)state;
	all_runs(MOOD_BAD);
}

static void without_memory_nothing_is_wrong_and_everything_ends(void **state)
{
	(void)state;
	all_runs(MOOD_POOR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(when_nobody_misbehaves_everybody_is_served),
		cmocka_unit_test(whatever_they_do_what_is_promised_holds),
		cmocka_unit_test(without_memory_nothing_is_wrong_and_everything_ends),
	};

	return cmocka_run_group_tests_name("seeds", tests, world_group_setup, world_group_teardown);
}
