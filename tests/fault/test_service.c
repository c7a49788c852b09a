/* Every op of the loop fails, comes late or sends short, at each place of each scenario, on both
 * back ends; then two such faults in one run, a sample of the pairs (CULVERT_SEED chooses it).
 *
 * For each (scenario, kind of op, error) the n-th op of that kind is struck, n = 1, 2, … until a
 * run has met no fault.  Always must hold: it ends in bounded time, the client sees a status that
 * fits or the end, the next request on a new connection works, everything is given back. */
#include "rig.h"

#include <errno.h>
#include <stdlib.h>

#define N_MAX 60u

static const struct fault {
	uint8_t kind;
	int32_t res;
	uint32_t send_max, delay, times;
	const char *name, *only; /* the one scenario that it is for: it takes long */
} faults[] = {
	{ .kind = OP_ACCEPT, .res = -EMFILE, .name = "accept: no descriptor" },
	{ .kind = OP_ACCEPT, .res = -ENOBUFS, .name = "accept: no buffers", .only = "GET" },
	{ .kind = OP_ACCEPT, .res = -ECONNABORTED, .name = "accept: gone already" },
	{ .kind = OP_ACCEPT, .delay = 3, .name = "accept: late" },
	{ .kind = OP_CONNECT, .res = -ECONNREFUSED, .name = "connect: refused" },
	{ .kind = OP_CONNECT, .res = -ETIMEDOUT, .name = "connect: timeout" },
	{ .kind = OP_CONNECT, .res = -EADDRNOTAVAIL, .name = "connect: no port" },
	{ .kind = OP_CONNECT, .res = -ECANCELED, .name = "connect: cancelled" },
	{ .kind = OP_CONNECT, .res = -ECONNREFUSED, .times = 8, .name = "connect: all refused" },
	{ .kind = OP_CONNECT, .delay = 3, .name = "connect: late" },
	{ .kind = OP_RECV, .res = -ECONNRESET, .name = "recv: reset" },
	{ .kind = OP_RECV, .res = -ETIMEDOUT, .name = "recv: timeout" },
	{ .kind = OP_RECV, .res = -ENOBUFS, .name = "recv: no buffers" },
	{ .kind = OP_RECV, .res = -ENOBUFS, .times = 3, .name = "recv: no buffers, thrice" },
	{ .kind = OP_RECV, .res = -ENOMEM, .name = "recv: no memory" },
	{ .kind = OP_RECV, .res = -ECANCELED, .name = "recv: cancelled" },
	{ .kind = OP_RECV, .delay = 3, .name = "recv: late" },
	{ .kind = OP_SEND, .res = -EPIPE, .name = "send: broken pipe" },
	{ .kind = OP_SEND, .res = -ECONNRESET, .name = "send: reset" },
	{ .kind = OP_SEND, .res = -ENOBUFS, .name = "send: no buffers", .only = "GET" },
	{ .kind = OP_SEND, .res = -ECANCELED, .name = "send: cancelled" },
	{ .kind = OP_SEND, .send_max = 7, .name = "send: short" },
	{ .kind = OP_SEND, .send_max = 1, .times = 16, .name = "send: byte by byte" },
	{ .kind = OP_SEND, .delay = 3, .name = "send: late" },
	{ .kind = OP_POLL, .res = -ENOMEM, .name = "poll: no memory" },
	{ .kind = OP_POLL, .res = -ECANCELED, .name = "poll: cancelled" },
	{ .kind = OP_POLL, .delay = 3, .name = "poll: late" },
	{ .kind = FAULT_SOCKET, .res = -EMFILE, .name = "socket: no descriptor" },
	{ .kind = FAULT_SOCKET, .res = -ENOBUFS, .name = "socket: no buffers" },
	{ .kind = FAULT_SOCKET, .res = -EMFILE, .times = 8, .name = "socket: never again" },
};

/* Late and short is no fault at all; what is lacking is asked for again; a server that cannot be
 * reached is left for the other one. */
static bool harmless(const struct scenario *s, const struct fault *f)
{
	bool server = f->res == -ECONNREFUSED || f->res == -ETIMEDOUT;
	bool lacks = f->res == -ENOBUFS || f->res == -ENOMEM || f->res == -ECANCELED;

	switch (f->kind) {
	case OP_ACCEPT:
	case OP_POLL: return true;
	case OP_CONNECT: return f->res == 0 || (server && s->door != RIG_FWD && !f->times);
	case OP_RECV: return f->res == 0 || lacks;
	case OP_SEND: return f->res == 0 || f->res == -ECANCELED;
	default: return false;
	}
}

/* 0: the client saw the end. */
static bool fits(const struct scenario *s, unsigned status)
{
	return status == 0 || status == s->good || (status >= 500 && status <= 504);
}

static void judge(const struct scenario *s, const struct fault *f, const struct outcome *o)
{
	if (!fits(s, o->status))
		print_error("status %u\n", o->status);
	rig_must(fits(s, o->status));
	if (f && harmless(s, f))
		rig_must(o->complete && o->status == s->good);
}

/* The fault is over: the next one is served. */
static void again(struct rig *r, const struct scenario *s)
{
	struct outcome o;

	r->plan.n_rules = 0;
	o = rig_exchange(r, s);
	if (o.status != s->good)
		print_error("then %u: %s\n", o.status, r->got);
	rig_must(o.status == s->good && o.complete);
}

/* As on kernels without multishot, or without a limit for it. */
static bool plain_kernel;

struct pick {
	const struct fault *f;
	unsigned nth;
};

