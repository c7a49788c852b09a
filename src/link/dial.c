/* dial.c -- from a name, address or path to a connected link.  Exports: dial_*
 *
 *     resolving -> trying -> done()
 *
 * Trying is happy eyeballs [RFC 8305 §5]: the addresses, families interleaved, are begun one after
 * the other, the next one 250 ms after the last or at once when one fails; the first that connects
 * wins.  Each is judged just before its socket is made: policy sees the very address that is
 * dialled.
 *
 * With a hold (somebody counts sockets) there is no race: an address has its share of the time,
 * then its attempt is dropped, and when that has gone the next one begins.
 *
 * An attempt is an object of its own, so that a dial can end at once: attempts that lost are
 * orphaned (their descriptor closed) and go when their op is idle. */
#include "link/priv.h"

#include <netinet/tcp.h>

#define ATTEMPT_DELAY_MS 250  /* RFC 8305 §8 */
#define COUNTED_STEP_MS  2000 /* one address after the other, no time limit over them all */
#define UNIX_FULL_MS     10   /* a Unix socket's backlog is full: connect() says EAGAIN at once */
#define DIAL_MAGIC       0xd1a1d1a1u
#define ATTEMPT_MAGIC    0xd1a1a77eu

struct attempt {
	uint32_t magic;
	int fd;
	struct loop *loop;
	struct dial *dial; /* NULL: orphaned */
	struct hold *hold; /* of the one socket that may be open */
	bool dropped;      /* closed, its dial waits until it has gone */
	bool gone;         /* a turn has passed since */
	struct task over;
	struct op op;
	struct list node;
	struct addr addr;
};

struct dial {
	uint32_t magic;
	uint32_t n, next; /* addresses, and the next one to be tried */
	uint32_t denied;
	bool counted; /* p.hold or an attempt has the hold */
	struct dial_params p;
	struct resolve *question;  /* while resolving */
	const struct why *failure; /* the most telling one so far */
	struct dial_result result;
	uint64_t begun_us; /* of the phase at hand */
	struct alarm timeout, step;
	struct task begin;
	struct list attempts;
	struct addr addr[RESOLVE_ADDRS];
};

uint32_t dial_size(void)
{
	return sizeof(struct dial);
}

uint32_t dial_attempt_size(void)
{
	return sizeof(struct attempt);
}

/* --- the end --- */
static void orphan(struct attempt *a)
{
	list_remove(&a->node);
	a->dial = NULL;
	if (!a->dropped)
		loop_close(a->loop, a->fd);
}

static void dismiss(struct dial *d)
{
	resolve_cancel(&d->question);
	loop_alarm_off(&d->timeout);
	loop_alarm_off(&d->step);
	loop_task_off(d->p.loop, &d->begin);
	while (!list_empty(&d->attempts))
		orphan(container_of(d->attempts.next, struct attempt, node));
	if (d->p.hold) /* no socket is open */
		d->p.hold->let_go(d->p.hold, d->p.loop);
	d->magic = 0;
	slab_put(&link_shard(d->p.loop)->dials, d);
}

void dial_cancel(struct dial **dp)
{
	struct dial *d = *dp;

	*dp = NULL;
	if (!d)
		return;
	must(d->magic == DIAL_MAGIC);
	dismiss(d);
}

static void end(struct dial *d, struct link *l, const struct why *w)
{
	void (*done)(void *, struct link *, const struct dial_result *) = d->p.done;
	uint64_t spent = loop_now_us(d->p.loop) - d->begun_us;
	struct dial_result result = d->result;
	void *arg = d->p.arg;

	if (d->question)
		result.resolve_us = spent;
	else
		result.connect_us = spent;
	result.why = w;
	dismiss(d);
	done(arg, l, &result);
}

/* Says more than another failure?  That a family has no route tells less than what a server did. */
static int telling(const struct why *w)
{
	if (w->id == WHY_NONE)
		return 0;
	return w->id == WHY_UNROUTABLE ? 1 : 2;
}

static void note_failure(struct dial *d, const struct why *w)
{
	if (telling(w) >= telling(d->failure))
		d->failure = w;
}

/* Nothing is left to try. */
static void give_up(struct dial *d)
{
	if (d->failure->id == WHY_NONE)
		d->failure = why(d->denied ? WHY_IP_PROHIBITED : WHY_DNS);
	end(d, NULL, d->failure);
}

static void on_timeout(struct alarm *al)
{
	struct dial *d = container_of(al, struct dial, timeout);

	must(d->magic == DIAL_MAGIC);
	end(d, NULL, why(d->question ? WHY_DNS_TIMEOUT : WHY_CONNECT_TIMEOUT));
}

/* --- one attempt --- */
static void on_connected(struct op *op, int32_t res);
static void on_over(struct task *t);

