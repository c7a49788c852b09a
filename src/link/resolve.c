/* resolve.c -- names to addresses, for one shard.  Exports: resolver_*, resolve_*, answer_*
 *
 *     resolve (a question)      name (a row of the cache)        flight (the network)
 *       candidates from the       last good answer,                A and AAAA at once,
 *       search list, one after    what failed last and until       all questions for the
 *       the other                 when                             name wait on it
 *
 * A question looks, for one candidate after the other, at: names that are never asked, the hosts
 * file, the cache; else it waits on the name's flight.  Nothing calls back from where it was
 * decided: decided questions go to the ready list, landed flights to the landed list, and the task
 * `work`, later in the same turn, does the rest.
 *
 *     a flight lands when   both types have answered
 *                           one has addresses and the other is 50 ms late [RFC 8305 §3]
 *                           its deadline rings
 *
 * Serve-stale [RFC 8767]: an answer past its TTL is given when the servers fail, at once for
 * negative_ttl afterwards, and when they are silent for a second.  NXDOMAIN is an answer, not a
 * failure, but for the operator's own names (RESOLVE_SEARCH) a good answer outlives that as well.
 *
 * Strangers choose names: they are checked before they are asked, the cache is a keyed hash of
 * bounded size, flights are bounded in number; all of them count in limits.memory, and the cache
 * gives way (the names not asked for longest first) before anything of the shard is refused. */
#include "link/names.h"

#include "base/map.h"

#include <stdlib.h>

#define CACHE_MAX   4096 /* names */
#define RUNNING_MAX 256  /* flights that ask */
#define QUEUED_MAX  4096 /* flights that wait to ask */
#define TTL_MIN_S   1
#define TTL_MAX_S   3600
#define GRACE_MS    50 /* RFC 8305 §8: Resolution Delay */
/* then a stale answer is given; RFC 8767 §5 says "on the order of 1.8 s" */
#define SILENCE_MS     1000
#define FRESH_MS       1000 /* RESOLVE_FRESH asks at most so often */
#define SICK_FLIGHTS   8    /* failures in a row, then the channel is made anew */
#define LOCAL_TTL_MS   1000 /* hosts file, localhost */
#define DELIVER_TURN   256  /* callbacks per run of the task */
#define DNS_TIMEOUT_MS 2000
#define DNS_ATTEMPTS   2

#define RESOLVER_MAGIC 0x4e501e40u
#define RESOLVE_MAGIC  0x4e501e41u
#define NAME_MAGIC     0x4e501e42u

enum { V6, V4, TYPES };

struct flight {
	struct name *name;
	struct list node;    /* queued, running or landed */
	struct list waiters; /* of resolve.node */
	struct alarm alarm;
	struct dns_query *query[TYPES];
	uint64_t deadline_ms;
	bool running, landed;
	bool in[TYPES];
	struct dns_reply reply[TYPES];
};

struct name {
	uint32_t magic;
	struct map_node node;
	struct list lru; /* most recent first */
	struct resolver *resolver;
	struct flight *flight; /* NULL: nobody asks */
	struct answer *good;   /* the last one; may be past its TTL */
	uint64_t asked_ms;
	uint64_t bad_until_ms; /* until then `bad` needs no asking */
	int bad;               /* -errno of the last flight; 0 */
	bool asked;
	bool silent; /* the flight takes long: stale answers are given at once */
	bool pinned; /* in use on the stack: must not be evicted */
	uint8_t n;
	char text[NAME_MAX_LEN + 1];
};

struct resolve {
	uint32_t magic;
	int res;
	struct resolver *resolver;
	struct list node; /* waiting on a flight, or ready */
	resolve_fn *fn;
	void *arg;
	struct answer *answer; /* counted; when ready */
	unsigned flags;
	uint8_t candidate; /* which one is at hand */
	struct qname name;
};

