/* test_places.c -- places of servers with max_connections: never too many, none is lost, the shard
 * that has waited longest is told, and only that one. */
#include "unit.h"

#include "origin/priv.h"

#include <pthread.h>
#include <stdlib.h>

#define SHARDS 3

struct world;
struct shard {
	struct world *w;
	struct loop *loop;
	struct places_news news; /* what has come since it was last asked for */
	unsigned calls;
};

struct world {
	struct budget budget;
	struct shard shard[SHARDS];
	struct server_conf servers[2];
	struct upstream_conf conf;
	struct upstream *live;
};

static struct world *here;

static void on_news(struct loop *l, uint32_t upstream, const struct places_news *news)
{
	struct shard *s = &here->shard[loop_shard(l)];

	assert_int_equal(upstream, here->conf.index);
	s->calls++;
	s->news.granted += news->granted;
	s->news.look |= news->look;
	s->news.give |= news->give;
	for (unsigned i = 0; i < 2; i++)
		s->news.grants[i] += news->grants[i];
}

static struct loop *new_loop(struct world *w, unsigned shard)
{
	struct loop_params par = { .io = LOOP_EPOLL,
				   .budget = &w->budget,
				   .shard = shard,
				   .fds_max = 1000 };
	char why[128];
	struct loop *l = loop_new(&par, why);

	assert_non_null(l);
	return l;
}

/* Two servers: `max` places at the first, one at the second. */
static void world_open(struct world *w, uint32_t max)
{
	memset(w, 0, sizeof(*w));
	here = w;
	w->budget.max = 64u << 20;
	w->servers[0].max_connections = max;
	w->servers[1].max_connections = 1;
	w->conf = (struct upstream_conf){ .servers = w->servers, .n_servers = 2, .index = 7 };
	w->live = calloc(1, sizeof(*w->live) + 2 * sizeof(w->live->server[0]));
	assert_non_null(w->live);
	assert_true(places_open(w->live, &w->conf, SHARDS, on_news));
}

static void world_close(struct world *w)
{
	places_close(&w->live->places);
	free(w->live);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	world_open(w, 2);
	for (unsigned i = 0; i < SHARDS; i++) {
		w->shard[i].loop = new_loop(w, i);
		places_join(w->live->places, w->shard[i].loop);
	}
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	for (unsigned i = 0; i < SHARDS; i++) {
		places_leave(w->live->places, i);
		loop_free(&w->shard[i].loop);
	}
	world_close(w);
	free(w);
	return 0;
}

/* What the shard's mail says; nothing: all zero. */
static struct places_news mail_of(struct world *w, unsigned shard)
{
	struct shard *s = &w->shard[shard];
	struct places_news news;

	loop_turn(s->loop, 0);
	news = s->news;
	s->news = (struct places_news){ 0 };
	return news;
}

static bool silent(struct world *w, unsigned shard)
{
	struct places_news n = mail_of(w, shard);

	return !n.granted && !n.look && !n.give;
}

static void waits(struct world *w, unsigned shard, uint32_t n, uint64_t since_us, uint64_t servers)
{
	struct places_waiting p = { .n = n, .since_us = since_us, .servers = servers };

	places_wait(w->live->places, shard, &p);
}

static void give_back(struct quota *q)
{
	q->hold.let_go(&q->hold, NULL);
}

/* ---------------------------------------------------------------- one at a time */
static void no_more_than_there_are(void **state)
{
	struct world *w = *state;
	struct quota *q = w->live->server[0].quota;

	assert_true(places_take(q));
	assert_false(places_full(q));
	assert_true(places_take(q));
	assert_true(places_full(q));
	assert_false(places_take(q));
	assert_true(places_take(w->live->server[1].quota)); /* another server's are others */
	give_back(q);
	assert_true(places_take(q));
	give_back(q);
	give_back(q);
	give_back(w->live->server[1].quota);
	assert_int_equal(atomic_load(&q->taken), 0);
}

/* It is never free in between: nobody else can take it. */
static void the_longest_wait_gets_the_place(void **state)
{
	struct world *w = *state;
	struct quota *q = w->live->server[1].quota;

	assert_true(places_take(q));
	waits(w, 0, 1, 300, 3);
	waits(w, 1, 2, 100, 3);
	waits(w, 2, 1, 200, 3);
	give_back(q);
	assert_false(places_take(q));
	assert_true(silent(w, 0) && silent(w, 2));
	assert_int_equal(mail_of(w, 1).grants[1], 1);
	waits(w, 1, 1, 400, 3);
	give_back(q);
	assert_true(silent(w, 0) && silent(w, 1));
	assert_int_equal(mail_of(w, 2).grants[1], 1);
	for (unsigned i = 0; i < SHARDS; i++)
		waits(w, i, 0, 0, 0);
	give_back(q);
	assert_true(places_take(q));
	give_back(q);
}

