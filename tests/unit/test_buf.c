/* test_buf.c -- segs and queues; the queue against a string of bytes. */
#include "unit.h"

#include "base/buf.h"

#include <stdlib.h>
#include <unistd.h>

static struct budget budget = { .max = 64 << 20 };
static struct seg_pool pool; /* small segs, so that borders are met often */

static int setup(void **state)
{
	(void)state;
	seg_pool_init(&pool, "test", 96, &budget);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	seg_pool_close(&pool); /* asserts that every reference came back */
	return budget.used != 0;
}

static struct seg *seg_with(const char *text)
{
	struct seg *s = seg_get(&pool);

	s->used = (uint32_t)strlen(text);
	memcpy(s->data, text, s->used);
	return s;
}

static void assert_bytes(const struct bufq *q, const char *want)
{
	char got[512];
	uint32_t n = bufq_peek(q, got, sizeof(got));

	bufq_assert(q);
	assert_int_equal(q->bytes, strlen(want));
	assert_int_equal(n, strlen(want));
	assert_memory_equal(got, want, n);
}

static void test_seg(void **state)
{
	struct seg *s = seg_get(&pool), *t;

	(void)state;
	assert_int_equal(s->cap, 64);
	assert_int_equal(s->used, 0);
	assert_int_equal((uintptr_t)s->data % 16, 0);
	t = seg_ref(s);
	seg_drop(&s);
	assert_null(s);
	seg_drop(&s);
	assert_int_equal(t->refs, 1);
	assert_int_equal(pool.slab.n_live, 1);
	seg_drop(&t);
	assert_int_equal(pool.slab.n_live, 0);
}

static void test_real_pools(void **state)
{
	struct seg_pool p;
	struct seg *s;

	(void)state;
	seg_pool_init(&p, "small", SEG_SMALL_BLOCK, NULL);
	s = seg_get(&p);
	assert_int_equal(s->cap, 4064);
	seg_drop(&s);
	seg_pool_close(&p);
	seg_pool_init(&p, "large", SEG_LARGE_BLOCK, NULL);
	s = seg_get(&p);
	assert_int_equal(s->cap, 69600);
	assert_int_equal(p.slab.n_chunks, 1);
	seg_drop(&s);
	seg_pool_close(&p);
}

/* Many segs with a few bytes each become few full ones; one that is more than half full stays. */
static void test_small_pieces_are_gathered(void **state)
{
	struct seg_pool p;
	struct bufq q;

	(void)state;
	seg_pool_init(&p, "small", SEG_SMALL_BLOCK, NULL);
	bufq_init(&q, 0);
	for (int i = 0; i < 4064; i++) {
		struct seg *s = seg_get(&p);

		s->data[0] = (uint8_t)i;
		s->used = 1;
		assert_true(bufq_put_seg(&q, &s, 0, 1));
	}
	assert_int_equal(q.bytes, 4064);
	assert_int_equal(q.n_spans, 1);
	assert_int_equal(p.slab.n_live, 1);
	assert_int_equal(bufq_front(&q).p[4063], (char)(4063 & 0xff));
	for (int i = 0; i < 2; i++) {
		struct seg *s = seg_get(&p);

		s->used = 2033;
		assert_true(bufq_put_seg(&q, &s, 0, 2033));
	}
	assert_int_equal(q.n_spans, 3);
	bufq_free(&q);
	seg_pool_close(&p);
}

/* One receive full of small chunks: what lies between the pieces is framing. */
static void test_pieces_of_one_seg(void **state)
{
	struct seg *s = seg_with("a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.");
	struct bufq q;

	(void)state;
	bufq_init(&q, 0);
	for (uint32_t i = 0; i < s->used; i += 2)
		assert_true(bufq_put_seg_ref(&q, s, i, 1));
	assert_int_equal(q.n_spans, 2);
	assert_int_equal(pool.slab.n_live, 2);
	assert_bytes(&q, "abcdefghijklmnop");
	assert_memory_equal(s->data, "a.b.c", 5);
	bufq_free(&q);
	seg_drop(&s);
}