static struct fault_rule rule_of(const struct pick *p)
{
	return (struct fault_rule){ .kind = p->f->kind,
				    .nth = p->nth,
				    .times = p->f->times,
				    .res = p->f->res,
				    .delay = p->f->delay,
				    .send_max = p->f->send_max };
}

/* One fault or two; how often they were met. */
static unsigned run(enum loop_io io, const struct scenario *s, const struct pick *p, unsigned n)
{
	static struct rig r;
	unsigned before = rig_fds(), hits;
	struct outcome o;

	memset(&r, 0, sizeof(r));
	rig_context("%s, %s, the %u.%s%s%s", s->name, p->f->name, p->nth, n > 1 ? ", and " : "",
		    n > 1 ? p[1].f->name : "", plain_kernel ? ", single shot" : "");
	r.plan.single_shot = r.plan.no_limit = plain_kernel;
	r.plan.n_rules = n;
	for (unsigned i = 0; i < n; i++)
		r.plan.rules[i] = rule_of(&p[i]);
	rig_must(rig_open(&r, io, 64 << 20, s));
	o = rig_exchange(&r, s);
	hits = rig_hits(&r);
	judge(s, n == 1 ? p->f : NULL, &o);
	rig_must(hits || (o.status == s->good && o.complete && o.handed == s->handed));
	if (hits && !s->drain)
		again(&r, s);
	rig_close(&r);
	rig_must(rig_fds() == before);
	return hits;
}

static bool worth_it(const struct fault *f, const struct scenario *s)
{
	return !f->only || (strcmp(f->only, s->name) == 0 && !plain_kernel);
}

static void sweep(enum loop_io io, const struct scenario *s)
{
	for (unsigned f = 0; f < ARRAY_LEN(faults); f++) {
		struct pick p = { &faults[f], 1 };

		if (!worth_it(&faults[f], s))
			continue;
		while (p.nth < N_MAX && run(io, s, &p, 1))
			p.nth++;
		rig_must(p.nth < N_MAX);
	}
}

static void sweep_all(enum loop_io io, bool plain)
{
	char text[128];

	if (io == LOOP_URING && loop_probe_uring(text) < 0)
		skip();
	plain_kernel = plain;
	for (unsigned i = 0; i < rig_n_scenarios; i++)
		sweep(io, &rig_scenarios[i]);
}

static void test_epoll(void **state)
{
	(void)state;
	sweep_all(LOOP_EPOLL, false);
}

static void test_uring(void **state)
{
	(void)state;
	sweep_all(LOOP_URING, false);
}

static void test_epoll_single_shot(void **state)
{
	(void)state;
	sweep_all(LOOP_EPOLL, true);
}

static void test_uring_single_shot(void **state)
{
	(void)state;
	sweep_all(LOOP_URING, true);
}

/* ---------------------------------------------------------------- two faults in one run */
#define PAIRS   1500u
#define NTH_MAX 10u /* early ones are met more often */

static uint64_t random_state;

static unsigned below(unsigned n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)((random_state >> 33) % n);
}

static struct pick any_pick(void)
{
	struct pick p = { &faults[below(ARRAY_LEN(faults))], 1 + below(1 + below(NTH_MAX)) };

	return p.f->only ? any_pick() : p;
}

/* Sampled: all pairs of places would take hours. */
static void test_pairs(void **state)
{
	const char *text = getenv("CULVERT_SEED");
	char why[128];
	bool uring = loop_probe_uring(why) == 0;
	unsigned both = 0;

	(void)state;
	random_state = text ? strtoull(text, NULL, 0) : 20260101;
	print_message("# CULVERT_SEED=%llu\n", (unsigned long long)random_state);
	for (unsigned i = 0; i < PAIRS; i++) {
		const struct scenario *s = &rig_scenarios[below(rig_n_scenarios)];
		struct pick p[2] = { any_pick(), any_pick() };
		enum loop_io io = uring && below(2) ? LOOP_URING : LOOP_EPOLL;

		plain_kernel = below(2);
		both += run(io, s, p, 2) > 1;
	}
	print_message("# %u of %u runs met two faults or more\n", both, PAIRS);
	assert_true(both > PAIRS / 10);
}

static const struct fault *fault_named(const char *name)
{
	for (unsigned i = 0; i < ARRAY_LEN(faults); i++)
		if (!strcmp(faults[i].name, name))
			return &faults[i];
	fail_msg("no fault %s", name);
	return NULL;
}

/* Pairs that were found wrong: a connection that died while its last answer went out was idle until
 * keep_alive ended. */
static void test_known_pairs(void **state)
{
	static const struct {
		const char *scenario, *first, *second;
	} known[] = {
		{ "two GETs", "socket: no descriptor", "recv: timeout" },
		{ "CONNECT", "socket: never again", "recv: timeout" },
	};

	(void)state;
	plain_kernel = true;
	for (unsigned i = 0; i < ARRAY_LEN(known); i++)
		for (unsigned k = 0; k < rig_n_scenarios; k++)
			for (unsigned nth = 1; nth < 6; nth++) {
				struct pick p[2] = { { fault_named(known[i].first), 1 },
						     { fault_named(known[i].second), nth } };

				if (!strcmp(rig_scenarios[k].name, known[i].scenario))
					run(LOOP_EPOLL, &rig_scenarios[k], p, 2);
			}
}

static void test_log(void **state)
{
	(void)state;
	rig_check_log();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_epoll),
					    cmocka_unit_test(test_uring),
					    cmocka_unit_test(test_epoll_single_shot),
					    cmocka_unit_test(test_uring_single_shot),
					    cmocka_unit_test(test_known_pairs),
					    cmocka_unit_test(test_pairs),
					    cmocka_unit_test(test_log) };

	rig_open_log();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
