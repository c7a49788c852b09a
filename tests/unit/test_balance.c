/* test_balance.c -- which server is chosen: shares by weight, the lighter one, those passed over,
 * and what a row of failed connects does. */
#include "unit.h"

#include "origin/priv.h"

#include <stdlib.h>
#include <string.h>

#define SERVERS 3

struct bench {
	struct budget budget;
	struct loop *loop;
	struct origin_shard shard;
	struct server_conf servers[SERVERS];
	struct upstream_conf conf;
	struct upstream *live;
};

static int setup(void **state)
{
	struct bench *b = calloc(1, sizeof(*b));
	struct loop_params par = { .io = LOOP_EPOLL, .budget = &b->budget, .fds_max = 1000 };
	char why[128];

	assert_non_null(b);
	b->budget.max = 64u << 20;
	b->loop = loop_new(&par, why);
	b->live = calloc(1, sizeof(*b->live) + SERVERS * sizeof(b->live->server[0]));
	assert_true(b->loop && b->live);
	b->shard.p.loop = b->loop;
	b->shard.rng = 1;
	for (unsigned i = 0; i < SERVERS; i++)
		b->servers[i] = (struct server_conf){ .url = STR("http://server"), .weight = 1 };
	b->conf = (struct upstream_conf){ .name = STR("app"),
					  .servers = b->servers,
					  .n_servers = SERVERS,
					  .eject_failures = 2,
					  .eject_ms = 1000000,
					  .live = b->live };
	*state = b;
	return 0;
}

static int teardown(void **state)
{
	struct bench *b = *state;

	for (uint32_t i = 0; i < b->shard.n_upstreams; i++)
		free(b->shard.balance[i]);
	free(b->shard.balance);
	free(b->live);
	loop_free(&b->loop);
	free(b);
	return 0;
}

/* Its position; -1: none. */
static int pick(struct bench *b, uint64_t passed_over)
{
	const struct server_conf *c = balance_pick(&b->shard, &b->conf, passed_over);

	return c ? (int)(c - b->servers) : -1;
}

static void picks(struct bench *b, unsigned times, uint64_t passed_over, unsigned got[SERVERS])
{
	memset(got, 0, SERVERS * sizeof(*got));
	for (unsigned i = 0; i < times; i++)
		got[pick(b, passed_over)]++;
}

static void test_shares_by_weight(void **state)
{
	struct bench *b = *state;
	unsigned got[SERVERS], in_a_row = 0;
	int before = -1;

	b->servers[0].weight = 5;
	picks(b, 70, 0, got);
	assert_int_equal(got[0], 50);
	assert_int_equal(got[1], 10);
	assert_int_equal(got[2], 10);
	for (unsigned i = 0; i < 70; i++) { /* smooth: five of seven, but never five in a row */
		int now = pick(b, 0);

		in_a_row = now == before ? in_a_row + 1 : 1;
		assert_true(in_a_row < 5);
		before = now;
	}
}

static void test_who_is_passed_over(void **state)
{
	static const uint8_t methods[] = { BALANCE_ROUND_ROBIN, BALANCE_LEAST_CONNECTIONS,
					   BALANCE_P2C };
	struct bench *b = *state;
	struct tries t = { .tried = 1 | 4 };
	unsigned got[SERVERS];

	for (unsigned i = 0; i < ARRAY_LEN(methods); i++) {
		b->conf.balance = methods[i];
		picks(b, 30, 1, got);
		assert_int_equal(got[0], 0);
		assert_int_equal(got[1] + got[2], 30);
		assert_true(got[1] && got[2]);
		picks(b, 30, 1 | 4, got);
		assert_int_equal(got[1], 30);
		assert_int_equal(pick(b, 7), -1);
		assert_ptr_equal(balance_pick_among(&b->shard, &b->conf, 4), &b->servers[2]);
	}
	assert_true(balance_any_left(&b->conf, &t));
	t.tried = 7;
	assert_false(balance_any_left(&b->conf, &t));
}

static void test_the_lighter_one(void **state)
{
	struct bench *b = *state;
	unsigned got[SERVERS];

	b->conf.balance = BALANCE_LEAST_CONNECTIONS;
	b->live->server[0].active = 3;
	b->live->server[1].active = 2;
	b->live->server[2].active = 4;
	picks(b, 30, 0, got);
	assert_int_equal(got[1], 30);
	b->servers[2].weight = 4; /* one request per weight */
	picks(b, 30, 0, got);
	assert_int_equal(got[2], 30);
	b->live->server[2].active = 8; /* as much as the second: ties go round */
	picks(b, 300, 0, got);
	assert_int_equal(got[0], 0);
	assert_true(got[1] > 50 && got[2] > 50);
}

static void test_the_better_of_two(void **state)
{
	struct bench *b = *state;
	unsigned got[SERVERS];

	b->conf.balance = BALANCE_P2C;
	b->live->server[0].active = 1;
	b->live->server[2].active = 9; /* the worst one never wins */
	picks(b, 300, 0, got);
	assert_int_equal(got[2], 0);
	assert_true(got[1] > got[0] && got[0] > 50); /* two thirds, one third */
}

static void failed(struct bench *b, unsigned server, unsigned times)
{
	while (times--)
		balance_failed(b->loop, &b->conf, &b->servers[server]);
}

static bool ejected(const struct bench *b, unsigned server)
{
	return balance_ejected(&b->live->server[server], loop_now_ms(b->loop));
}

static void test_left_out_after_failures_in_a_row(void **state)
{
	struct bench *b = *state;
	unsigned got[SERVERS];

	failed(b, 0, 1);
	balance_worked(&b->conf, &b->servers[0]); /* the row is broken */
	failed(b, 0, 1);
	assert_false(ejected(b, 0));
	failed(b, 0, 1);
	assert_true(ejected(b, 0));
	picks(b, 30, 0, got);
	assert_int_equal(got[0], 0);
	assert_true(got[1] && got[2]);
	picks(b, 30, 2 | 4, got); /* only it is left: a suspicion never empties an upstream */
	assert_int_equal(got[0], 30);
	assert_false(balance_ejected(&b->live->server[0], loop_now_ms(b->loop) + b->conf.eject_ms));
}

static void test_the_last_one_stays(void **state)
{
	struct bench *b = *state;

	for (unsigned i = 0; i < SERVERS; i++)
		failed(b, i, 4);
	assert_true(ejected(b, 0) && ejected(b, 1));
	assert_false(ejected(b, 2));
	b->conf.eject_failures = 0; /* off */
	balance_worked(&b->conf, &b->servers[2]);
	b->live->server[0].ejected_until_ms = 0;
	failed(b, 2, 9);
	assert_false(ejected(b, 2));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(shares_by_weight),   TEST(who_is_passed_over),
		TEST(the_lighter_one),    TEST(the_better_of_two),
		TEST(the_last_one_stays), TEST(left_out_after_failures_in_a_row),
	};

	return cmocka_run_group_tests_name("balance", tests, NULL, NULL);
}
