/* test_wheel.c -- the wheel against a model that looks at every alarm. */
#include "unit.h"

#include "base/panic.h"
#include "base/wheel.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

struct bell {
	struct alarm alarm;
	unsigned rings;
	uint64_t again_ms; /* set to this from inside; 0: not */
	struct alarm *off, *set;
	uint64_t set_ms;
};

static struct wheel *w;
static struct alarm *rung[64];
static unsigned n_rung;

static void on_ring(struct alarm *a)
{
	struct bell *b = container_of(a, struct bell, alarm);

	assert_false(alarm_on(a));
	b->rings++;
	if (n_rung < ARRAY_LEN(rung))
		rung[n_rung++] = a;
	if (b->off)
		wheel_off(b->off);
	if (b->set)
		wheel_set(w, b->set, b->set_ms);
	if (b->again_ms)
		wheel_set(w, a, b->again_ms);
}

static void bell_init(struct bell *b)
{
	*b = (struct bell){ .rings = 0 };
	alarm_init(&b->alarm, on_ring);
}

static int setup(void **state)
{
	(void)state;
	n_rung = 0;
	w = wheel_new(1000);
	return w ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	wheel_free(&w);
	return w ? -1 : 0;
}

static void test_empty(void **state)
{
	struct bell b;

	(void)state;
	bell_init(&b);
	assert_int_equal(wheel_wait_ms(w, 1000), UINT32_MAX);
	assert_int_equal(wheel_turn(w, 5000, 10), 0);
	wheel_off(&b.alarm);
	assert_false(alarm_on(&b.alarm));
}

static void test_once(void **state)
{
	struct bell b;

	(void)state;
	bell_init(&b);
	wheel_set(w, &b.alarm, 1005);
	assert_true(alarm_on(&b.alarm));
	assert_int_equal(wheel_wait_ms(w, 1000), 5);
	assert_int_equal(wheel_turn(w, 1004, 10), 0);
	assert_int_equal(wheel_wait_ms(w, 1004), 1);
	assert_int_equal(wheel_turn(w, 1005, 10), 1);
	assert_int_equal(b.rings, 1);
	assert_int_equal(wheel_turn(w, 100000, 10), 0);
	assert_int_equal(wheel_wait_ms(w, 100000), UINT32_MAX);
}

/* An alarm that was taken off may leave the wait too early, but it is not there any more. */
static void test_off_leaves_it_empty(void **state)
{
	struct wheel *own = wheel_new(1000);
	struct alarm a;

	(void)state;
	assert_non_null(own);
	alarm_init(&a, NULL);
	assert_true(wheel_empty(own));
	wheel_set(own, &a, 1000 + 70000);
	assert_false(wheel_empty(own));
	wheel_off(&a);
	assert_true(wheel_empty(own));
	wheel_set(own, &a, 900);
	assert_false(wheel_empty(own));
	wheel_off(&a);
	assert_true(wheel_empty(own));
	wheel_free(&own);
}

static void test_now_and_past(void **state)
{
	struct bell a, b;

	(void)state;
	bell_init(&a);
	bell_init(&b);
	wheel_set(w, &a.alarm, 1000);
	wheel_set(w, &b.alarm, 0);
	assert_int_equal(wheel_wait_ms(w, 1000), 0);
	assert_int_equal(wheel_turn(w, 1000, 10), 2);
	assert_int_equal(a.rings + b.rings, 2);
	wheel_set(w, &a.alarm, 1001);
	assert_int_equal(wheel_turn(w, 900, 10), 0); /* a clock that goes back does no harm */
	assert_int_equal(wheel_turn(w, 1001, 10), 1);
}

static void test_lazy(void **state)
{
	struct bell b;

	(void)state;
	bell_init(&b);
	wheel_set(w, &b.alarm, 1010);
	for (uint64_t t = 1000; t < 1100; t++) {
		wheel_set(w, &b.alarm, t + 10);
		assert_true(b.alarm.slot_ms <= b.alarm.due_ms);
		wheel_turn(w, t, 10);
	}
	assert_int_equal(b.rings, 0);
	assert_int_equal(wheel_turn(w, 1108, 10), 0);
	assert_int_equal(wheel_turn(w, 1109, 10), 1);
	wheel_set(w, &b.alarm, 2000);
	wheel_set(w, &b.alarm, 5000); /* later: one store */
	assert_int_equal(b.alarm.slot_ms, 2000);
	wheel_set(w, &b.alarm, 1200); /* earlier: moves */
	assert_int_equal(b.alarm.slot_ms, 1200);
	assert_int_equal(wheel_turn(w, 1200, 10), 1);
	assert_int_equal(wheel_turn(w, 10000, 10), 0);
}

