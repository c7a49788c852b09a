/* service.c -- one shard's service: opens the rooms and the doors, drains them, closes them. */
#include "serve/priv.h"

#include <stdio.h>
#include <stdlib.h>

struct service *service_of(struct loop *l)
{
	return loop_slot(l, SLOT_SERVE);
}

unsigned service_connections(const struct service *s)
{
	return s->n_conns;
}

/* ---------------------------------------------------------------- rooms */
#define PIPES_MAX 64u /* 1 MiB pipes for bulk tunnels, per shard */

static int open_rooms(struct loop *l)
{
	int rc = link_shard_open(l);

	if (rc < 0)
		return rc;
	rc = exchange_shard_open(l);
	if (rc < 0)
		goto fail_exchange;
	rc = wire_shard_open(l);
	if (rc < 0)
		goto fail_wire;
	rc = relay_shard_open(l, PIPES_MAX);
	if (rc < 0)
		goto fail_relay;
	return 0;

fail_relay:
	wire_shard_close(l);
fail_wire:
	exchange_shard_close(l);
fail_exchange:
	link_shard_close(l);
	return rc;
}

static void close_rooms(struct loop *l)
{
	relay_shard_close(l);
	wire_shard_close(l);
	exchange_shard_close(l);
	link_shard_close(l);
}

/* The shards' parts add up to the limit. */
static uint32_t pool_share(const struct service *s)
{
	uint32_t all = s->plan->upstream_pool, n = s->plan->workers;

	return all / n + (loop_shard(s->loop) < all % n);
}

static int open_origin(struct service *s)
{
	uint32_t dns[RESOLVE_COUNTS];
	static const char *const results[RESOLVE_COUNTS] = { "hit",      "stale",   "ok",
							     "nxdomain", "timeout", "error" };
	struct origin_params p = { .loop = s->loop,
				   .cells = s->cells,
				   .metrics = s->shared->metrics,
				   .pool_max = pool_share(s),
				   .prefer = s->plan->resolver.prefer };

	for (unsigned i = 0; i < RESOLVE_COUNTS; i++) {
		struct str label = str_of(results[i]);

		dns[i] = metric_slot(s->shared->metrics, METRIC_DNS, &label);
	}
	s->resolver = resolver_new(s->loop, &s->plan->resolver, s->cells, dns);
	if (!s->resolver)
		return -1;
	p.resolver = s->resolver;
	if (origin_shard_open(&p) == 0)
		return 0;
	resolver_free(&s->resolver);
	return -1;
}

/* ---------------------------------------------------------------- counters */
static uint32_t conn_slot(struct service *s, const struct door *d, const char *state)
{
	struct str labels[] = { d->conf->name, str_of(state) };

	return metric_slot(s->shared->metrics, METRIC_CONNECTIONS, labels);
}

static void open_counters(struct service *s)
{
	struct metrics *m = s->shared->metrics;
	struct str up = STR("up"), down = STR("down"), shard;
	char number[12];

	shard.p = number;
	shard.n = (uint32_t)snprintf(number, sizeof(number), "%u", loop_shard(s->loop));
	s->cells = metric_cells(m, loop_shard(s->loop));
	s->slot_shard_conns = metric_slot(m, METRIC_SHARD_CONNS, &shard);
	s->slot_handovers = metric_slot(m, METRIC_HANDOVERS, &shard);
	s->slot_tunnel_up = metric_slot(m, METRIC_TUNNEL_BYTES, &up);
	s->slot_tunnel_down = metric_slot(m, METRIC_TUNNEL_BYTES, &down);
	for (unsigned i = 1; i < WHY_ROWS; i++) {
		struct str reason = str_of(why_table[i].name);

		s->slot_ends[i] = metric_slot(m, METRIC_ENDS, &reason);
	}
}

/* ---------------------------------------------------------------- doors */
static bool open_door(struct service *s, struct door *d, const struct service_params *p)
{
	unsigned i = d->index;

	d->slot_requests =
		calloc((size_t)(s->plan->n_routes + 1) * STATUS_CLASSES, sizeof(*d->slot_requests));
	if (!d->slot_requests)
		return false;
	d->slot_active = conn_slot(s, d, "active");
	d->slot_idle = conn_slot(s, d, "idle");
	d->slot_tunnel = conn_slot(s, d, "tunnel");
	d->slot_duration = metric_slot(s->shared->metrics, METRIC_DURATION, &d->conf->name);
	d->acceptor =
		acceptor_new(s->loop, p->listen_fds[i], p->listen_shared[i], &serve_acceptor, d);
	return d->acceptor != NULL;
}

static bool open_doors(struct service *s, const struct service_params *p)
{
	s->doors = calloc(s->plan->n_listeners + 1, sizeof(*s->doors));
	if (!s->doors)
		return false;
	for (unsigned i = 0; i < s->plan->n_listeners; i++) {
		struct door *d = &s->doors[i];

		*d = (struct door){ .service = s, .conf = &s->plan->listeners[i], .index = i };
		s->n_doors = i + 1;
		if (!open_door(s, d, p))
			return false;
		s->doors_open++;
	}
	return true;
}