/* Framing between pieces that were copied goes behind them. */
static void test_small_constants(void **state)
{
	struct bufq q;

	(void)state;
	bufq_init(&q, 0);
	for (int i = 0; i < 8; i++) {
		assert_true(bufq_put_copy(&q, &pool, "1\r\n", 3));
		assert_true(bufq_put_copy(&q, &pool, "x", 1));
		assert_true(bufq_put_const(&q, "\r\n", 2));
	}
	assert_int_equal(q.n_spans, 1);
	assert_int_equal(pool.slab.n_live, 1);
	bufq_free(&q);
}

static void test_marks(void **state)
{
	static const char body[200];
	struct bufq q;

	(void)state;
	bufq_init(&q, 100);
	assert_true(bufq_empty(&q) && !bufq_full(&q) && bufq_has_room(&q));
	assert_true(bufq_put_const(&q, body, 50));
	assert_true(bufq_has_room(&q) && !bufq_full(&q));
	assert_true(bufq_put_const(&q, body, 49));
	assert_true(!bufq_has_room(&q) && !bufq_full(&q));
	assert_true(bufq_put_const(&q, body, 1));
	assert_true(!bufq_has_room(&q) && bufq_full(&q));
	bufq_drop(&q, 50);
	assert_true(bufq_has_room(&q));
	bufq_free(&q);
	bufq_init(&q, 0);
	assert_true(bufq_put_const(&q, body, 200));
	assert_true(bufq_has_room(&q) && !bufq_full(&q));
	bufq_free(&q);
}

static void test_put_seg(void **state)
{
	struct seg *s = seg_with("0123456789"), *keep;
	struct bufq q;

	(void)state;
	bufq_init(&q, 0);
	keep = seg_ref(s);
	assert_true(bufq_put_seg_ref(&q, s, 0, 4));
	assert_true(bufq_put_seg_ref(&q, s, 4, 2)); /* touches: no span more, no reference more */
	assert_int_equal(q.n_spans, 1);
	assert_int_equal(s->refs, 3);
	assert_true(bufq_put_seg_ref(&q, s, 8, 2)); /* a hole: copied */
	assert_int_equal(q.n_spans, 2);
	assert_int_equal(s->refs, 3);
	assert_true(bufq_put_seg_ref(&q, s, 3, 0)); /* nothing */
	assert_int_equal(s->refs, 3);
	assert_true(bufq_put_seg(&q, &s, 0, 1));
	assert_null(s);
	s = seg_with("x");
	assert_true(bufq_put_seg(&q, &s, 0, 0)); /* takes and drops */
	assert_null(s);
	assert_int_equal(pool.slab.n_live, 2);
	assert_bytes(&q, "012345890");
	bufq_free(&q);
	assert_int_equal(keep->refs, 1);
	seg_drop(&keep);
}

static void test_copy(void **state)
{
	struct seg *other = NULL;
	struct bufq q;
	char long_text[201];

	(void)state;
	bufq_init(&q, 0);
	assert_true(bufq_put_copy(&q, &pool, "abc", 3));
	assert_true(bufq_put_copy(&q, &pool, "def", 3)); /* into the tail */
	assert_true(bufq_put_copy(&q, &pool, "", 0));
	assert_int_equal(q.n_spans, 1);
	assert_int_equal(pool.slab.n_live, 1);
	assert_bytes(&q, "abcdef");
	other = seg_ref(q.v[0].own.seg); /* not the only owner any more */
	assert_true(bufq_put_copy(&q, &pool, "ghi", 3));
	assert_int_equal(q.n_spans, 2);
	seg_drop(&other);
	assert_bytes(&q, "abcdefghi");
	memset(long_text, 'x', 200);
	long_text[200] = '\0';
	assert_true(bufq_put_copy(&q, &pool, long_text, 200)); /* 61 into the tail, 64, 64, 11 */
	assert_int_equal(q.n_spans, 5);
	assert_int_equal(q.bytes, 209);
	assert_int_equal(q.v[q.head + 4].n, 11);
	bufq_drop(&q, 9);
	assert_bytes(&q, long_text);
	bufq_free(&q);
}