static void test_order_and_budget(void **state)
{
	struct bell v[6];
	static const uint64_t due[] = { 70000, 1500, 20000000, 1500, 1001, 900 };
	static const unsigned order[] = { 5, 4, 1, 3, 0, 2 };

	(void)state;
	for (unsigned i = 0; i < 6; i++) {
		bell_init(&v[i]);
		wheel_set(w, &v[i].alarm, due[i]);
	}
	assert_int_equal(wheel_turn(w, 30000000, 0), 0);
	assert_int_equal(wheel_turn(w, 30000000, 2), 2);
	assert_int_equal(wheel_wait_ms(w, 30000000), 0);
	assert_int_equal(wheel_turn(w, 30000000, 3), 3);
	assert_int_equal(wheel_turn(w, 30000000, 3), 1);
	assert_int_equal(wheel_wait_ms(w, 30000000), UINT32_MAX);
	for (unsigned i = 0; i < 6; i++)
		assert_ptr_equal(rung[i], &v[order[i]].alarm);
}

static void test_ring_changes_others(void **state)
{
	struct bell a, b, c, d;

	(void)state;
	bell_init(&a);
	bell_init(&b);
	bell_init(&c);
	bell_init(&d);
	a.off = &b.alarm; /* due in the same turn: must not ring */
	a.set = &c.alarm; /* due in the same turn, moved on: not yet */
	a.set_ms = 3000;
	/* itself, at a time already past: in the next turn, not in this one */
	a.again_ms = 1010;
	wheel_set(w, &a.alarm, 1010);
	wheel_set(w, &b.alarm, 1011);
	wheel_set(w, &c.alarm, 1012);
	wheel_set(w, &d.alarm, 1013);
	assert_int_equal(wheel_turn(w, 1020, 100), 2);
	assert_int_equal(a.rings, 1);
	assert_int_equal(b.rings, 0);
	assert_int_equal(c.rings, 0);
	assert_int_equal(d.rings, 1);
	a.off = a.set = NULL;
	a.again_ms = 0;
	assert_int_equal(wheel_wait_ms(w, 1020), 0);
	assert_int_equal(wheel_turn(w, 1020, 100), 1);
	assert_int_equal(wheel_turn(w, 2999, 100), 0);
	assert_int_equal(wheel_turn(w, 3000, 100), 1);
	assert_int_equal(c.rings, 1);
}

/* Just before, at and after every border between levels, from different starts. */
static void test_borders(void **state)
{
	static const uint64_t starts[] = {
		0, 1, 255, 256, 65535, 0xffffff, 0xffffffff, 0x100000000, 0x1fffffffe, 1796061600000
	};
	static const uint64_t waits[] = {
		1,          2,          255,         256,         257,         65535,
		65536,      65537,      0xffffff,    0x1000000,   0x1000001,   0xff000000,
		0xfffffffe, 0xffffffff, 0x100000000, 0x100000001, 0x1ffffffff, 0x123456789ab
	};

	(void)state;
	for (unsigned s = 0; s < ARRAY_LEN(starts); s++) {
		for (unsigned i = 0; i < ARRAY_LEN(waits); i++) {
			uint64_t due = starts[s] + waits[i], t = starts[s];
			struct wheel *wh = wheel_new(t);
			unsigned turns = 0;
			struct bell b;

			bell_init(&b);
			wheel_set(wh, &b.alarm, due);
			while (!b.rings) { /* as a loop does: sleep as long as the wheel allows */
				uint32_t ms = wheel_wait_ms(wh, t);

				assert_true(ms > 0 && ms != UINT32_MAX);
				t += ms;
				assert_true(t <= due);
				wheel_turn(wh, t, 10);
				assert_true(++turns < 2000);
			}
			assert_true(t == due);
			assert_int_equal(wheel_wait_ms(wh, t), UINT32_MAX);
			wheel_set(wh, &b.alarm, t + waits[i]);
			assert_int_equal(wheel_turn(wh, t + waits[i] - 1, 10), 0);
			assert_int_equal(wheel_turn(wh, t + waits[i], 10), 1);
			wheel_free(&wh);
		}
	}
}

