/* test_mem.c -- budget, slab, arena. */
#include "unit.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdlib.h>

static void test_budget(void **state)
{
	struct budget b = { .max = 100 };

	(void)state;
	assert_true(budget_take(&b, 0));
	assert_true(budget_take(&b, 100));
	assert_false(budget_take(&b, 1));
	assert_true(budget_take(&b, 0));
	budget_give(&b, 1);
	assert_false(budget_take(&b, 2));
	assert_true(budget_take(&b, 1));
	assert_false(budget_take(&b, UINT64_MAX));
	b.max = 50; /* lowered below what is used */
	budget_give(&b, 10);
	assert_false(budget_take(&b, 1));
	budget_give(&b, 90);
	assert_int_equal(b.used, 0);
	assert_true(budget_take(NULL, UINT64_MAX));
	budget_give(NULL, 1);
}

static void *take_and_give(void *arg)
{
	for (int i = 0; i < 100000; i++)
		if (budget_take(arg, 3))
			budget_give(arg, 3);
	return NULL;
}

static void test_budget_threads(void **state)
{
	struct budget b = { .max = 4 };
	pthread_t t[3];

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, take_and_give, &b), 0);
	for (unsigned i = 0; i < ARRAY_LEN(t); i++)
		pthread_join(t[i], NULL);
	assert_int_equal(b.used, 0);
}

/* A shard's budget: its pools by name, its parent's cap. */
static void test_pools(void **state)
{
	struct budget all = { .max = 100 }, one = { .parent = &all }, two = { .parent = &all };
	unsigned a = budget_pool(&one, "a"), b = budget_pool(&one, "b");

	(void)state;
	assert_int_not_equal(a, b);
	assert_int_equal(budget_pool(&one, "a"), a);
	assert_true(pool_take(&one, a, 30));
	assert_true(pool_take(&one, b, 5));
	assert_true(pool_take(&two, budget_pool(&two, "a"), 60));
	assert_false(pool_take(&one, b, 6));
	assert_int_equal(one.pool[a].held, 30);
	assert_int_equal(one.pool[b].held, 5);
	assert_int_equal(all.used, 95);
	assert_int_equal(one.used, 0);
	pool_give(&one, a, 30);
	pool_give(&one, b, 5);
	pool_give(&two, 0, 60);
	assert_int_equal(one.pool[a].held, 0);
	assert_int_equal(all.used, 0);
	assert_true(pool_take(NULL, 0, UINT64_MAX));
	pool_give(NULL, 0, UINT64_MAX);
}

struct giver {
	struct reclaim reclaim;
	struct budget *budget;
	uint64_t held, wanted;
	unsigned asked;
};

static void give(struct reclaim *r, uint64_t want)
{
	struct giver *g = container_of(r, struct giver, reclaim);
	uint64_t n = g->held < want ? g->held : want;

	g->asked++;
	g->wanted = want;
	g->held -= n;
	budget_give(g->budget, n);
}

/* Who can give memory back is asked before anything is refused, and not more of them than need
 * be. */
static void test_reclaim(void **state)
{
	struct budget all = { .max = 100 }, b = { .parent = &all };
	struct giver first = { .reclaim = { .give = give }, .budget = &b, .held = 20 },
		     second = { .reclaim = { .give = give }, .budget = &b, .held = 30 };

	(void)state;
	assert_true(budget_take(&b, 100));
	budget_reclaim(&b, &second.reclaim);
	budget_reclaim(&b, &first.reclaim);
	assert_true(pool_take(&b, budget_pool(&b, "x"), 20));
	assert_int_equal(first.asked, 1);
	assert_int_equal(second.asked, 0);
	assert_true(pool_take(&b, 0, 25));
	assert_int_equal(second.wanted, 25);
	assert_int_equal(all.used, 100);
	assert_false(pool_take(&b, 0, 7));
	assert_int_equal(second.held, 0);
	assert_int_equal(all.used, 95);
	assert_true(pool_take(&b, 0, 5));
	assert_false(pool_take(&b, 0, 101)); /* no giving would help */
	assert_int_equal(second.asked, 2);
	budget_reclaim_off(&b, &second.reclaim);
	assert_false(pool_take(&b, 0, 25));
	assert_int_equal(second.asked, 2);
	assert_int_equal(first.asked, 4);
	budget_reclaim_off(&b, &first.reclaim);
	assert_null(b.reclaims);
}

