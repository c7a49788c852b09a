/* Clients and servers at random (actors.h), on a rough sea: whatever they do, what is promised
 * holds, everything ends, and everything is given back.
 *
 * Each run has a seed of its own, counted from CULVERT_SEED; a run that fails prints it, and with
 * it and CULVERT_RUNS=1 the same run happens again. */
#include "actors.h"

#include "relay/relay.h"

#include <errno.h>

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

/* Ops that the system refuses, or breaks off, or delays. */
static void choose_faults(struct fault_plan *plan, uint64_t seed)
{
	static const int32_t errors[] = { -ECONNRESET, -EPIPE,  -ENOBUFS,  -ENOMEM,
					  -EMFILE,     -ENFILE, -ETIMEDOUT };
	static const uint8_t kinds[] = { OP_ACCEPT, OP_CONNECT, OP_RECV, OP_SEND, FAULT_SOCKET };
	struct sim *dice = sim_new(seed, true);

	plan->n_rules = 1 + sim_random(dice, FAULT_RULES);
	for (uint32_t i = 0; i < plan->n_rules; i++) {
		struct fault_rule *r = &plan->rules[i];

		r->kind = kinds[sim_random(dice, ARRAY_LEN(kinds))];
		r->nth = 1 + sim_random(dice, 40);
		r->times = 1 + sim_random(dice, 4);
		if (sim_random(dice, 3) || r->kind == FAULT_SOCKET)
			r->res = errors[sim_random(dice, ARRAY_LEN(errors))];
		else
			r->delay = 1 + sim_random(dice, 20);
	}
	sim_free(&dice);
}

static void run(uint64_t seed, enum mood mood)
{
	struct fault_plan plan = { .single_shot = seed % 8 == 7 };
	struct world w;
	struct actors a;

	if (mood == MOOD_FAULTY)
		choose_faults(&plan, seed);
	world_open_faulty(&w, world_conf, seed, seed % 4 != 0,
			  plan.single_shot || plan.n_rules ? &plan : NULL);
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

static void where_the_system_fails_nothing_is_wrong_and_everything_ends(void **state)
{
	(void)state;
	all_runs(MOOD_FAULTY);
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
		cmocka_unit_test(where_the_system_fails_nothing_is_wrong_and_everything_ends),
		cmocka_unit_test(without_memory_nothing_is_wrong_and_everything_ends),
	};

	return cmocka_run_group_tests_name("seeds", tests, world_group_setup, world_group_teardown);
}
