/* pool.c -- one shard's connections to servers: busy ones and idle ones.
 *
 *   group (a server, or a forward target "host:port")
 *     idle:  most recent ─ … ─ oldest           taken at the head: the warmest, the rest may expire
 *   shard lru:  all idle ones, oldest at the tail  (limits.upstream_pool: the idlest is closed
 *   first)
 *
 * An idle connection watches its server: a FIN or a byte takes it out at once.  A connection that
 * carried NTLM or Negotiate is never here: it stays with its client (pin). */
#include "origin/priv.h"

#include <stdlib.h>

static void gauge(struct upconn *u, uint32_t slot, int delta)
{
	if (u->live)
		metric_add(origin_shard(u->loop)->p.cells, slot, (uint64_t)(int64_t)delta);
}

static void set_idle(struct upconn *u, bool idle)
{
	struct origin_shard *s = origin_shard(u->loop);

	if (u->idle == idle)
		return;
	u->idle = idle;
	if (idle) {
		list_push_head(&u->group->idle, &u->node);
		list_push_head(&s->lru, &u->lru);
		u->group->n_idle++;
		s->n_idle++;
	} else {
		list_remove(&u->node);
		list_remove(&u->lru);
		u->group->n_idle--;
		s->n_idle--;
	}
	if (u->live) {
		gauge(u, u->live->slot_idle, idle ? 1 : -1);
		gauge(u, u->live->slot_active, idle ? -1 : 1);
		if (u->live->quota)
			places_park(u->live->quota, loop_shard(u->loop), idle ? 1 : -1);
	}
}

/* ---------------------------------------------------------------- groups */
struct target_key {
	char text[300];
	uint32_t n;
};

static void make_key(struct target_key *k, struct str host, uint16_t port)
{
	struct out o;

	out_init(&o, k->text, sizeof(k->text));
	out_str(&o, host);
	out_char(&o, ':');
	out_u64(&o, port);
	k->n = out_len(&o);
}

static struct pool_group *group_new(const char *key, uint32_t n, bool fixed)
{
	struct pool_group *g = calloc(1, sizeof(*g) + n);

	if (!g)
		return NULL;
	list_init(&g->idle);
	g->fixed = fixed;
	g->key_n = (uint16_t)n;
	if (n)
		memcpy(g->key, key, n);
	return g;
}

struct pool_group *pool_server_open(struct origin_shard *s, const struct server_conf *server)
{
	uint32_t index = server->index;
	struct pool_group **grown;

	if (index >= s->n_servers) {
		grown = realloc(s->servers, (index + 1) * sizeof(*grown));
		if (!grown)
			return NULL;
		memset(grown + s->n_servers, 0, (index + 1 - s->n_servers) * sizeof(*grown));
		s->servers = grown;
		s->n_servers = index + 1;
	}
	if (!s->servers[index])
		s->servers[index] = group_new(NULL, 0, true);
	if (s->servers[index] && !server->literal && !server->path.n)
		s->servers[index]->server = server;
	if (s->servers[index])
		s->servers[index]->shard = s;
	return s->servers[index];
}

void pool_server_free(struct pool_group *g)
{
	if (!g)
		return;
	resolve_cancel(&g->asking);
	answer_drop(&g->known);
	free(g);
}

struct pool_group *pool_target(struct origin_shard *s, struct str host, uint16_t port)
{
	struct target_key k;
	struct map_node *node;
	struct pool_group *g;

	make_key(&k, host, port);
	node = map_find(&s->targets, k.text, k.n);
	if (node)
		return container_of(node, struct pool_group, node);
	g = group_new(k.text, k.n, false);
	if (g && !map_add(&s->targets, &g->node, k.text, k.n)) {
		free(g);
		g = NULL;
	}
	return g;
}

void pool_group_release(struct origin_shard *s, struct pool_group *g)
{
	if (g->fixed || g->n_conns)
		return;
	map_remove(&s->targets, &g->node);
	free(g);
}

/* ---------------------------------------------------------------- names that move */
static bool still_there(const struct pool_group *g, const struct addr *address)
{
	if (!g->known)
		return true;
	for (uint32_t i = 0; i < g->known->n; i++)
		if (addr_same_ip(&g->known->addr[i], address))
			return true;
	return false;
}

static void close_idle(struct upconn *u);

static void on_named(void *arg, int res, struct answer *a)
{
	struct pool_group *g = arg;
	struct list *node, *tmp;

	g->asking = NULL;
	if (res != 0)
		return; /* what was known goes on being used */
	answer_drop(&g->known);
	answer_ref(a);
	g->known = a;
	list_each_safe(node, tmp, &g->idle)
	{
		struct upconn *u = container_of(node, struct upconn, node);

		if (!still_there(g, &u->address))
			close_idle(u);
	}
}

/* Idle connections must not outlive the address that they lead to by more than its TTL: when that
 * has run out, the name is asked again beside the traffic. */
static void follow_name(struct origin_shard *s, struct pool_group *g)
{
	if (!g->server || g->asking || (g->known && loop_now_ms(s->p.loop) < g->known->expires_ms))
		return;
	g->asking = resolve_name(s->p.resolver, g->server->host, RESOLVE_SEARCH, on_named, g);
}

/* ---------------------------------------------------------------- connections */
static void forget(struct upconn *u)
{
	struct origin_shard *s = origin_shard(u->loop);
	struct pool_group *g = u->group;

	must(u->magic == UPCONN_MAGIC);
	set_idle(u, false);
	if (u->live)
		gauge(u, u->live->slot_active, -1);
	loop_alarm_off(&u->expire);
	if (u->pin && u->pin->held == u)
		u->pin->held = NULL;
	g->n_conns--;
	u->magic = 0;
	slab_put(&s->upconns, u);
	pool_group_release(s, g);
}

