/* tcp.c -- a tunnel: two links, two ways, bytes only.  Exports: relay_*
 *
 *   down ──recv──► way[OUT].q ──send──► up        a queue is there only while bytes are in flight
 *   down ◄──send── way[BACK].q ◄──recv── up       (a bulk way: splice.c)
 *
 * A way stops reading when its queue is at RELAY_HIGH and goes on at half.  A FIN is passed on when
 * the bytes before it are out; both FINs passed: the relay ends well.  A reset on one side resets
 * the other.
 *
 * The end: links, queues and pipes go at once, the relay is over.  A task of the loop then calls
 * ended() and frees it, as soon as no op of splice.c is armed. */
#include "relay/priv.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>

#define KEEPALIVE_S 60
#define DUMP_MAX    16 /* relays that are dumped one by one */

/* --- the shard --- */
int relay_shard_open(struct loop *l, unsigned pipes_max)
{
	struct relay_shard *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	slab_init(&s->relays, "relays", sizeof(struct relay), loop_budget(l));
	slab_init(&s->queues, "relay_queues", sizeof(struct bufq), loop_budget(l));
	splice_open(s, l, pipes_max);
	list_init(&s->all);
	loop_set_slot(l, SLOT_RELAY, s);
	return 0;
}

void relay_shard_close(struct loop *l)
{
	struct relay_shard *s = relay_shard(l);

	must(s->n == 0 && list_empty(&s->all));
	splice_close(s);
	slab_close(&s->queues);
	slab_close(&s->relays);
	free(s);
	loop_set_slot(l, SLOT_RELAY, NULL);
}

unsigned relay_count(struct loop *l)
{
	return relay_shard(l)->n;
}

/* --- what it looks like --- */
void relay_assert(const struct relay *r)
{
	must(r->magic == RELAY_MAGIC && !r->over);
	for (int i = 0; i < 2; i++) {
		const struct way *w = &r->way[i];

		must(r->link[i] && r->link[i]->owner == r);
		must(!w->fin || w->eof);
		must(!w->fin || !w->q);
		must(w->state == WAY_COPY || r->bulk);
		must(w->state != WAY_SPLICE || (!w->q && w->quiet));
		must(!w->hushing || (r->bulk && w->state == WAY_COPY));
		must(!w->paused || w->state == WAY_COPY);
	}
}

static void dump_way(const struct relay *r, unsigned i, int fd)
{
	static const char *const states[] = { "copy", "turning", "splice" };
	const struct way *w = &r->way[i];

	dprintf(fd, "    %s %s bytes %llu queued %llu%s%s%s%s\n", i == OUT ? "out " : "back",
		states[w->state], (unsigned long long)w->bytes,
		w->q ? (unsigned long long)w->q->bytes : 0ull, w->eof ? " eof" : "",
		w->fin ? " fin" : "", w->paused ? " paused" : "", w->hushing ? " hushing" : "");
	dprintf(fd, "    ");
	link_dump(r->link[i], fd);
}

void relay_dump(struct loop *l, int fd)
{
	const struct relay_shard *s = relay_shard(l);
	const struct list *node = s->all.next;

	dprintf(fd, "  relay: %u tunnels, %llu queues, %llu bulk\n", s->n,
		(unsigned long long)s->queues.n_live, (unsigned long long)s->bulks.n_live);
	dprintf(fd, "    %u pipes (at most %u), %llu bytes spliced\n", s->pipes.made, s->pipes.max,
		(unsigned long long)s->pipes.spliced);
	for (int i = 0; i < DUMP_MAX && node != &s->all; i++, node = node->next) {
		const struct relay *r = container_of(node, struct relay, node);

		dprintf(fd, "  tunnel %p\n", (const void *)r);
		dump_way(r, OUT, fd);
		dump_way(r, BACK, fd);
		splice_dump(r, fd);
	}
}

/* --- queues --- */
static bool need_queue(struct relay *r, struct way *w)
{
	if (w->q)
		return true;
	w->q = slab_get(&relay_shard(r->loop)->queues);
	if (!w->q)
		return false;
	bufq_init(w->q, RELAY_HIGH);
	return true;
}

