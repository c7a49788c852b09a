/* test_h1_writer.c -- messages put together: which block a head gets, bodies as they are and in
 * chunks, and at each place no memory. */
#include "unit.h"

#include "exchange/priv.h"
#include "wire/priv.h"

#include <stdlib.h>

struct bench {
	struct budget budget;
	struct loop *loop;
	struct exchange x;
	struct pipe p;
	struct h1_writer w;
	struct head head;
	struct seg *held[64]; /* all that the pools had */
	unsigned n_held;
};

static int setup(void **state)
{
	struct bench *b = calloc(1, sizeof(*b));
	struct loop_params par = { .io = LOOP_EPOLL, .budget = &b->budget, .fds_max = 64 };
	char why_text[128];

	assert_non_null(b);
	*state = b;
	b->budget.max = 64u << 20;
	b->loop = loop_new(&par, why_text);
	b->x.magic = EXCHANGE_MAGIC;
	pipe_open(&b->p, &b->x, PIPE_HIGH);
	b->p.state = PIPE_HEAD;
	h1_writer_init(&b->w);
	arena_init(&b->x.arena, loop_arenas(b->loop));
	return b->loop ? 0 : -1;
}

static int teardown(void **state)
{
	struct bench *b = *state;

	while (b->n_held)
		seg_drop(&b->held[--b->n_held]);
	pipe_close(&b->p);
	h1_writer_free(&b->w);
	arena_free(&b->x.arena);
	loop_free(&b->loop);
	assert_int_equal(b->budget.used, 0);
	free(b);
	return 0;
}

/* This pool has nothing left, and the budget neither. */
static void drain(struct bench *b, enum seg_class class)
{
	struct seg *s;

	b->budget.max = atomic_load(&b->budget.used);
	while ((s = seg_get(loop_segs(b->loop, class)))) {
		assert_true(b->n_held < ARRAY_LEN(b->held));
		b->held[b->n_held++] = s;
	}
}

static char text[1 << 20]; /* what is in `out` */

static struct str all_of_out(const struct bench *b)
{
	uint32_t n = bufq_peek(&b->w.out, text, sizeof(text));

	assert_int_equal(n, b->w.out.bytes);
	return (struct str){ .p = text, .n = n };
}

#define out_is(b, want) assert_true(str_eq(all_of_out(b), STR(want)))

static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
static char filler[200000]; /* letters, again and again */

static void write_reason(struct out *o, const struct head *h, const struct h1_write *how)
{
	(void)how;
	out_str(o, h->reason);
}

/* A head that is written as n letters. */
static bool put_head(struct bench *b, uint32_t n)
{
	static const struct h1_write how;

	b->head = (struct head){ .status = 200, .version = 11, .reason = { filler, n } };
	b->w.head_out = true;
	return h1_writer_head(&b->w, b->loop, write_reason, &b->head, &how);
}

static void feed(struct bench *b, uint32_t n)
{
	struct bufq q;

	bufq_init(&q, 0);
	assert_true(bufq_put_const(&q, filler, n));
	(void)pipe_put(&b->p, &q, n);
	assert_true(bufq_empty(&q));
	bufq_free(&q);
}

static bool move(struct bench *b)
{
	return h1_writer_move(&b->w, b->loop, &b->p);
}

/* ---------------------------------------------------------------- heads */
static void a_head_gets_the_block_that_it_fits(void **state)
{
	static const struct {
		uint32_t n;
		enum seg_class class;
	} v[] = { { 1, SEG_SMALL },    { 4000, SEG_SMALL },  { 4064, SEG_SMALL },
		  { 4065, SEG_LARGE }, { 30000, SEG_LARGE }, { 65536, SEG_LARGE } };
	struct bench *b = *state;

	for (unsigned i = 0; i < ARRAY_LEN(v); i++) {
		struct span *s;

		assert_true(put_head(b, v[i].n));
		assert_int_equal(b->w.out.n_spans, 1);
		s = &b->w.out.v[b->w.out.head];
		assert_int_equal(s->own.seg->cap, loop_segs(b->loop, v[i].class)->cap);
		assert_int_equal(s->own.seg->refs, 1);
		assert_int_equal(s->own.seg->used, v[i].n);
		assert_true(str_eq(all_of_out(b), (struct str){ filler, v[i].n }));
		bufq_drop(&b->w.out, b->w.out.bytes);
	}
	assert_false(put_head(b, 100000)); /* larger than any */
	assert_true(bufq_empty(&b->w.out));
}

static void no_memory_for_a_head(void **state)
{
	struct bench *b = *state;

	assert_true(put_head(b, 100));
	drain(b, SEG_LARGE);
	assert_true(put_head(b, 100));
	assert_false(put_head(b, 5000));
	drain(b, SEG_SMALL);
	assert_false(put_head(b, 100));
	assert_int_equal(b->w.out.bytes, 200);
}

/* ---------------------------------------------------------------- bodies as they are */
static void a_small_body_goes_into_the_heads_block(void **state)
{
	struct bench *b = *state;

	assert_true(put_head(b, 3));
	feed(b, 5);
	pipe_end(&b->p, NULL);
	assert_true(move(b));
	out_is(b, "abcabcde");
	assert_int_equal(b->w.out.n_spans, 1);
	assert_true(b->w.done);
	assert_true(move(b)); /* there is nothing more to do */
	out_is(b, "abcabcde");
}