/* Also: connecting from an address that this host has none of in this family. */
static const struct why *why_failed(const struct addr *addr, int err)
{
	if (err == -EADDRNOTAVAIL && addr->u.sa.sa_family == AF_INET6)
		return why(WHY_UNROUTABLE);
	if (err == -EAFNOSUPPORT)
		return why(WHY_UNROUTABLE);
	return why_of_errno(err);
}

/* A socket of this family, in an attempt; NULL: *err says why. */
static struct attempt *attempt_new(struct dial *d, int family, int *err)
{
	struct link_shard *s = link_shard(d->p.loop);
	struct attempt *a = slab_get(&s->attempts);
	int one = 1, fd;

	*err = -ENOMEM;
	if (!a)
		return NULL;
	fd = loop_socket(d->p.loop, family, SOCK_STREAM);
	if (fd < 0) {
		*err = fd;
		slab_put(&s->attempts, a);
		return NULL;
	}
	if (family != AF_UNIX)
		(void)loop_sockopt(d->p.loop, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	memset(a, 0, sizeof(*a));
	a->magic = ATTEMPT_MAGIC;
	a->fd = fd;
	a->loop = d->p.loop;
	a->dial = d;
	a->hold = d->p.hold;
	d->p.hold = NULL;
	task_init(&a->over, on_over);
	op_init(&a->op, on_connected);
	list_push_tail(&d->attempts, &a->node);
	return a;
}

static void attempt_free(struct attempt *a)
{
	list_remove(&a->node);
	a->magic = 0;
	slab_put(&link_shard(a->loop)->attempts, a);
}

/* How long an address is tried before the next one has its turn. */
static uint32_t step_ms(const struct dial *d)
{
	uint32_t share = d->p.timeout_ms ? d->p.timeout_ms / d->n : COUNTED_STEP_MS;

	return d->counted && share > ATTEMPT_DELAY_MS ? share : ATTEMPT_DELAY_MS;
}

/* 0, or -errno: the next address may be better. */
static int try_address(struct dial *d, const struct addr *addr)
{
	int err;
	struct attempt *a = attempt_new(d, addr->u.sa.sa_family, &err);

	d->result.address = *addr;
	if (!a)
		return err;
	a->addr = *addr;
	loop_connect(a->loop, &a->op, a->fd, &addr->u.sa, addr->len);
	return 0;
}

/* Begins the next attempt that can be begun. */
static void try_next(struct dial *d)
{
	while (d->next < d->n) {
		const struct addr *addr = &d->addr[d->next++];
		int err;

		if (d->p.judge && !d->p.judge(d->p.arg, addr)) {
			d->denied++;
			continue;
		}
		err = try_address(d, addr);
		if (!err) {
			if (d->next < d->n)
				loop_alarm(d->p.loop, &d->step, step_ms(d));
			return;
		}
		note_failure(d, why_failed(addr, err));
	}
	if (list_empty(&d->attempts))
		give_up(d);
}

static void try_path(struct dial *d)
{
	struct sockaddr_un un;
	struct attempt *a;
	int err;

	memset(&un, 0, sizeof(un));
	un.sun_family = AF_UNIX;
	must(d->p.path.n < sizeof(un.sun_path));
	memcpy(un.sun_path, d->p.path.p, d->p.path.n);
	a = attempt_new(d, AF_UNIX, &err);
	if (!a) {
		end(d, NULL, why_of_errno(err));
		return;
	}
	a->addr.len = sizeof(sa_family_t);
	a->addr.u.sa.sa_family = AF_UNIX;
	d->result.address = a->addr;
	loop_connect(a->loop, &a->op, a->fd, (struct sockaddr *)&un, sizeof(un));
}

static void drop(struct attempt *a)
{
	a->dropped = true;
	loop_close(a->loop, a->fd);
}

static void on_step(struct alarm *al)
{
	struct dial *d = container_of(al, struct dial, step);

	must(d->magic == DIAL_MAGIC);
	if (d->p.path.n)
		try_path(d);
	else if (d->counted && !list_empty(&d->attempts))
		drop(container_of(d->attempts.next, struct attempt, node));
	else
		try_next(d);
}

/* An attempt that held the count has ended without a link: a ring closes its socket when this
 * turn's work is submitted, with the next turn it is done. */
static void on_over(struct task *t)
{
	struct attempt *a = container_of(t, struct attempt, over);
	struct hold *hold = a->hold;
	struct dial *d = a->dial;

	must(a->magic == ATTEMPT_MAGIC);
	if (!a->gone) {
		a->gone = true;
		loop_late(a->loop, t);
		return;
	}
	if (d) {
		d->p.hold = hold;
		attempt_free(a);
		try_next(d);
		return;
	}
	hold->let_go(hold, a->loop);
	attempt_free(a);
}

static void attempt_over(struct attempt *a)
{
	if (a->hold)
		loop_late(a->loop, &a->over);
	else
		attempt_free(a);
}

static void connected(struct dial *d, struct attempt *a)
{
	struct link *l = link_new(a->loop, a->fd, NULL);

	d->result.address = a->addr;
	if (l) {
		l->hold = a->hold;
		attempt_free(a);
	} else { /* link_new() has closed it */
		list_remove(&a->node);
		a->dial = NULL;
		attempt_over(a);
	}
	end(d, l, why(l ? WHY_NONE : WHY_MEMORY));
}

static void failed(struct dial *d, struct attempt *a, int err)
{
	note_failure(d, why_failed(&a->addr, err));
	loop_close(a->loop, a->fd);
	d->p.hold = a->hold; /* what did not connect is no connection */
	attempt_free(a);
	if (d->p.path.n && err == -EAGAIN)
		loop_alarm(d->p.loop, &d->step, UNIX_FULL_MS);
	else if (d->p.path.n)
		give_up(d);
	else
		try_next(d);
}

static void on_connected(struct op *op, int32_t res)
{
	struct attempt *a = container_of(op, struct attempt, op);

	must(a->magic == ATTEMPT_MAGIC && op_idle(op));
	if (!a->dial || a->dropped)
		attempt_over(a);
	else if (res == 0)
		connected(a->dial, a);
	else
		failed(a->dial, a, res);
}

/* --- the addresses --- */
static uint32_t next_of(const struct answer *ans, int family, uint32_t from)
{
	while (from < ans->n && ans->addr[from].u.sa.sa_family != family)
		from++;
	return from;
}

/* Families take turns, the preferred one first, each in the order of the answer [RFC 8305 §4]. */
static void interleave(struct dial *d, const struct answer *ans)
{
	int family = d->p.prefer == PREFER_IPV4 ? AF_INET : AF_INET6;
	uint32_t at4 = next_of(ans, AF_INET, 0), at6 = next_of(ans, AF_INET6, 0);

	while (at4 < ans->n || at6 < ans->n) {
		bool v6 = at4 == ans->n || (at6 < ans->n && family == AF_INET6);
		uint32_t *at = v6 ? &at6 : &at4;

		d->addr[d->n] = ans->addr[*at];
		addr_set_port(&d->addr[d->n++], d->p.port);
		*at = next_of(ans, v6 ? AF_INET6 : AF_INET, *at + 1);
		family = v6 ? AF_INET : AF_INET6;
	}
}

static const struct why *why_unresolved(int res)
{
	switch (res) {
	case -ETIMEDOUT: return why(WHY_DNS_TIMEOUT);
	case -ENOMEM: return why(WHY_MEMORY);
	case -ECANCELED: return why(WHY_SHUTDOWN);
	default: return why(WHY_DNS);
	}
}

static void on_resolved(void *arg, int res, struct answer *ans)
{
	struct dial *d = arg;
	uint64_t now = loop_now_us(d->p.loop);

	must(d->magic == DIAL_MAGIC);
	d->question = NULL;
	d->result.resolve_us = now - d->begun_us;
	d->begun_us = now;
	if (res) {
		end(d, NULL, why_unresolved(res));
		return;
	}
	interleave(d, ans);
	try_next(d);
}

/* --- beginning --- */
static void begin(struct task *t)
{
	struct dial *d = container_of(t, struct dial, begin);

	must(d->magic == DIAL_MAGIC);
	if (d->p.path.n)
		try_path(d);
	else
		try_next(d);
}

static struct dial *dial_new(const struct dial_params *p)
{
	struct dial *d = slab_get(&link_shard(p->loop)->dials);