#define BELLS 300
static struct {
	struct alarm alarm;
	bool on;
	uint64_t due;
} model[BELLS];
static uint64_t model_now, last_due;
static unsigned model_rings;

static void on_model_ring(struct alarm *a)
{
	unsigned i = (unsigned)(((char *)a - (char *)model) / sizeof(model[0]));

	if (!model[i].on || model[i].due > model_now)
		fail_msg("alarm %u rang at %" PRIu64 ", due %" PRIu64, i, model_now, model[i].due);
	assert_true(model[i].due >= last_due); /* in order */
	last_due = model[i].due;
	model[i].on = false;
	model_rings++;
	if (random() % 4 == 0) { /* in the future: what is set to now has its own test */
		model[i].on = true;
		model[i].due = model_now + 1 + (uint64_t)random() % 100000;
		wheel_set(w, a, model[i].due);
	}
}

static uint64_t random_span(void)
{
	static const unsigned bits[] = { 3, 8, 9, 12, 16, 17, 20, 24, 25, 30, 32, 33, 36 };
	uint64_t r = (uint64_t)random() << 31 ^ (uint64_t)random();

	return r & ((1ull << bits[(unsigned)random() % ARRAY_LEN(bits)]) - 1);
}

static unsigned model_due(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < BELLS; i++)
		n += model[i].on && model[i].due <= model_now;
	return n;
}

static uint64_t model_first(void)
{
	uint64_t first = UINT64_MAX;

	for (unsigned i = 0; i < BELLS; i++)
		if (model[i].on && model[i].due < first)
			first = model[i].due;
	return first;
}

static void model_change(void)
{
	unsigned i = (unsigned)random() % BELLS;

	if (random() % 3 == 0) {
		wheel_off(&model[i].alarm);
		model[i].on = false;
	} else {
		model[i].on = true;
		model[i].due = model_now + 1 + random_span();
		wheel_set(w, &model[i].alarm, model[i].due);
	}
	assert_int_equal(alarm_on(&model[i].alarm), model[i].on);
}

static void model_turn(void)
{
	unsigned due = model_due(), rings = model_rings, got;
	uint64_t first = model_first();
	uint32_t wait = wheel_wait_ms(w, model_now);

	if (first == UINT64_MAX)
		due = 0;
	else
		assert_true(model_now + wait <= first || wait == 0); /* early perhaps, never late */
	last_due = 0;
	got = wheel_turn(w, model_now, 1000);
	assert_int_equal(got, due);
	assert_int_equal(model_rings - rings, due);
}

/* Over years: steps from one millisecond to two years, and sleeps as long as the wheel allows. */
static void test_model(void **state)
{
	(void)state;
	srandom(3);
	model_now = 1000;
	for (unsigned i = 0; i < BELLS; i++)
		alarm_init(&model[i].alarm, on_model_ring);
	for (unsigned step = 0; step < 60000; step++) {
		uint32_t wait;

		for (unsigned n = (unsigned)random() % 4; n > 0; n--)
			model_change();
		wait = wheel_wait_ms(w, model_now);
		if (random() % 2 && wait != UINT32_MAX)
			model_now += wait;
		else if (random() % 100)
			model_now += random_span() >> 8;
		else
			model_now += random_span();
		model_turn();
	}
	assert_true(model_now > 1000ull * 3600 * 24 * 365 * 3);
	for (unsigned i = 0; i < BELLS; i++)
		wheel_off(&model[i].alarm);
	model_now += 1ull << 40;
	assert_int_equal(wheel_turn(w, model_now, 1000), 0);
	assert_int_equal(wheel_wait_ms(w, model_now), UINT32_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_empty, setup, teardown),
		cmocka_unit_test_setup_teardown(test_once, setup, teardown),
		cmocka_unit_test(test_off_leaves_it_empty),
		cmocka_unit_test_setup_teardown(test_now_and_past, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lazy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_order_and_budget, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ring_changes_others, setup, teardown),
		cmocka_unit_test(test_borders),
		cmocka_unit_test_setup_teardown(test_model, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
