/* gauges.c -- process, memory, log and loop series, read when somebody scrapes. */
#include "ops/gauges.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

static double draining(void *arg)
{
	const struct service_shared *s = arg;

	return atomic_load_explicit(&s->draining, memory_order_relaxed);
}

static double one(void *arg)
{
	(void)arg;
	return 1;
}

/* One pool over all shards; the pools together are what limits.memory counts. */
static struct {
	struct budget *shard[GAUGES_SHARDS];
	unsigned n_shards, n_names;
	const char *name[BUDGET_POOLS];
} pools;

static double pool_held(void *arg)
{
	const char *name = arg;
	uint64_t held = 0;

	for (unsigned i = 0; i < pools.n_shards; i++) {
		const struct budget *b = pools.shard[i];

		for (unsigned k = 0; k < b->n_pools; k++)
			if (!strcmp(b->pool[k].name, name))
				held += atomic_load_explicit(&b->pool[k].held,
							     memory_order_relaxed);
	}
	return (double)held;
}

static bool is_known(const char *name)
{
	for (unsigned i = 0; i < pools.n_names; i++)
		if (!strcmp(pools.name[i], name))
			return true;
	return false;
}

/* All shards have the same pools, but for what their back ends bring. */
static void open_pools(const struct gauges_params *p)
{
	pools.n_shards = pools.n_names = 0;
	for (unsigned i = 0; i < p->n_shards && i < GAUGES_SHARDS; i++) {
		struct budget *b = loop_budget(p->loops[i]);

		pools.shard[pools.n_shards++] = b;
		for (unsigned k = 0; k < b->n_pools; k++) {
			struct str label = str_of(b->pool[k].name);

			if (is_known(label.p) || pools.n_names == BUDGET_POOLS)
				continue;
			pools.name[pools.n_names++] = label.p;
			metric_pull(p->shared->metrics, METRIC_MEMORY, &label, pool_held,
				    (void *)(uintptr_t)label.p);
		}
	}
}

/* Linux tells the number as the folder's size (since 6.2); before, the entries have to be read,
 * which holds up this shard for some ms when there are very many. */
static double open_fds(void *arg)
{
	struct stat st;
	unsigned n = 0;
	DIR *d;

	(void)arg;
	if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0)
		return (double)st.st_size;
	d = opendir("/proc/self/fd");
	if (!d)
		return 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n > 3 ? n - 3 : 0; /* ".", ".." and the folder itself */
}

static double max_fds(void *arg)
{
	struct rlimit r;

	(void)arg;
	return getrlimit(RLIMIT_NOFILE, &r) < 0 ? 0 : (double)r.rlim_cur;
}

static double log_dropped(void *arg)
{
	return (double)log_sink_dropped(arg);
}

static double turns(void *arg)
{
	return (double)loop_turns(arg);
}

static void open_shards(const struct gauges_params *p)
{
	for (unsigned i = 0; i < p->n_shards && i < GAUGES_SHARDS; i++) {
		char text[12];
		struct str label = { .p = text,
				     .n = (uint32_t)snprintf(text, sizeof(text), "%u", i) };

		metric_pull(p->shared->metrics, METRIC_LOOP_TURNS, &label, turns, p->loops[i]);
	}
}

void gauges_open(const struct gauges_params *p)
{
	struct metrics *m = p->shared->metrics;
	struct str build[] = { str_of(p->version), str_of(p->io) };

	metric_pull(m, METRIC_DRAINING, NULL, draining, p->shared);
	metric_pull(m, METRIC_BUILD_INFO, build, one, NULL);
	metric_pull(m, METRIC_OPEN_FDS, NULL, open_fds, NULL);
	metric_pull(m, METRIC_MAX_FDS, NULL, max_fds, NULL);
	for (unsigned i = 0; i < p->n_sinks; i++) {
		struct str label = str_of(log_sink_name(p->sinks[i]));

		metric_pull(m, METRIC_LOG_DROPPED, &label, log_dropped, p->sinks[i]);
	}
	open_shards(p);
	open_pools(p);
}
