/* tunnel.c -- CONNECT: dials the target, answers 200 without a body, then gives its link away (RFC
 * 9110 §9.3.6).
 *
 *   tunnel_begin ──► dial ── connected ──► rsp head 200, x->tunnel ──► flow step: both to relay/
 *                         └─ failed ────► end_fail(why): an error page; it stays HTTP */
#include "origin/priv.h"

#include <stdio.h>

struct tunnel_end { /* in the exchange's arena: dial_cancel() is at once */
	struct end end;
	struct exchange *x;
	struct dial *dial;
	struct link *link;
	struct dial_policy policy;
	struct head head;
};

static struct tunnel_end *of_end(const struct end *e)
{
	return container_of(e, struct tunnel_end, end);
}

static void on_link_recv(struct link *l, int32_t res, struct seg **seg)
{
	(void)l;
	(void)res;
	/* not reading: only the watch for aborts reports, and relay/ will find the same */
	seg_drop(seg);
}

static void on_link_sent(struct link *l, int32_t n)
{
	(void)l;
	(void)n;
}

static void on_connected(struct tunnel_end *t, struct link *link)
{
	t->link = link;
	link->owner = t;
	link->on_recv = on_link_recv;
	link->on_sent = on_link_sent;
	t->head = (struct head){ .status = 200,
				 .version = 11,
				 .reason = STR("Connection established"),
				 .body = BODY_NONE };
	t->x->tunnel = true;
	pipe_head(&t->x->rsp, &t->head);
}

static void on_dialled(void *arg, struct link *link, const struct dial_result *r)
{
	struct tunnel_end *t = arg;
	struct exchange *x = t->x;

	t->dial = NULL;
	x->facts.resolve_us += r->resolve_us;
	x->facts.connect_us += r->connect_us;
	x->facts.address = r->address;
	if (x->cut || x->refused) { /* it ends this turn, and has not been heard here yet */
		link_abort(&link);
		end_leave(&t->end);
	} else if (link)
		on_connected(t, link);
	else
		end_fail(&t->end, r->why);
}

static void on_news(struct end *e)
{
	/* a tunnel has no body: its bytes stay with the down end until relay/ takes the links */
	(void)e;
}

static void on_cut(struct end *e, const struct why *cause)
{
	struct tunnel_end *t = of_end(e);

	(void)cause;
	dial_cancel(&t->dial);
	link_abort(&t->link);
	end_leave(e);
}

static struct link *detach(struct end *e, struct bufq *unread)
{
	struct tunnel_end *t = of_end(e);
	struct link *l = t->link;

	(void)unread;
	t->link = NULL;
	end_leave(e);
	return l;
}

static const struct end_ops tunnel_ops = { .name = "tunnel",
					   .on_data = on_news,
					   .on_room = on_news,
					   .on_cut = on_cut,
					   .detach = detach };

static bool judge(void *arg, const struct addr *address)
{
	const struct tunnel_end *t = arg;

	return t->policy.judge(t->policy.arg, address);
}

void tunnel_begin(struct exchange *x, const struct dial_policy *policy)
{
	const struct head *h = x->req.head;
	struct tunnel_end *t = arena_zalloc(&x->arena, sizeof(*t));
	struct dial_params d = { .loop = x->loop,
				 .resolver = origin_shard(x->loop)->p.resolver,
				 .host = h->host,
				 .port = h->port,
				 .prefer = origin_shard(x->loop)->p.prefer,
				 .timeout_ms = x->timeouts->connect,
				 .done = on_dialled,
				 .arg = t };

	if (!t) {
		exchange_refuse(x, why(WHY_MEMORY), NULL);
		return;
	}
	t->x = x;
	t->policy = *policy;
	t->end.ops = &tunnel_ops;
	d.literal = addr_parse_ip(h->host, h->port, &d.addr);
	d.judge = policy->judge ? judge : NULL;
	x->facts.attempts = 1;
	exchange_attach_up(x, &t->end);
	t->dial = dial_start(&d);
	if (!t->dial)
		end_fail(&t->end, why(WHY_MEMORY));
}
