/* upstream.c -- requests to configured servers and to forward targets: which one, and how often.
 *
 *   …_begin ──► attempt ──► (fails) flow step: origin_may_retry? ──► route ──► …_begin again
 *
 * Two kinds of repetition:
 *   silent   the pooled connection died before any byte of the answer, and the request may be sent
 *            twice (RFC 9110 §9.2.2) and is still whole: same server, fresh connection, not counted
 *            as an attempt
 *   retry    no byte of the request was sent: another server, up to retry.attempts */
#include "origin/priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct origin_shard *origin_shard(struct loop *l)
{
	return loop_slot(l, SLOT_ORIGIN);
}

uint64_t origin_random(struct origin_shard *s) /* xorshift64: no secret, only spread */
{
	s->rng ^= s->rng << 13;
	s->rng ^= s->rng >> 7;
	s->rng ^= s->rng << 17;
	return s->rng;
}

/* ---------------------------------------------------------------- registry */
static double server_is_up(void *arg)
{
	const struct server_live *s = arg;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return !atomic_load_explicit(&s->nameless, memory_order_relaxed) &&
	       !balance_ejected(s, (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

static void open_server(struct upstream *u, struct server_live *s, struct str url)
{
	struct str ok[] = { u->name, url, STR("ok") }, failed[] = { u->name, url, STR("failed") };
	struct str active[] = { u->name, url, STR("active") },
		   idle[] = { u->name, url, STR("idle") };

	s->slot_connect_ok = metric_slot(u->metrics, METRIC_UP_CONNECTS, ok);
	s->slot_connect_failed = metric_slot(u->metrics, METRIC_UP_CONNECTS, failed);
	s->slot_reuse = metric_slot(u->metrics, METRIC_UP_REUSES, ok);
	s->slot_active = metric_slot(u->metrics, METRIC_UP_CONNS, active);
	s->slot_idle = metric_slot(u->metrics, METRIC_UP_CONNS, idle);
	metric_pull(u->metrics, METRIC_SERVER_UP, ok, server_is_up, s);
}

struct upstream *upstream_new(const struct upstream_conf *conf, struct metrics *m, unsigned shards)
{
	struct upstream *u = calloc(1, sizeof(*u) + conf->n_servers * sizeof(u->server[0]));

	if (!u)
		return NULL;
	u->name = conf->name;
	u->conf = conf;
	u->metrics = m;
	u->n_servers = conf->n_servers;
	for (uint32_t i = 0; i < u->n_servers; i++)
		open_server(u, &u->server[i], conf->servers[i].url);
	if (!places_open(u, conf, shards, queue_news))
		upstream_free(&u);
	else if (u->places)
		u->slot_queued = metric_slot(m, METRIC_UP_QUEUED, &u->name);
	return u;
}

void upstream_free(struct upstream **up)
{
	if (*up)
		places_close(&(*up)->places);
	free(*up);
	*up = NULL;
}

/* ---------------------------------------------------------------- shard */
static bool same_target(const struct map_node *node, const void *key, uint32_t n)
{
	const struct pool_group *g = container_of(node, struct pool_group, node);

	return g->key_n == n && memcmp(g->key, key, n) == 0;
}

int origin_shard_open(const struct origin_params *p)
{
	struct origin_shard *s = calloc(1, sizeof(*s));
	uint64_t key[2];

	if (!s)
		return -ENOMEM;
	loop_random(p->loop, key, sizeof(key));
	loop_random(p->loop, &s->rng, sizeof(s->rng));
	s->rng |= 1;
	if (!map_init(&s->targets, key, same_target)) {
		free(s);
		return -ENOMEM;
	}
	s->p = *p;
	list_init(&s->lru);
	slab_init(&s->upconns, "upstream_connections", sizeof(struct upconn), loop_budget(p->loop));
	slab_init(&s->attempts, "attempts", attempt_size(), loop_budget(p->loop));
	slab_init(&s->waiters, "waiting_requests", queue_waiter_size(), loop_budget(p->loop));
	loop_set_slot(p->loop, SLOT_ORIGIN, s);
	return 0;
}

void origin_shard_drain(struct loop *l)
{
	struct origin_shard *s = origin_shard(l);

	s->draining = true;
	s->p.pool_max = 0;
	pool_trim(s, 0);
}

void origin_shard_close(struct loop *l)
{
	struct origin_shard *s = origin_shard(l);

	pool_trim(s, 0);
	for (uint32_t i = 0; i < s->n_servers; i++)
		pool_server_free(s->servers[i]);
	for (uint32_t i = 0; i < s->n_queues; i++)
		queue_close(s->queues[i]);
	for (uint32_t i = 0; i < s->n_upstreams; i++)
		free(s->balance[i]);
	free(s->queues);
	free(s->servers);
	free(s->balance);
	map_close(&s->targets);
	slab_close(&s->waiters);
	slab_close(&s->attempts);
	slab_close(&s->upconns);
	free(s);
	loop_set_slot(l, SLOT_ORIGIN, NULL);
}

void origin_shard_dump(struct loop *l, int fd)
{
	struct origin_shard *s = origin_shard(l);

	dprintf(fd,
		"  origin: %u idle upstream connections, %llu in all, %llu requests wait for one, "
		"%u forward targets%s\n",
		s->n_idle, (unsigned long long)s->upconns.n_live,
		(unsigned long long)s->waiters.n_live, s->targets.n,
		s->draining ? ", draining" : "");
}

/* ---------------------------------------------------------------- tries */
struct tries *upstream_tries(struct exchange *x)
{
	struct tries *t = x->origin;

	if (!t) {
		t = arena_zalloc(&x->arena, sizeof(*t));
		x->origin = t;
	}
	return t;
}

static void count_retry(struct origin_shard *s, const struct exchange *x, const struct tries *t)
{
	struct str labels[] = { t->conf ? t->conf->name : STR("-"), str_of(x->try_why->name) };

	metric_add(s->p.cells, metric_slot(s->p.metrics, METRIC_RETRIES, labels), 1);
}

static bool died_in_the_pool(const struct exchange *x, const struct tries *t)
{
	return t->reused && x->try_why->id == WHY_TERMINATED && !t->result.any_received &&
	       method_idempotent((enum method)x->req.head->method);
}

static bool another_server(const struct exchange *x, const struct tries *t)
{
	return t->conf && (x->try_why->flags & WHY_RETRY) && !t->result.any_sent &&
	       t->attempts < t->conf->retry_attempts && balance_any_left(t->conf, t);
}

bool origin_may_retry(struct exchange *x)
{
	struct tries *t = x->origin;

	if (!t || x->cut || x->refused || !pipe_can_rewind(&x->req))
		return false;
	if (died_in_the_pool(x, t))
		t->same = t->fresh = true;
	else if (another_server(x, t))
		t->same = false;
	else
		return false;
	count_retry(origin_shard(x->loop), x, t);
	return pipe_rewind(&x->req);
}

/* ---------------------------------------------------------------- web */
static bool choose(struct origin_shard *s, struct tries *t)
{
	const struct server_conf *server;

	if (t->same && t->server)
		return true;
	server = balance_pick(s, t->conf, t->tried);
	if (server)
		tries_chose(t, server);
	return server != NULL;
}

static void note_server(struct exchange *x, const struct tries *t)
{
	x->facts.upstream = t->conf->name.p;
	x->facts.server = t->server->url.p;
	x->facts.attempts = (uint16_t)t->attempts;
	x->facts.address.len = 0;
}

/* In both of its callers: a request without limits pays no call for those with. */
static inline __attribute__((always_inline)) void go(struct exchange *x, struct tries *t,
						     struct hold *hold)
{
	struct attempt_params p = { .x = x, .t = t, .hold = hold };

	t->same = false;
	note_server(x, t);
	p.group = pool_server(origin_shard(x->loop), t->server);
	if (!p.group) { /* then there is no hold: a queue has all its groups */
		exchange_refuse(x, why(WHY_MEMORY), NULL);
		return;
	}
	p.host = t->server->host;
	p.literal = t->server->literal;
	p.addr = t->server->addr;
	p.path = t->server->path;
	p.port = t->server->port;
	p.resolve_flags =
		RESOLVE_SEARCH |
		(atomic_load_explicit(&t->live->fails, memory_order_relaxed) ? RESOLVE_FRESH : 0);
	p.job = (struct client_job){ .host = t->conf->host, .result = &t->result };
	attempt_begin(&p);
}

void upstream_go(struct exchange *x, struct tries *t, struct hold *hold)
{
	go(x, t, hold);
}

void upstream_begin(struct exchange *x, const struct upstream_conf *conf)
{
	struct tries *t = upstream_tries(x);

	if (!t) {
		exchange_refuse(x, why(WHY_MEMORY), NULL);
		return;
	}
	t->conf = conf;
	if (conf->live->places)
		queue_begin(x, t);
	else if (choose(origin_shard(x->loop), t))
		go(x, t, NULL);
	else
		exchange_refuse(x, why(WHY_NO_SERVER), NULL);
}

/* ---------------------------------------------------------------- forward, absolute-form */
static void aim(struct attempt_params *p, const struct head *h, uint16_t port)
{
	p->host = h->host;
	p->port = port;
	p->literal = addr_parse_ip(h->host, port, &p->addr);
}

void target_begin(struct exchange *x, const struct dial_policy *policy)
{
	struct origin_shard *s = origin_shard(x->loop);
	const struct head *h = x->req.head;
	struct tries *t = upstream_tries(x);
	struct attempt_params p = { .x = x, .t = t };
	uint16_t port = h->port ? h->port : 80;

	if (t)
		p.group = pool_target(s, h->host, port);
	if (!t || !p.group) {
		exchange_refuse(x, why(WHY_MEMORY), NULL);
		return;
	}
	t->policy = *policy;
	if (!t->same)
		t->attempts++;
	t->same = false;
	x->facts.attempts = (uint16_t)t->attempts;
	x->facts.address.len = 0;
	aim(&p, h, port);
	p.job = (struct client_job){ .result = &t->result };
	attempt_begin(&p);
}