static void close_doors(struct service *s)
{
	for (unsigned i = 0; i < s->n_doors; i++) {
		if (s->doors[i].acceptor)
			acceptor_stop(&s->doors[i].acceptor, NULL);
		free(s->doors[i].slot_requests);
	}
	free(s->doors);
	s->doors = NULL;
	s->n_doors = 0;
}

/* ---------------------------------------------------------------- life */
void service_ended_one(struct service *s)
{
	if (s->stopping)
		loop_soon(s->loop, &s->check);
}

static void check_ended(struct task *t)
{
	struct service *s = container_of(t, struct service, check);

	if (!s->stopping || s->told || s->doors_open || s->n_conns || exchange_count(s->loop))
		return;
	s->told = true;
	origin_shard_drain(s->loop);
	if (s->done)
		s->done(s->done_arg);
}

/* What has been told to stop needs turns to do so. */
static void turn_until_idle(struct loop *l)
{
	while (!link_shard_idle(l))
		loop_turn(l, 10);
}

static void on_calm(struct reclaim *r)
{
	struct service *s = container_of(r, struct service, reclaim);

	if (s->access)
		log_ring_calm(s->access);
}

struct service *service_open(const struct service_params *p)
{
	struct service *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->loop = p->loop;
	s->plan = p->plan;
	s->shared = p->shared;
	s->access = p->access;
	list_init(&s->busy);
	list_init(&s->idle);
	list_init(&s->prefaces);
	task_init(&s->check, check_ended);
	s->reclaim.calm = on_calm;
	budget_reclaim(loop_budget(s->loop), &s->reclaim);
	handoff_open(s);
	loop_set_slot(s->loop, SLOT_SERVE, s);
	if (open_rooms(s->loop) < 0)
		goto fail_rooms;
	open_counters(s);
	if (open_origin(s) < 0)
		goto fail_origin;
	if (!open_doors(s, p))
		goto fail_doors;
	handover_join(s->shared->handover, s->loop);
	plan_ref(s->plan);
	return s;

fail_doors:
	close_doors(s);
	origin_shard_close(s->loop);
	resolver_free(&s->resolver);
	turn_until_idle(s->loop);
fail_origin:
	close_rooms(s->loop);
fail_rooms:
	loop_set_slot(s->loop, SLOT_SERVE, NULL);
	budget_reclaim_off(loop_budget(s->loop), &s->reclaim);
	free(s);
	return NULL;
}

void service_drain(struct service *s)
{
	s->draining = true;
	origin_shard_drain(s->loop);
}

static void on_door_closed(void *owner)
{
	struct door *d = owner;

	d->service->doors_open--;
	loop_soon(d->service->loop, &d->service->check);
}

static void close_idle(struct service *s)
{
	struct list *node, *tmp;

	list_each_safe(node, tmp, &s->idle)
	{
		struct conn *c = container_of(node, struct conn, node);

		c->drain(c);
	}
}

void service_stop(struct service *s, void (*done)(void *arg), void *arg)
{
	s->draining = s->stopping = true;
	s->done = done;
	s->done_arg = arg;
	handover_leave(s->shared->handover, s->loop);
	for (unsigned i = 0; i < s->n_doors; i++)
		acceptor_stop(&s->doors[i].acceptor, on_door_closed);
	close_idle(s);
	loop_soon(s->loop, &s->check);
}

bool service_stopped(const struct service *s)
{
	return s->stopping && !s->doors_open;
}

static void cut_list(struct list *l, unsigned *n)
{
	struct list *node, *tmp;

	list_each_safe(node, tmp, l)
	{
		struct conn *c = container_of(node, struct conn, node);

		c->cut(c, why(WHY_SHUTDOWN));
		(*n)++;
	}
}

unsigned service_cut(struct service *s)
{
	unsigned n = s->n_tunnels;

	cut_list(&s->busy, &n);
	close_idle(s);
	admit_shutdown(s);
	relay_cut_all(s->loop, why(WHY_SHUTDOWN));
	loop_soon(s->loop, &s->check);
	return n;
}

void service_close(struct service **sp)
{
	struct service *s = *sp;

	*sp = NULL;
	must(s->n_conns == 0);
	loop_task_off(s->loop, &s->check);
	close_doors(s);
	origin_shard_close(s->loop);
	resolver_free(&s->resolver);
	turn_until_idle(s->loop);
	close_rooms(s->loop);
	handoff_close(s);
	loop_set_slot(s->loop, SLOT_SERVE, NULL);
	plan_drop(&s->plan);
	budget_reclaim_off(loop_budget(s->loop), &s->reclaim);
	free(s);
}

static void dump_exchange(struct exchange *x, void *fd)
{
	exchange_dump(x, *(int *)fd);
}

void service_dump(const struct service *s, int fd)
{
	dprintf(fd, "shard %u: %u connections, %u tunnels%s%s\n", loop_shard(s->loop), s->n_conns,
		s->n_tunnels, s->draining ? ", draining" : "", s->stopping ? ", stopping" : "");
	exchange_each(s->loop, dump_exchange, &fd);
	origin_shard_dump(s->loop, fd);
	relay_dump(s->loop, fd);
}