struct resolver {
	uint32_t magic;
	struct loop *loop;
	struct resolver_conf conf;
	struct addr *servers; /* configured; copied */
	uint64_t *cells;
	uint32_t slots[RESOLVE_COUNTS];
	bool counted, closing;
	struct map names;
	struct list lru;
	struct list queued, running, landed; /* of flight.node */
	struct list ready;                   /* of resolve.node */
	unsigned n_queued, n_running;
	struct task work;
	struct budget *budget;
	unsigned pool;
	struct reclaim reclaim;
	struct hosts *hosts;
	struct watched resolv_file;
	struct resolvconf rc;
	struct dns *dns; /* NULL: not made yet */
	struct dns *old; /* one whose questions end */
	unsigned sick;   /* flights in a row that the servers failed */
	bool worn;       /* dns must be made anew */
	void (*fake)(void *arg, struct str name);
	void *fake_arg;
};

static void work(struct task *t);

static void count(struct resolver *r, enum resolve_count c)
{
	if (r->counted)
		metric_add(r->cells, r->slots[c], 1);
}

/* --- memory --- */
static void *booked_new(struct resolver *r, size_t n)
{
	void *p;

	if (!pool_take(r->budget, r->pool, n))
		return NULL;
	p = calloc(1, n);
	if (!p)
		pool_give(r->budget, r->pool, n);
	return p;
}

static void booked_free(struct resolver *r, void *p, size_t n)
{
	free(p);
	pool_give(r->budget, r->pool, n);
}

/* --- answers --- */
static struct answer *answer_new(struct resolver *r, uint64_t expires_ms)
{
	struct answer *a = booked_new(r, sizeof(*a));

	if (!a)
		return NULL;
	a->budget = r->budget;
	a->pool = (uint8_t)r->pool;
	a->refs = 1;
	a->expires_ms = expires_ms;
	return a;
}

void answer_ref(struct answer *a)
{
	must(a->refs > 0);
	a->refs++;
}

void answer_drop(struct answer **ap)
{
	struct answer *a = *ap;

	*ap = NULL;
	if (!a)
		return;
	must(a->refs > 0);
	if (--a->refs > 0)
		return;
	pool_give(a->budget, a->pool, sizeof(*a));
	free(a);
}

/* --- the cache --- */
static bool same_name(const struct map_node *node, const void *key, uint32_t n)
{
	const struct name *m = container_of(node, const struct name, node);

	return m->n == n && !memcmp(m->text, key, n);
}

static void name_free(struct name *m)
{
	struct resolver *r = m->resolver;

	must(m->magic == NAME_MAGIC && !m->flight);
	map_remove(&r->names, &m->node);
	list_remove(&m->lru);
	answer_drop(&m->good);
	m->magic = 0;
	booked_free(r, m, sizeof(*m));
}

/* The oldest rows go, but for those that are being asked, until `names` are left or `bytes` were
 * given back. */
static void evict(struct resolver *r, uint32_t names, uint64_t bytes)
{
	struct list *at = r->lru.prev;
	uint64_t given = 0;

	while (r->names.n > names && given < bytes && at != &r->lru) {
		struct name *m = container_of(at, struct name, lru);

		at = at->prev;
		if (m->flight || m->pinned)
			continue;
		given += sizeof(*m) + (m->good && m->good->refs == 1 ? sizeof(*m->good) : 0);
		name_free(m);
	}
}

static void give_back(struct reclaim *c, uint64_t want)
{
	evict(container_of(c, struct resolver, reclaim), 0, want);
}

static struct name *name_of(struct resolver *r, struct str text)
{
	struct map_node *node = map_find(&r->names, text.p, text.n);
	struct name *m;

	if (node) {
		m = container_of(node, struct name, node);
		list_remove(&m->lru);
		list_push_head(&r->lru, &m->lru);
		return m;
	}
	m = booked_new(r, sizeof(*m));
	if (!m)
		return NULL;
	m->magic = NAME_MAGIC;
	m->resolver = r;
	m->n = (uint8_t)text.n;
	memcpy(m->text, text.p, text.n);
	if (!map_add(&r->names, &m->node, m->text, m->n)) {
		booked_free(r, m, sizeof(*m));
		return NULL;
	}
	list_push_head(&r->lru, &m->lru);
	evict(r, CACHE_MAX, UINT64_MAX);
	return m;
}

/* --- deciding --- */
static void decide(struct resolve *q, int res, struct answer *a)
{
	struct resolver *r = q->resolver;

	list_remove(&q->node);
	q->res = res;
	q->answer = a;
	if (a)
		answer_ref(a);
	list_push_tail(&r->ready, &q->node);
	loop_soon(r->loop, &r->work);
}

