/* The contract of pipes, ends and the driver (exchange.h), with hand-made ends and steps on a real
 * loop: what must fit even where its user comes later: interim answers, an early answer, a try that
 * is replayed, a tunnel's detach, a fill whose down end is a store, refusals, cuts; and who hears
 * what, how often. */
#include "../unit/unit.h"

#include "exchange/exchange.h"

#include <stdlib.h>

struct rig {
	struct budget budget;
	struct loop *loop;
	struct exchange *x;
	struct timeouts timeouts;
	struct limits limits;
	unsigned freed, answers_seen;
	bool again_wanted;
	unsigned begins;
	struct stand { /* one hand-made end */
		struct end end;
		struct rig *rig;
		unsigned data, room, cuts;
		const struct why *why;
		struct bufq got;
		struct head head;
		bool take, leave_on_cut;
		void (*act)(struct stand *);
	} down, up;
} rig;

static struct stand *of(struct end *e)
{
	return container_of(e, struct stand, end);
}

static struct pipe *reads(struct stand *s)
{
	return s == &rig.down ? &rig.x->rsp : &rig.x->req;
}

static void on_data(struct end *e)
{
	struct stand *s = of(e);

	s->data++;
	if (s->take)
		pipe_take(reads(s), &s->got, UINT64_MAX);
	if (s->act)
		s->act(s);
}

static void on_room(struct end *e)
{
	of(e)->room++;
}

static void on_cut(struct end *e, const struct why *cause)
{
	struct stand *s = of(e);

	s->cuts++;
	s->why = cause;
	if (s->leave_on_cut)
		end_leave(e);
}

static const struct end_ops ops = { .name = "stand",
				    .on_data = on_data,
				    .on_room = on_room,
				    .on_cut = on_cut };

/* ---- steps: open, begin, flow, log ---- */
static enum verdict step_open(struct exchange *x)
{
	return x->req.state == PIPE_EMPTY ? STEP_PARK : STEP_NEXT;
}

static enum verdict step_begin(struct exchange *x)
{
	rig.begins++;
	if (!x->up)
		exchange_attach_up(x, &rig.up.end);
	return STEP_NEXT;
}

static enum verdict step_flow(struct exchange *x)
{
	if (rig.again_wanted && !x->up && x->rsp.state == PIPE_EMPTY && pipe_rewind(&x->req)) {
		rig.again_wanted = false;
		return STEP_AGAIN;
	}
	return x->up || x->down ? STEP_PARK : STEP_NEXT;
}

static enum verdict step_log(struct exchange *x)
{
	(void)x;
	return STEP_DONE;
}

static void on_answer_head(struct exchange *x)
{
	(void)x;
	rig.answers_seen++;
}

static void on_freed(struct exchange *x)
{
	(void)x;
	rig.freed++;
	rig.x = NULL;
}

static const struct step path[] = { { "open", step_open },
				    { "begin", step_begin },
				    { "flow", step_flow },
				    { "log", step_log } };
static const struct steps steps = { .step = path,
				    .n = 4,
				    .again = 1,
				    .answer = 1,
				    .flow = 2,
				    .answer_head = on_answer_head,
				    .freed = on_freed };

static void stand_open(struct stand *s)
{
	*s = (struct stand){ .rig = &rig, .take = true, .leave_on_cut = true };
	s->end.ops = &ops;
	bufq_init(&s->got, 0);
}

static int setup(void **state)
{
	struct loop_params p = { .io = LOOP_EPOLL, .budget = &rig.budget, .fds_max = 64 };
	struct exchange_params xp = { .steps = &steps, .down = &rig.down.end };
	static const struct addr nobody;
	char why_text[128];

	(void)state;
	memset(&rig, 0, sizeof(rig));
	rig.budget.max = UINT64_MAX;
	rig.loop = loop_new(&p, why_text);
	assert_non_null(rig.loop);
	assert_int_equal(exchange_shard_open(rig.loop), 0);
	stand_open(&rig.down);
	stand_open(&rig.up);
	xp.timeouts = &rig.timeouts;
	xp.limits = &rig.limits;
	xp.peer = &nobody;
	rig.x = exchange_new(rig.loop, &xp);
	assert_non_null(rig.x);
	return 0;
}

static void turn(void)
{
	for (int i = 0; i < 5; i++) {
		loop_turn(rig.loop, 0);
		if (rig.x)
			exchange_assert(rig.x);
	}
}

static int teardown(void **state)
{
	(void)state;
	if (rig.x) {
		rig.down.leave_on_cut = rig.up.leave_on_cut = true;
		exchange_cut(rig.x, why(WHY_SHUTDOWN));
		turn();
	}
	assert_int_equal(rig.freed, 1);
	assert_int_equal(exchange_count(rig.loop), 0);
	bufq_free(&rig.down.got);
	bufq_free(&rig.up.got);
	exchange_shard_close(rig.loop);
	loop_free(&rig.loop);
	return 0;
}

