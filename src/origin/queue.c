/* queue.c -- requests of one shard to an upstream whose servers have max_connections: they go where
 * a connection may be had, or wait for one, first come first served.
 *
 *   queue_begin ──► find: a server with an idle connection here, or with a place ──► upstream_go
 *              └──► waits (it is x's up end)
 *                     ├──► a connection comes back here: takes it over     ──► upstream_go
 *                     ├──► a place is granted to this shard: dials         ──► upstream_go
 *                     ├──► look: a server is no longer left out            ──► upstream_go
 *                     ├──► timeouts.queue: end_fail(QUEUE)
 *                     └──► on_cut: the client went away
 *
 * A server that is ejected, or was tried for this request, is not waited for, unless there is no
 * other.  Whoever waits for an idle connection that cannot be used (another shard's, or one idle
 * for too long for a request that may not be sent twice) has it closed to make room. */
#include "origin/priv.h"

#include <stdio.h>
#include <stdlib.h>

/* A shard goes on with its own requests on a connection while those of others have not waited for
 * longer than its own by this much: else each request would cost a new connection. */
#define SHARE_US 20000u

#define WAITER_MAGIC 0x3a17e700u
struct waiter {
	uint32_t magic;
	bool plain; /* any server will do */
	struct end end;
	struct exchange *x;
	struct tries *t;
	struct queue *q;
	struct list node;
	struct alarm late;
	uint64_t since_us;
};

struct queue {
	struct origin_shard *s;
	const struct upstream_conf *u;
	struct list waiters; /* the first at the head */
	uint32_t n, n_plain;
	struct alarm look; /* a server's ejection ends */
};

uint32_t queue_waiter_size(void)
{
	return sizeof(struct waiter);
}

/* ---------------------------------------------------------------- servers, as sets of positions */
static uint64_t bit(uint32_t i)
{
	return 1ull << i;
}

static uint64_t all_of(const struct queue *q)
{
	must(q->u->n_servers > 0 && q->u->n_servers <= LIMITED_SERVERS_MAX);
	return UINT64_MAX >> (LIMITED_SERVERS_MAX - q->u->n_servers);
}

static uint64_t ejected(const struct queue *q)
{
	uint64_t now = loop_now_ms(q->s->p.loop), set = 0;

	for (uint32_t i = 0; i < q->u->n_servers; i++)
		if (balance_ejected(&q->u->live->server[i], now))
			set |= bit(i);
	return set;
}

/* Where it may go, or has to wait for. */
static uint64_t wanted(const struct queue *q, const struct tries *t)
{
	uint64_t left = all_of(q) & ~t->tried;
	uint64_t up;

	if (t->same && t->server)
		return bit((uint32_t)(t->server - q->u->servers));
	up = left & ~ejected(q);
	return up ? up : left;
}

static struct quota *quota_of(const struct queue *q, uint32_t i)
{
	return q->u->live->server[i].quota;
}

/* ---------------------------------------------------------------- finding a connection */
struct found {
	const struct server_conf *server;
	struct hold *hold; /* a place for a new one; NULL: in the pool, or no limit */
};

static struct pool_group *group_of(const struct queue *q, uint32_t i)
{
	return q->s->servers[q->u->servers[i].index];
}

static bool pool_serves(const struct queue *q, const struct exchange *x, const struct tries *t,
			uint32_t i)
{
	return pool_has(x, group_of(q, i), t->fresh);
}

static uint64_t open_ones(const struct queue *q, const struct exchange *x, const struct tries *t,
			  uint64_t want)
{
	uint64_t open = 0;

	for (uint32_t i = 0; i < q->u->n_servers; i++) {
		const struct quota *quota = quota_of(q, i);

		if ((want & bit(i)) && (!quota || !places_full(quota) || pool_serves(q, x, t, i)))
			open |= bit(i);
	}
	return open;
}

/* What this server has to give. */
static bool secure(const struct queue *q, const struct exchange *x, const struct tries *t,
		   struct found *f)
{
	uint32_t i = (uint32_t)(f->server - q->u->servers);
	struct quota *quota = quota_of(q, i);

