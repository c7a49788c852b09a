/* places.c -- how many connections the servers with max_connections have, over all shards.
 *
 *   quota   one such server: `taken` places of `max`.  A place is taken before a socket is made and
 *           is free when that socket has gone (link.h: hold): the limit is never exceeded.
 *   seat    one shard's part: how many of its requests wait, since when its first one, what mail
 *           it has, how many idle connections it has parked
 *
 * A place that becomes free while somebody waits never is free: it is granted to the shard whose
 * first request has waited longest, by mail, so that nobody else can be faster and only one shard
 * wakes.  A shard that has no use for it declines: then it is free, and all who wait look once.
 *
 * Idle connections are places too.  The shard that begins to wait writes `n_waiting`, then reads
 * who has parked some and asks for one; the shard that parks one writes `idle`, then reads
 * `n_waiting` (both in one order that all agree on): at least one of the two sees the other.
 * `coming` counts what has been given up and is not free yet, so that no more is given up than
 * there are requests waiting.
 *
 * Everything else is under one lock per upstream, taken where connections are made or end and where
 * requests wait, not where requests run. */
#include "origin/priv.h"

#include <pthread.h>
#include <stdlib.h>

struct parked {
	_Atomic uint32_t n;
	char pad[60]; /* written by one shard at every request: a cache line of its own */
};

struct seat {
	struct mail mail;
	struct places *places;
	struct loop *loop; /* NULL: takes no part */
	bool posted;
	struct places_news news; /* what the mail says */
	struct places_waiting waiting;
	struct parked *idle; /* by server; its own shard's */
};

struct places {
	pthread_mutex_t lock;
	_Atomic uint32_t n_waiting; /* requests, all shards; written under the lock */
	uint32_t coming;
	uint32_t n_seats, n_servers;
	uint32_t upstream; /* its index */
	places_fn *news;
	struct quota *quota; /* by server; max 0: no limit */
	struct seat seat[];
};

/* ---------------------------------------------------------------- mail */
static void on_mail(struct loop *l, struct mail *m)
{
	struct seat *seat = container_of(m, struct seat, mail);
	struct places *p = seat->places;
	struct places_news news;

	pthread_mutex_lock(&p->lock);
	news = seat->news;
	seat->news = (struct places_news){ 0 };
	seat->posted = false;
	pthread_mutex_unlock(&p->lock);
	if (news.look || news.granted || news.give)
		p->news(l, p->upstream, &news);
}

/* Under the lock: who leaves cannot be posted to afterwards. */
static void post(struct seat *seat)
{
	if (seat->posted || !seat->loop)
		return;
	seat->posted = true;
	(void)loop_post(seat->loop, &seat->mail);
}

/* ---------------------------------------------------------------- free again */
static bool waits_longer(const struct seat *a, const struct seat *b)
{
	return a->waiting.n && (!b || a->waiting.since_us < b->waiting.since_us);
}

/* Whose first request has waited longest and can go to this server; NULL: none's. */
static struct seat *next_seat(struct places *p, uint32_t server)
{
	struct seat *best = NULL;

	for (uint32_t i = 0; i < p->n_seats; i++) {
		struct seat *s = &p->seat[i];

		/* what it was granted is not taken off its requests yet */
		if ((s->waiting.servers >> server & 1) && s->news.granted < s->waiting.n &&
		    waits_longer(s, best))
			best = s;
	}
	return best;
}