/* ---- bytes ---- */
static void put(struct pipe *p, const char *text, bool *wants)
{
	struct bufq q;

	bufq_init(&q, 0);
	assert_true(
		bufq_put_copy(&q, loop_segs(rig.loop, SEG_SMALL), text, (uint32_t)strlen(text)));
	*wants = pipe_put(p, &q, q.bytes);
	assert_true(bufq_empty(&q));
	bufq_free(&q);
}

static void put_n(struct pipe *p, uint32_t n, bool *wants)
{
	char *text = calloc(1, n + 1);

	memset(text, 'x', n);
	put(p, text, wants);
	free(text);
}

static void assert_got(struct stand *s, const char *text)
{
	char buf[256] = { 0 };

	assert_int_equal(s->got.bytes, strlen(text));
	bufq_peek(&s->got, buf, sizeof(buf));
	assert_string_equal(buf, text);
}

static void begin(void)
{
	rig.down.head = (struct head){ .method = METHOD_GET, .version = 11 };
	pipe_head(&rig.x->req, &rig.down.head);
}

/* ---- tests ---- */
static void test_a_request_and_its_answer(void **state)
{
	bool wants;

	(void)state;
	turn();
	assert_int_equal(rig.begins, 0); /* parked until the head stands */
	begin();
	put(&rig.x->req, "body", &wants);
	assert_true(wants);
	pipe_end(&rig.x->req, NULL);
	turn();
	assert_got(&rig.up, "body");
	assert_int_equal(rig.x->req.state, PIPE_ENDED);
	rig.up.head = (struct head){ .status = 200 };
	pipe_head(&rig.x->rsp, &rig.up.head);
	put(&rig.x->rsp, "answer", &wants);
	pipe_end(&rig.x->rsp, NULL);
	end_leave(&rig.up.end);
	turn();
	assert_got(&rig.down, "answer");
	assert_int_equal(rig.answers_seen, 1);
	assert_null(rig.down.why);
	end_leave(&rig.down.end);
	turn();
	assert_int_equal(rig.freed, 1);
}

static void test_interims_pass_before_the_head_and_are_bounded(void **state)
{
	struct head early = { .status = 103 };
	struct interim *i;

	(void)state;
	begin();
	turn();
	rig.down.take = false;
	for (int n = 0; n < PIPE_INTERIM_MAX; n++) {
		early.port = (uint16_t)n;
		assert_true(pipe_inform(&rig.x->rsp, &early));
	}
	assert_false(pipe_inform(&rig.x->rsp, &early));
	for (int n = 0; n < PIPE_INTERIM_MAX; n++) {
		i = pipe_take_interim(&rig.x->rsp);
		assert_non_null(i);
		assert_int_equal(i->head.port, n);
	}
	assert_null(pipe_take_interim(&rig.x->rsp));
	assert_int_equal(rig.x->rsp.state, PIPE_EMPTY);
}

static void test_back_pressure_between_the_marks(void **state)
{
	bool wants = true;
	unsigned puts = 0;
	struct bufq some;

	(void)state;
	begin();
	rig.up.take = false;
	turn();
	while (wants && puts < 100) {
		put_n(&rig.x->req, 4096, &wants);
		puts++;
	}
	assert_int_equal(puts, PIPE_HIGH / 4096);
	assert_int_equal(rig.down.room, 0);
	bufq_init(&some, 0);
	pipe_take(&rig.x->req, &some, 4096);
	turn();
	assert_int_equal(rig.down.room, 0); /* not at once: at the low mark */
	pipe_take(&rig.x->req, &some, PIPE_HIGH / 2);
	turn();
	assert_int_equal(rig.down.room, 1);
	pipe_stop(&rig.x->req, STOP_CONNECT);
	pipe_stop(&rig.x->req, STOP_FULL);
	pipe_go(&rig.x->req, STOP_CONNECT);
	turn();
	assert_int_equal(rig.down.room, 1); /* a set of reasons: all must be gone */
	pipe_go(&rig.x->req, STOP_FULL);
	turn();
	assert_int_equal(rig.down.room, 2);
	bufq_free(&some);
}

static void test_early_answer_discards_up_to_a_bound(void **state)
{
	bool wants = true;
	uint32_t n = 0;

	(void)state;
	begin();
	turn();
	pipe_reader_gone(&rig.x->req);
	for (; wants && n < 100; n++)
		put_n(&rig.x->req, 8192, &wants);
	assert_int_equal(n, PIPE_DISCARD_MAX / 8192 + 1);
	assert_int_equal(rig.x->req.q.bytes, 0);
}

static void test_replay_of_what_was_taken(void **state)
{
	bool wants;

	(void)state;
	begin();
	pipe_keep(&rig.x->req, 1024);
	put(&rig.x->req, "one ", &wants);
	turn();
	assert_got(&rig.up, "one ");
	put(&rig.x->req, "two", &wants);
	rig.again_wanted = true;
	bufq_drop(&rig.up.got, rig.up.got.bytes);
	end_fail(&rig.up.end, why(WHY_REFUSED));
	turn();
	assert_int_equal(rig.begins, 2);
	assert_got(&rig.up, "one two");
	assert_int_equal(rig.x->why->id, WHY_NONE); /* cured: nothing to log */
	assert_int_equal(rig.x->try_why->id, WHY_REFUSED);
	assert_false(rig.x->cut);
}

