/* handoff.c -- a tunnel begins: the exchange gives both links to relay/, what the log will want is
 * packed, and everything else of the request is freed. */
#include "serve/priv.h"

/* What lives as long as the tunnel, in one piece of the least size that holds it. */
struct tunnel {
	struct service *service;
	const struct door *door;
	uint64_t open_us;
	uint8_t size; /* of tunnel_sizes */
	uint8_t packed[];
};

static const uint16_t tunnel_sizes[TUNNEL_SIZES] = {
	128, 144, 160, 176, 192, 256, 512, 1024, 5120
};
_Static_assert(offsetof(struct tunnel, packed) + ACCESS_PACKED_MAX <= 5120, "the largest fits");

void handoff_open(struct service *s)
{
	for (unsigned i = 0; i < TUNNEL_SIZES; i++)
		slab_init(&s->tunnels[i], "tunnels", tunnel_sizes[i], loop_budget(s->loop));
}

void handoff_close(struct service *s)
{
	for (unsigned i = 0; i < TUNNEL_SIZES; i++)
		slab_close(&s->tunnels[i]);
}

static void on_tunnel_end(void *arg, const struct relay_end *end)
{
	struct tunnel *t = arg;
	struct service *s = t->service;
	struct access_end e = { .why = end->why,
				.bytes_in = end->bytes_in,
				.bytes_out = end->bytes_out,
				.end_us = loop_now_us(s->loop) };

	if (s->access)
		access_log_packed(s->access, &s->plan->access_log, t->packed, &e);
	if (end->why->id)
		metric_add(s->cells, s->slot_ends[end->why->id], 1);
	metric_observe_us(s->cells, t->door->slot_duration, e.end_us - t->open_us);
	metric_add(s->cells, t->door->slot_tunnel, (uint64_t)-1);
	s->n_tunnels--;
	admit_gone(s);
	slab_put(&s->tunnels[t->size], t);
}

/* NULL: out of memory. */
static struct tunnel *remember(struct service *s, struct exchange *x)
{
	uint8_t packed[ACCESS_PACKED_MAX];
	struct access_names names = account_names(x);
	uint32_t n = s->access ? access_pack(packed, x, &names) : 0;
	struct tunnel *t;
	uint8_t size = 0;

	while (tunnel_sizes[size] < offsetof(struct tunnel, packed) + n)
		size++;
	t = slab_get(&s->tunnels[size]);
	if (!t)
		return NULL;
	t->service = s;
	t->door = account_door(s, x->listener);
	t->open_us = x->facts.open_us;
	t->size = size;
	if (n)
		memcpy(t->packed, packed, n);
	return t;
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
	struct tunnel *t = remember(s, x);

	if (!t)
		return false;
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
