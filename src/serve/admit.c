/* admit.c -- from an accepted descriptor to a connection that is served.
 *
 *   accept ─► hand-over? ─► limit? ─► link ─► PROXY header? ─► h1_serve
 *               │             │                  └ preface: at most 4 KiB, its own deadline
 *               │             └ the idlest keep-alive connection of this shard makes room; else 503
 *               └ mail to a much less loaded shard */
#include "serve/priv.h"

#include <errno.h>
#include <stdlib.h>

struct arrival { /* a descriptor on its way to another shard */
	struct mail mail;
	int fd;
	unsigned door;
	struct addr peer;
};

struct preface { /* waits for a PROXY header */
	struct list node;
	struct service *service;
	struct door *door;
	struct link *link;
	struct alarm alarm;
	struct task free;
	struct addr peer;
	uint64_t conn_id;
	struct bufq in;
};

static const char full_answer[] =
	"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
	"Cache-Control: no-store\r\nRetry-After: 5\r\n"
	"Proxy-Status: culvert; error=connection_limit_reached\r\nConnection: close\r\n"
	"Content-Length: 90\r\n\r\n"
	"503 Service Unavailable\n\nthe connection limit is reached\nreason: connection_limit_reached\n";

/* ---------------------------------------------------------------- counts */
void admit_came(struct service *s)
{
	s->n_conns++;
	atomic_fetch_add_explicit(&s->shared->n_connections, 1, memory_order_relaxed);
	handover_count(s->shared->handover, loop_shard(s->loop), 1);
	metric_set(s->cells, s->slot_shard_conns, s->n_conns);
}

void admit_gone(struct service *s)
{
	must(s->n_conns > 0);
	s->n_conns--;
	atomic_fetch_sub_explicit(&s->shared->n_connections, 1, memory_order_relaxed);
	handover_count(s->shared->handover, loop_shard(s->loop), -1);
	metric_set(s->cells, s->slot_shard_conns, s->n_conns);
	acceptors_go(s->loop);
	service_ended_one(s);
}

/* ---------------------------------------------------------------- conns */
static const struct door *conn_door(const struct conn *c)
{
	return c->owner;
}

static void gauge(struct service *s, const struct door *d, enum conn_state state, int delta)
{
	if (state == CONN_CLOSING)
		return;
	metric_add(s->cells, state == CONN_ACTIVE ? d->slot_active : d->slot_idle,
		   (uint64_t)(int64_t)delta);
}

static void on_moved(struct conn *c, enum conn_state from)
{
	const struct door *d = conn_door(c);
	struct service *s = d->service;

	gauge(s, d, from, -1);
	gauge(s, d, (enum conn_state)c->state, 1);
	list_remove(&c->node);
	if (c->state == CONN_IDLE || c->state == CONN_NEW)
		list_push_tail(&s->idle, &c->node);
	else if (c->state == CONN_ACTIVE)
		list_push_tail(&s->busy, &c->node);
}

static void on_closed(struct conn *c, const struct why *cause)
{
	const struct door *d = conn_door(c);

	account_conn_end(d->service, cause);
	admit_gone(d->service);
}

static bool may_keep(struct conn *c)
{
	const struct service *s = conn_door(c)->service;
	uint64_t used = atomic_load_explicit(&s->shared->budget->used, memory_order_relaxed);

	if (s->draining)
		return false;
	if (atomic_load_explicit(&s->shared->n_connections, memory_order_relaxed) >
	    s->plan->connections_max)
		return false;
	return used < s->shared->budget->max - s->shared->budget->max / 16;
}

static void fill(struct conn *c, struct exchange_params *p)
{
	const struct door *d = conn_door(c);

	p->steps = &serve_steps;
	p->plan = d->service->plan;
	p->listener = d->conf;
	p->timeouts = &d->conf->timeouts;
	p->limits = &d->conf->limits;
	p->forward = d->conf->serve == SERVE_FORWARD;
}

static const struct conn_ops conn_ops = { .fill = fill,
					  .may_keep = may_keep,
					  .moved = on_moved,
					  .closed = on_closed };