static bool fresh(const struct resolver *r, const struct name *m)
{
	return m->good && loop_now_ms(r->loop) < m->good->expires_ms;
}

/* Whether it may get the last good answer although the last flight ended with res. */
static bool may_have_good(const struct resolve *q, const struct name *m, int res)
{
	const struct resolver *r = q->resolver;

	if (!m->good || (res == -ENOENT && !(q->flags & RESOLVE_SEARCH)))
		return false;
	return loop_now_ms(r->loop) < m->good->expires_ms + r->conf.stale_ms;
}

static void give_good(struct resolve *q, struct name *m)
{
	m->good->stale = !fresh(q->resolver, m);
	count(q->resolver, m->good->stale ? RESOLVE_STALE : RESOLVE_HIT);
	decide(q, 0, m->good);
}

static bool join_flight(struct resolve *q, struct name *m);
static void look(struct resolve *q);

/* What a name that could not be resolved means for a question: the last good answer, the next
 * candidate, or the end. */
static void take_failure(struct resolve *q, struct name *m, int res)
{
	if (may_have_good(q, m, res)) {
		give_good(q, m);
	} else if (res == -ENOENT) {
		q->candidate++;
		look(q);
	} else {
		decide(q, res, NULL);
	}
}

static void look_in_cache(struct resolve *q, struct name *m)
{
	struct resolver *r = q->resolver;
	uint64_t now = loop_now_ms(r->loop);
	bool ask = (q->flags & RESOLVE_FRESH) && (!m->asked || now - m->asked_ms >= FRESH_MS);

	if (!ask && fresh(r, m)) {
		give_good(q, m);
	} else if (!ask && m->bad && now < m->bad_until_ms) {
		if (!may_have_good(q, m, m->bad))
			count(r, RESOLVE_HIT);
		take_failure(q, m, m->bad);
	} else if (m->silent && may_have_good(q, m, -ETIMEDOUT)) {
		give_good(q, m);
	} else if (!join_flight(q, m)) {
		decide(q, -ENOMEM, NULL);
	}
}

static void decide_local(struct resolve *q, const struct addr *addr, uint32_t n)
{
	struct answer *a = answer_new(q->resolver, loop_now_ms(q->resolver->loop) + LOCAL_TTL_MS);

	if (!a) {
		decide(q, -ENOMEM, NULL);
		return;
	}
	memcpy(a->addr, addr, n * sizeof(*addr));
	a->n = n;
	count(q->resolver, RESOLVE_HIT);
	decide(q, 0, a);
	answer_drop(&a);
}

/* Names that are not asked: RFC 6761 §6.3, §6.4, RFC 7686. */
static bool look_special(struct resolve *q, struct str name)
{
	struct addr loopback[2];

	if (qname_ends_in(name, STR("localhost"))) {
		if (!addr_parse_ip(STR("127.0.0.1"), 0, &loopback[0]) ||
		    !addr_parse_ip(STR("::1"), 0, &loopback[1]))
			return false;
		decide_local(q, loopback, 2);
		return true;
	}
	if (!qname_ends_in(name, STR("invalid")) && !qname_ends_in(name, STR("onion")))
		return false;
	decide(q, -ENOENT, NULL);
	return true;
}

static bool look_in_hosts(struct resolve *q, struct str name)
{
	struct resolver *r = q->resolver;
	struct addr addr[RESOLVE_ADDRS];
	uint32_t n;

	if (r->fake)
		return false;
	n = hosts_find(r->hosts, loop_now_ms(r->loop), name, addr, RESOLVE_ADDRS);
	if (n)
		decide_local(q, addr, n);
	return n > 0;
}

static bool candidate(const struct resolve *q, char *text, uint32_t *n)
{
	bool search = q->flags & RESOLVE_SEARCH;

	return qname_candidate(&q->name, search ? &q->resolver->rc : NULL, q->candidate, text, n);
}

/* Goes on with the candidate at hand; ends with the question decided or waiting. */
static void look(struct resolve *q)
{
	struct resolver *r = q->resolver;
	char text[NAME_MAX_LEN + 1];
	struct str name = { text, 0 };
	struct name *m;

	list_remove(&q->node);
	while (candidate(q, text, &name.n) && name.n == 0)
		q->candidate++; /* too long with this suffix */
	if (!candidate(q, text, &name.n)) {
		decide(q, -ENOENT, NULL);
		return;
	}
	if (look_special(q, name) || look_in_hosts(q, name))
		return;
	m = name_of(r, name);
	if (m)
		look_in_cache(q, m);
	else
		decide(q, -ENOMEM, NULL);
}