static void test_slab_lifo(void **state)
{
	struct budget b = { .max = 1 << 20 };
	struct slab s;
	void *x, *y;

	(void)state;
	slab_init(&s, "test", 33, &b);
	assert_int_equal(s.size, 48);
	assert_int_equal(b.used, 0); /* nothing before the first need */
	x = slab_get(&s);
	y = slab_get(&s);
	assert_int_equal((uintptr_t)x % 16, 0);
	assert_int_equal((char *)y - (char *)x, 48);
	assert_int_equal(s.n_live, 2);
	assert_int_equal(b.used, 65536);
	assert_int_equal(slab_bytes(&s), 65536);
	slab_put(&s, x);
	slab_put(&s, y);
	slab_put(&s, NULL);
	assert_ptr_equal(slab_get(&s), y);
	assert_ptr_equal(slab_get(&s), x);
	slab_put(&s, x);
	slab_put(&s, y);
	slab_close(&s);
	assert_int_equal(b.used, 0);
	assert_null(b.slabs);
}

/* bytes: of one chunk. */
static void test_slab_sizes(void **state)
{
	static const struct {
		uint32_t size, per_chunk, bytes;
	} v[] = {
		{ 1, 4092, 65536 },  { 16, 4092, 65536 }, { 17, 2046, 65536 },
		{ 1024, 63, 65536 }, { 4096, 15, 65536 }, { 8192, 7, 61440 },
		{ 40000, 1, 40960 }, { 65536, 1, 69632 }, { 69632, 1, 73728 },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(v); i++) {
		struct budget b = { .max = 1 << 20 };
		struct slab s;
		char *obj, *next;

		slab_init(&s, "test", v[i].size, &b);
		assert_int_equal(s.per_chunk, v[i].per_chunk);
		obj = slab_get(&s);
		memset(obj, 1, s.size);
		next = slab_get(&s);
		memset(next, 1, s.size);
		assert_int_equal(s.n_chunks, v[i].per_chunk > 1 ? 1 : 2);
		assert_int_equal(b.used, s.n_chunks * v[i].bytes);
		if (v[i].size % 4096 == 0 && v[i].size < 65536)
			assert_int_equal((uintptr_t)obj % 4096, 0);
		slab_put(&s, obj);
		slab_put(&s, next);
		slab_close(&s);
		assert_int_equal(b.used, 0);
	}
}

static void test_slab_refused(void **state)
{
	struct budget b = { .max = 3 * 65536 - 1 };
	struct slab s;
	void *v[30];

	(void)state;
	slab_init(&s, "test", 4096, &b);
	for (unsigned i = 0; i < ARRAY_LEN(v); i++) {
		v[i] = slab_get(&s);
		assert_non_null(v[i]);
	}
	assert_null(slab_get(&s));
	assert_int_equal(s.n_live, 30);
	assert_int_equal(b.used, 2 * 65536);
	slab_put(&s, v[7]);
	assert_ptr_equal(slab_get(&s), v[7]);
	assert_null(slab_get(&s));
	for (unsigned i = 0; i < ARRAY_LEN(v); i++)
		slab_put(&s, v[i]);
	slab_close(&s);
}

static void take(struct slab *s, void **v, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		v[i] = slab_get(s);
		assert_non_null(v[i]);
	}
}

static void put(struct slab *s, void **v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		slab_put(s, v[i]);
}

static void test_slab_trim(void **state)
{
	struct budget b = { .max = 1 << 20 };
	struct slab s;
	void *v[40], *more;

	(void)state;
	slab_init(&s, "test", 4096, &b);
	slab_trim(&s, UINT64_MAX);
	take(&s, v, 40); /* 15, 15 and 10 of three chunks */
	slab_trim(&s, UINT64_MAX);
	assert_int_equal(b.used, 3 * 65536);
	put(&s, v, 15); /* the first chunk and one of each other */
	slab_put(&s, v[20]);
	slab_put(&s, v[35]);
	assert_int_equal(s.n_spare, 1);
	slab_trim(&s, UINT64_MAX);
	assert_int_equal(b.used, 2 * 65536);
	assert_int_equal(s.n_live, 23);
	put(&s, v + 30, 5);
	put(&s, v + 36, 4); /* the third chunk: free and never carved together */
	slab_trim(&s, UINT64_MAX);
	assert_int_equal(b.used, 65536);
	assert_ptr_equal(slab_get(&s), v[20]);
	more = slab_get(&s); /* nothing left: a new chunk */
	assert_non_null(more);
	memset(more, 1, 4096);
	assert_int_equal(b.used, 2 * 65536);
	slab_put(&s, more);
	put(&s, v + 15, 15);
	slab_trim(&s, UINT64_MAX);
	assert_int_equal(b.used, 0);
	assert_null(s.some);
	assert_null(b.slabs);
	more = slab_get(&s);
	assert_non_null(more);
	slab_put(&s, more);
	slab_close(&s);
}