static void test_copy_refused(void **state)
{
	char text[4 * 65536] = "";
	struct bufq q;

	(void)state;
	bufq_init(&q, 0);
	assert_true(bufq_put_copy(&q, &pool, "abc", 3));
	budget.max = 2 * 65536;
	assert_false(bufq_put_copy(&q, &pool, text, sizeof(text)));
	budget.max = 64 << 20;
	assert_bytes(&q, "abc");
	assert_int_equal(pool.slab.n_live, 1);
	assert_true(bufq_put_copy(&q, &pool, "def", 3));
	assert_bytes(&q, "abcdef");
	assert_int_equal(q.n_spans, 1);
	bufq_free(&q);
	budget.max = 0;
	slab_trim(&pool.slab, UINT64_MAX);
	assert_false(bufq_put_copy(&q, &pool, "abc", 3));
	assert_true(bufq_empty(&q));
	assert_ptr_equal(q.v, q.inl);
	budget.max = 64 << 20;
}

static unsigned held, released;

static void on_hold(struct shared_block *b)
{
	(void)b;
	held++;
}

static void on_release(struct shared_block *b)
{
	(void)b;
	released++;
}

static void test_shared(void **state)
{
	struct shared_block b = { .hold = on_hold, .release = on_release };
	struct bufq q, to;

	(void)state;
	held = released = 0;
	bufq_init(&q, 0);
	bufq_init(&to, 0);
	assert_true(bufq_put_shared(&q, &b, "cached", 6));
	assert_int_equal(bufq_move(&to, &q, 2), 2); /* split: held once more */
	assert_int_equal(held, 1);
	assert_bytes(&to, "ca");
	assert_bytes(&q, "ched");
	assert_int_equal(bufq_move(&to, &q, 100), 4); /* whole again: one is given back */
	assert_int_equal(released, 1);
	assert_int_equal(to.n_spans, 1);
	assert_bytes(&to, "cached");
	bufq_drop(&to, 6);
	assert_int_equal(released, 2);
	assert_true(bufq_put_shared(&q, &b, "", 0));
	assert_int_equal(released, 3);
}

static void test_move(void **state)
{
	struct seg *s = seg_with("0123456789");
	struct bufq from, to;

	(void)state;
	bufq_init(&from, 0);
	bufq_init(&to, 0);
	assert_int_equal(bufq_move(&to, &from, 10), 0);
	assert_true(bufq_put_seg(&from, &s, 0, 10));
	assert_true(bufq_put_const(&from, "abc", 3));
	assert_int_equal(bufq_move(&to, &from, 0), 0);
	assert_int_equal(bufq_move(&to, &from, 4), 4);
	assert_bytes(&to, "0123");
	assert_bytes(&from, "456789abc");
	assert_int_equal(from.v[from.head].own.seg->refs, 2);
	assert_int_equal(bufq_move(&to, &from, 7), 7);
	assert_bytes(&to, "0123456789a");
	assert_int_equal(to.n_spans, 1);
	assert_int_equal(bufq_move(&to, &from, UINT64_MAX), 2);
	assert_bytes(&to, "0123456789abc");
	assert_int_equal(to.n_spans, 1); /* the seg is one span again, the constant behind it */
	assert_int_equal(to.v[0].own.seg->refs, 1);
	assert_true(bufq_empty(&from));
	bufq_free(&to);
	assert_int_equal(pool.slab.n_live, 0);
}