static void drop_queue(struct relay *r, struct way *w)
{
	if (!w->q)
		return;
	bufq_free(w->q);
	slab_put(&relay_shard(r->loop)->queues, w->q);
	w->q = NULL;
}

/* --- the end --- */
void relay_gone(struct relay *r)
{
	struct relay_shard *s = relay_shard(r->loop);
	struct relay_end e = { .why = r->end.cause,
			       .bytes_in = r->way[OUT].bytes,
			       .bytes_out = r->way[BACK].bytes };
	void (*ended)(void *, const struct relay_end *) = r->ended;
	void *arg = r->arg;

	must(r->magic == RELAY_MAGIC && r->over);
	if (task_queued(&r->end.task) || !splice_gone(r))
		return;
	r->magic = 0;
	s->n--;
	slab_put(&s->relays, r);
	ended(arg, &e);
}

static void on_task(struct task *t)
{
	relay_gone(container_of(t, struct relay, end.task));
}

static void close_links(struct relay *r, bool well)
{
	for (int i = 0; i < 2; i++) {
		if (well)
			link_close(&r->link[i]);
		else
			link_abort(&r->link[i]);
	}
}

void relay_end(struct relay *r, const struct why *cause)
{
	if (r->over)
		return;
	relay_assert(r);
	r->over = true;
	close_links(r, cause->id == WHY_NONE);
	drop_queue(r, &r->way[OUT]);
	drop_queue(r, &r->way[BACK]);
	splice_end(r);
	list_remove(&r->node);
	loop_alarm_off(&r->idle);
	r->end.cause = cause;
	task_init(&r->end.task, on_task);
	loop_soon(r->loop, &r->end.task);
}

static void on_idle(struct alarm *a)
{
	relay_end(container_of(a, struct relay, idle), why(WHY_TUNNEL_IDLE));
}

void relay_cut_all(struct loop *l, const struct why *cause)
{
	struct list *node, *tmp;

	list_each_safe(node, tmp, &relay_shard(l)->all)
		relay_end(container_of(node, struct relay, node), cause);
}

/* --- bytes --- */
static void touch(struct relay *r)
{
	if (r->idle_ms)
		loop_alarm(r->loop, &r->idle, r->idle_ms);
}

void relay_moved(struct relay *r, unsigned way, uint64_t n)
{
	touch(r);
	r->way[way].bytes += n;
	if (r->cells)
		metric_add(r->cells, r->slot[way], n);
}

void relay_settle(struct relay *r, unsigned way)
{
	struct way *w = &r->way[way];

	touch(r);
	if (w->q && bufq_empty(w->q))
		drop_queue(r, w);
	if (w->q || splice_holds(r, way))
		return;
	if (w->state == WAY_TURNING)
		splice_go(r, way);
	if (!w->eof || w->fin)
		return;
	w->fin = true;
	link_fin(r->link[!way]);
	if (r->way[OUT].fin && r->way[BACK].fin)
		relay_end(r, why(WHY_NONE));
}

static void stop_reading(struct relay *r, unsigned way)
{
	r->way[way].paused = true;
	if (r->bulk)
		splice_hush(r, way);
	else
		link_pause(r->link[way]);
}

static void go_on_reading(struct relay *r, unsigned way)
{
	r->way[way].paused = false;
	if (!r->way[way].hushing)
		link_read(r->link[way]);
}

/* A stream's last receive of a turn is seldom full, so a small one is forgiven in part. */
static bool proved_bulk(struct way *w, uint32_t n, const struct seg *seg)
{
	bool full = n >= seg->cap || n >= SEG_SMALL_BLOCK;

	w->run = full ? w->run + n : w->run / 2;
	return w->run >= RELAY_BULK;
}

