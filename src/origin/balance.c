/* balance.c -- which server of an upstream gets the next request.
 *
 *   round_robin        smooth weighted: each server's current rises by its weight, the highest is
 *                      taken and falls by the sum of weights; per shard, and each shard begins at
 *                      another server
 *   least_connections  fewest requests at it per weight, all shards counted together
 *   p2c                the better of two random ones [Mitzenmacher 2001]
 *
 * A server that was tried for this request, or is ejected, is passed over; if only ejected ones are
 * left, they serve: a wrong suspicion must never empty an upstream. */
#include "origin/priv.h"

#include <stdlib.h>

struct balance_state {
	uint32_t n;
	int32_t current[];
};

/* By position; of more than 64 servers the others can always be chosen. */
static bool passed(uint64_t passed_over, uint32_t i)
{
	return i < 64 && (passed_over >> i & 1);
}

bool balance_ejected(const struct server_live *s, uint64_t now_ms)
{
	return atomic_load_explicit(&s->ejected_until_ms, memory_order_relaxed) > now_ms;
}

bool balance_any_left(const struct upstream_conf *u, const struct tries *t)
{
	for (uint32_t i = 0; i < u->n_servers; i++)
		if (!passed(t->tried, i))
			return true;
	return false;
}

static struct balance_state *state_of(struct origin_shard *s, const struct upstream_conf *u)
{
	struct balance_state **grown, *b;

	if (u->index < s->n_upstreams && s->balance[u->index])
		return s->balance[u->index];
	if (u->index >= s->n_upstreams) {
		grown = realloc(s->balance, (u->index + 1) * sizeof(*grown));
		if (!grown)
			return NULL;
		memset(grown + s->n_upstreams, 0, (u->index + 1 - s->n_upstreams) * sizeof(*grown));
		s->balance = grown;
		s->n_upstreams = u->index + 1;
	}
	b = calloc(1, sizeof(*b) + u->n_servers * sizeof(b->current[0]));
	if (!b)
		return NULL;
	b->n = u->n_servers;
	b->current[loop_shard(s->p.loop) % u->n_servers] = 1;
	s->balance[u->index] = b;
	return b;
}

/* The candidates of one choice: ejected ones only if there is no other. */
struct choice {
	const struct upstream_conf *u;
	uint64_t passed_over;
	uint64_t now_ms;
	bool ejected_too;
};

static bool may(const struct choice *c, uint32_t i)
{
	if (passed(c->passed_over, i))
		return false;
	return c->ejected_too || !balance_ejected(&c->u->live->server[i], c->now_ms);
}

static int smooth_weighted(struct origin_shard *s, const struct choice *c)
{
	struct balance_state *b = state_of(s, c->u);
	int32_t total = 0;
	int best = -1;

	if (!b)
		return -1;
	for (uint32_t i = 0; i < b->n; i++) {
		if (!may(c, i))
			continue;
		b->current[i] += (int32_t)c->u->servers[i].weight;
		total += (int32_t)c->u->servers[i].weight;
		if (best < 0 || b->current[i] > b->current[best])
			best = (int)i;
	}
	if (best >= 0)
		b->current[best] -= total;
	return best;
}

/* Whether a carries less than b, by weight. */
static bool lighter(const struct upstream_conf *u, uint32_t a, uint32_t b)
{
	int64_t at_a = atomic_load_explicit(&u->live->server[a].active, memory_order_relaxed);
	int64_t at_b = atomic_load_explicit(&u->live->server[b].active, memory_order_relaxed);

	return at_a * u->servers[b].weight < at_b * u->servers[a].weight;
}

/* Ties go round: the look begins at another server each time. */
static int least_connections(struct origin_shard *s, const struct choice *c)
{
	uint32_t n = c->u->n_servers, from = (uint32_t)(origin_random(s) % n);
	int best = -1;

	for (uint32_t k = 0; k < n; k++) {
		uint32_t i = (from + k) % n;

		if (may(c, i) && (best < 0 || lighter(c->u, i, (uint32_t)best)))
			best = (int)i;
	}
	return best;
}

static int nth_candidate(const struct choice *c, uint32_t nth)
{
	for (uint32_t i = 0; i < c->u->n_servers; i++)
		if (may(c, i) && nth-- == 0)
			return (int)i;
	return -1;
}

static int two_choices(struct origin_shard *s, const struct choice *c)
{
	uint32_t n = 0, first;
	int a, b;

	for (uint32_t i = 0; i < c->u->n_servers; i++)
		n += may(c, i);
	if (n == 0)
		return -1;
	if (n == 1)
		return nth_candidate(c, 0);
	first = (uint32_t)(origin_random(s) % n);
	a = nth_candidate(c, first);
	b = nth_candidate(c, (first + 1 + (uint32_t)(origin_random(s) % (n - 1))) % n);
	return lighter(c->u, (uint32_t)b, (uint32_t)a) ? b : a;
}

static int pick(struct origin_shard *s, const struct choice *c)
{
	switch (c->u->balance) {
	case BALANCE_LEAST_CONNECTIONS: return least_connections(s, c);
	case BALANCE_P2C: return two_choices(s, c);
	default: return smooth_weighted(s, c);
	}
}

static inline __attribute__((always_inline)) const struct server_conf *pick_from(
	struct origin_shard *s, const struct upstream_conf *u, uint64_t passed_over)
{
	struct choice c = { .u = u, .passed_over = passed_over, .now_ms = loop_now_ms(s->p.loop) };
	int i = pick(s, &c);

	if (i < 0) {
		c.ejected_too = true;
		i = pick(s, &c);
	}
	return i < 0 ? NULL : &u->servers[i];
}

const struct server_conf *balance_pick(struct origin_shard *s, const struct upstream_conf *u,
				       uint64_t passed_over)
{
	return pick_from(s, u, passed_over);
}

const struct server_conf *balance_pick_among(struct origin_shard *s, const struct upstream_conf *u,
					     uint64_t among)
{
	return pick_from(s, u, ~among);
}

/* ---------------------------------------------------------------- passive ejection */
static bool last_one(const struct upstream_conf *u, const struct server_conf *except,
		     uint64_t now_ms)
{
	for (uint32_t i = 0; i < u->n_servers; i++)
		if (&u->servers[i] != except && !balance_ejected(&u->live->server[i], now_ms))
			return false;
	return true;
}

void balance_failed(struct loop *l, const struct upstream_conf *u, const struct server_conf *sc)
{
	struct server_live *s = &u->live->server[sc - u->servers];
	uint64_t now = loop_now_ms(l);
	uint32_t fails = atomic_fetch_add_explicit(&s->fails, 1, memory_order_relaxed) + 1;

	if (!u->eject_failures || fails < u->eject_failures || balance_ejected(s, now) ||
	    last_one(u, sc, now))
		return;
	atomic_store_explicit(&s->ejected_until_ms, now + u->eject_ms, memory_order_relaxed);
	atomic_store_explicit(&s->fails, 0, memory_order_relaxed);
	if (u->live->places)
		places_look(u->live->places);
	log_say(LOG_WARN,
		"upstream %.*s: server %.*s: %u connects failed in a row; it is left out for %u ms",
		(int)u->name.n, u->name.p, (int)sc->url.n, sc->url.p, fails, u->eject_ms);
}

void balance_worked(const struct upstream_conf *u, const struct server_conf *sc)
{
	struct server_live *s = &u->live->server[sc - u->servers];

	if (atomic_load_explicit(&s->fails, memory_order_relaxed))
		atomic_store_explicit(&s->fails, 0, memory_order_relaxed);
}