static void test_front_iov(void **state)
{
	struct iovec iov[8];
	struct bufq q;

	(void)state;
	bufq_init(&q, 0);
	assert_int_equal(bufq_front(&q).n, 0);
	assert_int_equal(bufq_iov(&q, iov, 8), 0);
	for (unsigned i = 0; i < 6; i++)
		assert_true(bufq_put_const(&q, &"0123456789"[i], 3));
	assert_true(str_eq(bufq_front(&q), STR("012")));
	bufq_drop(&q, 4);
	assert_true(str_eq(bufq_front(&q), STR("23")));
	assert_int_equal(bufq_iov(&q, iov, 2), 2);
	assert_int_equal(bufq_iov(&q, iov, 8), 5);
	assert_int_equal(iov[0].iov_len, 2);
	assert_memory_equal(iov[4].iov_base, "567", 3);
	bufq_drop(&q, 0);
	bufq_drop(&q, q.bytes);
	assert_true(bufq_empty(&q));
	bufq_free(&q);
}

/* Four spans need no memory beyond the queue; with more a ring comes, and goes when the queue is
 * empty. */
static void test_ring_memory(void **state)
{
	struct bufq q;

	(void)state;
	bufq_init(&q, 0);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 4; i++)
			assert_true(bufq_put_const(&q, i % 2 ? "abc" : "xyz", 3));
		assert_ptr_equal(q.v, q.inl);
		bufq_drop(&q, 6); /* the head is in the middle now */
		for (unsigned i = 0; i < 18; i++)
			assert_true(bufq_put_const(&q, i % 2 ? "abc" : "xyz", 3));
		assert_int_equal(q.n_spans, 20);
		assert_int_equal(q.cap, 32);
		assert_bytes(&q, "xyzabcxyzabcxyzabcxyzabcxyzabcxyzabcxyzabcxyzabcxyzabcxyzabc");
		bufq_drop(&q, 60);
		assert_ptr_equal(q.v, q.inl);
	}
}

static void test_dump(void **state)
{
	struct seg *s = seg_with("0123456789");
	char got[4096];
	struct bufq q;
	ssize_t n;
	int p[2];

	(void)state;
	bufq_init(&q, 64);
	assert_true(bufq_put_seg(&q, &s, 2, 5));
	for (unsigned i = 0; i < 40; i++)
		assert_true(bufq_put_const(&q, i % 2 ? "ab" : "xyz", 2));
	assert_int_equal(pipe(p), 0);
	bufq_dump(&q, p[1]);
	n = read(p[0], got, sizeof(got) - 1);
	assert_true(n > 0);
	got[n] = '\0';
	assert_non_null(strstr(got, ": 85 bytes in 41 spans, low 32, high 64, ring of 64\n"));
	assert_non_null(strstr(got, "+5 refs 1 used 10/64\n"));
	assert_non_null(strstr(got, "const 0x"));
	assert_non_null(strstr(got, "  ...\n"));
	close(p[0]);
	close(p[1]);
	bufq_free(&q);
}

/* --- model --- */

#define QUEUES    3
#define MODEL_MAX 8192
static struct bufq queue[QUEUES];
static struct {
	uint8_t b[MODEL_MAX];
	uint32_t n;
} model[QUEUES];
static uint8_t bytes[65536];
static struct shared_block shared = { .hold = on_hold, .release = on_release };
static unsigned shared_taken;

static uint32_t rnd(uint32_t n)
{
	return (uint32_t)random() % n;
}

static void model_put(unsigned i, const void *p, uint32_t n)
{
	memcpy(model[i].b + model[i].n, p, n);
	model[i].n += n;
}

static void model_drop(unsigned i, uint32_t n)
{
	model[i].n -= n;
	memmove(model[i].b, model[i].b + n, model[i].n);
}

static void step_seg(unsigned i)
{
	struct seg *s = seg_get(&pool);
	uint32_t a = rnd(65), b = rnd(65), lo = a < b ? a : b, n = (a < b ? b : a) - lo;

	s->used = lo + n + rnd(65 - lo - n);
	memcpy(s->data, bytes + rnd(60000), 64);
	model_put(i, s->data + lo, n);
	if (rnd(2)) {
		assert_true(bufq_put_seg_ref(&queue[i], s, lo, n));
		seg_drop(&s);
	} else {
		assert_true(bufq_put_seg(&queue[i], &s, lo, n));
		assert_null(s);
	}
}

