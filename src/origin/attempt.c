/* attempt.c -- one try at one server: a pooled connection, or resolve and connect; then the codec
 * takes its place as the exchange's up end.
 *
 *   attempt_begin ──► pinned or pooled ───────────────► h1_client_begin
 *                └──► dial ── connected ──► pool_new ──► h1_client_begin
 *                          └─ failed ────► end_fail(why): the flow step judges (origin_may_retry)
 *
 * No body is read from the client before the upstream stands (STOP_CONNECT). */
#include "origin/priv.h"

#include <stdio.h>

#define ATTEMPT_MAGIC 0xa77e3b70u
struct attempt { /* in a slab: the arena may go before the dial's last op */
	uint32_t magic;
	struct end end;
	struct exchange *x;
	struct tries *t;
	struct dial *dial;
	struct pool_group *group;
	struct client_job job;
};

uint32_t attempt_size(void)
{
	return sizeof(struct attempt);
}

static void attempt_free(struct attempt *a)
{
	struct origin_shard *s = origin_shard(a->x->loop);

	if (a->t->live) /* what is dialled counts as a request there, too */
		atomic_fetch_sub_explicit(&a->t->live->active, 1, memory_order_relaxed);
	a->group->n_conns--;
	pool_group_release(s, a->group);
	a->magic = 0;
	slab_put(&s->attempts, a);
}

static void count_connect(const struct attempt *a, bool ok)
{
	struct server_live *live = a->t->live;

	if (live)
		metric_add(origin_shard(a->x->loop)->p.cells,
			   ok ? live->slot_connect_ok : live->slot_connect_failed, 1);
}

static void note_name(const struct attempt *a, const struct why *cause)
{
	struct server_live *live = a->t->live;
	bool nameless = cause->id == WHY_DNS || cause->id == WHY_DNS_TIMEOUT;

	if (live && atomic_load_explicit(&live->nameless, memory_order_relaxed) != nameless)
		atomic_store_explicit(&live->nameless, nameless, memory_order_relaxed);
}

static void begin_on(struct upconn *u, struct exchange *x, struct tries *t,
		     const struct client_job *job)
{
	u->pin = x->pin;
	u->keep_ms = x->timeouts->upstream_keep_alive;
	x->facts.address = u->address;
	x->facts.reused = t->reused;
	if (t->live)
		atomic_fetch_add_explicit(&t->live->active, 1, memory_order_relaxed);
	h1_client_begin(u->client, x, job);
	pipe_go(&x->req, STOP_CONNECT);
}

static void on_connected(struct attempt *a, struct link *link, const struct dial_result *r)
{
	struct exchange *x = a->x;
	struct tries *t = a->t;
	struct client_job job = a->job;
	struct upconn *u = pool_new(origin_shard(x->loop), a->group, link, &r->address, t->live);

	count_connect(a, true);
	if (t->server)
		balance_worked(t->conf, t->server);
	if (!u) {
		struct end *e = &a->end;

		end_fail(e, why(WHY_MEMORY));
		attempt_free(a);
		return;
	}
	end_leave(&a->end);
	attempt_free(a);
	begin_on(u, x, t, &job);
}

static void on_dialled(void *arg, struct link *link, const struct dial_result *r)
{
	struct attempt *a = arg;
	struct exchange *x = a->x;

	must(a->magic == ATTEMPT_MAGIC);
	a->dial = NULL;
	x->facts.resolve_us += r->resolve_us;
	x->facts.connect_us += r->connect_us;
	x->facts.address = r->address;
	note_name(a, r->why);
	if (x->cut || x->refused) { /* it ends this turn, and has not been heard here yet */
		link_abort(&link);
		end_leave(&a->end);
		attempt_free(a);
		return;
	}
	if (link) {
		on_connected(a, link, r);
		return;
	}
	count_connect(a, false);
	if (a->t->server && (r->why->flags & WHY_SERVER))
		balance_failed(x->loop, a->t->conf, a->t->server);
	end_fail(&a->end, r->why);
	attempt_free(a);
}

static void on_data(struct end *e)
{
	(void)e; /* the request waits until a connection stands */
}

static void on_cut(struct end *e, const struct why *cause)
{
	struct attempt *a = container_of(e, struct attempt, end);

	(void)cause;
	dial_cancel(&a->dial);
	end_leave(e);
	attempt_free(a);
}

static void dump_end(const struct end *e, int fd)
{
	const struct attempt *a = container_of(e, struct attempt, end);

	dprintf(fd, "  attempt %u at %.*s\n", a->t->attempts,
		a->t->server ? (int)a->t->server->url.n : 6,
		a->t->server ? a->t->server->url.p : "target");
}

static const struct end_ops attempt_end = { .name = "attempt",
					    .on_data = on_data,
					    .on_room = on_data,
					    .on_cut = on_cut,
					    .dump = dump_end };

static bool from_pool(const struct attempt_params *p)
{
	struct origin_shard *s = origin_shard(p->x->loop);
	struct upconn *u = pool_unpin(p->x->pin, p->group);

	if (!u && !p->t->fresh)
		u = pool_get(s, p->group, attempt_idle_max_ms(p->x), &p->t->policy);
	if (!u)
		return false;
	p->t->reused = true;
	if (p->t->live)
		metric_add(s->p.cells, p->t->live->slot_reuse, 1);
	begin_on(u, p->x, p->t, &p->job);
	return true;
}

static bool judge(void *arg, const struct addr *address)
{
	const struct attempt *a = arg;

	return a->t->policy.judge(a->t->policy.arg, address);
}

static bool start_dial(struct attempt *a, const struct attempt_params *p)
{
	struct dial_params d = { .loop = p->x->loop,
				 .resolver = origin_shard(p->x->loop)->p.resolver,
				 .host = p->host,
				 .literal = p->literal,
				 .addr = p->addr,
				 .path = p->path,
				 .port = p->port,
				 .resolve_flags = p->resolve_flags,
				 .prefer = origin_shard(p->x->loop)->p.prefer,
				 .timeout_ms = p->x->timeouts->connect,
				 .hold = p->hold,
				 .judge = p->t->policy.judge ? judge : NULL,
				 .done = on_dialled,
				 .arg = a };

	a->dial = dial_start(&d);
	return a->dial != NULL;
}

void attempt_begin(const struct attempt_params *p)
{
	struct origin_shard *s = origin_shard(p->x->loop);
	struct attempt *a;

	p->t->reused = false;
	p->t->result = (struct client_result){ 0 };
	if (!p->hold && from_pool(p))
		return;
	must(p->hold || !p->t->live || !p->t->live->quota); /* the limit */
	a = slab_get(&s->attempts);
	if (!a) {
		if (p->hold)
			p->hold->let_go(p->hold, p->x->loop);
		pool_group_release(s, p->group); /* a target's, made for this */
		exchange_refuse(p->x, why(WHY_MEMORY), NULL);
		return;
	}
	*a = (struct attempt){ .magic = ATTEMPT_MAGIC,
			       .x = p->x,
			       .t = p->t,
			       .group = p->group,
			       .job = p->job };
	a->end.ops = &attempt_end;
	p->group->n_conns++; /* keeps the group while it is dialled */
	if (p->t->live)
		atomic_fetch_add_explicit(&p->t->live->active, 1, memory_order_relaxed);
	pipe_stop(&p->x->req, STOP_CONNECT);
	exchange_attach_up(p->x, &a->end);
	if (!start_dial(a, p)) {
		end_fail(&a->end, why(WHY_MEMORY));
		attempt_free(a);
	}
}
