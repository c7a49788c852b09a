/* test_map.c -- the hash against known values, the map against a plain array. */
#include "unit.h"

#include "base/map.h"

#include <stdlib.h>

struct item {
	struct map_node node;
	uint32_t key;
	bool in;
	unsigned seen;
};

static bool same(const struct map_node *node, const void *key, uint32_t n)
{
	return n == 4 && memcmp(&container_of(node, const struct item, node)->key, key, 4) == 0;
}

static const uint64_t seed[2] = { 0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull };

/* What CPython's bytes hash (SipHash-1-3) gives for 0, 1, 2, ... n-1. */
static void test_siphash(void **state)
{
	static const uint64_t zero[2], one[2] = { 0xaed66ce184be2329ull, 0xebe9bbf1f1499052ull };
	static const struct {
		size_t n;
		uint64_t want;
	} v[] = {
		{ 1, 0x68a914128e01e473ull },  { 2, 0x10bac45c41e3669ull },
		{ 7, 0x2f098ab0c751325aull },  { 8, 0xead411e67ebe2eeaull },
		{ 9, 0x75927f9d95124362ull },  { 15, 0xf30eb725bb91c9eaull },
		{ 16, 0x8972188433a5c5b7ull }, { 17, 0x4883c49a2c009c1dull },
		{ 63, 0x385d3e39e5f37359ull }, { 64, 0x75e05fd5bbc870c6ull },
	};
	uint8_t in[64];

	(void)state;
	for (unsigned i = 0; i < 64; i++)
		in[i] = (uint8_t)i;
	for (unsigned i = 0; i < ARRAY_LEN(v); i++)
		assert_true(map_siphash(zero, in, v[i].n) == v[i].want);
	assert_true(map_siphash(one, in, 1) == 0xecd3e5afcecda4b9ull);
	assert_true(map_siphash(one, in, 8) == 0xc0b5739e7e28dd01ull);
	assert_true(map_siphash(one, in, 15) == 0xfa87985f39e97a53ull);
	assert_true(map_siphash(one, NULL, 0) != map_siphash(zero, NULL, 0));
}

static void test_few(void **state)
{
	struct item a = { .key = 1 }, b = { .key = 2 };
	struct map m;

	(void)state;
	assert_true(map_init(&m, seed, same));
	assert_null(map_find(&m, &a.key, 4));
	assert_true(map_add(&m, &a.node, &a.key, 4));
	assert_true(map_add(&m, &b.node, &b.key, 4));
	assert_ptr_equal(map_find(&m, &(uint32_t){ 1 }, 4), &a.node);
	assert_ptr_equal(map_find(&m, &(uint32_t){ 2 }, 4), &b.node);
	assert_null(map_find(&m, &(uint32_t){ 3 }, 4));
	map_remove(&m, &a.node);
	assert_null(map_find(&m, &a.key, 4));
	assert_int_equal(m.n, 1);
	map_close(&m);
}

static void visit(struct map_node *node, void *arg)
{
	struct item *it = container_of(node, struct item, node);
	struct map *m = arg;

	it->seen++;
	if (m && it->key % 2) {
		map_remove(m, node);
		it->in = false;
	}
}

#define ITEMS 5000

static void test_model(void **state)
{
	struct item *v = calloc(ITEMS, sizeof(*v));
	uint32_t n = 0;
	struct map m;

	(void)state;
	srandom(7);
	assert_true(map_init(&m, seed, same));
	for (uint32_t i = 0; i < ITEMS; i++)
		v[i].key = i * 7919;
	for (unsigned step = 0; step < 200000; step++) {
		struct item *it = &v[random() % ITEMS];

		assert_ptr_equal(map_find(&m, &it->key, 4), it->in ? &it->node : NULL);
		if (it->in)
			map_remove(&m, &it->node);
		else
			assert_true(map_add(&m, &it->node, &it->key, 4));
		it->in = !it->in;
		n += it->in ? 1 : (uint32_t)-1;
		assert_int_equal(m.n, n);
	}
	assert_true(m.n_slots >= m.n && (m.n_slots & (m.n_slots - 1)) == 0);
	map_each(&m, visit, NULL);
	for (uint32_t i = 0; i < ITEMS; i++)
		assert_int_equal(v[i].seen, v[i].in);
	map_each(&m, visit, &m); /* removes the odd ones as it goes */
	for (uint32_t i = 0; i < ITEMS; i++)
		assert_ptr_equal(map_find(&m, &v[i].key, 4), v[i].in ? &v[i].node : NULL);
	map_close(&m);
	free(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_siphash),
					    cmocka_unit_test(test_few),
					    cmocka_unit_test(test_model) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
