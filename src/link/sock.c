/* sock.c -- the bottom layer: a connected socket.  Exports: link_*
 *
 * The receive op has three lives, one at a time:
 *
 *     reading    a (multishot) receive is armed
 *     watching   paused: the same op is a poll for POLLRDHUP, so that an abort is seen while nobody
 *                reads
 *     none       before the first link_read(), after the end, while hungry (no memory), or quiet
 *                (relay/ has the descriptor)
 *
 * Going from one to another cancels the op; its done() arms what is wanted *then* (aim()).  A pause
 * takes effect at the end of the turn, so pause and read within one turn cost nothing.  Nothing is
 * lost: bytes that a cancelled receive still brings are told to the reader.
 *
 * Sending: link_send() queues the flush task for the end of the turn; it gives the kernel up to
 * LOOP_IOV spans.  When they are out they are dropped, and what is left or came meanwhile goes with
 * the next flush.
 *
 * Closing takes the queue of the bytes in flight from its owner into a grave: the kernel may read
 * them until the op is idle. */
#include "link/priv.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define BULK_RECVS 16 /* full small segs in a row, 64 KiB: then large ones */
/* large segs in a row that a small one could have held: then small ones */
#define SLIM_RECVS       8
#define HUNGRY_MS        5
#define LINGER_MAX       (64u * 1024)
#define LINGER_MS        2000
#define LAST_WORDS_MAGIC 0x11171e55u

struct grave {
	struct bufq q;
};

/* link_close_lingering(): the link's owner until it closes. */
struct last_words {
	uint32_t magic;
	uint32_t drained;
	struct link *link;
	struct bufq out;
	struct alarm alarm;
	struct list node;
};

/* --- the shard --- */
static void feed_hungry(struct alarm *a);

int link_shard_open(struct loop *loop)
{
	struct link_shard *s = calloc(1, sizeof(*s));
	struct budget *b = loop_budget(loop);

	if (!s)
		return -ENOMEM;
	s->magic = LINK_SHARD_MAGIC;
	s->loop = loop;
	slab_init(&s->links, "links", sizeof(struct link), b);
	slab_init(&s->lingers, "lingers", sizeof(struct last_words), b);
	slab_init(&s->graves, "graves", sizeof(struct grave), b);
	slab_init(&s->dials, "dials", dial_size(), b);
	slab_init(&s->attempts, "dial_attempts", dial_attempt_size(), b);
	list_init(&s->lingering);
	list_init(&s->hungry);
	list_init(&s->acceptors);
	alarm_init(&s->feed, feed_hungry);
	s->spare = slab_get(&s->graves);
	if (!s->spare) {
		slab_close(&s->graves);
		free(s);
		return -ENOMEM;
	}
	loop_set_slot(loop, SLOT_LINK, s);
	return 0;
}

unsigned link_count(const struct loop *loop)
{
	return (unsigned)link_shard(loop)->links.n_live;
}

static void last_words_end(struct last_words *w);

bool link_shard_idle(struct loop *loop)
{
	struct link_shard *s = link_shard(loop);

	while (!list_empty(&s->lingering))
		last_words_end(container_of(s->lingering.next, struct last_words, node));
	return s->links.n_live == 0 && s->attempts.n_live == 0 && s->n_asking == 0 &&
	       list_empty(&s->acceptors);
}

void link_shard_close(struct loop *loop)
{
	struct link_shard *s = loop_slot(loop, SLOT_LINK);

	if (!s)
		return;
	must(s->magic == LINK_SHARD_MAGIC);
	must(list_empty(&s->lingering) && list_empty(&s->hungry) && list_empty(&s->acceptors));
	loop_alarm_off(&s->feed);
	if (s->spare)
		slab_put(&s->graves, s->spare);
	slab_close(&s->attempts);
	slab_close(&s->dials);
	slab_close(&s->graves);
	slab_close(&s->lingers);
	slab_close(&s->links);
	loop_set_slot(loop, SLOT_LINK, NULL);
	s->magic = 0;
	free(s);
}

/* --- making --- */
static void on_recv_done(struct op *op, int32_t res);
static void on_send_done(struct op *op, int32_t res);
static void flush(struct task *t);

struct link *link_new(struct loop *loop, int fd, void *owner)
{
	struct link *l = slab_get(&link_shard(loop)->links);