/* --- servers --- */
static void use_servers(struct resolver *r)
{
	struct dns_conf c = {
		.server = r->servers ? r->servers : r->rc.server,
		.n_servers = r->servers ? r->conf.n_servers : r->rc.n_servers,
		.timeout_ms = r->conf.timeout_ms,
		.attempts = r->conf.attempts,
	};

	r->dns = dns_new(r->loop, &c);
	r->sick = 0;
}

static uint32_t n_servers(const struct resolver *r)
{
	return r->servers ? r->conf.n_servers : r->rc.n_servers;
}

/* The channel's questions may end, but no new one goes to it.  One such channel at a time. */
static void replace_worn(struct resolver *r)
{
	if (r->old && dns_running(r->old) == 0)
		dns_close(&r->old);
	if (!r->worn || r->old)
		return;
	r->worn = false;
	r->old = r->dns;
	r->dns = NULL;
}

static void read_resolvconf(struct resolver *r)
{
	uint32_t n;
	char *text;

	if (!watched_changed(&r->resolv_file, loop_now_ms(r->loop)))
		return;
	text = watched_read(&r->resolv_file, 64 * 1024, &n);
	resolvconf_parse(&r->rc, (struct str){ text ? text : "", text ? n : 0 });
	free(text);
	r->worn = r->worn || !r->servers;
}

/* --- flights --- */
static void land(struct flight *f)
{
	struct resolver *r = f->name->resolver;

	if (f->landed)
		return;
	f->landed = true;
	loop_alarm_off(&f->alarm);
	for (int t = 0; t < TYPES; t++)
		dns_drop(&f->query[t]);
	list_remove(&f->node);
	if (f->running)
		r->n_running--;
	else
		r->n_queued--;
	list_push_tail(&r->landed, &f->node);
	loop_soon(r->loop, &r->work);
}

/* One type has come; lands when both have. */
static void type_in(struct flight *f, int type, const struct dns_reply *reply)
{
	struct loop *loop = f->name->resolver->loop;

	f->reply[type] = *reply;
	f->in[type] = true;
	if (f->in[V4] && f->in[V6])
		land(f);
	else if (reply->n)
		loop_alarm(loop, &f->alarm, GRACE_MS);
}

static void on_v6(void *arg, const struct dns_reply *reply)
{
	type_in(arg, V6, reply);
}

static void on_v4(void *arg, const struct dns_reply *reply)
{
	type_in(arg, V4, reply);
}

static void ask_servers(struct flight *f)
{
	static const struct {
		int family;
		dns_fn *fn;
	} type[TYPES] = { [V6] = { AF_INET6, on_v6 }, [V4] = { AF_INET, on_v4 } };
	struct resolver *r = f->name->resolver;
	struct dns_reply none = { .res = -ENOMEM };

	if (!r->dns)
		use_servers(r);
	for (int t = 0; t < TYPES; t++) {
		struct dns_question q = { f->name->text, type[t].family, type[t].fn, f };

		if (!r->dns || dns_ask(r->dns, &q, &f->query[t]))
			type_in(f, t, &none);
	}
}

static void take_off(struct flight *f)
{
	struct resolver *r = f->name->resolver;

	list_remove(&f->node);
	r->n_queued--;
	r->n_running++;
	f->running = true;
	list_push_tail(&r->running, &f->node);
	f->name->asked = true;
	f->name->asked_ms = loop_now_ms(r->loop);
	if (r->fake)
		r->fake(r->fake_arg, (struct str){ f->name->text, f->name->n });
	else
		ask_servers(f);
}

/* Those that wait get the stale answer if they may have it; the others wait on. */
static void give_stale(struct flight *f)
{
	struct list *node, *next;

	f->name->silent = true;
	list_each_safe(node, next, &f->waiters)
	{
		struct resolve *q = container_of(node, struct resolve, node);

		if (may_have_good(q, f->name, -ETIMEDOUT))
			give_good(q, f->name);
	}
}