	f->hold = NULL;
	if (!quota || pool_serves(q, x, t, i))
		return true;
	if (!places_take(quota))
		return false;
	f->hold = &quota->hold;
	return true;
}

static bool find(struct queue *q, const struct exchange *x, const struct tries *t, struct found *f)
{
	uint64_t want = wanted(q, t), open;

	while ((open = open_ones(q, x, t, want)) != 0) {
		f->server = t->same ? t->server : balance_pick_among(q->s, q->u, open);
		if (!f->server)
			return false;
		if (secure(q, x, t, f))
			return true;
		want &= ~bit((uint32_t)(f->server - q->u->servers));
	}
	return false;
}

/* At once: a connection that was found is still in the pool. */
static void go(struct exchange *x, struct tries *t, const struct found *f)
{
	if (!t->same)
		tries_chose(t, f->server);
	upstream_go(x, t, f->hold);
}

/* ---------------------------------------------------------------- what others are told */
static void tell(struct queue *q)
{
	struct places_waiting w = { .n = q->n, .since_us = UINT64_MAX };
	struct list *node, *tmp;

	list_each_safe(node, tmp, &q->waiters)
	{
		const struct waiter *a = container_of(node, struct waiter, node);

		if (a->since_us < w.since_us)
			w.since_us = a->since_us;
		w.servers |= a->plain ? all_of(q) : wanted(q, a->t);
		if (a->plain)
			break; /* who came later changes nothing */
	}
	places_wait(q->u->live->places, loop_shard(q->s->p.loop), &w);
}

/* A server that is left out may be waited for again when its time is over. */
static void arm_look(struct queue *q)
{
	uint64_t now = loop_now_ms(q->s->p.loop), first = UINT64_MAX;

	loop_alarm_off(&q->look);
	for (uint32_t i = 0; q->n && i < q->u->n_servers; i++) {
		uint64_t until = atomic_load_explicit(&q->u->live->server[i].ejected_until_ms,
						      memory_order_relaxed);

		if (until > now && until < first)
			first = until;
	}
	if (first != UINT64_MAX)
		loop_alarm(q->s->p.loop, &q->look, (uint32_t)(first - now));
}

/* An idle connection that this request cannot use goes: one of our own, or another shard's. */
static void make_room(struct queue *q, uint64_t want)
{
	struct places *places = q->u->live->places;

	for (uint32_t i = 0; i < q->u->n_servers; i++) {
		if (!(want & bit(i)) || !quota_of(q, i) || !group_of(q, i)->n_idle)
			continue;
		places_coming(places);
		pool_close_idlest(group_of(q, i));
		return;
	}
	places_ask(places, loop_shard(q->s->p.loop), want);
}

/* ---------------------------------------------------------------- waiting */
static void count(const struct queue *q, int delta)
{
	metric_add(q->s->p.cells, q->u->live->slot_queued, (uint64_t)(int64_t)delta);
}

/* It waits no more; its end has left. */
static void forget(struct waiter *w)
{
	struct queue *q = w->q;

	must(w->magic == WAITER_MAGIC && !w->end.x);
	loop_alarm_off(&w->late);
	list_remove(&w->node);
	q->n--;
	q->n_plain -= w->plain;
	w->x->facts.queue_us += loop_now_us(q->s->p.loop) - w->since_us;
	w->magic = 0;
	slab_put(&q->s->waiters, w);
	count(q, -1);
	tell(q);
}

static void on_late(struct alarm *a)
{
	struct waiter *w = container_of(a, struct waiter, late);

	end_fail(&w->end, why(WHY_QUEUE));
	forget(w);
}

static void on_cut(struct end *e, const struct why *cause)
{
	(void)cause;
	end_leave(e);
	forget(container_of(e, struct waiter, end));
}

static void on_news(struct end *e)
{
	(void)e; /* the request waits, its body with it */
}

static void dump_end(const struct end *e, int fd)
{
	const struct waiter *w = container_of(e, struct waiter, end);

	dprintf(fd, "  waits for a connection of %.*s since %llu us, %u wait\n",
		(int)w->q->u->name.n, w->q->u->name.p, (unsigned long long)w->since_us, w->q->n);
}