static void no_more_grants_than_requests(void **state)
{
	struct world *w = *state;
	struct quota *q = w->live->server[0].quota;

	assert_true(places_take(q) && places_take(q));
	waits(w, 0, 1, 100, 1);
	give_back(q);
	give_back(q); /* its one request has got one already */
	assert_int_equal(atomic_load(&q->taken), 1);
	assert_int_equal(mail_of(w, 0).granted, 1);
	waits(w, 0, 0, 0, 0);
	give_back(q);
}

static void not_for_who_cannot_go_there(void **state)
{
	struct world *w = *state;
	struct quota *q = w->live->server[1].quota;

	assert_true(places_take(q));
	waits(w, 0, 1, 100, 1); /* the other server only */
	waits(w, 1, 1, 200, 2);
	give_back(q);
	assert_true(silent(w, 0));
	assert_int_equal(mail_of(w, 1).grants[1], 1);
	waits(w, 1, 0, 0, 0);
	waits(w, 0, 0, 0, 0);
	give_back(q);
}

static void a_declined_place_is_free_and_all_look(void **state)
{
	struct world *w = *state;
	struct quota *q = w->live->server[1].quota;

	assert_true(places_take(q));
	waits(w, 0, 1, 100, 3);
	waits(w, 1, 1, 200, 3);
	give_back(q);
	assert_int_equal(mail_of(w, 0).granted, 1);
	waits(w, 0, 0, 0, 0); /* the client has gone meanwhile */
	places_decline(q);
	assert_true(silent(w, 0) && silent(w, 2));
	assert_true(mail_of(w, 1).look);
	assert_true(places_take(q));
	waits(w, 1, 0, 0, 0);
	give_back(q);
}

static void an_ejection_is_told_to_all_who_wait(void **state)
{
	struct world *w = *state;

	waits(w, 1, 1, 100, 3);
	places_look(w->live->places);
	assert_true(silent(w, 0) && silent(w, 2));
	assert_true(mail_of(w, 1).look);
	waits(w, 1, 0, 0, 0);
}

/* ---------------------------------------------------------------- parked connections */
static void one_who_parks_is_asked(void **state)
{
	struct world *w = *state;
	struct quota *q = w->live->server[1].quota;

	assert_true(places_take(q));
	places_park(q, 1, 1);
	assert_false(places_awaited(w->live->places));
	waits(w, 0, 1, 100, 3);
	places_ask(w->live->places, 0, 3);
	assert_true(silent(w, 0) && silent(w, 2));
	assert_int_equal(mail_of(w, 1).give, 2);
	assert_true(places_owed(q, 1, UINT64_MAX));
	assert_false(places_owed(q, 1, UINT64_MAX)); /* one is on its way, one waits */
	places_park(q, 1, -1);
	places_ask(w->live->places, 0, 3);
	assert_true(silent(w, 1));
	give_back(q);
	assert_int_equal(mail_of(w, 0).granted, 1);
	waits(w, 0, 0, 0, 0);
	give_back(q);
}

static void who_parks_sees_who_waits(void **state)
{
	struct world *w = *state;
	struct quota *q = w->live->server[1].quota;

	assert_true(places_take(q));
	waits(w, 0, 1, 500, 3);
	places_park(q, 1, 1);
	assert_true(places_awaited(w->live->places));
	assert_false(places_owed(q, 1, 500)); /* own requests have waited as long */
	assert_true(places_owed(q, 1, 501));
	places_park(q, 1, -1);
	waits(w, 0, 0, 0, 0);
	assert_false(places_awaited(w->live->places));
	places_park(q, 1, 1);
	places_park(q, 1, -1);
	give_back(q);
}

static void nobody_owes_to_oneself(void **state)
{
	struct world *w = *state;
	struct quota *q = w->live->server[1].quota;

	waits(w, 1, 5, 100, 3);
	assert_false(places_owed(q, 1, UINT64_MAX));
	assert_true(places_owed(q, 0, UINT64_MAX));
	waits(w, 1, 0, 0, 0);
}