static void on_flight_alarm(struct alarm *a)
{
	struct flight *f = container_of(a, struct flight, alarm);
	struct loop *loop = f->name->resolver->loop;
	uint64_t now = loop_now_ms(loop);

	if ((f->in[V4] && f->reply[V4].n) || (f->in[V6] && f->reply[V6].n) ||
	    now >= f->deadline_ms) {
		land(f);
		return;
	}
	give_stale(f);
	loop_alarm(loop, &f->alarm, (uint32_t)(f->deadline_ms - now));
}

static struct flight *flight_new(struct name *m)
{
	struct resolver *r = m->resolver;
	uint64_t patience = (uint64_t)r->conf.timeout_ms * r->conf.attempts * n_servers(r) + 50;
	struct flight *f;

	if (r->n_queued >= QUEUED_MAX)
		return NULL;
	f = booked_new(r, sizeof(*f));
	if (!f)
		return NULL;
	f->name = m;
	list_init(&f->waiters);
	alarm_init(&f->alarm, on_flight_alarm);
	f->deadline_ms = loop_now_ms(r->loop) + patience;
	if (m->good && patience > SILENCE_MS)
		patience = SILENCE_MS;
	loop_alarm(r->loop, &f->alarm, (uint32_t)patience);
	list_push_tail(&r->queued, &f->node);
	r->n_queued++;
	loop_soon(r->loop, &r->work);
	return f;
}

static bool join_flight(struct resolve *q, struct name *m)
{
	bool pinned = m->pinned;

	m->pinned = true; /* memory for the flight is not to be had from its own name */
	if (!m->flight)
		m->flight = flight_new(m);
	m->pinned = pinned;
	if (!m->flight)
		return false;
	list_push_tail(&m->flight->waiters, &q->node);
	return true;
}

/* --- landing --- */
static int flight_res(const struct flight *f)
{
	int res = -ENOENT;

	for (int t = 0; t < TYPES; t++) {
		int part = f->in[t] ? f->reply[t].res : -ETIMEDOUT;

		if (f->in[t] && part == -ENOENT)
			/* NXDOMAIN is about the name, whatever the other type says */
			return -ENOENT;
		if (part)
			res = part;
	}
	return res;
}

/* v6 first; if both do not fit, half of each at least. */
static struct answer *answer_of(struct flight *f)
{
	struct resolver *r = f->name->resolver;
	uint32_t n[TYPES] = { f->in[V6] ? f->reply[V6].n : 0, f->in[V4] ? f->reply[V4].n : 0 };
	uint32_t ttl_s = TTL_MAX_S;
	struct answer *a = answer_new(r, 0);

	if (!a)
		return NULL;
	for (int t = 0; t < TYPES && n[V6] + n[V4] > RESOLVE_ADDRS; t++) {
		uint32_t other = n[!t] < RESOLVE_ADDRS / 2 ? n[!t] : RESOLVE_ADDRS / 2;

		n[t] = n[t] < RESOLVE_ADDRS - other ? n[t] : RESOLVE_ADDRS - other;
	}
	for (int t = 0; t < TYPES; t++) {
		memcpy(a->addr + a->n, f->reply[t].addr, n[t] * sizeof(*a->addr));
		a->n += n[t];
		if (n[t] && f->reply[t].ttl_s < ttl_s)
			ttl_s = f->reply[t].ttl_s;
	}
	if (ttl_s < TTL_MIN_S)
		ttl_s = TTL_MIN_S;
	a->expires_ms = loop_now_ms(r->loop) + ttl_s * 1000ull;
	return a;
}

static void note_health(struct resolver *r, int res)
{
	bool failed = res == -ETIMEDOUT || res == -EIO;

	r->sick = failed ? r->sick + 1 : 0;
	if (r->sick >= SICK_FLIGHTS) {
		r->sick = 0;
		r->worn = true;
	}
}

static enum resolve_count count_of(int res)
{
	switch (res) {
	case 0: return RESOLVE_OK;
	case -ENOENT: return RESOLVE_NXDOMAIN;
	case -ETIMEDOUT: return RESOLVE_TIMEOUT;
	default: return RESOLVE_ERROR;
	}
}