static void close_idle(struct upconn *u)
{
	h1_client_close(&u->client);
	forget(u);
}

static void on_expire(struct alarm *a)
{
	struct upconn *u = container_of(a, struct upconn, expire);
	uint64_t now = loop_now_ms(u->loop);

	if (!u->idle)
		return;
	if (now < u->idle_until_ms)
		loop_alarm(u->loop, a, (uint32_t)(u->idle_until_ms - now));
	else
		close_idle(u);
}

/* The alarm is lazy, but another request may have had a longer time than this one. */
static void keep_for_a_while(struct upconn *u)
{
	uint64_t now = loop_now_ms(u->loop), until = u->born_ms + POOL_AGE_MS;

	if (u->keep_ms != MS_OFF && now + u->keep_ms < until)
		until = now + u->keep_ms;
	u->idle_until_ms = until;
	if (!alarm_on(&u->expire) || u->expire.due_ms > until)
		loop_alarm(u->loop, &u->expire, (uint32_t)(until - now));
}

/* pin.drop: the client connection ended. */
static void on_unpinned(struct pin *p)
{
	struct upconn *u = p->held;

	p->held = NULL;
	close_idle(u);
}

static void keep_pinned(struct upconn *u)
{
	if (!u->pin || u->pin->held) {
		close_idle(u);
		return;
	}
	u->pin->held = u;
	u->pin->drop = on_unpinned;
	h1_client_idle(u->client);
}

static void on_left(struct h1_client *c, void *arg, enum client_end how)
{
	struct upconn *u = arg;
	struct origin_shard *s = origin_shard(u->loop);

	if (u->live)
		atomic_fetch_sub_explicit(&u->live->active, 1, memory_order_relaxed);
	if (how != CLIENT_REUSABLE) {
		forget(u);
		return;
	}
	if (h1_client_pinned(c)) {
		keep_pinned(u);
		return;
	}
	u->pin = NULL;
	if (!still_there(u->group, &u->address) ||
	    loop_now_ms(u->loop) - u->born_ms >= POOL_AGE_MS) {
		close_idle(u);
		return;
	}
	u->idle_since_ms = loop_now_ms(u->loop);
	set_idle(u, true);
	keep_for_a_while(u);
	h1_client_idle(c);
	if (u->quota)
		queue_parked(s, u);
	if (s->n_idle > s->p.pool_max) /* a drain keeps none */
		pool_trim(s, s->p.pool_max);
}

static void on_died(struct h1_client *c, void *arg)
{
	(void)c;
	forget(arg);
}

static const struct h1_client_ops pool_client = { .left = on_left, .died = on_died };

struct upconn *pool_new(struct origin_shard *s, struct pool_group *g, struct link *link,
			const struct addr *address, struct server_live *live)
{
	struct upconn *u = slab_get(&s->upconns);

	if (!u) {
		link_abort(&link);
		return NULL;
	}
	memset(u, 0, sizeof(*u));
	u->magic = UPCONN_MAGIC;
	u->loop = s->p.loop;
	u->group = g;
	u->live = live;
	u->quota = live ? live->quota : NULL;
	u->address = *address;
	u->born_ms = loop_now_ms(s->p.loop);
	list_init(&u->node);
	list_init(&u->lru);
	alarm_init(&u->expire, on_expire);
	u->client = h1_client_new(s->p.loop, link, &pool_client, u);
	if (!u->client) {
		slab_put(&s->upconns, u);
		return NULL;
	}
	g->n_conns++;
	if (live)
		gauge(u, live->slot_active, 1);
	return u;
}

struct upconn *pool_get(struct origin_shard *s, struct pool_group *g, uint32_t idle_max_ms,
			const struct dial_policy *policy)
{
	struct list *node, *tmp;

	follow_name(s, g);
	list_each_safe(node, tmp, &g->idle)
	{
		struct upconn *u = container_of(node, struct upconn, node);

		if (loop_now_ms(s->p.loop) - u->idle_since_ms >= idle_max_ms)
			return NULL; /* the others have been idle longer */
		if (policy && policy->judge && !policy->judge(policy->arg, &u->address))
			continue;
		if (!h1_client_usable(u->client))
			continue; /* its own callback takes it out this turn */
		set_idle(u, false);
		return u;
	}
	return NULL;
}

struct upconn *pool_unpin(struct pin *p, struct pool_group *g)
{
	struct upconn *u = p ? p->held : NULL;

	if (!u || u->group != g || !h1_client_usable(u->client))
		return NULL;
	p->held = NULL;
	return u;
}

bool pool_has(const struct exchange *x, const struct pool_group *g, bool fresh)
{
	const struct upconn *held = x->pin ? x->pin->held : NULL;
	uint64_t now = loop_now_ms(x->loop);
	uint32_t idle_max_ms = attempt_idle_max_ms(x);
	struct list *node, *tmp;

	if (held && held->group == g && h1_client_usable(held->client))
		return true;
	if (fresh)
		return false;
	list_each_safe(node, tmp, &g->idle)
	{
		const struct upconn *u = container_of(node, struct upconn, node);

		if (now - u->idle_since_ms >= idle_max_ms)
			return false;
		if (h1_client_usable(u->client))
			return true;
	}
	return false;
}

void pool_close(struct upconn *u)
{
	close_idle(u);
}

void pool_close_idlest(struct pool_group *g)
{
	close_idle(container_of(g->idle.prev, struct upconn, node));
}

void pool_trim(struct origin_shard *s, uint32_t keep)
{
	while (s->n_idle > keep)
		close_idle(container_of(s->lru.prev, struct upconn, lru));
}
