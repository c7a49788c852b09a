/* test_relay.c -- tunnels (src/relay) on both real back ends: real sockets at both ends, copies and
 * splice(2). */
#include "link_rig.h"

#include "relay/priv.h"

#include <signal.h>
#include <stdarg.h>
#include <sys/syscall.h>

/* The system's limit of a pipe's size. */
static unsigned long pipe_bytes_max = 1u << 20;

int fcntl(int fd, int cmd, ...)
{
	unsigned long arg;
	va_list ap;

	va_start(ap, cmd);
	arg = va_arg(ap, unsigned long);
	va_end(ap);
	if (cmd == F_SETPIPE_SZ && arg > pipe_bytes_max) {
		errno = EPERM;
		return -1;
	}
	return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

/* --- a tunnel and its two peers --- */
struct tunnel {
	struct rig *rig;
	struct relay *relay; /* NULL when it has ended */
	int peer[2];         /* down's, up's */
	unsigned ends;
	struct relay_end end;
	uint64_t cells[2];
};

static void on_ended(void *arg, const struct relay_end *e)
{
	struct tunnel *t = arg;

	t->ends++;
	t->end = *e;
	t->relay = NULL;
}

static struct link *new_link(struct tunnel *t, unsigned i)
{
	int ours;
	struct link *l;

	rig_pair(&ours, &t->peer[i]);
	l = link_new(t->rig->loop, ours, NULL);
	assert_non_null(l);
	return l;
}

static void begin_with(struct tunnel *t, struct link *down, struct link *up, uint32_t idle_ms,
		       struct bufq *from_down, struct bufq *from_up)
{
	struct relay_params p = { .loop = t->rig->loop,
				  .down = down,
				  .up = up,
				  .down_unread = from_down,
				  .up_unread = from_up,
				  .idle_ms = idle_ms,
				  .ended = on_ended,
				  .arg = t,
				  .cells = t->cells,
				  .slot_up = 0,
				  .slot_down = 1 };

	assert_true(relay_start(&p));
	assert_int_equal(t->ends, 0); /* from the loop only */
	t->relay = down->owner;
}

static void begin(struct tunnel *t, struct rig *r, uint32_t idle_ms)
{
	struct bufq none[2];
	struct link *down, *up;

	memset(t, 0, sizeof(*t));
	t->rig = r;
	bufq_init(&none[0], 0);
	bufq_init(&none[1], 0);
	down = new_link(t, 0);
	up = new_link(t, 1);
	begin_with(t, down, up, idle_ms, &none[0], &none[1]);
}

static void open_shard(struct rig *r, unsigned pipes)
{
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(relay_shard_open(r->loop, pipes), 0);
}

static void close_shard(struct rig *r)
{
	assert_int_equal(relay_count(r->loop), 0);
	relay_shard_close(r->loop);
}

static void close_peers(struct tunnel *t)
{
	for (int i = 0; i < 2; i++)
		if (t->peer[i] >= 0)
			close(t->peer[i]);
}

static void expect_end(struct tunnel *t, int id)
{
	rig_until(t->rig, t->ends == 1);
	assert_int_equal(t->end.why->id, id);
	assert_int_equal(t->cells[0], t->end.bytes_in);
	assert_int_equal(t->cells[1], t->end.bytes_out);
}

/* Both peers say FIN, the tunnel ends well. */
static void finish(struct tunnel *t)
{
	shutdown(t->peer[0], SHUT_WR);
	shutdown(t->peer[1], SHUT_WR);
	expect_end(t, WHY_NONE);
	close_peers(t);
}

static void turn(struct rig *r, int n)
{
	while (n-- > 0)
		loop_turn(r->loop, 1);
}

/* --- bytes: each way its own pattern, whose period is no power of two --- */
#define PERIOD 65521u
#define CHUNK  65536u

static const uint8_t *bytes_at(unsigned way, uint64_t at)
{
	static uint8_t p[2][PERIOD + CHUNK];

	if (p[0][0] == p[1][0])
		for (uint32_t i = 0; i < sizeof(p[0]); i++) {
			p[0][i] = (uint8_t)(((i % PERIOD) * 2654435761u) >> 11);
			p[1][i] = (uint8_t)~p[0][i];
		}
	return p[way] + at % PERIOD;
}

struct flow {
	struct tunnel *t;
	unsigned way; /* from peer[way] to peer[!way] */
	uint64_t n, written, read;
};

static bool flow_write(struct flow *f)
{
	uint64_t left = f->n - f->written;
	ssize_t n = send(f->t->peer[f->way], bytes_at(f->way, f->written),
			 left < CHUNK ? left : CHUNK, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n > 0)
		f->written += (uint64_t)n;
	return n > 0;
}

static bool flow_read(struct flow *f)
{
	static uint8_t got[CHUNK];
	ssize_t n = recv(f->t->peer[!f->way], got, CHUNK, MSG_DONTWAIT);

	if (n <= 0)
		return false;
	assert_memory_equal(got, bytes_at(f->way, f->read), n);
	f->read += (uint64_t)n;
	assert_in_range(f->read, 0, f->written);
	return true;
}

static void flow_more(struct flow *f, uint64_t n)
{
	f->n += n;
}

/* Until all that shall come has come. */
static void run(struct flow *f, unsigned n)
{
	unsigned left = n;

	for (int i = 0; i < 200000 && left; i++) {
		left = n;
		for (unsigned k = 0; k < n; k++) {
			while (f[k].written < f[k].n && flow_write(&f[k]))
				;
			while (flow_read(&f[k]))
				;
			left -= f[k].read == f[k].n;
		}
		loop_turn(f->t->rig->loop, left ? 1 : 0);
	}
	assert_int_equal(left, 0);
}

/* Writes until nothing more goes into the tunnel, while nobody reads. */
static void stuff(struct flow *f)
{
	int quiet = 0;

	flow_more(f, 1u << 30);
	while (quiet < 20) {
		bool more = false;

		while (flow_write(f))
			more = true;
		quiet = more ? 0 : quiet + 1;
		loop_turn(f->t->rig->loop, 1);
	}
	f->n = f->written;
}

static struct flow flow_of(struct tunnel *t, unsigned way, uint64_t n)
{
	return (struct flow){ .t = t, .way = way, .n = n };
}

/* More and more bytes until the way is spliced. */
static void to_splice(struct flow *f)
{
	for (int i = 0; i < 64 && f->t->relay->way[f->way].state != WAY_SPLICE; i++) {
		flow_more(f, 1u << 20);
		run(f, 1);
		turn(f->t->rig, 5);
	}
	assert_int_equal(f->t->relay->way[f->way].state, WAY_SPLICE);
}

static void say(int from, int to, struct rig *r, const char *text)
{
	char got[64] = "";
	ssize_t at = 0, n = (ssize_t)strlen(text);

	assert_int_equal(send(from, text, (size_t)n, MSG_NOSIGNAL), n);
	for (int i = 0; i < 4000 && at < n; i++) {
		ssize_t k = recv(to, got + at, sizeof(got) - 1 - (size_t)at, MSG_DONTWAIT);

		if (k > 0)
			at += k;
		else
			loop_turn(r->loop, 5);
	}
	assert_string_equal(got, text);
}

/* What the peer reads at last: 0: FIN, -ECONNRESET; bytes before it are thrown away. */
static int ending(int fd, struct rig *r)
{
	static uint8_t junk[CHUNK];

	for (int i = 0; i < 4000; i++) {
		ssize_t n = recv(fd, junk, sizeof(junk), MSG_DONTWAIT);

		if (n == 0 || (n < 0 && errno != EAGAIN))
			return n ? -errno : 0;
		if (n < 0)
			loop_turn(r->loop, 5);
	}
	return -EAGAIN;
}

static uint64_t segs_live(struct rig *r)
{
	return loop_segs(r->loop, SEG_SMALL)->slab.n_live +
	       loop_segs(r->loop, SEG_LARGE)->slab.n_live;
}

static struct relay_shard *shard(struct rig *r)
{
	return relay_shard(r->loop);
}

static unsigned pipes_free(struct rig *r)
{
	unsigned n = 0;

	for (struct kpipe *p = shard(r)->pipes.free; p; p = p->next)
		n++;
	return n;
}

/* --- tests --- */
static void a_relay_is_small(void **state)
{
	(void)state;
	assert_in_range(sizeof(struct relay), 1, 192);
	assert_in_range(2 * sizeof(struct link) + sizeof(struct relay), 1, 640);
}

static void both_ways_and_idle_holds_nothing(void **state)
{
	RIG(r, state);
	struct tunnel t;
	uint64_t segs;
	int null;

	open_shard(r, 4);
	turn(r, 3);
	segs = segs_live(r);
	begin(&t, r, 0);
	say(t.peer[0], t.peer[1], r, "hello");
	say(t.peer[1], t.peer[0], r, "good day");
	say(t.peer[0], t.peer[1], r, "bye");
	rig_until(r, shard(r)->queues.n_live == 0);
	assert_int_equal(segs_live(r), segs);
	assert_int_equal(shard(r)->pipes.made, 0);
	relay_assert(t.relay);
	null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	relay_dump(r->loop, null);
	close(null);
	finish(&t);
	assert_int_equal(t.end.bytes_in, 8);
	assert_int_equal(t.end.bytes_out, 8);
	close_shard(r);
}

static void half_close(struct rig *r, unsigned first)
{
	struct tunnel t;

	open_shard(r, 4);
	begin(&t, r, 0);
	say(t.peer[first], t.peer[!first], r, "question");
	shutdown(t.peer[first], SHUT_WR);
	assert_int_equal(ending(t.peer[!first], r), 0);
	say(t.peer[!first], t.peer[first], r, "the answer");
	say(t.peer[!first], t.peer[first], r, "and more of it");
	assert_int_equal(t.ends, 0);
	shutdown(t.peer[!first], SHUT_WR);
	assert_int_equal(ending(t.peer[first], r), 0);
	expect_end(&t, WHY_NONE);
	close_peers(&t);
	close_shard(r);
}

static void half_close_by_the_client(void **state)
{
	RIG(r, state);
	half_close(r, 0);
}

static void half_close_by_the_server(void **state)
{
	RIG(r, state);
	half_close(r, 1);
}

static void bulk(struct rig *r, unsigned pipes, bool both)
{
	struct tunnel t;
	struct flow f[2];

	open_shard(r, pipes);
	begin(&t, r, 60000);
	f[0] = flow_of(&t, BACK, 64u << 20);
	f[1] = flow_of(&t, OUT, both ? 64u << 20 : 3000);
	run(f, 2);
	if (pipes) {
		to_splice(&f[0]);
		flow_more(&f[0], 8u << 20);
		flow_more(&f[1], 8u << 20);
		run(f, 2);
		rig_until(r, pipes_free(r) == shard(r)->pipes.made);
		assert_in_range(shard(r)->pipes.made, 1, pipes);
		assert_in_range(shard(r)->pipes.spliced, 8u << 20, f[0].n + f[1].n);
	} else {
		assert_null(t.relay->bulk);
		assert_int_equal(shard(r)->pipes.spliced, 0);
	}
	rig_until(r, shard(r)->queues.n_live == 0);
	finish(&t);
	assert_int_equal(t.end.bytes_out, f[0].n);
	assert_int_equal(t.end.bytes_in, f[1].n);
	close_shard(r);
}

static void bulk_by_copies(void **state)
{
	RIG(r, state);
	bulk(r, 0, true);
}

static void bulk_by_splice(void **state)
{
	RIG(r, state);
	bulk(r, 4, true);
}

static void bulk_by_splice_one_way(void **state)
{
	RIG(r, state);
	bulk(r, 1, false);
}

/* The FIN is behind the bytes that the pipe holds. */
static void the_end_comes_after_what_the_pipe_holds(void **state)
{
	RIG(r, state);
	struct tunnel t;
	struct flow f;

	open_shard(r, 1);
	begin(&t, r, 0);
	f = flow_of(&t, OUT, 0);
	to_splice(&f);
	stuff(&f);
	rig_until(r, splice_holds(t.relay, OUT));
	relay_assert(t.relay);
	shutdown(t.peer[0], SHUT_WR);
	run(&f, 1);
	assert_int_equal(ending(t.peer[1], r), 0);
	say(t.peer[1], t.peer[0], r, "got it");
	shutdown(t.peer[1], SHUT_WR);
	expect_end(&t, WHY_NONE);
	assert_int_equal(t.end.bytes_in, f.n);
	close_peers(&t);
	close_shard(r);
}

static void without_a_pipe_it_copies_again(void **state)
{
	RIG(r, state);
	struct tunnel a, b;
	struct flow fa, fb;

	open_shard(r, 1);
	begin(&a, r, 0);
	begin(&b, r, 0);
	fa = flow_of(&a, OUT, 0);
	fb = flow_of(&b, BACK, 0);
	to_splice(&fa);
	to_splice(&fb);
	stuff(&fa); /* has the only pipe now */
	rig_until(r, splice_holds(a.relay, OUT));
	flow_more(&fb, 4u << 20);
	run(&fb, 1);
	assert_int_equal(b.relay->way[BACK].state, WAY_COPY);
	rig_until(r, !b.relay->bulk);
	run(&fa, 1);
	assert_false(splice_holds(a.relay, OUT));
	to_splice(&fb); /* it may be had again */
	finish(&a);
	finish(&b);
	assert_int_equal(shard(r)->pipes.made, 1);
	close_shard(r);
}

static void the_system_refuses_the_size(void **state)
{
	RIG(r, state);
	struct tunnel t;
	struct flow f;

	pipe_bytes_max = 256u * 1024;
	open_shard(r, 1);
	begin(&t, r, 0);
	f = flow_of(&t, BACK, 0);
	to_splice(&f);
	assert_int_equal(fcntl(shard(r)->pipes.free->fd[0], F_GETPIPE_SZ, 0), 256 * 1024);
	finish(&t);
	pipe_bytes_max = 1u << 20;
	close_shard(r);
}

static void the_system_refuses_a_pipe_for_a_while(void **state)
{
	RIG(r, state);
	struct tunnel t;
	struct flow f;

	pipe_bytes_max = 0;
	open_shard(r, 1);
	begin(&t, r, 0);
	f = flow_of(&t, OUT, 8u << 20);
	run(&f, 1);
	assert_int_equal(shard(r)->pipes.made, 0);
	assert_int_equal(shard(r)->pipes.slab.n_live, 0);
	assert_true(shard(r)->pipes.ask_ms > 0);
	pipe_bytes_max = 1u << 20;
	shard(r)->pipes.ask_ms = loop_now_ms(r->loop);
	to_splice(&f);
	finish(&t);
	close_shard(r);
}

static void crumbs_are_copied_again(void **state)
{
	RIG(r, state);
	struct tunnel t;
	struct flow f;

	open_shard(r, 1);
	begin(&t, r, 0);
	f = flow_of(&t, BACK, 0);
	to_splice(&f);
	for (int i = 0; i < 40 && t.relay->way[BACK].state == WAY_SPLICE; i++)
		say(t.peer[1], t.peer[0], r, "crumb");
	assert_int_equal(t.relay->way[BACK].state, WAY_COPY);
	rig_until(r, shard(r)->bulks.n_live == 0);
	say(t.peer[1], t.peer[0], r, "still here");
	finish(&t);
	close_shard(r);
}

static void a_slow_reader_stops_the_writer(void **state)
{
	RIG(r, state);
	struct tunnel t;
	struct flow f;

	open_shard(r, 0);
	begin(&t, r, 0);
	f = flow_of(&t, OUT, 0);
	stuff(&f);
	rig_until(r, t.relay->way[OUT].paused);
	assert_true(t.relay->link[OUT]->watching);
	assert_in_range(t.relay->way[OUT].q->bytes, 1, RELAY_HIGH + LOOP_RECV_TURN);
	run(&f, 1);
	rig_until(r, !t.relay->way[OUT].paused);
	finish(&t);
	close_shard(r);
}

/* One way is paused and its link watched by a poll; the other becomes bulk and wants that poll. */
static void a_paused_way_beside_a_bulk_one(void **state)
{
	RIG(r, state);
	struct tunnel t;
	struct flow out, back;

	open_shard(r, 2);
	begin(&t, r, 0);
	t.relay->way[OUT].plain = true;
	out = flow_of(&t, OUT, 0);
	stuff(&out);
	rig_until(r, t.relay->way[OUT].paused);
	back = flow_of(&t, BACK, 0);
	to_splice(&back);
	stuff(&back); /* POLLOUT on the link that is paused */
	rig_until(r, splice_holds(t.relay, BACK));
	rig_until(r, t.relay->way[OUT].paused);
	relay_assert(t.relay);
	run(&back, 1);
	run(&out, 1);
	rig_until(r, !t.relay->way[OUT].paused);
	stuff(&out); /* pauses by link_quiet() now */
	rig_until(r, t.relay->way[OUT].paused);
	while (t.relay->way[BACK].state == WAY_SPLICE)
		say(t.peer[1], t.peer[0], r, "crumb");
	rig_until(r, !t.relay->bulk);
	/* Watched by link/ again, unless the peer's kernel made room after all. */
	assert_int_equal(t.relay->link[OUT]->watching, t.relay->way[OUT].paused);
	run(&out, 1);
	finish(&t);
	close_shard(r);
}

static void idle(struct rig *r, bool spliced)
{
	struct tunnel t;
	struct flow f;
	uint64_t due;

	open_shard(r, 1);
	begin(&t, r, 60000);
	f = flow_of(&t, OUT, 0);
	if (spliced)
		to_splice(&f);
	due = t.relay->idle.due_ms;
	for (uint64_t was = loop_now_ms(r->loop); loop_now_ms(r->loop) == was;)
		turn(r, 1);
	flow_more(&f, 10000);
	run(&f, 1);
	assert_true(t.relay->idle.due_ms > due); /* bytes put it off */
	t.relay->idle_ms = 20;
	loop_alarm(r->loop, &t.relay->idle, 20);
	expect_end(&t, WHY_TUNNEL_IDLE);
	assert_int_equal(ending(t.peer[0], r), -ECONNRESET);
	assert_int_equal(ending(t.peer[1], r), -ECONNRESET);
	close_peers(&t);
	close_shard(r);
}

static void an_idle_tunnel_ends(void **state)
{
	RIG(r, state);
	idle(r, false);
}

static void an_idle_spliced_tunnel_ends(void **state)
{
	RIG(r, state);
	idle(r, true);
}

/* One side resets; `way` has a full path from the other side or to it. */
static void reset(struct rig *r, unsigned side, unsigned pipes, bool stuffed)
{
	struct tunnel t;
	struct flow f;

	open_shard(r, pipes);
	begin(&t, r, 0);
	f = flow_of(&t, OUT, 0);
	if (pipes)
		to_splice(&f);
	if (stuffed)
		stuff(&f);
	rig_reset(t.peer[side]);
	t.peer[side] = -1;
	expect_end(&t, WHY_TUNNEL_RESET);
	assert_int_equal(ending(t.peer[!side], r), -ECONNRESET);
	close_peers(&t);
	close_shard(r);
}

static void a_reset_resets_the_other_side(void **state)
{
	RIG(r, state);
	for (unsigned i = 0; i < 8; i++)
		reset(r, i & 1, i & 2 ? 1 : 0, i & 4);
}

static void hold(struct link *l, int32_t res, struct seg **seg)
{
	struct bufq *q = l->owner;

	if (res > 0)
		assert_true(bufq_put_seg(q, seg, 0, (uint32_t)res));
}

static void unread_bytes_go_first(void **state)
{
	RIG(r, state);
	struct tunnel t = { .rig = r };
	struct bufq q[2];
	struct link *l[2];
	char got[32];

	open_shard(r, 1);
	for (unsigned i = 0; i < 2; i++) {
		bufq_init(&q[i], 0);
		l[i] = new_link(&t, i);
		l[i]->owner = &q[i];
		l[i]->on_recv = hold;
		link_read(l[i]);
		assert_int_equal(write(t.peer[i], i ? "server" : "client", 6), 6);
		rig_until(r, q[i].bytes == 6);
	}
	assert_int_equal(write(t.peer[0], " speaks", 7), 7);
	begin_with(&t, l[0], l[1], 0, &q[0], &q[1]);
	assert_int_equal(q[0].bytes + q[1].bytes, 0);
	rig_until(r, t.relay->way[OUT].bytes == 13 && shard(r)->queues.n_live == 0);
	assert_int_equal(recv(t.peer[1], got, sizeof(got), 0), 13);
	assert_memory_equal(got, "client speaks", 13);
	assert_int_equal(recv(t.peer[0], got, sizeof(got), 0), 6);
	assert_memory_equal(got, "server", 6);
	finish(&t);
	bufq_free(&q[0]);
	bufq_free(&q[1]);
	close_shard(r);
}

/* The client's end came before the tunnel began: told to the reader, or kept while paused. */
static void early_end(struct rig *r, bool paused)
{
	struct tunnel t = { .rig = r };
	struct bufq q[2];
	struct link *l[2];

	open_shard(r, 1);
	for (unsigned i = 0; i < 2; i++) {
		bufq_init(&q[i], 0);
		l[i] = new_link(&t, i);
		l[i]->owner = &q[i];
		l[i]->on_recv = hold;
	}
	link_read(l[0]);
	assert_int_equal(write(t.peer[0], "last", 4), 4);
	rig_until(r, q[0].bytes == 4);
	if (paused)
		link_pause(l[0]);
	shutdown(t.peer[0], SHUT_WR);
	rig_until(r, paused ? l[0]->rdhup : l[0]->eof);
	begin_with(&t, l[0], l[1], 0, &q[0], &q[1]);
	assert_int_equal(ending(t.peer[1], r), 0);
	say(t.peer[1], t.peer[0], r, "answer");
	shutdown(t.peer[1], SHUT_WR);
	expect_end(&t, WHY_NONE);
	assert_int_equal(t.end.bytes_in, 4);
	close_peers(&t);
	close_shard(r);
}

static void an_end_before_the_beginning(void **state)
{
	RIG(r, state);
	early_end(r, false);
	early_end(r, true);
}

static void all_are_cut(void **state)
{
	RIG(r, state);
	struct tunnel t[3];
	struct flow f;

	open_shard(r, 1);
	for (int i = 0; i < 3; i++)
		begin(&t[i], r, 60000);
	f = flow_of(&t[1], OUT, 0);
	to_splice(&f);
	stuff(&f);
	assert_int_equal(relay_count(r->loop), 3);
	relay_cut_all(r->loop, why(WHY_SHUTDOWN));
	for (int i = 0; i < 3; i++) {
		expect_end(&t[i], WHY_SHUTDOWN);
		assert_int_equal(ending(t[i].peer[0], r), -ECONNRESET);
		assert_int_equal(ending(t[i].peer[1], r), -ECONNRESET);
		close_peers(&t[i]);
	}
	assert_int_equal(shard(r)->pipes.made, 0); /* the pipe was not empty */
	close_shard(r);
}

static void no_memory_for_a_relay(void **state)
{
	RIG(r, state);
	struct tunnel t = { .rig = r };
	struct relay_params p = { .loop = r->loop, .ended = on_ended, .arg = &t };

	open_shard(r, 1);
	p.down = new_link(&t, 0);
	p.up = new_link(&t, 1);
	r->budget.max = 0;
	assert_false(relay_start(&p));
	r->budget.max = 256u << 20;
	assert_int_equal(ending(t.peer[0], r), -ECONNRESET);
	assert_int_equal(ending(t.peer[1], r), -ECONNRESET);
	assert_int_equal(t.ends, 0);
	close_peers(&t);
	close_shard(r);
}

/* --- faults --- */
static void with_fault(struct rig *r, struct fault_plan *plan, void (*test)(struct rig *))
{
	rig_close(r);
	r->fault = plan;
	assert_int_equal(rig_open(r), 0);
	test(r);
	rig_close(r);
	r->fault = NULL;
	assert_int_equal(rig_open(r), 0);
}

static void bulk_both_ways(struct rig *r)
{
	bulk(r, 2, true);
}

static void copies_both_ways(struct rig *r)
{
	bulk(r, 0, true);
}

static void old_kernels_short_sends_late_polls(void **state)
{
	RIG(r, state);
	struct fault_plan shots = { .single_shot = true, .no_limit = true };
	struct fault_plan sends = {
		.n_rules = 1,
		.rules = { { .kind = OP_SEND, .nth = 1, .times = 2000, .send_max = 999 } },
	};
	struct fault_plan storm = {
		.n_rules = 1,
		.rules = { { .kind = OP_RECV, .nth = 3, .times = 10, .res = -ENOBUFS } },
	};
	struct fault_plan polls = {
		.n_rules = 1,
		.rules = { { .kind = OP_POLL, .nth = 1, .times = 1u << 30, .delay = 3 } },
	};

	with_fault(r, &shots, bulk_both_ways);
	with_fault(r, &sends, copies_both_ways);
	with_fault(r, &storm, bulk_both_ways);
	if (r->io == LOOP_URING) /* epoll's events find an op that is held back */
		with_fault(r, &polls, bulk_both_ways);
}

static void a_poll_that_fails_ends_the_tunnel(void **state)
{
	RIG(r, state);
	struct fault_plan plan = { .n_rules = 0 };
	struct tunnel t;
	struct flow f;

	rig_close(r);
	r->fault = &plan;
	assert_int_equal(rig_open(r), 0);
	open_shard(r, 1);
	begin(&t, r, 0);
	f = flow_of(&t, OUT, 0);
	to_splice(&f);
	plan.rules[0] = (struct fault_rule){ .kind = OP_POLL,
					     .nth = fault_seen(r->loop, OP_POLL) + 1,
					     .res = -ENOMEM };
	plan.n_rules = 1;
	flow_more(&f, 10);
	assert_true(flow_write(&f));
	expect_end(&t, WHY_MEMORY);
	assert_int_equal(ending(t.peer[0], r), -ECONNRESET);
	assert_int_equal(ending(t.peer[1], r), -ECONNRESET);
	close_peers(&t);
	close_shard(r);
	rig_close(r);
	r->fault = NULL;
	assert_int_equal(rig_open(r), 0);
}

/* Its polls still wait for their turn while it is cut. */
static void cut_with_polls_under_way(struct rig *r)
{
	struct tunnel t;
	struct flow f;

	open_shard(r, 1);
	begin(&t, r, 0);
	f = flow_of(&t, OUT, 0);
	to_splice(&f);
	stuff(&f);
	relay_cut_all(r->loop, why(WHY_SHUTDOWN));
	expect_end(&t, WHY_SHUTDOWN);
	turn(r, 10);
	assert_int_equal(t.ends, 1);
	close_peers(&t);
	close_shard(r);
}

static void cut_while_polls_are_late(void **state)
{
	RIG(r, state);
	struct fault_plan plan = {
		.n_rules = 1,
		.rules = { { .kind = OP_POLL, .nth = 1, .times = 1u << 30, .delay = 5 } },
	};

	if (r->io == LOOP_URING)
		with_fault(r, &plan, cut_with_polls_under_way);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_relay_is_small),
		RIG_TEST(both_ways_and_idle_holds_nothing),
		RIG_TEST(half_close_by_the_client),
		RIG_TEST(half_close_by_the_server),
		RIG_TEST(bulk_by_copies),
		RIG_TEST(bulk_by_splice),
		RIG_TEST(bulk_by_splice_one_way),
		RIG_TEST(the_end_comes_after_what_the_pipe_holds),
		RIG_TEST(without_a_pipe_it_copies_again),
		RIG_TEST(the_system_refuses_the_size),
		RIG_TEST(the_system_refuses_a_pipe_for_a_while),
		RIG_TEST(crumbs_are_copied_again),
		RIG_TEST(a_slow_reader_stops_the_writer),
		RIG_TEST(a_paused_way_beside_a_bulk_one),
		RIG_TEST(an_idle_tunnel_ends),
		RIG_TEST(an_idle_spliced_tunnel_ends),
		RIG_TEST(a_reset_resets_the_other_side),
		RIG_TEST(unread_bytes_go_first),
		RIG_TEST(an_end_before_the_beginning),
		RIG_TEST(all_are_cut),
		RIG_TEST(no_memory_for_a_relay),
		RIG_TEST(old_kernels_short_sends_late_polls),
		RIG_TEST(a_poll_that_fails_ends_the_tunnel),
		RIG_TEST(cut_while_polls_are_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