/* Writes the result into the name's row; 0 or -errno. */
static int book(struct flight *f)
{
	struct name *m = f->name;
	struct resolver *r = m->resolver;
	bool any = (f->in[V4] && f->reply[V4].n) || (f->in[V6] && f->reply[V6].n);
	struct answer *a = any ? answer_of(f) : NULL;
	int res = a ? 0 : any ? -ENOMEM : flight_res(f);

	if (a) {
		answer_drop(&m->good);
		m->good = a;
	}
	m->bad = res;
	m->bad_until_ms = loop_now_ms(r->loop) + (res == -ENOMEM ? 0 : r->conf.negative_ttl_ms);
	m->silent = false;
	note_health(r, res);
	count(r, count_of(res));
	return res;
}

static void arrive(struct flight *f)
{
	struct name *m = f->name;
	int res = book(f);
	struct list waiters;

	list_init(&waiters);
	while (!list_empty(&f->waiters))
		list_push_tail(&waiters, list_pop_head(&f->waiters));
	list_remove(&f->node);
	m->flight = NULL;
	booked_free(m->resolver, f, sizeof(*f));
	m->pinned = true;
	while (!list_empty(&waiters)) {
		struct resolve *q = container_of(list_pop_head(&waiters), struct resolve, node);

		if (res)
			take_failure(q, m, res);
		else
			decide(q, 0, m->good);
	}
	m->pinned = false;
}

/* --- the task --- */
static void deliver(struct resolve *q)
{
	resolve_fn *fn = q->fn;
	void *arg = q->arg;
	struct answer *a = q->answer;
	int res = q->res;

	list_remove(&q->node);
	q->magic = 0;
	booked_free(q->resolver, q, sizeof(*q));
	fn(arg, res, a);
	answer_drop(&a);
}

static void deliver_some(struct resolver *r)
{
	for (int i = 0; i < DELIVER_TURN && !list_empty(&r->ready); i++)
		deliver(container_of(r->ready.next, struct resolve, node));
	if (!list_empty(&r->ready))
		loop_soon(r->loop, &r->work);
}

static void work(struct task *t)
{
	struct resolver *r = container_of(t, struct resolver, work);

	must(r->magic == RESOLVER_MAGIC);
	while (!list_empty(&r->landed))
		arrive(container_of(r->landed.next, struct flight, node));
	replace_worn(r);
	while (!list_empty(&r->queued) && r->n_running < RUNNING_MAX)
		take_off(container_of(r->queued.next, struct flight, node));
	deliver_some(r);
}

/* --- asking --- */
struct resolve *resolve_name(struct resolver *r, struct str name, unsigned flags, resolve_fn *fn,
			     void *arg)
{
	struct resolve *q;

	must(r->magic == RESOLVER_MAGIC);
	q = r->closing ? NULL : booked_new(r, sizeof(*q));
	if (!q)
		return NULL;
	q->magic = RESOLVE_MAGIC;
	q->resolver = r;
	q->flags = flags;
	q->fn = fn;
	q->arg = arg;
	list_init(&q->node);
	if (!r->fake)
		read_resolvconf(r);
	if (qname_take(&q->name, name))
		look(q);
	else
		decide(q, -ENOENT, NULL);
	return q;
}

void resolve_cancel(struct resolve **qp)
{
	struct resolve *q = *qp;

	*qp = NULL;
	if (!q)
		return;
	must(q->magic == RESOLVE_MAGIC);
	list_remove(&q->node);
	answer_drop(&q->answer);
	q->magic = 0;
	booked_free(q->resolver, q, sizeof(*q));
}

/* --- fakes --- */
void resolver_fake(struct resolver *r, void (*ask)(void *arg, struct str name), void *arg)
{
	r->fake = ask;
	r->fake_arg = arg;
}

void resolver_fake_answer(struct resolver *r, struct str name, int res, const struct addr *addr,
			  uint32_t n, uint32_t ttl_s)
{
	struct map_node *node = map_find(&r->names, name.p, name.n);
	struct name *m = node ? container_of(node, struct name, node) : NULL;
	struct flight *f = m ? m->flight : NULL;
	struct dns_reply none = { .res = res };

	if (!f || f->landed || !f->running)
		return;
	must(n <= RESOLVE_ADDRS);
	f->reply[V4].res = res;
	f->reply[V4].n = n;
	f->reply[V4].ttl_s = ttl_s;
	if (n)
		memcpy(f->reply[V4].addr, addr, n * sizeof(*addr));
	f->in[V4] = true;
	type_in(f, V6, &none);
}