static void a_large_body_is_not_copied(void **state)
{
	struct bench *b = *state;

	assert_true(put_head(b, 3));
	feed(b, 3000);
	assert_true(move(b));
	assert_false(b->w.done);
	assert_int_equal(b->w.out.n_spans, 2);
	assert_ptr_equal(b->w.out.v[1].p, filler);
	feed(b, 1); /* no copy behind what is not ours */
	pipe_end(&b->p, NULL);
	assert_true(move(b));
	assert_int_equal(b->w.out.n_spans, 3);
	assert_int_equal(b->w.out.bytes, 3004);
	assert_true(b->w.done);
}

/* The head's block is full and there is no other: the body goes on as it came. */
static void no_memory_for_a_copy(void **state)
{
	struct bench *b = *state;

	assert_true(put_head(b, 4060));
	feed(b, 26);
	drain(b, SEG_SMALL);
	pipe_end(&b->p, NULL);
	assert_true(move(b));
	assert_int_equal(b->w.out.n_spans, 2);
	assert_int_equal(b->w.out.bytes, 4086);
	assert_memory_equal(all_of_out(b).p + 4060, letters, 26);
	assert_true(b->w.done);
}

static void bodies_up_to_the_mark(void **state)
{
	struct bench *b = *state;

	feed(b, 1);
	assert_true(move(b)); /* not before the head */
	assert_int_equal(b->w.out.bytes, 0);
	assert_int_equal(b->p.q.bytes, 1);
	assert_true(put_head(b, 10));
	feed(b, 150000);
	pipe_end(&b->p, NULL);
	assert_true(move(b));
	assert_int_equal(b->w.out.bytes, H1_OUT_HIGH);
	assert_true(move(b));
	assert_int_equal(b->w.out.bytes, H1_OUT_HIGH);
	bufq_drop(&b->w.out, 1000);
	assert_true(move(b));
	assert_int_equal(b->w.out.bytes, H1_OUT_HIGH);
	assert_false(b->w.done);
	while (!b->w.done) {
		bufq_drop(&b->w.out, b->w.out.bytes);
		assert_true(move(b));
	}
	assert_int_equal(b->p.taken, 150001);
	assert_int_equal(b->p.state, PIPE_ENDED);
}

/* ---------------------------------------------------------------- chunks */
static struct head *trailers(struct bench *b, struct str value)
{
	static struct head h;

	memset(&h, 0, sizeof(h));
	assert_true(head_add(&h, &b->x.arena, STR("X-T"), value));
	return &h;
}

static void chunks_and_their_end(void **state)
{
	struct bench *b = *state;

	assert_true(put_head(b, 1));
	b->w.chunked = true;
	feed(b, 26);
	assert_true(move(b));
	out_is(b, "a1a\r\nabcdefghijklmnopqrstuvwxyz\r\n");
	assert_true(move(b)); /* no empty chunk: it would be the last */
	bufq_drop(&b->w.out, b->w.out.bytes);
	pipe_end(&b->p, NULL);
	assert_true(move(b));
	out_is(b, "0\r\n\r\n");
	assert_true(move(b));
	out_is(b, "0\r\n\r\n");
	h1_writer_next(&b->w);
	assert_false(b->w.done || b->w.chunked || b->w.head_out);
}

static void trailers_follow_the_last_chunk(void **state)
{
	struct bench *b = *state;

	assert_true(put_head(b, 1));
	b->w.chunked = true;
	feed(b, 2);
	pipe_end(&b->p, trailers(b, STR("v")));
	assert_true(move(b));
	out_is(b, "a2\r\nab\r\n0\r\nX-T: v\r\n\r\n");
}

static void trailers_that_are_larger_than_any_block(void **state)
{
	struct bench *b = *state;

	assert_true(put_head(b, 1));
	b->w.chunked = true;
	pipe_end(&b->p, trailers(b, (struct str){ filler, 60000 }));
	assert_true(move(b));
	assert_int_equal(b->w.out.bytes, 1 + 3 + 5 + 60000 + 2 + 2);
	bufq_drop(&b->w.out, b->w.out.bytes);
	b->w.done = false;
	b->p.trailers = trailers(b, (struct str){ filler, 100000 });
	assert_false(move(b));
}

/* What failed in its middle stays so: what followed would be read as part of it. */
static void nothing_more(struct bench *b)
{
	uint64_t bytes = b->w.out.bytes;

	b->budget.max = 64u << 20;
	assert_false(b->w.done);
	assert_false(move(b));
	assert_int_equal(b->w.out.bytes, bytes);
}

static void no_memory_for_trailers(void **state)
{
	struct bench *b = *state;

	assert_true(put_head(b, 4064));
	b->w.chunked = true;
	pipe_end(&b->p, trailers(b, STR("v")));
	drain(b, SEG_SMALL);
	assert_false(move(b));
	nothing_more(b);
}

static void no_memory_for_a_chunk(void **state)
{
	struct bench *b = *state;

	assert_true(put_head(b, 4063));
	b->w.chunked = true;
	feed(b, 26);
	drain(b, SEG_SMALL);
	assert_false(move(b));
	assert_int_equal(b->p.taken, 0);
	nothing_more(b);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_head_gets_the_block_that_it_fits),
		CASE(no_memory_for_a_head),
		CASE(a_small_body_goes_into_the_heads_block),
		CASE(a_large_body_is_not_copied),
		CASE(no_memory_for_a_copy),
		CASE(bodies_up_to_the_mark),
		CASE(chunks_and_their_end),
		CASE(trailers_follow_the_last_chunk),
		CASE(trailers_that_are_larger_than_any_block),
		CASE(no_memory_for_trailers),
		CASE(no_memory_for_a_chunk),
	};

	for (unsigned i = 0; i < sizeof(filler); i++)
		filler[i] = letters[i % 26];
	return cmocka_run_group_tests_name("h1_writer", tests, NULL, NULL);
}
