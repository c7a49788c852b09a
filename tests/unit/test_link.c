/* test_link.c -- the contract of a link (src/link/sock.c) on both real back ends. */
#include "link_rig.h"

struct side {
	struct rig *rig;
	struct link *l;
	int peer;
	struct bufq out;
	uint64_t got, sent;
	uint32_t largest_seg;
	int32_t end; /* 1: not yet; else what on_recv said last */
	int32_t failed;
	unsigned ends, failures, sends, quiets;
	bool close_in_recv;
};

static void on_recv(struct link *l, int32_t res, struct seg **seg)
{
	struct side *s = l->owner;

	assert_ptr_equal(l, s->l);
	if (res > 0) {
		assert_non_null(*seg);
		for (int32_t i = 0; i < res; i++)
			assert_int_equal((*seg)->data[i], (uint8_t)(s->got + (uint32_t)i));
		s->got += (uint32_t)res;
		if ((*seg)->cap > s->largest_seg)
			s->largest_seg = (*seg)->cap;
	} else {
		s->ends++;
		s->end = res;
	}
	if (s->close_in_recv)
		link_close(&s->l);
}

static void on_sent(struct link *l, int32_t n)
{
	struct side *s = l->owner;

	if (n < 0) {
		s->failed = n;
		s->failures++;
		assert_false(link_sending(l));
		return;
	}
	s->sends++;
	s->sent += (uint32_t)n;
}

static void on_quiet(struct link *l)
{
	struct side *s = l->owner;

	s->quiets++;
}

static void side_of(struct side *s, struct rig *r, int fd, int peer)
{
	memset(s, 0, sizeof(*s));
	s->rig = r;
	s->peer = peer;
	s->end = 1;
	bufq_init(&s->out, 0);
	s->l = link_new(r->loop, fd, s);
	assert_non_null(s->l);
	s->l->on_recv = on_recv;
	s->l->on_sent = on_sent;
}

static void side_open(struct side *s, struct rig *r)
{
	int ours, theirs;

	rig_pair(&ours, &theirs);
	side_of(s, r, ours, theirs);
}

static void side_close(struct side *s)
{
	link_close(&s->l);
	bufq_free(&s->out);
	if (s->peer >= 0)
		close(s->peer);
}

/* The n bytes that follow the first `from` of the pattern 0, 1, ... 255, 0, ... */
static uint8_t *pattern(uint64_t from, size_t n)
{
	uint8_t *p = malloc(n);

	assert_non_null(p);
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(from + i);
	return p;
}

static void queue(struct side *s, uint64_t from, uint32_t n)
{
	uint8_t *p = pattern(from, n);

	assert_true(bufq_put_copy(&s->out, loop_segs(s->rig->loop, SEG_SMALL), p, n));
	free(p);
}

static void peer_write(struct side *s, uint64_t from, size_t n)
{
	uint8_t *p = pattern(from, n);

	assert_int_equal(write(s->peer, p, n), n);
	free(p);
}

/* Reads what is there without blocking; returns bytes, 0 at the end, -errno. */
static ssize_t peer_take(struct side *s, void *to, size_t n)
{
	ssize_t got = recv(s->peer, to, n, MSG_DONTWAIT);

	return got < 0 ? -errno : got;
}