static void step_other(unsigned i)
{
	const uint8_t *p = bytes + rnd(60000);
	uint32_t n = rnd(rnd(4) ? 20 : 400);

	model_put(i, p, n);
	switch (rnd(4)) {
	case 0: assert_true(bufq_put_const(&queue[i], p, n)); break;
	case 1:
		shared_taken++;
		assert_true(bufq_put_shared(&queue[i], &shared, p, n));
		break;
	default: assert_true(bufq_put_copy(&queue[i], &pool, p, n));
	}
}

static void step_move(unsigned i)
{
	unsigned to = (i + 1 + rnd(QUEUES - 1)) % QUEUES;
	uint32_t max = rnd(4) ? rnd(200) : rnd(3000), n = max < model[i].n ? max : model[i].n;

	if (model[to].n + n > MODEL_MAX)
		return;
	assert_int_equal(bufq_move(&queue[to], &queue[i], max), n);
	model_put(to, model[i].b, n);
	model_drop(i, n);
}

static void step_share(unsigned i)
{
	unsigned to = (i + 1 + rnd(QUEUES - 1)) % QUEUES;
	uint32_t max = rnd(300), n = max < model[i].n ? max : model[i].n;

	if (model[to].n + n > MODEL_MAX)
		return;
	assert_int_equal(bufq_share(&queue[to], &queue[i], max), n);
	model_put(to, model[i].b, n);
}

static void step_drop(unsigned i)
{
	uint32_t n = rnd(5) ? rnd(100) : rnd(3000);

	n = n < model[i].n ? n : model[i].n;
	bufq_drop(&queue[i], n);
	model_drop(i, n);
}

static void check(unsigned i)
{
	static uint8_t got[MODEL_MAX];
	struct iovec iov[64];
	uint32_t at = 0;
	unsigned n;

	bufq_assert(&queue[i]);
	assert_int_equal(queue[i].bytes, model[i].n);
	assert_int_equal(bufq_peek(&queue[i], got, MODEL_MAX), model[i].n);
	assert_memory_equal(got, model[i].b, model[i].n);
	n = bufq_iov(&queue[i], iov, 64);
	for (unsigned k = 0; k < n; k++) {
		assert_memory_equal(iov[k].iov_base, model[i].b + at, iov[k].iov_len);
		at += (uint32_t)iov[k].iov_len;
	}
	if (n < 64)
		assert_int_equal(at, model[i].n);
}

static void test_model(void **state)
{
	(void)state;
	srandom(4);
	held = released = 0;
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)random();
	for (unsigned i = 0; i < QUEUES; i++)
		bufq_init(&queue[i], 0);
	for (unsigned step = 0; step < 200000; step++) {
		unsigned i = rnd(QUEUES);

		switch (rnd(step / 5000 % 2 ? 8 : 5)) {
		case 0:
		case 1:
			if (model[i].n + 64 <= MODEL_MAX)
				step_seg(i);
			break;
		case 2:
			if (model[i].n + 400 <= MODEL_MAX)
				step_other(i);
			break;
		case 3:
			if (rnd(4))
				step_move(i);
			else
				step_share(i);
			break;
		default: step_drop(i);
		}
		check(i);
		if (step % 1000 == 999)
			slab_trim(&pool.slab, UINT64_MAX);
	}
	for (unsigned i = 0; i < QUEUES; i++)
		bufq_free(&queue[i]);
	assert_int_equal(released, shared_taken + held);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_seg),
		cmocka_unit_test(test_real_pools),
		cmocka_unit_test(test_small_pieces_are_gathered),
		cmocka_unit_test(test_pieces_of_one_seg),
		cmocka_unit_test(test_small_constants),
		cmocka_unit_test(test_marks),
		cmocka_unit_test(test_put_seg),
		cmocka_unit_test(test_copy),
		cmocka_unit_test(test_copy_refused),
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_move),
		cmocka_unit_test(test_front_iov),
		cmocka_unit_test(test_ring_memory),
		cmocka_unit_test(test_dump),
		cmocka_unit_test(test_model),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