static void serve(struct service *s, struct door *d, struct link *link, const struct addr *peer,
		  uint64_t id, struct bufq *first)
{
	struct conn_params p = { .loop = s->loop,
				 .link = link,
				 .ops = &conn_ops,
				 .owner = d,
				 .timeouts = &d->conf->timeouts,
				 .limits = &d->conf->limits,
				 .id = id,
				 .peer = *peer,
				 .half_close_abort = s->plan->half_close_abort };
	struct conn *c = h1_serve(&p, first);

	if (!c) {
		account_refused(s, d, peer, id, why(WHY_MEMORY));
		admit_gone(s);
		return;
	}
	list_push_tail(&s->idle, &c->node);
	gauge(s, d, CONN_NEW, 1);
}

/* ---------------------------------------------------------------- PROXY header */
static void preface_free(struct task *t)
{
	free(container_of(t, struct preface, free));
}

static void preface_end(struct preface *p)
{
	loop_alarm_off(&p->alarm);
	list_remove(&p->node);
	bufq_free(&p->in);
	loop_soon(p->service->loop, &p->free);
}

/* One that never said a byte is only counted. */
static void preface_fail(struct preface *p, const struct why *cause)
{
	bool heard = p->link->recv_bytes > 0;

	link_close(&p->link);
	if (heard)
		account_refused(p->service, p->door, &p->peer, p->conn_id, cause);
	else
		account_conn_end(p->service, cause);
	admit_gone(p->service);
	preface_end(p);
}

static void preface_read(struct preface *p)
{
	uint8_t bytes[PROXYPROTO_MAX];
	uint32_t n = bufq_peek(&p->in, bytes, sizeof(bytes));
	struct addr src = { 0 }, dst = { 0 };
	int used = proxyproto_parse(bytes, n, &src, &dst);

	if (used < 0 || (used == 0 && n == sizeof(bytes))) {
		preface_fail(p, why(WHY_PROXY_PROTOCOL));
		return;
	}
	if (used == 0)
		return;
	bufq_drop(&p->in, (uint32_t)used);
	serve(p->service, p->door, p->link, src.len ? &src : &p->peer, p->conn_id, &p->in);
	preface_end(p);
}

static void on_preface_bytes(struct link *l, int32_t res, struct seg **seg)
{
	struct preface *p = l->owner;

	if (res <= 0)
		preface_fail(p, why(p->in.bytes ? WHY_PROXY_PROTOCOL
				    : res == 0  ? WHY_PEER_CLOSED
						: WHY_CLIENT_ABORT));
	else if (!bufq_put_copy(&p->in, loop_segs(l->loop, SEG_SMALL), (*seg)->data, (uint32_t)res))
		preface_fail(p, why(WHY_MEMORY));
	else
		preface_read(p);
}

static void on_preface_sent(struct link *l, int32_t n)
{
	(void)l;
	(void)n;
}

static void on_preface_late(struct alarm *a)
{
	preface_fail(container_of(a, struct preface, alarm), why(WHY_PROXY_PROTOCOL));
}

static void await_preface(struct service *s, struct door *d, struct link *link,
			  const struct addr *peer, uint64_t id)
{
	struct preface *p = calloc(1, sizeof(*p));

	if (!p) {
		link_close(&link);
		account_refused(s, d, peer, id, why(WHY_MEMORY));
		admit_gone(s);
		return;
	}
	*p = (struct preface){ .service = s,
			       .door = d,
			       .link = link,
			       .peer = *peer,
			       .conn_id = id };
	bufq_init(&p->in, 0);
	alarm_init(&p->alarm, on_preface_late);
	task_init(&p->free, preface_free);
	list_push_tail(&s->prefaces, &p->node);
	link->owner = p;
	link->on_recv = on_preface_bytes;
	link->on_sent = on_preface_sent;
	loop_alarm(s->loop, &p->alarm, d->conf->proxy_protocol.timeout_ms);
	link_read(link);
}

