/* handoff.c -- a tunnel begins: the exchange gives both links to relay/, what the log will want is
 * packed, and everything else of the request is freed. */
#include "serve/priv.h"

#include <stdlib.h>

struct tunnel {
	struct service *service;
	const struct door *door;
	struct access_record *record; /* NULL: the log is off */
	uint64_t open_us;
};

static void on_tunnel_end(void *arg, const struct relay_end *end)
{
	struct tunnel *t = arg;
	struct service *s = t->service;
	struct access_end e = { .why = end->why,
				.bytes_in = end->bytes_in,
				.bytes_out = end->bytes_out,
				.end_us = loop_now_us(s->loop) };

	if (t->record)
		access_log_record(s->access, &s->plan->access_log, &t->record, &e);
	if (end->why->id)
		metric_add(s->cells, s->slot_ends[end->why->id], 1);
	metric_observe_us(s->cells, t->door->slot_duration, e.end_us - t->open_us);
	metric_add(s->cells, t->door->slot_tunnel, (uint64_t)-1);
	s->n_tunnels--;
	admit_gone(s);
	free(t);
}

static bool remember(struct service *s, struct exchange *x, struct tunnel *t)
{
	struct access_names names = account_names(x);

	t->service = s;
	t->door = account_door(s, x->listener);
	t->open_us = x->facts.open_us;
	if (!s->access)
		return true;
	t->record = access_pack(x, &names);
	return t->record != NULL;
}

static bool start(struct service *s, struct exchange *x, struct tunnel *t)
{
	struct bufq from_down, from_up;
	struct relay_params p = { .loop = s->loop,
				  .down_unread = &from_down,
				  .up_unread = &from_up,
				  .idle_ms = x->timeouts->tunnel_idle,
				  .ended = on_tunnel_end,
				  .arg = t,
				  .cells = s->cells,
				  .slot_up = s->slot_tunnel_up,
				  .slot_down = s->slot_tunnel_down };
	bool ok;

	bufq_init(&from_down, 0);
	bufq_init(&from_up, 0);
	must(x->up->ops->detach &&
	     x->down->ops->detach); /* else tunnel_ready was not theirs to say */
	p.up = x->up->ops->detach(x->up, &from_up);
	p.down = x->down->ops->detach(x->down, &from_down);
	ok = relay_start(&p);
	bufq_free(&from_down);
	bufq_free(&from_up);
	return ok;
}

bool handoff_tunnel(struct service *s, struct exchange *x)
{
	struct tunnel *t = calloc(1, sizeof(*t));

	if (!t || !remember(s, x, t)) {
		free(t);
		return false;
	}
	x->logged = true;
	s->n_tunnels++;
	admit_came(s);
	metric_add(s->cells, t->door->slot_tunnel, 1);
	account_exchange(s, x);
	if (!start(s, x, t)) {
		struct relay_end e = { .why = why(WHY_MEMORY) };

		on_tunnel_end(t, &e);
	}
	return true;
}