static void test_no_replay_beyond_the_limit(void **state)
{
	bool wants;

	(void)state;
	begin();
	pipe_keep(&rig.x->req, 100);
	put_n(&rig.x->req, 101, &wants);
	turn();
	assert_false(pipe_can_rewind(&rig.x->req));
	assert_false(pipe_rewind(&rig.x->req));
}

static void test_the_first_cause_wins_and_is_heard_once(void **state)
{
	(void)state;
	begin();
	turn();
	rig.up.leave_on_cut = false;
	exchange_cut(rig.x, why(WHY_CLIENT_ABORT));
	exchange_cut(rig.x, why(WHY_TOTAL));
	turn();
	assert_int_equal(rig.up.cuts, 1);
	assert_int_equal(rig.down.cuts, 1);
	assert_int_equal(rig.up.why->id, WHY_CLIENT_ABORT);
	assert_int_equal(rig.x->why->id, WHY_CLIENT_ABORT);
	assert_int_equal(rig.freed, 0); /* one end has not left */
	end_leave(&rig.up.end);
	turn();
	assert_int_equal(rig.freed, 1);
}

static void test_a_refusal_waits_for_the_answerer_of_before(void **state)
{
	(void)state;
	begin();
	turn();
	rig.up.leave_on_cut = false;
	exchange_refuse(rig.x, why(WHY_BODY_TOO_LARGE), NULL);
	exchange_refuse(rig.x, why(WHY_TOTAL), NULL);
	turn();
	assert_int_equal(rig.up.cuts, 1);
	assert_int_equal(rig.begins, 1);
	end_leave(&rig.up.end);
	turn();
	assert_int_equal(rig.begins, 2); /* the page's answerer */
	assert_int_equal(rig.x->why->id, WHY_BODY_TOO_LARGE);
	assert_int_equal(rig.down.cuts, 0);
}

static void test_a_failure_after_the_head_is_a_visible_cut(void **state)
{
	bool wants;

	(void)state;
	begin();
	turn();
	rig.up.head = (struct head){ .status = 200, .body = BODY_LENGTH, .length = 10 };
	pipe_head(&rig.x->rsp, &rig.up.head);
	put(&rig.x->rsp, "part", &wants);
	turn();
	assert_got(&rig.down, "part");
	end_fail(&rig.up.end, why(WHY_INCOMPLETE));
	turn();
	assert_int_equal(rig.freed, 1);
	assert_int_equal(rig.down.why->id, WHY_INCOMPLETE);
}

/* Nobody saw the head: it is taken back, and another answer may come. */
static void test_a_failure_before_anybody_saw_the_head(void **state)
{
	bool wants;

	(void)state;
	begin();
	turn();
	rig.up.head = (struct head){ .status = 200, .body = BODY_LENGTH, .length = 10 };
	pipe_head(&rig.x->rsp, &rig.up.head);
	put(&rig.x->rsp, "part", &wants);
	end_fail(&rig.up.end, why(WHY_BAD_RESPONSE));
	assert_int_equal(rig.x->rsp.state, PIPE_EMPTY);
	turn();
	assert_false(rig.x->cut);
	assert_int_equal(rig.down.got.bytes, 0);
	assert_int_equal(rig.answers_seen, 0);
}

/* A fill: its down end is a store, which has no client that could go away. */
static void grow(struct stand *s)
{
	assert_true(s == &rig.down);
}

static void test_a_fill_goes_on_to_its_end(void **state)
{
	bool wants;

	(void)state;
	rig.down.act = grow;
	begin();
	pipe_end(&rig.x->req, NULL);
	turn();
	rig.up.head = (struct head){ .status = 200 };
	pipe_head(&rig.x->rsp, &rig.up.head);
	for (int i = 0; i < 50; i++) {
		put_n(&rig.x->rsp, 8192, &wants);
		turn();
	}
	pipe_end(&rig.x->rsp, NULL);
	end_leave(&rig.up.end);
	turn();
	assert_int_equal(rig.down.got.bytes, 50 * 8192);
	assert_true(pipe_done(&rig.x->rsp));
	assert_int_equal(rig.down.cuts, 0);
	end_leave(&rig.down.end);
	turn();
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_request_and_its_answer),
		T(test_interims_pass_before_the_head_and_are_bounded),
		T(test_back_pressure_between_the_marks),
		T(test_early_answer_discards_up_to_a_bound),
		T(test_replay_of_what_was_taken),
		T(test_no_replay_beyond_the_limit),
		T(test_the_first_cause_wins_and_is_heard_once),
		T(test_a_refusal_waits_for_the_answerer_of_before),
		T(test_a_failure_after_the_head_is_a_visible_cut),
		T(test_a_failure_before_anybody_saw_the_head),
		T(test_a_fill_goes_on_to_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