static const struct end_ops waiter_end = { .name = "waiter",
					   .on_data = on_news,
					   .on_room = on_news,
					   .on_cut = on_cut,
					   .dump = dump_end };

/* All its waits together last no longer than timeouts.queue. */
static void set_deadline(struct waiter *w)
{
	uint64_t waited_ms = w->x->facts.queue_us / 1000;
	uint32_t ms = w->x->timeouts->queue;

	if (ms != MS_OFF)
		loop_alarm(w->x->loop, &w->late, waited_ms < ms ? ms - (uint32_t)waited_ms : 0);
}

static struct waiter *enqueue(struct queue *q, struct exchange *x, struct tries *t)
{
	struct waiter *w = slab_get(&q->s->waiters);

	if (!w)
		return NULL;
	*w = (struct waiter){ .magic = WAITER_MAGIC,
			      .plain = !t->same && !t->tried,
			      .end.ops = &waiter_end,
			      .x = x,
			      .t = t,
			      .q = q,
			      .since_us = loop_now_us(x->loop) };
	alarm_init(&w->late, on_late);
	set_deadline(w);
	if (t->same) /* it had its turn, and its connection was dead */
		list_push_head(&q->waiters, &w->node);
	else
		list_push_tail(&q->waiters, &w->node);
	q->n++;
	q->n_plain += w->plain;
	count(q, 1);
	x->facts.upstream = q->u->name.p;
	pipe_stop(&x->req, STOP_CONNECT);
	exchange_attach_up(x, &w->end);
	return w;
}

static void serve(struct waiter *w, const struct found *f)
{
	struct exchange *x = w->x;
	struct tries *t = w->t;

	end_leave(&w->end);
	forget(w);
	go(x, t, f);
}

/* It ends this turn, and has not been heard here yet. */
static bool is_over(const struct waiter *w)
{
	return w->x->cut || w->x->refused;
}

/* The first that may go to this server; `pooled`: on a connection that was used before. */
static struct waiter *first_for(struct queue *q, uint32_t i, bool pooled)
{
	struct list *node, *tmp;

	list_each_safe(node, tmp, &q->waiters)
	{
		struct waiter *w = container_of(node, struct waiter, node);

		if (!is_over(w) && (wanted(q, w->t) & bit(i)) && !(pooled && w->t->fresh))
			return w;
	}
	return NULL;
}

static void look(struct queue *q)
{
	struct list *node, *tmp;
	bool none_for_any = false;

	list_each_safe(node, tmp, &q->waiters)
	{
		struct waiter *w = container_of(node, struct waiter, node);
		struct found f;

		if (is_over(w) || (w->plain && none_for_any))
			continue;
		if (find(q, w->x, w->t, &f)) {
			serve(w, &f);
			continue;
		}
		none_for_any |= w->plain;
		make_room(q, wanted(q, w->t));
	}
	arm_look(q);
}

static void on_look(struct alarm *a)
{
	look(container_of(a, struct queue, look));
}

/* ---------------------------------------------------------------- life */
static bool open_groups(struct origin_shard *s, const struct upstream_conf *u)
{
	for (uint32_t i = 0; i < u->n_servers; i++)
		if (!pool_server(s, &u->servers[i]))
			return false;
	return true;
}

static struct queue *queue_new(struct origin_shard *s, const struct upstream_conf *u)
{
	struct queue *q = open_groups(s, u) ? calloc(1, sizeof(*q)) : NULL;

	if (!q)
		return NULL;
	q->s = s;
	q->u = u;
	list_init(&q->waiters);
	alarm_init(&q->look, on_look);
	places_join(u->live->places, s->p.loop);
	return q;
}

void queue_close(struct queue *q)
{
	if (!q)
		return;
	must(!q->n);
	loop_alarm_off(&q->look);
	places_leave(q->u->live->places, loop_shard(q->s->p.loop));
	free(q);
}

static struct queue *queue_of(struct origin_shard *s, const struct upstream_conf *u)
{
	struct queue **grown;

	if (u->index >= s->n_queues) {
		grown = realloc(s->queues, (u->index + 1) * sizeof(*grown));
		if (!grown)
			return NULL;
		memset(grown + s->n_queues, 0, (u->index + 1 - s->n_queues) * sizeof(*grown));
		s->queues = grown;
		s->n_queues = u->index + 1;
	}
	if (!s->queues[u->index])
		s->queues[u->index] = queue_new(s, u);
	return s->queues[u->index];
}