	must(fd >= 0);
	if (!l) {
		loop_close(loop, fd);
		return NULL;
	}
	memset(l, 0, sizeof(*l));
	l->magic = LINK_MAGIC;
	l->fd = fd;
	l->loop = loop;
	l->owner = owner;
	op_init(&l->recv, on_recv_done);
	op_init(&l->send, on_send_done);
	task_init(&l->flush, flush);
	list_init(&l->hungry);
	l->seg_class = SEG_SMALL;
	return l;
}

void link_assert(const struct link *l)
{
	must(l->magic == LINK_MAGIC);
	must(l->fd >= 0 || l->closing);
	must(!(l->reading && l->eof));
	must(!l->reading || !l->watching);
	must(op_idle(&l->send) || l->out || l->closing);
	must(!l->fin_sent || !l->fin_wanted);
	if (l->out)
		bufq_assert(l->out);
}

bool link_idle_ok(const struct link *l)
{
	must(l->magic == LINK_MAGIC);
	return !l->closing && !l->dead && !l->eof && !l->rdhup && !l->out;
}

void link_dump(const struct link *l, int fd)
{
	dprintf(fd,
		"link %p fd %d%s%s%s%s%s%s%s%s%s recv %u send %u in %llu out %llu queued %llu\n",
		(const void *)l, l->fd, l->reading ? " reading" : "",
		l->watching ? " watching" : "", list_empty(&l->hungry) ? "" : " hungry",
		l->rdhup ? " rdhup" : "", l->eof ? " eof" : "", l->dead ? " dead" : "",
		l->closing ? " closing" : "", l->fin_wanted ? " fin-wanted" : "",
		l->fin_sent ? " fin-sent" : "", l->recv.state, l->send.state,
		(unsigned long long)l->recv_bytes, (unsigned long long)l->sent_bytes,
		l->out ? (unsigned long long)l->out->bytes : 0ull);
}

/* --- teardown --- */
static void reap(struct link *l);

/* A ring closes when this turn's work is submitted: with the next turn it is done. */
static void on_gone(struct task *t)
{
	struct link *l = container_of(t, struct link, flush);
	struct hold *hold = l->hold;

	must(l->magic == LINK_MAGIC && l->closing);
	if (!l->gone) {
		l->gone = true;
		loop_late(l->loop, t);
		return;
	}
	l->hold = NULL;
	hold->let_go(hold, l->loop);
	reap(l);
}

/* Frees a closing link once the kernel and the callbacks have let go. */
static void reap(struct link *l)
{
	struct link_shard *s = link_shard(l->loop);

	if (!l->closing || l->busy || !op_idle(&l->recv) || !op_idle(&l->send))
		return;
	if (l->hold) {
		if (!task_queued(&l->flush)) {
			task_init(&l->flush, on_gone);
			loop_late(l->loop, &l->flush);
		}
		return;
	}
	if (l->out) {
		struct grave *g = container_of(l->out, struct grave, q);

		bufq_free(&g->q);
		slab_put(&s->graves, g);
	}
	l->magic = 0;
	slab_put(&s->links, l);
}

/* The whole queue changes its owner; cannot fail. */
static void steal(struct bufq *to, struct bufq *from)
{
	uint32_t low = from->low;

	*to = *from;
	if (from->v == from->inl)
		to->v = to->inl;
	bufq_init(from, to->high);
	from->low = low;
}

/* What is in flight moves into a grave: the owner of the queue is about to free it.  Without memory
 * even for that it is left alone for ever: a leak, but nobody's bytes go to a stranger. */
static void bury(struct link *l)
{
	struct link_shard *s = link_shard(l->loop);
	struct grave *g = slab_get(&s->graves);
	struct bufq lost;

	if (!g) {
		g = s->spare;
		s->spare = NULL;
	}
	steal(g ? &g->q : &lost, l->out);
	l->out = g ? &g->q : NULL;
	if (!s->spare)
		s->spare = slab_get(&s->graves);
}

