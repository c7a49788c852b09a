/* test_list.c -- the intrusive ring. */
#include "unit.h"

#include "base/list.h"
#include "base/panic.h"

struct item {
	int v;
	struct list node;
};

static void order(struct list *l, const int *want, unsigned n)
{
	struct list *node, *tmp;
	unsigned i = 0;

	list_each_safe(node, tmp, l)
	{
		assert_true(i < n);
		assert_int_equal(container_of(node, struct item, node)->v, want[i]);
		assert_ptr_equal(node->next->prev, node);
		i++;
	}
	assert_int_equal(i, n);
}

static void test_push_pop_remove(void **state)
{
	struct list l;
	struct item a = { .v = 1 }, b = { .v = 2 }, c = { .v = 3 };

	(void)state;
	list_init(&l);
	list_init(&a.node);
	assert_true(list_empty(&l));
	assert_null(list_pop_head(&l));
	list_push_tail(&l, &b.node);
	list_push_head(&l, &a.node);
	list_push_tail(&l, &c.node);
	order(&l, (int[]){ 1, 2, 3 }, 3);
	list_remove(&b.node);
	assert_true(list_empty(&b.node));
	list_remove(&b.node); /* harmless */
	order(&l, (int[]){ 1, 3 }, 2);
	list_insert_after(&a.node, &b.node);
	order(&l, (int[]){ 1, 2, 3 }, 3);
	assert_ptr_equal(list_pop_head(&l), &a.node);
	assert_ptr_equal(list_pop_head(&l), &b.node);
	assert_ptr_equal(list_pop_head(&l), &c.node);
	assert_true(list_empty(&l) && list_empty(&a.node));
}

static void test_remove_while_walking(void **state)
{
	struct list l, *node, *tmp;
	struct item v[5];

	(void)state;
	list_init(&l);
	for (int i = 0; i < 5; i++) {
		v[i].v = i;
		list_push_tail(&l, &v[i].node);
	}
	list_each_safe(node, tmp, &l) if (container_of(node, struct item, node)->v % 2 == 0)
		list_remove(node);
	order(&l, (int[]){ 1, 3 }, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_push_pop_remove),
		cmocka_unit_test(test_remove_while_walking),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