/* ---------------------------------------------------------------- what others call */
/* Between being seen by nobody and being registered a place may have come free: it looks twice. */
static void wait_in(struct queue *q, struct exchange *x, struct tries *t, bool its_turn)
{
	struct waiter *w = enqueue(q, x, t);
	struct found f;

	if (!w) {
		exchange_refuse(x, why(WHY_MEMORY), NULL);
		return;
	}
	tell(q);
	if (its_turn && find(q, x, t, &f)) {
		serve(w, &f);
		return;
	}
	make_room(q, wanted(q, t));
	arm_look(q);
}

void queue_begin(struct exchange *x, struct tries *t)
{
	struct queue *q = queue_of(origin_shard(x->loop), t->conf);
	struct found f;
	bool its_turn;

	if (!q) {
		exchange_refuse(x, why(WHY_MEMORY), NULL);
		return;
	}
	if (!wanted(q, t)) {
		exchange_refuse(x, why(WHY_NO_SERVER), NULL);
		return;
	}
	its_turn = t->same || !q->n_plain;
	if (its_turn && find(q, x, t, &f))
		go(x, t, &f);
	else
		wait_in(q, x, t, its_turn);
}

/* Not for a server that is left out, while there are others. */
static bool worth_closing(const struct queue *q, uint32_t i)
{
	uint64_t out = ejected(q);

	return !(out & bit(i)) || out == all_of(q);
}

/* The first of this shard that can use it; the pool gives the most recent one first. */
static bool take_over(struct queue *q, const struct upconn *u)
{
	struct found f = { .server = &q->u->servers[u->quota->server] };
	struct waiter *w = first_for(q, u->quota->server, true);

	if (w)
		serve(w, &f);
	else
		arm_look(q);
	return w != NULL;
}

static bool owed(const struct queue *q, const struct upconn *u, uint64_t before_us)
{
	return worth_closing(q, u->quota->server) &&
	       places_owed(u->quota, loop_shard(q->s->p.loop), before_us);
}

void queue_parked(struct origin_shard *s, struct upconn *u)
{
	struct queue *q = s->queues[u->quota->upstream];
	const struct waiter *first = container_of(q->waiters.next, struct waiter, node);
	bool others_first;

	if (!places_awaited(u->quota->places) || !h1_client_usable(u->client))
		return;
	others_first = q->n && first->since_us > SHARE_US && owed(q, u, first->since_us - SHARE_US);
	if (!others_first && q->n && take_over(q, u))
		return;
	if (others_first || owed(q, u, UINT64_MAX))
		pool_close(u);
}

static void take_grants(struct queue *q, uint32_t i, uint32_t n)
{
	struct found f = { .server = &q->u->servers[i], .hold = &quota_of(q, i)->hold };

	while (n--) {
		struct waiter *w = first_for(q, i, false);

		if (w)
			serve(w, &f);
		else
			places_decline(quota_of(q, i));
	}
}

/* What this shard has not got, another may have. */
static void give_up(struct queue *q, uint64_t servers)
{
	unsigned shard = loop_shard(q->s->p.loop);

	for (uint32_t i = 0; i < q->u->n_servers; i++) {
		if (!(servers & bit(i)))
			continue;
		while (group_of(q, i)->n_idle && places_owed(quota_of(q, i), shard, UINT64_MAX))
			pool_close_idlest(group_of(q, i));
		if (!group_of(q, i)->n_idle)
			places_ask(q->u->live->places, shard, bit(i));
	}
}

void queue_news(struct loop *l, uint32_t upstream, const struct places_news *news)
{
	struct origin_shard *s = origin_shard(l);
	struct queue *q = s ? s->queues[upstream] : NULL;

	if (!q)
		return;
	for (uint32_t i = 0; news->granted && i < q->u->n_servers; i++)
		if (news->grants[i])
			take_grants(q, i, news->grants[i]);
	if (news->look)
		look(q);
	if (news->give)
		give_up(q, news->give);
}