static void let_go(struct hold *hold, struct loop *l)
{
	struct quota *q = container_of(hold, struct quota, hold);
	struct places *p = q->places;
	struct seat *to;

	(void)l;
	pthread_mutex_lock(&p->lock);
	must(atomic_load_explicit(&q->taken, memory_order_relaxed) > 0);
	if (p->coming)
		p->coming--;
	to = next_seat(p, q->server);
	if (to) {
		to->news.granted++;
		to->news.grants[q->server]++;
		post(to);
	} else {
		atomic_fetch_sub_explicit(&q->taken, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&p->lock);
}

static void look_all(struct places *p)
{
	for (uint32_t i = 0; i < p->n_seats; i++) {
		if (!p->seat[i].waiting.n)
			continue;
		p->seat[i].news.look = true;
		post(&p->seat[i]);
	}
}

void places_look(struct places *p)
{
	pthread_mutex_lock(&p->lock);
	look_all(p);
	pthread_mutex_unlock(&p->lock);
}

void places_decline(struct quota *q)
{
	struct places *p = q->places;

	pthread_mutex_lock(&p->lock);
	atomic_fetch_sub_explicit(&q->taken, 1, memory_order_relaxed);
	look_all(p);
	pthread_mutex_unlock(&p->lock);
}

/* ---------------------------------------------------------------- taking */
bool places_take(struct quota *q)
{
	struct places *p = q->places;
	bool ok;

	if (places_full(q)) /* the lock would say the same, or that just now one became free */
		return false;
	pthread_mutex_lock(&p->lock);
	ok = !places_full(q);
	if (ok)
		atomic_fetch_add_explicit(&q->taken, 1, memory_order_relaxed);
	pthread_mutex_unlock(&p->lock);
	return ok;
}

/* ---------------------------------------------------------------- waiting */
void places_wait(struct places *p, unsigned shard, const struct places_waiting *w)
{
	struct seat *s = &p->seat[shard];

	pthread_mutex_lock(&p->lock);
	atomic_fetch_add(&p->n_waiting, w->n - s->waiting.n);
	s->waiting = *w;
	pthread_mutex_unlock(&p->lock);
}

/* Under the lock: whether requests of other shards still need a connection given up. */
static bool others_need(const struct places *p, const struct seat *me)
{
	uint32_t need = 0;

	for (uint32_t i = 0; i < p->n_seats; i++) {
		const struct seat *s = &p->seat[i];

		if (s != me && s->waiting.n > s->news.granted)
			need += s->waiting.n - s->news.granted;
	}
	return need > p->coming;
}

static uint64_t oldest_elsewhere(const struct places *p, const struct seat *me, uint32_t server)
{
	uint64_t oldest = UINT64_MAX;

	for (uint32_t i = 0; i < p->n_seats; i++) {
		const struct seat *s = &p->seat[i];

		if (s != me && s->waiting.n && (s->waiting.servers >> server & 1) &&
		    s->waiting.since_us < oldest)
			oldest = s->waiting.since_us;
	}
	return oldest;
}

bool places_owed(struct quota *q, unsigned shard, uint64_t before_us)
{
	struct places *p = q->places;
	struct seat *me = &p->seat[shard];
	bool owed;

	if (!atomic_load(&p->n_waiting))
		return false;
	pthread_mutex_lock(&p->lock);
	owed = others_need(p, me) && oldest_elsewhere(p, me, q->server) < before_us;
	if (owed)
		p->coming++;
	pthread_mutex_unlock(&p->lock);
	return owed;
}

void places_coming(struct places *p)
{
	pthread_mutex_lock(&p->lock);
	p->coming++;
	pthread_mutex_unlock(&p->lock);
}

static struct seat *who_parks(struct places *p, const struct seat *me, uint32_t server)
{
	for (uint32_t i = 0; i < p->n_seats; i++)
		if (&p->seat[i] != me && p->seat[i].loop && atomic_load(&p->seat[i].idle[server].n))
			return &p->seat[i];
	return NULL;
}

void places_ask(struct places *p, unsigned shard, uint64_t servers)
{
	struct seat *to = NULL;

	pthread_mutex_lock(&p->lock);
	for (uint32_t i = 0; i < p->n_servers && !to; i++) {
		if (!(servers >> i & 1) || !p->quota[i].max)
			continue;
		to = who_parks(p, &p->seat[shard], i);
		if (to) {
			to->news.give |= 1ull << i;
			post(to);
		}
	}
	pthread_mutex_unlock(&p->lock);
}

/* Sequentially consistent, both: see the head. */
void places_park(struct quota *q, unsigned shard, int delta)
{
	atomic_fetch_add(&q->places->seat[shard].idle[q->server].n, (uint32_t)delta);
}

bool places_awaited(const struct places *p)
{
	return atomic_load(&p->n_waiting) != 0;
}

/* ---------------------------------------------------------------- life */
static bool limited(const struct upstream_conf *u)
{
	for (uint32_t i = 0; i < u->n_servers; i++)
		if (u->servers[i].max_connections)
			return true;
	return false;
}

static void open_quota(struct places *p, const struct upstream_conf *u, struct upstream *live)
{
	for (uint32_t i = 0; i < p->n_servers; i++) {
		struct quota *q = &p->quota[i];

		q->hold.let_go = let_go;
		q->places = p;
		q->upstream = u->index;
		q->server = i;
		q->max = u->servers[i].max_connections;
		live->server[i].quota = q->max ? q : NULL;
	}
}

static bool open_seats(struct places *p)
{
	for (uint32_t i = 0; i < p->n_seats; i++) {
		struct seat *s = &p->seat[i];
		size_t n = p->n_servers * sizeof(*s->idle);

		s->places = p;
		s->mail.open = on_mail;
		s->idle = aligned_alloc(64, n);
		if (!s->idle)
			return false;
		memset(s->idle, 0, n);
	}
	return true;
}

bool places_open(struct upstream *live, const struct upstream_conf *u, unsigned shards,
		 places_fn *news)
{
	struct places *p;

	if (!limited(u))
		return true;
	must(u->n_servers <= LIMITED_SERVERS_MAX);
	p = calloc(1, sizeof(*p) + shards * sizeof(p->seat[0]));
	if (!p)
		return false;
	pthread_mutex_init(&p->lock, NULL);
	p->n_seats = shards;
	p->n_servers = u->n_servers;
	p->upstream = u->index;
	p->news = news;
	live->places = p;
	p->quota = calloc(u->n_servers, sizeof(*p->quota));
	if (!p->quota || !open_seats(p))
		return false; /* places_close() does the rest */
	open_quota(p, u, live);
	return true;
}

void places_close(struct places **pp)
{
	struct places *p = *pp;

	*pp = NULL;
	if (!p)
		return;
	for (uint32_t i = 0; i < p->n_seats; i++)
		free(p->seat[i].idle);
	pthread_mutex_destroy(&p->lock);
	free(p->quota);
	free(p);
}

void places_join(struct places *p, struct loop *l)
{
	struct seat *s = &p->seat[loop_shard(l)];

	must(loop_shard(l) < p->n_seats);
	pthread_mutex_lock(&p->lock);
	s->loop = l;
	pthread_mutex_unlock(&p->lock);
}

void places_leave(struct places *p, unsigned shard)
{
	struct seat *s = &p->seat[shard];
	struct places_news news;

	pthread_mutex_lock(&p->lock);
	must(!s->waiting.n);
	news = s->news;
	s->news = (struct places_news){ 0 };
	s->loop = NULL;
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < p->n_servers; i++)
		while (news.granted && news.grants[i]) {
			news.grants[i]--;
			let_go(&p->quota[i].hold, NULL);
		}
}