/* Turns until the peer has read n bytes of the pattern. */
static void peer_expect(struct side *s, size_t n)
{
	uint8_t *p = malloc(n + 1);
	size_t at = 0;

	for (int i = 0; i < 20000 && at < n; i++) {
		ssize_t got = peer_take(s, p + at, n - at);

		if (got > 0)
			at += (size_t)got;
		else
			loop_turn(s->rig->loop, 1);
	}
	assert_int_equal(at, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(p[i], (uint8_t)i);
	free(p);
}

static int peer_ending(struct side *s)
{
	uint8_t c;
	ssize_t got = -EAGAIN;

	for (int i = 0; i < 4000 && got == -EAGAIN; i++) {
		loop_turn(s->rig->loop, 1);
		got = peer_take(s, &c, 1);
	}
	return (int)got;
}

/* --- size --- */
static void a_link_is_small(void **state)
{
	(void)state;
	assert_in_range(sizeof(struct link), 1, 250);
}

/* --- receiving --- */
static void bytes_then_the_end_once(void **state)
{
	RIG(r, state);
	struct side s;

	side_open(&s, r);
	link_read(s.l);
	peer_write(&s, 0, 1000);
	rig_until(r, s.got == 1000);
	shutdown(s.peer, SHUT_WR);
	rig_until(r, s.ends == 1);
	assert_int_equal(s.end, 0);
	assert_false(link_idle_ok(s.l));
	link_read(s.l); /* reading is over: no-op */
	for (int i = 0; i < 5; i++)
		loop_turn(r->loop, 1);
	assert_int_equal(s.ends, 1);
	link_assert(s.l);
	side_close(&s);
}

static void closing_inside_the_callback(void **state)
{
	RIG(r, state);
	struct side s;

	side_open(&s, r);
	s.close_in_recv = true;
	link_read(s.l);
	peer_write(&s, 0, 10);
	rig_until(r, !s.l);
	assert_int_equal(peer_ending(&s), 0);
	rig_until(r, link_count(r->loop) == 0);
	side_close(&s);
}

static void a_pause_holds(void **state)
{
	RIG(r, state);
	struct side s;
	uint64_t at;
	int unread = 0;

	side_open(&s, r);
	fcntl(s.peer, F_SETFL, O_NONBLOCK);
	link_read(s.l);
	peer_write(&s, 0, 100);
	rig_until(r, s.got == 100);
	link_pause(s.l);
	at = s.got;
	for (uint64_t from = 100, i = 0; i < 50; i++) {
		uint8_t *p = pattern(from, 8192);
		ssize_t n = write(s.peer, p, 8192);

		free(p);
		from += n > 0 ? (uint64_t)n : 0;
		unread += n > 0 ? (int)n : 0;
		loop_turn(r->loop, 1);
	}
	assert_true(s.got - at <= LOOP_RECV_TURN);
	assert_true(link_idle_ok(s.l));
	link_read(s.l);
	rig_until(r, s.got == 100 + (uint64_t)unread);
	side_close(&s);
}

static void pause_and_read_in_one_turn(void **state)
{
	RIG(r, state);
	struct side s;

	side_open(&s, r);
	link_read(s.l);
	for (int i = 0; i < 20; i++) {
		link_pause(s.l);
		link_read(s.l);
		peer_write(&s, (uint64_t)i * 100, 100);
		loop_turn(r->loop, 1);
		link_pause(s.l);
		loop_turn(r->loop, 1);
		link_read(s.l);
	}
	rig_until(r, s.got == 2000);
	side_close(&s);
}

static void an_abort_is_seen_while_paused(void **state)
{
	RIG(r, state);
	struct side s;

	side_open(&s, r);
	link_read(s.l);
	loop_turn(r->loop, 1);
	link_pause(s.l);
	for (int i = 0; i < 4; i++)
		loop_turn(r->loop, 1);
	rig_reset(s.peer);
	s.peer = -1;
	rig_until(r, s.ends == 1);
	assert_int_equal(s.end, -ECONNRESET);
	assert_true(s.l->dead);
	side_close(&s);
}

static void an_abort_is_seen_while_idle(void **state)
{
	RIG(r, state);
	struct side s;

	side_open(&s, r);
	link_read(s.l);
	loop_turn(r->loop, 1);
	rig_reset(s.peer);
	s.peer = -1;
	rig_until(r, s.ends == 1);
	assert_int_equal(s.end, -ECONNRESET);
	side_close(&s);
}

static void a_fin_while_paused_waits_for_the_reader(void **state)
{
	RIG(r, state);
	struct side s;

	side_open(&s, r);
	link_read(s.l);
	loop_turn(r->loop, 1);
	link_pause(s.l);
	for (int i = 0; i < 4; i++)
		loop_turn(r->loop, 1);
	peer_write(&s, 0, 50);
	shutdown(s.peer, SHUT_WR);
	rig_until(r, s.l->rdhup);
	assert_int_equal(s.ends, 0);
	assert_int_equal(s.got, 0);
	assert_false(link_idle_ok(s.l));
	for (int i = 0; i < 4; i++)
		loop_turn(r->loop, 1);
	link_read(s.l);
	rig_until(r, s.ends == 1);
	assert_int_equal(s.end, 0);
	assert_int_equal(s.got, 50);
	side_close(&s);
}

/* A FIN that was kept must not make the loop spin. */
static void a_kept_fin_does_not_spin(void **state)
{
	RIG(r, state);
	struct side s;
	int done = 0;

	side_open(&s, r);
	link_pause(s.l);
	loop_turn(r->loop, 1);
	link_fin(s.l);
	shutdown(s.peer, SHUT_WR);
	rig_until(r, s.l->rdhup);
	for (int i = 0; i < 10; i++)
		loop_turn(r->loop, 1);
	for (int i = 0; i < 10; i++)
		done += loop_turn(r->loop, 1);
	assert_int_equal(done, 0);
	side_close(&s);
}

static void bulk_gets_large_segs_and_loses_them(void **state)
{
	RIG(r, state);
	struct side s;
	uint64_t from = 0;

	side_open(&s, r);
	link_read(s.l);
	for (int i = 0; i < 400 && s.largest_seg <= SEG_SMALL_BLOCK; i++) {
		peer_write(&s, from, 64 * 1024);
		from += 64 * 1024;
		rig_until(r, s.got == from);
	}
	assert_true(s.largest_seg > SEG_SMALL_BLOCK);
	assert_int_equal(s.l->seg_class, SEG_LARGE);
	for (int i = 0; i < 30; i++) {
		s.largest_seg = 0;
		peer_write(&s, from, 10);
		from += 10;
		rig_until(r, s.got == from);
		/* few bytes never hold a large one */
		assert_true(s.largest_seg <= SEG_SMALL_BLOCK);
	}
	assert_int_equal(s.l->seg_class, SEG_SMALL);
	side_close(&s);
}

static void quiet_gives_the_descriptor_away(void **state)
{
	RIG(r, state);
	struct side s;

	side_open(&s, r);
	link_read(s.l);
	loop_turn(r->loop, 1);
	link_quiet(s.l, on_quiet);
	assert_int_equal(s.quiets, 0);
	rig_until(r, s.quiets == 1);
	assert_true(op_idle(&s.l->recv));
	peer_write(&s, 0, 10);
	for (int i = 0; i < 4; i++)
		loop_turn(r->loop, 1);
	assert_int_equal(s.got, 0);
	link_quiet(s.l, on_quiet); /* nothing is armed: still not from inside */
	assert_int_equal(s.quiets, 1);
	rig_until(r, s.quiets == 2);
	link_read(s.l);
	rig_until(r, s.got == 10);
	side_close(&s);
}

/* --- sending --- */
static void sends_are_gathered(void **state)
{
	RIG(r, state);
	struct side s;

	side_open(&s, r);
	queue(&s, 0, 10);
	link_send(s.l, &s.out);
	queue(&s, 10, 10);
	link_send(s.l, &s.out);
	assert_int_equal(s.sends, 0);
	peer_expect(&s, 20);
	rig_until(r, s.sent == 20);
	assert_int_equal(s.sends, 1);
	assert_false(link_sending(s.l));
	side_close(&s);
}

static void a_long_queue_to_a_slow_reader(void **state)
{
	RIG(r, state);
	struct side s;
	uint32_t n = 16u << 20;

	side_open(&s, r);
	queue(&s, 0, n);
	link_send(s.l, &s.out);
	for (int i = 0; i < 20; i++)
		loop_turn(r->loop, 1);
	assert_true(link_sending(s.l));
	peer_expect(&s, n);
	rig_until(r, !link_sending(s.l));
	assert_int_equal(s.sent, n);
	side_close(&s);
}

static void fin_goes_after_the_queue(void **state)
{
	RIG(r, state);
	struct side s;

	side_open(&s, r);
	link_read(s.l);
	queue(&s, 0, 300000);
	link_send(s.l, &s.out);
	link_fin(s.l);
	peer_expect(&s, 300000);
	assert_int_equal(peer_ending(&s), 0);
	peer_write(&s, 0, 10); /* the other direction is open */
	rig_until(r, s.got == 10);
	side_close(&s);
}

/* The queue is freed right after the close, while the kernel may still read its bytes. */
static void closing_with_bytes_in_flight(void **state)
{
	RIG(r, state);
	struct side s;

	side_open(&s, r);
	link_read(s.l);
	queue(&s, 0, 8u << 20);
	link_send(s.l, &s.out);
	for (int i = 0; i < 10; i++)
		loop_turn(r->loop, 1);
	assert_true(link_sending(s.l));
	link_close(&s.l);
	bufq_free(&s.out);
	rig_until(r, link_count(r->loop) == 0);
	side_close(&s);
}

static void an_abort_resets_the_peer(void **state)
{
	RIG(r, state);
	struct side s;

	side_open(&s, r);
	link_read(s.l);
	loop_turn(r->loop, 1);
	link_abort(&s.l);
	assert_null(s.l);
	assert_int_equal(peer_ending(&s), -ECONNRESET);
	side_close(&s);
}

static void a_failed_send_is_told_once(void **state)
{
	RIG(r, state);
	struct side s;

	side_open(&s, r);
	link_pause(s.l);
	peer_write(&s, 0, 100);
	rig_reset(s.peer);
	s.peer = -1;
	loop_turn(r->loop, 1);
	queue(&s, 0, 10);
	link_send(s.l, &s.out);
	rig_until(r, s.failures == 1);
	assert_true(s.l->dead);
	for (int i = 0; i < 5; i++)
		loop_turn(r->loop, 1);
	assert_int_equal(s.failures, 1);
	bufq_free(&s.out);
	queue(&s, 0, 10); /* a dead link says so again for another queue, never from inside */
	link_send(s.l, &s.out);
	assert_int_equal(s.failures, 1);
	rig_until(r, s.failures == 2);
	side_close(&s);
}

/* What an upstream had answered before it reset our body can be read. */
static void what_came_before_a_failed_send_is_read(void **state)
{
	RIG(r, state);
	struct side s;

	side_open(&s, r);
	peer_write(&s, 0, 100);
	shutdown(s.peer, SHUT_WR);
	loop_turn(r->loop, 1);
	queue(&s, 0, 10);
	link_send(s.l, &s.out);
	rig_until(r, s.sent == 10);
	close(s.peer); /* unread bytes: RST */
	s.peer = -1;
	queue(&s, 0, 10);
	link_send(s.l, &s.out);
	rig_until(r, s.failures == 1);
	link_read(s.l);
	rig_until(r, s.ends == 1);
	assert_int_equal(s.got, 100);
	side_close(&s);
}

/* --- last words --- */
static void lingering_lets_the_answer_through(void **state)
{
	RIG(r, state);
	struct side s;
	uint8_t buf[16];

	side_open(&s, r);
	link_read(s.l);
	peer_write(&s, 0, 20000);
	rig_until(r, s.got == 20000);
	queue(&s, 0, 10);
	link_close_lingering(&s.l, &s.out);
	assert_null(s.l);
	assert_true(bufq_empty(&s.out));
	for (int i = 0; i < 10; i++) {
		peer_write(&s, 0, 1000); /* would be answered with RST after a plain close */
		loop_turn(r->loop, 1);
	}
	assert_int_equal(recv(s.peer, buf, sizeof(buf), 0), 10);
	assert_int_equal(recv(s.peer, buf, sizeof(buf), 0), 0);
	assert_int_equal(link_count(r->loop), 1);
	shutdown(s.peer, SHUT_WR);
	rig_until(r, link_count(r->loop) == 0);
	side_close(&s);
}

static void lingering_has_a_bound(void **state)
{
	RIG(r, state);
	struct side s;
	uint8_t *p = pattern(0, 4096);
	ssize_t n = 0;

	side_open(&s, r);
	fcntl(s.peer, F_SETFL, O_NONBLOCK);
	queue(&s, 0, 10);
	link_send(s.l, &s.out);
	link_close_lingering(&s.l, NULL); /* what is being sent */
	for (int i = 0; i < 4000 && link_count(r->loop); i++) {
		n = send(s.peer, p, 4096, MSG_NOSIGNAL);
		loop_turn(r->loop, 1);
	}
	(void)n;
	assert_int_equal(link_count(r->loop), 0);
	free(p);
	side_close(&s);
}

static void a_shard_ends_what_lingers(void **state)
{
	RIG(r, state);
	struct side s;

	side_open(&s, r);
	queue(&s, 0, 10);
	link_close_lingering(&s.l, &s.out);
	loop_turn(r->loop, 1);
	assert_int_equal(link_count(r->loop), 1);
	rig_until(r, link_shard_idle(r->loop));
	side_close(&s);
}

/* --- out of memory --- */
static void a_hungry_link_eats_later(void **state)
{
	RIG(r, state);
	struct fault_plan plan = { 0 };
	struct side s;

	rig_close(r);
	plan.rules[0] =
		(struct fault_rule){ .kind = OP_RECV, .res = -ENOBUFS, .nth = 1, .times = 3 };
	plan.n_rules = 1;
	r->fault = &plan;
	assert_int_equal(rig_open(r), 0);
	side_open(&s, r);
	link_read(s.l);
	peer_write(&s, 0, 100);
	rig_until(r, s.got == 100);
	assert_int_equal(s.ends, 0);
	side_close(&s);
	rig_close(r);
	r->fault = NULL;
	assert_int_equal(rig_open(r), 0);
}

static void no_memory_for_a_link_closes_the_descriptor(void **state)
{
	RIG(r, state);
	int ours, theirs;
	struct side s;

	rig_pair(&ours, &theirs);
	r->budget.max = 0;
	assert_null(link_new(r->loop, ours, NULL));
	r->budget.max = 256u << 20;
	s.peer = theirs;
	s.rig = r;
	assert_int_equal(peer_ending(&s), 0);
	close(theirs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_link_is_small),
		RIG_TEST(bytes_then_the_end_once),
		RIG_TEST(closing_inside_the_callback),
		RIG_TEST(a_pause_holds),
		RIG_TEST(pause_and_read_in_one_turn),
		RIG_TEST(an_abort_is_seen_while_paused),
		RIG_TEST(an_abort_is_seen_while_idle),
		RIG_TEST(a_fin_while_paused_waits_for_the_reader),
		RIG_TEST(a_kept_fin_does_not_spin),
		RIG_TEST(bulk_gets_large_segs_and_loses_them),
		RIG_TEST(quiet_gives_the_descriptor_away),
		RIG_TEST(sends_are_gathered),
		RIG_TEST(a_long_queue_to_a_slow_reader),
		RIG_TEST(fin_goes_after_the_queue),
		RIG_TEST(closing_with_bytes_in_flight),
		RIG_TEST(an_abort_resets_the_peer),
		RIG_TEST(a_failed_send_is_told_once),
		RIG_TEST(what_came_before_a_failed_send_is_read),
		RIG_TEST(lingering_lets_the_answer_through),
		RIG_TEST(lingering_has_a_bound),
		RIG_TEST(a_shard_ends_what_lingers),
		RIG_TEST(a_hungry_link_eats_later),
		RIG_TEST(no_memory_for_a_link_closes_the_descriptor),
	};

	return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