static void on_bytes(struct relay *r, unsigned way, uint32_t n, struct seg **seg)
{
	struct way *w = &r->way[way];
	bool bulk = proved_bulk(w, n, *seg);

	must(w->state != WAY_SPLICE);
	relay_moved(r, way, n);
	if (!need_queue(r, w) || !bufq_put_seg(w->q, seg, 0, n)) {
		relay_end(r, why(WHY_MEMORY));
		return;
	}
	link_send(r->link[!way], w->q);
	if (w->state == WAY_TURNING || w->paused)
		return;
	if (bulk && splice_turn(r, way))
		return;
	if (bufq_full(w->q))
		stop_reading(r, way);
}

static void on_recv(struct link *l, int32_t res, struct seg **seg)
{
	struct relay *r = l->owner;
	unsigned way = l == r->link[BACK];

	must(r->magic == RELAY_MAGIC && !r->over);
	if (res > 0) {
		on_bytes(r, way, (uint32_t)res, seg);
	} else if (res < 0) {
		relay_end(r, why(WHY_TUNNEL_RESET));
	} else {
		r->way[way].eof = true;
		relay_settle(r, way);
	}
}

static void on_sent(struct link *l, int32_t n)
{
	struct relay *r = l->owner;
	unsigned way = l == r->link[OUT];
	struct way *w = &r->way[way];

	must(r->magic == RELAY_MAGIC && !r->over);
	if (n < 0) {
		relay_end(r, why(WHY_TUNNEL_RESET));
		return;
	}
	if (w->paused && bufq_has_room(w->q))
		go_on_reading(r, way);
	relay_settle(r, way);
}

/* --- the beginning --- */
static void keep_alive(struct loop *l, int fd)
{
	int on = 1, s = KEEPALIVE_S;

	(void)loop_sockopt(l, fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)loop_sockopt(l, fd, IPPROTO_TCP, TCP_KEEPIDLE, &s, sizeof(s));
	(void)loop_sockopt(l, fd, IPPROTO_TCP, TCP_KEEPINTVL, &s, sizeof(s));
}

static void adopt(struct relay *r, unsigned i, struct link *l)
{
	link_assert(l);
	must(!link_sending(l));
	r->link[i] = l;
	l->owner = r;
	l->on_recv = on_recv;
	l->on_sent = on_sent;
	keep_alive(r->loop, l->fd);
}

/* What was read before the tunnel began goes first. */
static bool take_unread(struct relay *r, unsigned way, struct bufq *unread)
{
	struct way *w = &r->way[way];
	uint64_t n = unread->bytes;

	if (!n)
		return true;
	if (!need_queue(r, w) || bufq_move(w->q, unread, n) != n)
		return false;
	relay_moved(r, way, n);
	link_send(r->link[!way], w->q);
	return true;
}

/* The end of the stream may have come before the tunnel began. */
static void go(struct relay *r, unsigned way)
{
	struct link *l = r->link[way];

	if (l->dead) {
		relay_end(r, why(WHY_TUNNEL_RESET));
	} else if (l->eof) {
		r->way[way].eof = true;
		relay_settle(r, way);
	} else {
		link_read(l);
	}
}

static struct relay *make(const struct relay_params *p)
{
	struct relay_shard *s = relay_shard(p->loop);
	struct relay *r = slab_get(&s->relays);

	if (!r)
		return NULL;
	*r = (struct relay){ .magic = RELAY_MAGIC,
			     .loop = p->loop,
			     .idle_ms = p->idle_ms,
			     .slot = { p->slot_up, p->slot_down },
			     .cells = p->cells,
			     .ended = p->ended,
			     .arg = p->arg };
	alarm_init(&r->idle, on_idle);
	list_push_tail(&s->all, &r->node);
	s->n++;
	return r;
}

bool relay_start(const struct relay_params *p)
{
	struct link *down = p->down, *up = p->up;
	struct relay *r = make(p);

	if (!r) {
		link_abort(&down);
		link_abort(&up);
		return false;
	}
	adopt(r, OUT, down);
	adopt(r, BACK, up);
	touch(r);
	if (!take_unread(r, OUT, p->down_unread) || !take_unread(r, BACK, p->up_unread)) {
		relay_end(r, why(WHY_MEMORY));
		return true;
	}
	go(r, OUT);
	if (!r->over)
		go(r, BACK);
	return true;
}