	if (!d) {
		if (p->hold)
			p->hold->let_go(p->hold, p->loop);
		return NULL;
	}
	memset(d, 0, offsetof(struct dial, addr));
	d->magic = DIAL_MAGIC;
	d->p = *p;
	d->counted = p->hold != NULL;
	d->failure = why(WHY_NONE);
	d->begun_us = loop_now_us(p->loop);
	alarm_init(&d->timeout, on_timeout);
	alarm_init(&d->step, on_step);
	task_init(&d->begin, begin);
	list_init(&d->attempts);
	return d;
}

struct dial *dial_start(const struct dial_params *p)
{
	struct dial *d = dial_new(p);
	struct addr addr = p->addr;

	if (!d)
		return NULL;
	if (p->path.n) {
		loop_soon(p->loop, &d->begin);
	} else if (p->literal || addr_parse_ip(p->host, p->port, &addr)) {
		d->addr[d->n++] = addr;
		loop_soon(p->loop, &d->begin);
	} else {
		d->question = resolve_name(p->resolver, p->host, p->resolve_flags, on_resolved, d);
		if (!d->question) {
			dial_cancel(&d);
			return NULL;
		}
	}
	if (p->timeout_ms)
		loop_alarm(p->loop, &d->timeout, p->timeout_ms);
	return d;
}