static void ask_for_reset(struct link *l)
{
	struct linger now = { .l_onoff = 1, .l_linger = 0 };

	(void)loop_sockopt(l->loop, l->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

static void tear_down(struct link *l)
{
	must(l->magic == LINK_MAGIC && !l->closing);
	l->closing = true;
	l->reading = l->watching = false;
	l->on_recv = NULL;
	l->on_sent = NULL;
	l->on_quiet = NULL;
	list_remove(&l->hungry);
	loop_task_off(l->loop, &l->flush);
	if (op_idle(&l->send))
		l->out = NULL;
	else
		bury(l);
	loop_close(l->loop, l->fd);
	l->fd = -1;
	reap(l);
}

void link_close(struct link **lp)
{
	struct link *l = *lp;

	*lp = NULL;
	if (l)
		tear_down(l);
}

void link_abort(struct link **lp)
{
	struct link *l = *lp;

	*lp = NULL;
	if (!l)
		return;
	must(l->magic == LINK_MAGIC && !l->closing);
	ask_for_reset(l);
	tear_down(l);
}

/* --- callbacks: one may close the link; its memory stays until it has returned --- */
/* False: the link is gone. */
static bool after_callback(struct link *l)
{
	bool here = !l->closing;

	l->busy = false;
	reap(l);
	return here;
}

static bool tell_recv(struct link *l, int32_t res, struct seg **seg)
{
	l->busy = true;
	if (l->on_recv)
		l->on_recv(l, res, seg);
	return after_callback(l);
}

static bool tell_sent(struct link *l, int32_t n)
{
	l->busy = true;
	if (l->on_sent)
		l->on_sent(l, n);
	return after_callback(l);
}

static bool tell_quiet(struct link *l)
{
	void (*on_quiet)(struct link *) = l->on_quiet;

	l->on_quiet = NULL;
	l->busy = true;
	on_quiet(l);
	return after_callback(l);
}

/* --- receiving --- */
/* Arms what is wanted, or cancels what is not wanted any more. */
static void aim(struct link *l)
{
	bool wanted = !l->eof && (l->reading || l->watching);

	if (!op_idle(&l->recv)) {
		if (!wanted || l->recv.kind != (l->reading ? OP_RECV : OP_POLL))
			loop_cancel(l->loop, &l->recv);
		return;
	}
	if (!wanted || !list_empty(&l->hungry))
		return;
	if (l->reading)
		loop_recv(l->loop, &l->recv, l->fd, l->seg_class);
	else
		loop_poll(l->loop, &l->recv, l->fd, l->rdhup ? 0 : POLLRDHUP);
}

static void feed_hungry(struct alarm *a)
{
	struct link_shard *s = container_of(a, struct link_shard, feed);
	struct list now;

	list_init(&now);
	while (!list_empty(&s->hungry))
		list_push_tail(&now, list_pop_head(&s->hungry));
	while (!list_empty(&now))
		aim(container_of(list_pop_head(&now), struct link, hungry));
}

/* No memory to receive into: tried again a little later, together with all others. */
static void go_hungry(struct link *l)
{
	struct link_shard *s = link_shard(l->loop);

	list_push_tail(&s->hungry, &l->hungry);
	if (!alarm_on(&s->feed))
		loop_alarm(l->loop, &s->feed, HUNGRY_MS);
}

/* Bulk gets large segs, and loses them when it does not fill a small one any more. */
static void choose_class(struct link *l, uint32_t got, uint32_t cap)
{
	bool small = l->seg_class == SEG_SMALL;
	bool points_away = small ? got >= cap : got < SEG_SMALL_BLOCK;

	l->full_recvs = points_away ? l->full_recvs + 1 : 0;
	if (l->full_recvs < (small ? BULK_RECVS : SLIM_RECVS))
		return;
	l->full_recvs = 0;
	l->seg_class = small ? SEG_LARGE : SEG_SMALL;
	loop_cancel(l->loop, &l->recv); /* aim() arms the other one */
}

/* Few bytes must not hold a large seg while they queue behind a slow reader: the marks count
 * bytes. */
static struct seg *fit(struct link *l, struct seg *seg, uint32_t n)
{
	struct seg_pool *pool = loop_segs(l->loop, SEG_SMALL);
	struct seg *small;

	if (seg->cap <= pool->cap || n > pool->cap)
		return seg;
	small = seg_get(pool);
	if (!small)
		return seg;
	memcpy(small->data, seg->data, n);
	small->used = n;
	seg_drop(&seg);
	return small;
}

static void on_bytes(struct link *l, int32_t res, struct seg *seg)
{
	bool here;

	l->recv_bytes += (uint32_t)res;
	choose_class(l, (uint32_t)res, seg->cap);
	seg = fit(l, seg, (uint32_t)res);
	here = tell_recv(l, res, &seg);
	seg_drop(&seg);
	if (here && op_idle(&l->recv))
		aim(l);
}

static void on_end(struct link *l, int32_t res)
{
	struct seg *none = NULL;

	if (res == 0 && !l->reading) { /* paused: kept; the next receive finds it again */
		l->rdhup = true;
		aim(l);
		return;
	}
	l->eof = true;
	l->dead = l->dead || res < 0;
	l->reading = l->watching = false;
	(void)tell_recv(l, res, &none);
}

/* The poll that watches while nobody reads.  After a FIN only an error is waited for; io_uring
 * wakes for the FIN again all the same, and then it is enough. */
static void on_watched(struct link *l, int32_t res)
{
	if (res < 0 && res != -ECANCELED) {
		go_hungry(l);
	} else if (res > 0 && l->watching && (res & POLLERR)) {
		on_end(l, -ECONNRESET);
		return;
	} else if (res > 0 && l->watching) {
		l->watching = !l->rdhup;
		l->rdhup = true;
	}
	aim(l);
}

static void on_recv_done(struct op *op, int32_t res)
{
	struct link *l = container_of(op, struct link, recv);
	struct seg *seg = op->seg;

	op->seg = NULL;
	must(l->magic == LINK_MAGIC);
	if (l->closing) {
		seg_drop(&seg);
		reap(l);
		return;
	}
	if (l->on_quiet && op_idle(op))
		loop_late(l->loop, &l->flush);
	if (op->kind == OP_POLL) {
		on_watched(l, res);
	} else if (res > 0) {
		on_bytes(l, res, seg);
	} else if (res == -ENOBUFS || res == -ENOMEM) {
		go_hungry(l);
	} else if (res == -ECANCELED || res == -EAGAIN || res == -EINTR) {
		aim(l);
	} else {
		on_end(l, res);
	}
}

void link_read(struct link *l)
{
	must(l->magic == LINK_MAGIC && !l->closing);
	if (l->reading || l->eof)
		return;
	l->reading = true;
	l->watching = false;
	l->on_quiet = NULL;
	aim(l);
}

void link_pause(struct link *l)
{
	must(l->magic == LINK_MAGIC && !l->closing);
	if (l->watching || l->eof)
		return;
	l->reading = false;
	l->watching = true;
	l->on_quiet = NULL;
	list_remove(&l->hungry);
	loop_late(l->loop, &l->flush);
}

void link_quiet(struct link *l, void (*on_quiet)(struct link *))
{
	must(l->magic == LINK_MAGIC && !l->closing);
	l->reading = l->watching = false;
	l->on_quiet = on_quiet;
	list_remove(&l->hungry);
	if (op_idle(&l->recv))
		loop_late(l->loop, &l->flush);
	else
		aim(l);
}

/* --- sending --- */
static void send_fin(struct link *l)
{
	l->fin_wanted = false;
	if (l->fin_sent || l->dead)
		return;
	l->fin_sent = true;
	(void)loop_shutdown(l->loop, l->fd, SHUT_WR);
}

/* The borrow ends. */
static void let_queue_go(struct link *l)
{
	l->out = NULL;
	if (l->fin_wanted)
		send_fin(l);
}

static void send_failed(struct link *l, int32_t res)
{
	l->dead = true;
	let_queue_go(l);
	(void)tell_sent(l, res);
}

static void on_send_done(struct op *op, int32_t res)
{
	struct link *l = container_of(op, struct link, send);

	must(l->magic == LINK_MAGIC);
	if (l->closing) {
		reap(l);
		return;
	}
	must(l->out);
	if (res == -EAGAIN || res == -EINTR || res == -ECANCELED) {
		loop_late(l->loop, &l->flush);
		return;
	}
	if (res < 0) {
		send_failed(l, res);
		return;
	}
	l->sent_bytes += (uint32_t)res;
	bufq_drop(l->out, (uint32_t)res);
	if (bufq_empty(l->out))
		let_queue_go(l);
	else
		loop_late(l->loop, &l->flush);
	(void)tell_sent(l, res);
}

/* At the end of the turn: the pause of this turn, the end of a quiet one's wait, and what goes
 * out. */
static void flush(struct task *t)
{
	struct link *l = container_of(t, struct link, flush);
	struct iovec iov[LOOP_IOV];
	unsigned n;

	must(l->magic == LINK_MAGIC && !l->closing);
	if (l->on_quiet && op_idle(&l->recv) && !tell_quiet(l))
		return;
	aim(l);
	if (!l->out || !op_idle(&l->send))
		return;
	if (bufq_empty(l->out)) {
		let_queue_go(l);
	} else if (l->dead) {
		send_failed(l, -EPIPE);
	} else {
		n = bufq_iov(l->out, iov, LOOP_IOV);
		loop_send(l->loop, &l->send, l->fd, iov, n);
	}
}

void link_send(struct link *l, struct bufq *out)
{
	must(l->magic == LINK_MAGIC && !l->closing);
	must(!l->out || l->out == out);
	must(!l->fin_wanted && !l->fin_sent);
	l->out = out;
	if (op_idle(&l->send))
		loop_late(l->loop, &l->flush);
}

void link_fin(struct link *l)
{
	must(l->magic == LINK_MAGIC && !l->closing);
	if (l->fin_sent)
		return;
	if (l->out)
		l->fin_wanted = true;
	else
		send_fin(l);
}

/* --- last words: an early answer, then patience until the peer has read it --- */
static void last_words_end(struct last_words *w)
{
	struct link_shard *s = link_shard(w->link->loop);

	must(w->magic == LAST_WORDS_MAGIC);
	loop_alarm_off(&w->alarm);
	list_remove(&w->node);
	link_close(&w->link);
	bufq_free(&w->out);
	w->magic = 0;
	slab_put(&s->lingers, w);
}

static void on_last_words_late(struct alarm *a)
{
	last_words_end(container_of(a, struct last_words, alarm));
}

static void on_last_words_recv(struct link *l, int32_t res, struct seg **seg)
{
	struct last_words *w = l->owner;
	bool sending = link_sending(l);

	seg_drop(seg);
	if (res > 0)
		w->drained += (uint32_t)res;
	if (res < 0 || (!sending && (res == 0 || w->drained > LINGER_MAX)))
		last_words_end(w);
	else if (w->drained > LINGER_MAX)
		link_pause(l);
}

static void on_last_words_sent(struct link *l, int32_t n)
{
	struct last_words *w = l->owner;

	if (n < 0 || (!link_sending(l) && (l->eof || w->drained > LINGER_MAX))) {
		last_words_end(w);
		return;
	}
	loop_alarm(l->loop, &w->alarm, LINGER_MS);
	if (!link_sending(l))
		link_read(l);
}

static struct last_words *last_words_new(struct link *l, struct bufq *out)
{
	struct link_shard *s = link_shard(l->loop);
	struct last_words *w = slab_get(&s->lingers);

	if (!w)
		return NULL;
	w->magic = LAST_WORDS_MAGIC;
	w->drained = 0;
	w->link = l;
	bufq_init(&w->out, 0);
	if (out)
		steal(&w->out, out);
	alarm_init(&w->alarm, on_last_words_late);
	list_init(&w->node);
	list_push_tail(&s->lingering, &w->node);
	return w;
}

void link_close_lingering(struct link **lp, struct bufq *out)
{
	struct link *l = *lp;
	struct last_words *w;

	must(l->magic == LINK_MAGIC && !l->closing);
	must(!out || !l->out || l->out == out);
	out = out ? out : l->out;
	w = l->dead ? NULL : last_words_new(l, out);
	if (!w) {
		link_close(lp);
		if (out)
			bufq_free(out);
		return;
	}
	*lp = NULL;
	l->owner = w;
	l->on_recv = on_last_words_recv;
	l->on_sent = on_last_words_sent;
	loop_alarm(l->loop, &w->alarm, LINGER_MS);
	if (l->out)
		l->out = &w->out;
	else if (!bufq_empty(&w->out) && !l->fin_sent && !l->fin_wanted)
		link_send(l, &w->out);
	link_fin(l);
	if (l->eof && !l->out)
		last_words_end(w);
	else
		link_read(l);
}