/* ---------------------------------------------------------------- the end of a shard */
static void a_grant_outlives_its_shard(void **state)
{
	struct world *w = *state;
	struct quota *q = w->live->server[1].quota;

	assert_true(places_take(q));
	waits(w, 0, 1, 100, 3);
	waits(w, 1, 1, 200, 3);
	give_back(q);
	waits(w, 0, 0, 0, 0);
	places_leave(w->live->places, 0); /* its mail is not opened */
	assert_int_equal(mail_of(w, 1).granted, 1);
	assert_true(silent(w, 0));
	waits(w, 1, 0, 0, 0);
	give_back(q);
	assert_int_equal(atomic_load(&q->taken), 0);
}

/* ---------------------------------------------------------------- all at once */
#define ROUNDS 3000

static _Atomic int in_use, at_most, working;

static void use(void)
{
	int now = atomic_fetch_add(&in_use, 1) + 1, most = atomic_load(&at_most);

	while (now > most && !atomic_compare_exchange_weak(&at_most, &most, now))
		;
	atomic_fetch_sub(&in_use, 1);
}

/* A place, taken or granted; waits for mail, never for time alone. */
static void get_place(struct world *w, unsigned i, struct quota *q)
{
	unsigned quiet = 0;

	if (places_take(q))
		return;
	waits(w, i, 1, loop_now_us(w->shard[i].loop), 1);
	while (!places_take(q)) {
		struct places_news n;

		loop_turn(w->shard[i].loop, 100);
		n = w->shard[i].news;
		w->shard[i].news = (struct places_news){ 0 };
		assert_int_equal(n.grants[1], 0);
		if (n.granted) {
			assert_int_equal(n.granted, 1);
			break;
		}
		quiet = n.look ? 0 : quiet + 1;
		assert_true(quiet < 300); /* a wake-up was lost */
	}
	waits(w, i, 0, 0, 0);
}

/* Grants that crossed the end of its waiting. */
static void decline_all(struct world *w, unsigned i, struct quota *q)
{
	uint32_t n;

	loop_turn(w->shard[i].loop, 1);
	n = w->shard[i].news.granted;
	w->shard[i].news = (struct places_news){ 0 };
	while (n--)
		places_decline(q);
}

static void *work(void *arg)
{
	struct shard *s = arg;
	struct world *w = s->w;
	unsigned i = (unsigned)(s - w->shard);
	struct quota *q = w->live->server[0].quota;

	s->loop = new_loop(w, i);
	places_join(w->live->places, s->loop);
	for (unsigned round = 0; round < ROUNDS; round++) {
		get_place(w, i, q);
		use();
		give_back(q);
		if (round % 7 == 0)
			decline_all(w, i, q);
	}
	atomic_fetch_sub(&working, 1);
	while (atomic_load(&working))
		decline_all(w, i, q);
	places_leave(w->live->places, i);
	loop_free(&s->loop);
	return NULL;
}

static void many_threads(void **state)
{
	pthread_t thread[SHARDS];
	struct world w;

	(void)state;
	world_open(&w, 2);
	atomic_store(&at_most, 0);
	atomic_store(&working, SHARDS);
	for (unsigned i = 0; i < SHARDS; i++) {
		w.shard[i].w = &w;
		assert_int_equal(pthread_create(&thread[i], NULL, work, &w.shard[i]), 0);
	}
	for (unsigned i = 0; i < SHARDS; i++)
		pthread_join(thread[i], NULL);
	assert_in_range(atomic_load(&at_most), 1, 2);
	assert_int_equal(atomic_load(&w.live->server[0].quota->taken), 0);
	world_close(&w);
}

static void without_limits_there_is_nothing(void **state)
{
	struct server_conf server = { .weight = 1 };
	struct upstream_conf conf = { .servers = &server, .n_servers = 1 };
	struct upstream *live = calloc(1, sizeof(*live) + sizeof(live->server[0]));

	(void)state;
	assert_non_null(live);
	assert_true(places_open(live, &conf, SHARDS, on_news));
	assert_null(live->places);
	assert_null(live->server[0].quota);
	places_close(&live->places);
	free(live);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(no_more_than_there_are),
		TEST(the_longest_wait_gets_the_place),
		TEST(no_more_grants_than_requests),
		TEST(not_for_who_cannot_go_there),
		TEST(a_declined_place_is_free_and_all_look),
		TEST(an_ejection_is_told_to_all_who_wait),
		TEST(one_who_parks_is_asked),
		TEST(who_parks_sees_who_waits),
		TEST(nobody_owes_to_oneself),
		TEST(a_grant_outlives_its_shard),
		cmocka_unit_test(many_threads),
		cmocka_unit_test(without_limits_there_is_nothing),
	};

	return cmocka_run_group_tests_name("places", tests, NULL, NULL);
}
