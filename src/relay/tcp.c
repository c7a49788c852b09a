/* tcp.c -- a tunnel: two links, two directions, bytes only.
 *
 *   down ──recv──► way[OUT].q ──send──► up        a queue exists only while bytes are in flight
 *   down ◄──send── way[BACK].q ◄──recv── up
 *
 * A direction stops reading when its queue is at RELAY_HIGH and goes on at half.  A FIN is passed on when the bytes before it
 * are out; both FINs passed: the relay ends well.  A reset on one side resets the other. */
#include "relay/relay.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>

#define RELAY_MAGIC 0x4e1a74e1u
#define RELAY_HIGH  (64u * 1024)
#define KEEPALIVE_S 60

enum { OUT = 0, BACK = 1 };

struct way {
	struct bufq *q; /* NULL: nothing in flight */
	uint64_t bytes;
	bool eof;      /* the source's FIN came */
	bool fin;      /* and was passed on */
	bool paused;
};

struct relay {
	uint32_t magic;
	bool over;
	struct list node;
	struct loop *loop;
	struct link *link[2]; /* down, up: way[i] reads link[i] */
	struct way way[2];
	struct alarm idle;
	struct task task; /* frees it */
	uint32_t idle_ms;
	uint32_t slot[2];
	uint64_t *cells;
	void (*ended)(void *arg, const struct relay_end *);
	void *arg;
};

struct relay_shard {
	struct slab relays, queues;
	struct list all;
	unsigned n;
};

static struct relay_shard *shard_of(struct loop *l)
{
	return loop_slot(l, SLOT_RELAY);
}

int relay_shard_open(struct loop *l, unsigned pipes_max)
{
	struct relay_shard *s = calloc(1, sizeof(*s));

	(void)pipes_max;
	if (!s)
		return -ENOMEM;
	slab_init(&s->relays, "relay", sizeof(struct relay), loop_budget(l));
	slab_init(&s->queues, "relay queue", sizeof(struct bufq), loop_budget(l));
	list_init(&s->all);
	loop_set_slot(l, SLOT_RELAY, s);
	return 0;
}

void relay_shard_close(struct loop *l)
{
	struct relay_shard *s = shard_of(l);

	must(s->n == 0);
	slab_close(&s->queues);
	slab_close(&s->relays);
	free(s);
	loop_set_slot(l, SLOT_RELAY, NULL);
}

unsigned relay_count(struct loop *l)
{
	return shard_of(l)->n;
}

void relay_dump(struct loop *l, int fd)
{
	const struct relay_shard *s = shard_of(l);

	dprintf(fd, "  relay: %u tunnels, %llu queues in use\n", s->n, (unsigned long long)s->queues.n_live);
}

/* ---------------------------------------------------------------- queues */
static bool need_queue(struct relay *r, struct way *w)
{
	if (w->q)
		return true;
	w->q = slab_get(&shard_of(r->loop)->queues);
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
	slab_put(&shard_of(r->loop)->queues, w->q);
	w->q = NULL;
}

/* ---------------------------------------------------------------- the end */
static void on_task(struct task *t)
{
	struct relay *r = container_of(t, struct relay, task);

	must(r->magic == RELAY_MAGIC && r->over);
	r->magic = 0;
	slab_put(&shard_of(r->loop)->relays, r);
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

static void end(struct relay *r, const struct why *cause)
{
	struct relay_end e = { .why = cause, .bytes_in = r->way[OUT].bytes, .bytes_out = r->way[BACK].bytes };

	if (r->over)
		return;
	r->over = true;
	close_links(r, cause->id == WHY_NONE);
	drop_queue(r, &r->way[OUT]);
	drop_queue(r, &r->way[BACK]);
	loop_alarm_off(&r->idle);
	list_remove(&r->node);
	shard_of(r->loop)->n--;
	loop_soon(r->loop, &r->task);
	r->ended(r->arg, &e);
}

static void on_idle(struct alarm *a)
{
	end(container_of(a, struct relay, idle), why(WHY_TUNNEL_IDLE));
}

void relay_cut_all(struct loop *l, const struct why *cause)
{
	struct list *node, *tmp;

	list_each_safe(node, tmp, &shard_of(l)->all)
		end(container_of(node, struct relay, node), cause);
}

/* ---------------------------------------------------------------- bytes */
static void touch(struct relay *r)
{
	if (r->idle_ms)
		loop_alarm(r->loop, &r->idle, r->idle_ms);
}

static void count(struct relay *r, unsigned way, uint64_t n)
{
	r->way[way].bytes += n;
	if (r->cells)
		metric_add(r->cells, r->slot[way], n);
}

/* Passes a FIN on once everything before it is out. */
static void settle(struct relay *r, unsigned way)
{
	struct way *w = &r->way[way];

	if (w->q && bufq_empty(w->q))
		drop_queue(r, w);
	if (!w->eof || w->q || w->fin)
		return;
	w->fin = true;
	link_fin(r->link[!way]);
	if (r->way[OUT].fin && r->way[BACK].fin)
		end(r, why(WHY_NONE));
}

static void on_recv(struct link *l, int32_t res, struct seg **seg)
{
	struct relay *r = l->owner;
	unsigned way = l == r->link[BACK];
	struct way *w = &r->way[way];

	must(r->magic == RELAY_MAGIC);
	touch(r);
	if (res < 0) {
		end(r, why(WHY_TUNNEL_RESET));
		return;
	}
	if (res == 0) {
		w->eof = true;
		settle(r, way);
		return;
	}
	count(r, way, (uint32_t)res);
	if (!need_queue(r, w) || !bufq_put_seg(w->q, seg, 0, (uint32_t)res)) {
		end(r, why(WHY_MEMORY));
		return;
	}
	link_send(r->link[!way], w->q);
	if (bufq_full(w->q)) {
		w->paused = true;
		link_pause(l);
	}
}

static void on_sent(struct link *l, int32_t n)
{
	struct relay *r = l->owner;
	unsigned way = l == r->link[OUT];
	struct way *w = &r->way[way];

	must(r->magic == RELAY_MAGIC);
	touch(r);
	if (n < 0) {
		end(r, why(WHY_TUNNEL_RESET));
		return;
	}
	if (w->paused && bufq_has_room(w->q)) {
		w->paused = false;
		link_read(r->link[way]);
	}
	if (w->q && !bufq_empty(w->q) && !link_sending(l))
		link_send(l, w->q);
	settle(r, way);
}

/* ---------------------------------------------------------------- begin */
static void keep_alive(struct loop *l, int fd)
{
	int on = 1, s = KEEPALIVE_S;

	(void)loop_sockopt(l, fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)loop_sockopt(l, fd, IPPROTO_TCP, TCP_KEEPIDLE, &s, sizeof(s));
	(void)loop_sockopt(l, fd, IPPROTO_TCP, TCP_KEEPINTVL, &s, sizeof(s));
}

static void adopt(struct relay *r, unsigned i, struct link *l)
{
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
	count(r, way, n);
	link_send(r->link[!way], w->q);
	return true;
}

static void go(struct relay *r, unsigned way)
{
	struct link *l = r->link[way];

	if (l->eof) {
		r->way[way].eof = true;
		settle(r, way);
	} else {
		link_read(l);
	}
}

static struct relay *make(const struct relay_params *p)
{
	struct relay_shard *s = shard_of(p->loop);
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
	task_init(&r->task, on_task);
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
		end(r, why(WHY_MEMORY));
		return true;
	}
	go(r, OUT);
	if (!r->over)
		go(r, BACK);
	return true;
}