void admit_shutdown(struct service *s)
{
	while (!list_empty(&s->prefaces))
		preface_fail(container_of(s->prefaces.next, struct preface, node),
			     why(WHY_SHUTDOWN));
}

/* ---------------------------------------------------------------- the limit */
/* A connection that has just come has a request under way that nobody has read: in a burst those
 * that come would else close one another, and most would hear nothing at all. */
#define FRESH_MS 100u

static bool is_fresh(const struct service *s, const struct conn *c)
{
	return c->state == CONN_NEW && loop_now_ms(s->loop) - c->since_ms < FRESH_MS;
}

/* True: there is room, maybe made by closing the idlest connection of this shard. */
static bool make_room(struct service *s)
{
	uint64_t n = atomic_load_explicit(&s->shared->n_connections, memory_order_relaxed);
	struct conn *idlest = container_of(s->idle.next, struct conn, node);

	if (n < s->plan->connections_max)
		return true;
	if (list_empty(&s->idle) || is_fresh(s, idlest))
		return false;
	idlest->drain(idlest);
	return atomic_load_explicit(&s->shared->n_connections, memory_order_relaxed) <
	       s->plan->connections_max;
}

static void refuse_full(struct service *s, struct door *d, struct link *link,
			const struct addr *peer, uint64_t id)
{
	struct bufq out;

	bufq_init(&out, 0);
	if (bufq_put_const(&out, full_answer, sizeof(full_answer) - 1))
		link_close_lingering(&link, &out);
	else
		link_close(&link);
	bufq_free(&out);
	account_refused(s, d, peer, id, why(WHY_CONN_LIMIT));
}

static void admit(struct service *s, struct door *d, int fd, const struct addr *peer)
{
	const struct proxyproto_conf *pp = &d->conf->proxy_protocol;
	uint64_t id = (uint64_t)loop_shard(s->loop) << 48 | ++s->next_conn;
	struct link *link = link_new(s->loop, fd, NULL);

	if (!link) {
		account_refused(s, d, peer, id, why(WHY_MEMORY));
		return;
	}
	if (!make_room(s)) {
		refuse_full(s, d, link, peer, id);
		return;
	}
	admit_came(s);
	if (!pp->on) {
		serve(s, d, link, peer, id, NULL);
		return;
	}
	if (peer->u.sa.sa_family != AF_UNIX && !addr_find_net(peer, pp->from, pp->n_from)) {
		link_close(&link);
		account_refused(s, d, peer, id, why(WHY_PROXY_PROTOCOL));
		admit_gone(s);
		return;
	}
	await_preface(s, d, link, peer, id);
}

/* ---------------------------------------------------------------- arrivals */
static void on_arrival(struct loop *l, struct mail *m)
{
	struct arrival *a = container_of(m, struct arrival, mail);
	struct service *s = service_of(l);

	if (s && !s->stopping)
		admit(s, &s->doors[a->door], a->fd, &a->peer);
	else
		loop_close(l, a->fd);
	free(a);
}

static bool hand_over(struct service *s, struct door *d, int fd, const struct addr *peer)
{
	unsigned to = handover_pick(s->shared->handover, loop_shard(s->loop));
	struct loop *loop;
	struct arrival *a;

	if (to == loop_shard(s->loop) || s->draining)
		return false;
	loop = handover_loop(s->shared->handover, to);
	a = loop ? malloc(sizeof(*a)) : NULL;
	if (!a)
		return false;
	*a = (struct arrival){ .mail = { .open = on_arrival },
			       .fd = fd,
			       .door = d->index,
			       .peer = *peer };
	if (!loop_post(loop, &a->mail)) {
		free(a);
		return false;
	}
	metric_add(s->cells, s->slot_handovers, 1);
	return true;
}

static void on_accept(struct acceptor *acceptor, int fd, const struct addr *peer)
{
	struct door *d = acceptor_owner(acceptor);

	if (!hand_over(d->service, d, fd, peer))
		admit(d->service, d, fd, peer);
}

const struct acceptor_ops serve_acceptor = { .on_accept = on_accept };