/* --- life --- */
static void take_conf(struct resolver *r, const struct resolver_conf *conf)
{
	r->conf = *conf;
	r->conf.servers = NULL;
	if (!r->conf.timeout_ms)
		r->conf.timeout_ms = DNS_TIMEOUT_MS;
	if (!r->conf.attempts)
		r->conf.attempts = DNS_ATTEMPTS;
	if (!r->conf.hosts_path)
		r->conf.hosts_path = "/etc/hosts";
	if (!r->conf.resolv_path)
		r->conf.resolv_path = "/etc/resolv.conf";
	r->resolv_file.path = r->conf.resolv_path;
}

static void init_lists(struct resolver *r)
{
	list_init(&r->lru);
	list_init(&r->queued);
	list_init(&r->running);
	list_init(&r->landed);
	list_init(&r->ready);
}

struct resolver *resolver_new(struct loop *loop, const struct resolver_conf *conf, uint64_t *cells,
			      const uint32_t *dns_slots)
{
	struct resolver *r = calloc(1, sizeof(*r));
	uint64_t key[2];

	if (!r)
		return NULL;
	r->magic = RESOLVER_MAGIC;
	r->loop = loop;
	r->budget = loop_budget(loop);
	r->pool = budget_pool(r->budget, "resolver");
	r->reclaim.give = give_back;
	take_conf(r, conf);
	r->cells = cells;
	r->counted = cells && dns_slots;
	if (r->counted)
		memcpy(r->slots, dns_slots, sizeof(r->slots));
	init_lists(r);
	task_init(&r->work, work);
	resolvconf_parse(&r->rc, STR(""));
	loop_random(loop, key, sizeof(key));
	if (!map_init(&r->names, key, same_name))
		goto fail_map;
	r->hosts = hosts_new(r->conf.hosts_path, key);
	if (!r->hosts)
		goto fail_hosts;
	if (conf->n_servers) {
		r->servers = calloc(conf->n_servers, sizeof(*r->servers));
		if (!r->servers)
			goto fail_servers;
		memcpy(r->servers, conf->servers, conf->n_servers * sizeof(*r->servers));
	}
	budget_reclaim(r->budget, &r->reclaim);
	return r;

fail_servers:
	hosts_free(&r->hosts);
fail_hosts:
	map_close(&r->names);
fail_map:
	free(r);
	return NULL;
}

/* Every flight ends; its questions become ready, with -ECANCELED. */
static void cancel_flight(struct flight *f)
{
	loop_alarm_off(&f->alarm);
	for (int t = 0; t < TYPES; t++)
		dns_drop(&f->query[t]);
	while (!list_empty(&f->waiters))
		decide(container_of(f->waiters.next, struct resolve, node), -ECANCELED, NULL);
	list_remove(&f->node);
	f->name->flight = NULL;
	booked_free(f->name->resolver, f, sizeof(*f));
}

static void free_name(struct map_node *node, void *arg)
{
	(void)arg;
	name_free(container_of(node, struct name, node));
}

void resolver_free(struct resolver **rp)
{
	struct resolver *r = *rp;

	*rp = NULL;
	if (!r)
		return;
	must(r->magic == RESOLVER_MAGIC && !r->closing);
	r->closing = true;
	budget_reclaim_off(r->budget, &r->reclaim);
	while (!list_empty(&r->queued))
		cancel_flight(container_of(r->queued.next, struct flight, node));
	while (!list_empty(&r->running))
		cancel_flight(container_of(r->running.next, struct flight, node));
	while (!list_empty(&r->landed))
		cancel_flight(container_of(r->landed.next, struct flight, node));
	while (!list_empty(&r->ready)) {
		struct resolve *q = container_of(r->ready.next, struct resolve, node);

		q->res = -ECANCELED;
		answer_drop(&q->answer);
		deliver(q);
	}
	loop_task_off(r->loop, &r->work);
	dns_close(&r->dns);
	dns_close(&r->old);
	map_each(&r->names, free_name, NULL);
	map_close(&r->names);
	hosts_free(&r->hosts);
	free(r->servers);
	r->magic = 0;
	free(r);
}
