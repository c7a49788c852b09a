/* account.c -- what of a request goes to the log and into the counters. */
#include "serve/priv.h"

#include <stdlib.h>

struct door *account_door(struct service *s, const struct listener_conf *l)
{
	return &s->doors[l->index];
}

struct access_names account_names(const struct exchange *x)
{
	struct access_names n = { .listener = x->listener->name };

	if (x->site)
		n.site = x->site->name;
	if (x->route)
		n.route = x->route->name.n ? x->route->name : n.site;
	return n;
}

static COLD uint32_t find_slot(struct service *s, const struct exchange *x, unsigned class)
{
	static const char *const classes[STATUS_CLASSES] = { "0xx", "1xx", "2xx",
							     "3xx", "4xx", "5xx" };
	struct access_names n = account_names(x);
	struct str labels[] = { n.listener, n.site.n ? n.site : STR("-"),
				n.route.n ? n.route : STR("-"), str_of(classes[class]) };

	return metric_slot(s->shared->metrics, METRIC_REQUESTS, labels);
}

/* The series of (listener, site, route, class); looked up once, then remembered. */
static uint32_t request_slot(struct service *s, struct door *d, const struct exchange *x,
			     unsigned class)
{
	uint32_t *slot =
		&d->slot_requests[(x->route ? x->route->index + 1 : 0) * STATUS_CLASSES + class];

	if (!x->route && x->site)
		return find_slot(s, x, class);
	if (!*slot)
		*slot = find_slot(s, x, class);
	return *slot;
}

static unsigned status_class(const struct exchange *x)
{
	unsigned status = x->facts.status ? x->facts.status : x->why->status;

	return status / 100 < STATUS_CLASSES ? status / 100 : 0;
}

static void count(struct service *s, struct exchange *x)
{
	struct door *d = account_door(s, x->listener);

	metric_add(s->cells, request_slot(s, d, x, status_class(x)), 1);
	if (!x->logged) /* else it is a tunnel's, which has only begun */
		metric_observe_us(s->cells, d->slot_duration, x->facts.end_us - x->facts.open_us);
	if (x->why->id)
		metric_add(s->cells, s->slot_ends[x->why->id], 1);
}

void account_exchange(struct service *s, struct exchange *x)
{
	struct access_names names;

	if (!x->facts.end_us)
		x->facts.end_us = loop_now_us(s->loop);
	count(s, x);
	if (x->logged || !s->access)
		return;
	x->logged = true;
	names = account_names(x);
	access_log_exchange(s->access, &s->plan->access_log, x, &names);
}

void account_conn_end(struct service *s, const struct why *cause)
{
	if (cause->id)
		metric_add(s->cells, s->slot_ends[cause->id], 1);
}

void account_refused(struct service *s, const struct door *d, const struct addr *peer,
		     uint64_t conn_id, const struct why *cause)
{
	struct access_refused r = { .wall_us = loop_wall_us(s->loop),
				    .conn_id = conn_id,
				    .shard = loop_shard(s->loop),
				    .peer = peer,
				    .why = cause,
				    .listener = d->conf->name };

	metric_add(s->cells, s->slot_ends[cause->id], 1);
	if (s->access)
		access_log_refused(s->access, &s->plan->access_log, &r);
}