/* What was not needed from one look to the next goes, and no more. */
static void test_slab_calm(void **state)
{
	struct budget b = { .max = 1 << 24 };
	struct slab s;
	void *v[150];

	(void)state;
	slab_init(&s, "test", 4096, &b);
	take(&s, v, 150); /* ten chunks */
	slab_calm(&s);
	put(&s, v, 150);
	slab_calm(&s); /* all were needed a moment ago */
	assert_int_equal(s.n_chunks, 10);
	take(&s, v, 60); /* four are needed now and then */
	put(&s, v, 60);
	slab_calm(&s);
	assert_int_equal(s.n_chunks, 4);
	take(&s, v, 15);
	slab_calm(&s);
	assert_int_equal(s.n_chunks, 1);
	put(&s, v, 15);
	slab_calm(&s);
	slab_calm(&s);
	assert_int_equal(b.used, 0);
	slab_close(&s);
}

static void test_budget_slabs(void **state)
{
	struct budget b = { .max = 1 << 24 };
	struct slab s[3];
	void *v[3][30];

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		slab_init(&s[i], "test", 4096, &b);
		take(&s[i], v[i], 30);
	}
	put(&s[0], v[0], 30);
	put(&s[2], v[2], 30);
	budget_trim(&b, 65536); /* chunk by chunk, until it is enough */
	assert_int_equal(b.used, 5 * 65536);
	budget_trim(&b, 65537);
	assert_int_equal(b.used, 3 * 65536);
	budget_trim(&b, 1 << 20);
	assert_int_equal(b.used, 2 * 65536);
	put(&s[1], v[1], 30);
	budget_calm(&b);
	assert_int_equal(b.used, 2 * 65536);
	budget_calm(&b);
	assert_int_equal(b.used, 0);
	assert_null(b.slabs);
	for (unsigned i = 0; i < 3; i++)
		slab_close(&s[i]);
}

/* The shards' budgets answer for the process's. */
static void test_budget_excess(void **state)
{
	struct budget all = { .max = 800 }, shard = { .parent = &all, .max = UINT64_MAX };

	(void)state;
	assert_true(budget_take(&shard, 700));
	assert_int_equal(budget_excess(&shard), 0);
	assert_true(budget_take(&shard, 100));
	assert_int_equal(budget_excess(&shard), 100);
	assert_int_equal(budget_excess(&all), 100);
	all.parent = NULL;
	all.max = UINT64_MAX;
	assert_int_equal(budget_excess(&all), 0);
}

/* Random gets, puts and trims: no object is handed out twice, the counts stay true. */
static void test_slab_random(void **state)
{
	struct budget b = { .max = 8 << 20 };
	struct slab s;
	uint64_t *v[600];
	unsigned n = 0;

	(void)state;
	srandom(1);
	slab_init(&s, "test", 2000, &b);
	for (unsigned step = 0; step < 60000; step++) {
		unsigned grow = step / 10000 % 2 ? 30 : 70;

		if (n < ARRAY_LEN(v) && (unsigned)random() % 100 < grow) {
			v[n] = slab_get(&s);
			assert_non_null(v[n]);
			v[n][0] = v[n][249] = (uintptr_t)v[n];
			n++;
		} else if (n) {
			unsigned i = (unsigned)random() % n;

			assert_true(v[i][0] == (uintptr_t)v[i] && v[i][249] == v[i][0]);
			v[i][0] = 0;
			slab_put(&s, v[i]);
			v[i] = v[--n];
		}
		if (random() % 200 == 0)
			slab_trim(&s, UINT64_MAX);
		if (random() % 200 == 0)
			slab_calm(&s);
		assert_int_equal(s.n_live, n);
		assert_int_equal(b.used, slab_bytes(&s));
		assert_true(s.n_idle <= s.n_spare && s.n_spare <= s.n_chunks);
	}
	while (n)
		slab_put(&s, v[--n]);
	slab_trim(&s, UINT64_MAX);
	assert_int_equal(b.used, 0);
	slab_close(&s);
}

static void test_arena(void **state)
{
	struct budget b = { .max = 1 << 20 };
	struct slab home;
	struct arena a;
	uint64_t base;
	char *p, *q;

	(void)state;
	slab_init(&home, "arena", ARENA_FIRST, &b);
	arena_init(&a, &home);
	assert_int_equal(home.n_live, 0);
	p = arena_alloc(&a, 0);
	assert_non_null(p);
	assert_int_equal(home.n_live, 1);
	base = b.used;
	q = arena_alloc(&a, 1);
	assert_int_equal(q - p, 8);
	p = arena_alloc(&a, ARENA_FIRST - 16);
	assert_int_equal(p - q, 8);
	assert_int_equal(b.used, base); /* all of it was in the first block */
	memset(p, 1, ARENA_FIRST - 16);
	p = arena_alloc(&a, 1);
	assert_int_equal(b.used, base + 2 * ARENA_FIRST);
	q = arena_alloc(&a, 100000); /* a block of its own */
	memset(q, 1, 100000);
	assert_in_range(b.used, base + 100000 + 2 * ARENA_FIRST,
			base + 100000 + 2 * ARENA_FIRST + 64);
	assert_ptr_equal(arena_alloc(&a, 1), p + 8); /* and the other goes on */
	arena_free(&a);
	assert_int_equal(b.used, base);
	assert_int_equal(home.n_live, 0);
	arena_free(&a);
	p = arena_alloc(&a, 8);
	assert_non_null(p);
	arena_free(&a);
	slab_close(&home);
	assert_int_equal(b.used, 0);
}

static void test_arena_doubles(void **state)
{
	struct budget b = { .max = 64 << 20 };
	uint64_t want = 65536 / ARENA_FIRST * ARENA_FIRST, size = ARENA_FIRST;
	struct slab home;
	struct arena a;

	(void)state;
	slab_init(&home, "arena", ARENA_FIRST, &b);
	arena_init(&a, &home);
	for (unsigned i = 0; i < 40000; i++) {
		uint64_t before = b.used;

		memset(arena_alloc(&a, 40), 7, 40);
		if (before && b.used != before) {
			size = size < 65536 ? size * 2 : size;
			want += size;
		}
		assert_int_equal(b.used, want);
	}
	assert_int_equal(size, 65536);
	arena_free(&a);
	slab_close(&home);
}

static void test_arena_refused(void **state)
{
	struct budget b = { .max = 65536 + 2 * ARENA_FIRST };
	struct slab home;
	struct arena a, second;

	(void)state;
	slab_init(&home, "arena", ARENA_FIRST, &b);
	arena_init(&a, &home);
	arena_init(&second, &home);
	assert_null(arena_alloc(&a, 3 * ARENA_FIRST));
	assert_non_null(arena_alloc(&a, ARENA_FIRST));
	assert_non_null(arena_alloc(&a, ARENA_FIRST));
	assert_null(arena_alloc(&a, ARENA_FIRST));
	assert_non_null(arena_alloc(&a, ARENA_FIRST - 24)); /* what is left is still good */
	assert_non_null(arena_alloc(&second, 8));
	b.max = 0;
	assert_null(arena_str(&second, (struct str){ .p = (char[3000]){ 0 }, .n = 3000 }).p);
	arena_free(&a);
	arena_free(&second);
	slab_close(&home);
	b.max = 100;
	assert_null(arena_alloc(&a, 8)); /* not even a first block */
	arena_free(&a);
	assert_int_equal(b.used, 0);
}

static void test_arena_copies(void **state)
{
	struct slab home;
	struct arena a;
	struct str s;
	char *p;

	(void)state;
	slab_init(&home, "arena", ARENA_FIRST, NULL);
	arena_init(&a, &home);
	s = arena_str(&a, STR("host"));
	assert_true(str_eq(s, STR("host")));
	assert_non_null(arena_str(&a, STR_NONE).p);
	assert_string_equal(arena_cstr(&a, STR("abc")), "abc");
	assert_string_equal(arena_cstr(&a, STR_NONE), "");
	p = arena_alloc(&a, 64);
	memset(p, 0xff, 64);
	arena_free(&a);
	p = arena_zalloc(&a, 512);
	for (unsigned i = 0; i < 512; i++)
		assert_int_equal(p[i], 0);
	arena_free(&a);
	slab_close(&home);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_budget),        cmocka_unit_test(test_budget_threads),
		cmocka_unit_test(test_pools),         cmocka_unit_test(test_reclaim),
		cmocka_unit_test(test_slab_lifo),     cmocka_unit_test(test_slab_sizes),
		cmocka_unit_test(test_slab_refused),  cmocka_unit_test(test_slab_trim),
		cmocka_unit_test(test_slab_calm),     cmocka_unit_test(test_budget_excess),
		cmocka_unit_test(test_budget_slabs),  cmocka_unit_test(test_slab_random),
		cmocka_unit_test(test_arena),         cmocka_unit_test(test_arena_doubles),
		cmocka_unit_test(test_arena_refused), cmocka_unit_test(test_arena_copies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
